"""Create the tables."""

from alembic import op
from sqlalchemy.schema import CreateIndex, CreateTable

from rl_teacher.store.tables import Base

# Versions up to 0013 were never released.
revision = "0014"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create every table.

    Without statistics, SQLite estimates the same cost for indexes with the same leading columns,
    whether they are partial or not, and chooses the one created last; hence the order by name.
    """
    for table in Base.metadata.sorted_tables:
        op.execute(CreateTable(table))
        for index in sorted(table.indexes, key=lambda index: str(index.name)):
            op.execute(CreateIndex(index))


def downgrade() -> None:
    """Drop every table."""
    Base.metadata.drop_all(op.get_bind())
