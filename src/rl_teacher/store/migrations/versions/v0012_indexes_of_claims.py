"""Change the indexes so that claims stay fast on PostgreSQL while its statistics are old.

It preferred the index on the expiry of leases to their primary key, and then read all leases once
for each open comparison. The index on open comparisons now has the order of the claims, so that
nothing is sorted.
"""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

OPEN_INDEX = "ix_comparisons_open"


def upgrade() -> None:
    """Drop the index of the leases, and create that of the comparisons again."""
    op.drop_index("ix_leases_expires_at", "leases")
    create_open_index(sa.text("asked_at_step DESC"))


def downgrade() -> None:
    """Create the former indexes again."""
    op.create_index("ix_leases_expires_at", "leases", ["expires_at"])
    create_open_index("asked_at_step")


def create_open_index(step: str | sa.TextClause) -> None:
    """Create the index on open comparisons in place of the present one."""
    op.drop_index(OPEN_INDEX, "comparisons")
    op.create_index(
        OPEN_INDEX,
        "comparisons",
        ["experiment_id", step, "id"],
        sqlite_where=sa.text("is_open = 1"),
        postgresql_where=sa.text("is_open"),
    )
