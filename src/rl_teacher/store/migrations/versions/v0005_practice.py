"""Remember the gold comparisons with which a labeler has practised."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column `practised`."""
    op.add_column("labelers", sa.Column("practised", sa.JSON))


def downgrade() -> None:
    """Drop the column `practised`."""
    op.drop_column("labelers", "practised")
