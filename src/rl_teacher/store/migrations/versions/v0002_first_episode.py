"""Keep the agent's first episode, to compare it with the trained agent."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column `first_episode`."""
    op.add_column("experiments", sa.Column("first_episode", sa.JSON))


def downgrade() -> None:
    """Drop the column `first_episode`."""
    op.drop_column("experiments", "first_episode")
