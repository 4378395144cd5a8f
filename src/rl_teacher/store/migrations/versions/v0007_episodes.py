"""Keep episodes of an experiment's earlier agents."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table `episodes`."""
    op.create_table(
        "episodes",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column(
            "experiment_id",
            sa.Integer,
            sa.ForeignKey("experiments.id", ondelete="CASCADE"),
            nullable=False,
        ),
        sa.Column("step", sa.BigInteger, nullable=False),
        sa.Column(
            "clip_hash",
            sa.String(64),
            sa.ForeignKey("clips.content_hash"),
            nullable=False,
            index=True,
        ),
        sa.Column("episode", sa.JSON, nullable=False),
        sa.UniqueConstraint("experiment_id", "step"),
        sqlite_autoincrement=True,
    )


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("episodes")
