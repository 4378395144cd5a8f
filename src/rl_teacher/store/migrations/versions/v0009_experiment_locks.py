"""Lock experiments in the database, for trainers of several homes and machines."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table `experiment_locks`."""
    op.create_table(
        "experiment_locks",
        sa.Column("name", sa.String(255), primary_key=True),
        sa.Column("token", sa.Uuid, nullable=False),
        sa.Column("holder", sa.JSON, nullable=False),
        sa.Column("acquired_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("heartbeat_at", sa.DateTime(timezone=True), nullable=False),
    )


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("experiment_locks")
