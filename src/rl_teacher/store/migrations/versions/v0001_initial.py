"""Create the tables."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Create every table, those without foreign keys first.

    Constraints are named by the convention of the models.
    """
    create_clips()
    create_experiments()
    create_labelers()
    create_comparisons()
    create_credentials()
    create_events()
    create_invites()
    create_metrics()
    create_tallies()
    create_labels()
    create_leases()


def downgrade() -> None:
    """Drop every table."""
    for table in (
        *("leases", "labels", "tallies", "metrics", "invites", "events", "credentials"),
        *("comparisons", "labelers", "experiments", "clips"),
    ):
        op.drop_table(table)


def create_clips() -> None:
    """Create the table `clips`."""
    op.create_table(
        "clips",
        sa.Column("content_hash", sa.String(64), primary_key=True),
        sa.Column("env_id", sa.String, nullable=False),
        sa.Column("num_steps", sa.Integer, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("kind", sa.String(16)),
        sa.Column("media_key", sa.String),
        sa.Column("scene_hash", sa.String(64)),
        sa.Column("num_frames", sa.Integer),
        sa.Column("fps", sa.Double),
        sa.Index(None, "env_id", "created_at", "content_hash"),
        sa.Index(None, "env_id", "num_steps"),
    )


def create_experiments() -> None:
    """Create the table `experiments`."""
    op.create_table(
        "experiments",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", sa.String(255), nullable=False, unique=True),
        sa.Column("env_id", sa.String, nullable=False),
        sa.Column("config", sa.JSON, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("instructions", sa.Text, server_default="", nullable=False),
        sa.Column("target_labels", sa.Integer),
        sa.Column("status", sa.JSON),
        sa.Column("status_at", TIME),
        sa.Column("latest_episode", sa.JSON),
        sa.Column("num_asked", sa.Integer, server_default="0", nullable=False),
        sa.Column("num_answered", sa.Integer, server_default="0", nullable=False),
        sa.Column("num_open", sa.Integer, server_default="0", nullable=False),
        sa.Column("assignment", sa.JSON),
        sa.Column("control", sa.JSON),
        sa.Column("diagnostics", sa.JSON),
        sqlite_autoincrement=True,
    )


def create_labelers() -> None:
    """Create the table `labelers`."""
    op.create_table(
        "labelers",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", sa.String, nullable=False, unique=True),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("role", sa.String(16), server_default="labeler", nullable=False),
        sa.Column("excluded_at", TIME),
        sqlite_autoincrement=True,
    )


def create_comparisons() -> None:
    """Create the table `comparisons`."""
    op.create_table(
        "comparisons",
        sa.Column("id", sa.Integer, primary_key=True),
        reference("experiment_id", "experiments.id", "CASCADE"),
        reference("left_hash", "clips.content_hash", type_=sa.String(64), index=True),
        reference("right_hash", "clips.content_hash", type_=sa.String(64), index=True),
        sa.Column("asked_at_step", sa.BigInteger, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("wanted", sa.Integer, server_default="1", nullable=False),
        sa.Column("gold", sa.String(16)),
        sa.Column("num_labels", sa.Integer, server_default="0", nullable=False),
        sa.Column("is_open", sa.Boolean, server_default=sa.false(), nullable=False),
        sa.Column("is_disputed", sa.Boolean, server_default=sa.false(), nullable=False),
        sa.UniqueConstraint("experiment_id", "left_hash", "right_hash"),
        sa.Index(None, "experiment_id", "asked_at_step"),
        sa.Index(None, "experiment_id", "id"),
        sa.Index(None, "experiment_id", "is_disputed", "id"),
        sa.Index(None, "experiment_id", "num_labels", "id"),
        sa.Index(
            "ix_comparisons_gold",
            *("experiment_id", "id"),
            sqlite_where=sa.text("gold IS NOT NULL"),
            postgresql_where=sa.text("gold IS NOT NULL"),
        ),
        sa.Index(
            "ix_comparisons_open",
            *("experiment_id", "asked_at_step", "id"),
            sqlite_where=sa.text("is_open = 1"),
            postgresql_where=sa.text("is_open"),
        ),
        sqlite_autoincrement=True,
    )


def create_credentials() -> None:
    """Create the table `credentials`."""
    op.create_table(
        "credentials",
        sa.Column("id", sa.Integer, primary_key=True),
        reference("labeler_id", "labelers.id", index=True),
        sa.Column("token_hash", sa.String(64), nullable=False, unique=True),
        sa.Column("hint", sa.String(16), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("expires_at", TIME),
        sa.Column("revoked_at", TIME),
        sa.Column("last_used_at", TIME),
        sa.Column("experiment", sa.String(255)),
        sqlite_autoincrement=True,
    )


def create_events() -> None:
    """Create the table `events`."""
    op.create_table(
        "events",
        sa.Column("id", sa.Integer, primary_key=True),
        reference("experiment_id", "experiments.id", "SET NULL", nullable=True, index=True),
        reference("labeler_id", "labelers.id", nullable=True),
        sa.Column("kind", sa.String(64), nullable=False),
        sa.Column("details", sa.JSON, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sqlite_autoincrement=True,
    )


def create_invites() -> None:
    """Create the table `invites`."""
    op.create_table(
        "invites",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("token_hash", sa.String(64), nullable=False, unique=True),
        sa.Column("hint", sa.String(16), nullable=False),
        sa.Column("name", sa.String),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("expires_at", TIME, nullable=False),
        sa.Column("used_at", TIME),
        reference("used_by", "labelers.id", nullable=True),
        sa.Column("revoked_at", TIME),
        sa.Column("experiment", sa.String(255)),
        sqlite_autoincrement=True,
    )


def create_metrics() -> None:
    """Create the table `metrics`."""
    op.create_table(
        "metrics",
        sa.Column("id", sa.Integer, primary_key=True),
        reference("experiment_id", "experiments.id", "CASCADE"),
        sa.Column("step", sa.BigInteger, nullable=False),
        sa.Column("row", sa.JSON, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Index(None, "experiment_id", "id"),
        sa.Index(None, "experiment_id", "step"),
        sqlite_autoincrement=True,
    )


def create_tallies() -> None:
    """Create the table `tallies`."""
    op.create_table(
        "tallies",
        reference("experiment_id", "experiments.id", "CASCADE", primary_key=True),
        reference("labeler_id", "labelers.id", primary_key=True, index=True),
        sa.Column("num_labels", sa.Integer, server_default="0", nullable=False),
        sa.Column("num_given", sa.Integer, server_default="0", nullable=False),
        sa.Column("first_label_id", sa.Integer, nullable=False),
        sa.Column("last_label_id", sa.Integer, nullable=False),
        sa.Column("last_label_at", TIME, nullable=False),
    )


def create_labels() -> None:
    """Create the table `labels`."""
    op.create_table(
        "labels",
        sa.Column("id", sa.Integer, primary_key=True),
        reference("comparison_id", "comparisons.id", "CASCADE"),
        sa.Column("answer", sa.String(16)),
        reference("labeler_id", "labelers.id"),
        sa.Column("request_id", sa.Uuid, nullable=False, unique=True),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("is_swapped", sa.Boolean, server_default=sa.false(), nullable=False),
        sa.Column("response_ms", sa.Integer),
        sa.Column("details", sa.JSON),
        sa.Column("purpose", sa.String(16), server_default="answer", nullable=False),
        sa.Column("lease", sa.String(16), server_default="none", nullable=False),
        sa.CheckConstraint(
            "answer IN ('left', 'right', 'equal', 'cannot_tell')", name="is_one_of_four"
        ),
        sa.Index(None, "labeler_id", "id"),
        sa.Index("ix_labels_newest", "comparison_id", "labeler_id", "purpose", "id", "answer"),
        sqlite_autoincrement=True,
    )


def create_leases() -> None:
    """Create the table `leases`."""
    op.create_table(
        "leases",
        reference("comparison_id", "comparisons.id", "CASCADE", primary_key=True),
        reference("labeler_id", "labelers.id", primary_key=True, index=True),
        sa.Column("purpose", sa.String(16), nullable=False),
        sa.Column("token", sa.Uuid, nullable=False, unique=True),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("expires_at", TIME, nullable=False, index=True),
    )


def reference(
    name: str,
    target: str,
    ondelete: str | None = None,
    *,
    type_: Any = sa.Integer,
    nullable: bool = False,
    **options: Any,
) -> sa.Column[Any]:
    """Return a column with a foreign key."""
    key = sa.ForeignKey(target, ondelete=ondelete)
    return sa.Column(name, type_, key, nullable=nullable, **options)
