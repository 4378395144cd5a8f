"""Refuse names of labelers that look alike in the database.

Names that exist have none to race with: a new name is compared with them before it is inserted.
"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column `appearance`, which is unique."""
    op.add_column("labelers", sa.Column("appearance", sa.String))
    op.create_index("ix_labelers_appearance", "labelers", ["appearance"], unique=True)


def downgrade() -> None:
    """Drop the column."""
    op.drop_index("ix_labelers_appearance", "labelers")
    op.drop_column("labelers", "appearance")
