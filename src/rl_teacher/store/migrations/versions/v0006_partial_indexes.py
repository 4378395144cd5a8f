"""Make SQLite choose the partial indexes on comparisons.

Without statistics, SQLite estimates the same cost for indexes with the same leading columns,
whether they are partial or not, and chooses the one created last.
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

STEP_INDEX = "ix_comparisons_experiment_id_asked_at_step"
PARTIAL_INDEXES = (
    ("ix_comparisons_open", ("experiment_id", "asked_at_step", "id"), "is_open = 1", "is_open"),
    ("ix_comparisons_gold", ("experiment_id", "id"), *2 * ("gold IS NOT NULL",)),
)


def upgrade() -> None:
    """Create the partial indexes again, after all others, and drop one that no query needs."""
    op.drop_index(STEP_INDEX, "comparisons")
    for name, columns, sqlite_where, postgresql_where in PARTIAL_INDEXES:
        op.drop_index(name, "comparisons")
        op.create_index(
            name,
            "comparisons",
            list(columns),
            sqlite_where=sa.text(sqlite_where),
            postgresql_where=sa.text(postgresql_where),
        )


def downgrade() -> None:
    """Create the dropped index again."""
    op.create_index(STEP_INDEX, "comparisons", ["experiment_id", "asked_at_step"])
