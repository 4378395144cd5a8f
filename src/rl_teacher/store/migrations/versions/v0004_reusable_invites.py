"""Let an invite admit several people."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the number of uses; an invite that was used has had its only one."""
    op.add_column("invites", sa.Column("max_uses", sa.Integer, nullable=False, server_default="1"))
    op.add_column("invites", sa.Column("num_uses", sa.Integer, nullable=False, server_default="0"))
    op.execute("UPDATE invites SET num_uses = 1 WHERE used_at IS NOT NULL")


def downgrade() -> None:
    """Remove the number of uses."""
    op.drop_column("invites", "num_uses")
    op.drop_column("invites", "max_uses")
