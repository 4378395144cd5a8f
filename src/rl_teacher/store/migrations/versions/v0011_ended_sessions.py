"""Remember the sessions of browsers that were ended by signing out."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table `ended_sessions`."""
    op.create_table(
        "ended_sessions",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=False, index=True),
    )


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("ended_sessions")
