"""Number the comparisons of each experiment; mark fast labels and archived experiments."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

NUMBER_COMPARISONS = """
UPDATE comparisons SET number = numbered.number
FROM (
    SELECT id, row_number() OVER (PARTITION BY experiment_id ORDER BY id) AS number FROM comparisons
) AS numbered
WHERE numbered.id = comparisons.id
"""

NUMBER_INDEX = "ix_comparisons_experiment_id_number"


def upgrade() -> None:
    """Add the columns; comparisons are numbered in the order in which they were asked."""
    op.add_column(
        "comparisons", sa.Column("number", sa.Integer, server_default="0", nullable=False)
    )
    op.execute(NUMBER_COMPARISONS)
    op.create_index(NUMBER_INDEX, "comparisons", ["experiment_id", "number"], unique=True)
    op.add_column(
        "labels", sa.Column("is_too_fast", sa.Boolean, server_default=sa.false(), nullable=False)
    )
    op.add_column("experiments", sa.Column("archived_at", sa.DateTime(timezone=True)))


def downgrade() -> None:
    """Drop the columns."""
    op.drop_column("experiments", "archived_at")
    op.drop_column("labels", "is_too_fast")
    op.drop_index(NUMBER_INDEX, "comparisons")
    op.drop_column("comparisons", "number")
