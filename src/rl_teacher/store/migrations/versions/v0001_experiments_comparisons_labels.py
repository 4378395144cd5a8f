"""Experiments, the clips they ask about, the comparisons asked, the labels given."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# Note: a migration spells everything out. It must still build the same tables when `tables.py`
# has moved on.
MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Build the first version."""
    create_experiments()
    create_clips()
    create_comparisons()
    create_labels()


def downgrade() -> None:
    """Leave an empty database."""
    for table in ("labels", "comparisons", "clips", "experiments"):
        op.drop_table(table)


def create_experiments() -> None:
    """One named teaching effort each."""
    op.create_table(
        "experiments",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("env_id", sa.String, nullable=False),
        sa.Column("config", sa.JSON, nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_experiments"),
        sa.UniqueConstraint("name", name="uq_experiments_name"),
        sqlite_autoincrement=True,
    )


def create_clips() -> None:
    """Segments that were asked about."""
    op.create_table(
        "clips",
        sa.Column("content_hash", sa.String(64), nullable=False),
        sa.Column("env_id", sa.String, nullable=False),
        sa.Column("num_steps", sa.Integer, nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("content_hash", name="pk_clips"),
    )


def create_comparisons() -> None:
    """Questions."""
    op.create_table(
        "comparisons",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("experiment_id", sa.Integer, nullable=False),
        sa.Column("left_hash", sa.String(64), nullable=False),
        sa.Column("right_hash", sa.String(64), nullable=False),
        sa.Column("asked_at_step", sa.BigInteger, nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_comparisons"),
        sa.ForeignKeyConstraint(
            ["experiment_id"],
            ["experiments.id"],
            name="fk_comparisons_experiment_id_experiments",
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["left_hash"], ["clips.content_hash"], name="fk_comparisons_left_hash_clips"
        ),
        sa.ForeignKeyConstraint(
            ["right_hash"], ["clips.content_hash"], name="fk_comparisons_right_hash_clips"
        ),
        sa.UniqueConstraint(
            "experiment_id",
            "left_hash",
            "right_hash",
            name="uq_comparisons_experiment_id_left_hash_right_hash",
        ),
        sqlite_autoincrement=True,
    )


def create_labels() -> None:
    """Answers, one row each, never changed."""
    op.create_table(
        "labels",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("comparison_id", sa.Integer, nullable=False),
        sa.Column("answer", sa.String(16), nullable=False),
        sa.Column("labeler", sa.String, nullable=False),
        sa.Column("request_id", sa.Uuid, nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_labels"),
        sa.ForeignKeyConstraint(
            ["comparison_id"],
            ["comparisons.id"],
            name="fk_labels_comparison_id_comparisons",
            ondelete="CASCADE",
        ),
        sa.UniqueConstraint("request_id", name="uq_labels_request_id"),
        sa.CheckConstraint(
            "answer IN ('left', 'right', 'equal', 'cannot_tell')", name="is_one_of_four"
        ),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_labels_comparison_id", "labels", ["comparison_id"])
