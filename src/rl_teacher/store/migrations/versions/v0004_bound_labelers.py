"""A credential may open one experiment alone; an invite names it, and outlives its deletion."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

FOREIGN_KEY = "fk_invites_experiment_id_experiments"

NAME_THEM = """
UPDATE invites SET experiment =
    (SELECT experiments.name FROM experiments WHERE experiments.id = invites.experiment_id)
"""

FIND_THEM = """
UPDATE invites SET experiment_id =
    (SELECT experiments.id FROM experiments WHERE experiments.name = invites.experiment)
"""


def upgrade() -> None:
    """Whoever has joined already sees what they saw; an invite that is open binds from now on."""
    op.add_column("credentials", sa.Column("experiment", sa.String(255)))
    op.add_column("invites", sa.Column("experiment", sa.String(255)))
    op.execute(NAME_THEM)
    with op.batch_alter_table("invites", table_kwargs={"sqlite_autoincrement": True}) as invites:
        invites.drop_constraint(FOREIGN_KEY, type_="foreignkey")
        invites.drop_column("experiment_id")


def downgrade() -> None:
    """Take it back; a credential that opened one experiment alone would open all, so it goes."""
    op.execute("DELETE FROM credentials WHERE experiment IS NOT NULL")
    op.drop_column("credentials", "experiment")
    with op.batch_alter_table("invites", table_kwargs={"sqlite_autoincrement": True}) as invites:
        invites.add_column(sa.Column("experiment_id", sa.Integer))
        invites.create_foreign_key(
            FOREIGN_KEY, "experiments", ["experiment_id"], ["id"], ondelete="SET NULL"
        )
    op.execute(FIND_THEM)
    op.drop_column("invites", "experiment")
