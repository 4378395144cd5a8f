"""Create the tables."""

from typing import Any

import sqlalchemy as sa
from alembic import op

# Versions up to 0011 were never released.
revision = "0012"
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
    create_episodes()
    create_experiment_locks()
    create_ended_sessions()


def downgrade() -> None:
    """Drop every table."""
    for table in (
        *("ended_sessions", "experiment_locks", "episodes", "leases", "labels", "tallies"),
        *("metrics", "invites", "events", "credentials", "comparisons", "labelers"),
        *("experiments", "clips"),
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
        sa.Column("first_episode", sa.JSON),
        sa.Column("archived_at", TIME),
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
        sa.Column("practised", sa.JSON),
        sa.Column("appearance", sa.String),
        sa.Index(None, "appearance", unique=True),
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
        sa.Column("number", sa.Integer, server_default="0", nullable=False),
        sa.UniqueConstraint("experiment_id", "left_hash", "right_hash"),
        sa.Index(None, "experiment_id", "id"),
        sa.Index(None, "experiment_id", "is_disputed", "id"),
        sa.Index(None, "experiment_id", "num_labels", "id"),
        sqlite_autoincrement=True,
    )
    # Without statistics, SQLite estimates the same cost for indexes with the same leading columns,
    # whether they are partial or not, and chooses the one created last.
    op.create_index(
        "ix_comparisons_experiment_id_number",
        "comparisons",
        ["experiment_id", "number"],
        unique=True,
    )
    op.create_index(
        "ix_comparisons_gold",
        "comparisons",
        ["experiment_id", "id"],
        sqlite_where=sa.text("gold IS NOT NULL"),
        postgresql_where=sa.text("gold IS NOT NULL"),
    )
    # In the order of the claims, so that nothing is sorted.
    op.create_index(
        "ix_comparisons_open",
        "comparisons",
        ["experiment_id", sa.text("asked_at_step DESC"), "id"],
        sqlite_where=sa.text("is_open = 1"),
        postgresql_where=sa.text("is_open"),
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
        sa.Column("max_uses", sa.Integer, server_default="1", nullable=False),
        sa.Column("num_uses", sa.Integer, server_default="0", nullable=False),
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
        sa.Column("is_too_fast", sa.Boolean, server_default=sa.false(), nullable=False),
        sa.Column("imported", sa.JSON),
        sa.CheckConstraint(
            "answer IN ('left', 'right', 'equal', 'cannot_tell')", name="is_one_of_four"
        ),
        sa.Index(None, "labeler_id", "id"),
        sa.Index("ix_labels_newest", "comparison_id", "labeler_id", "purpose", "id", "answer"),
        sqlite_autoincrement=True,
    )


def create_leases() -> None:
    """Create the table `leases`.

    Without an index on `expires_at`: while its statistics are old, PostgreSQL would prefer that
    index to the primary key, and then read all leases once for each open comparison.
    """
    op.create_table(
        "leases",
        reference("comparison_id", "comparisons.id", "CASCADE", primary_key=True),
        reference("labeler_id", "labelers.id", primary_key=True, index=True),
        sa.Column("purpose", sa.String(16), nullable=False),
        sa.Column("token", sa.Uuid, nullable=False, unique=True),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("expires_at", TIME, nullable=False),
    )


def create_episodes() -> None:
    """Create the table `episodes`."""
    op.create_table(
        "episodes",
        sa.Column("id", sa.Integer, primary_key=True),
        reference("experiment_id", "experiments.id", "CASCADE"),
        sa.Column("step", sa.BigInteger, nullable=False),
        reference("clip_hash", "clips.content_hash", type_=sa.String(64), index=True),
        sa.Column("episode", sa.JSON, nullable=False),
        sa.UniqueConstraint("experiment_id", "step"),
        sqlite_autoincrement=True,
    )


def create_experiment_locks() -> None:
    """Create the table `experiment_locks`."""
    op.create_table(
        "experiment_locks",
        sa.Column("name", sa.String(255), primary_key=True),
        sa.Column("token", sa.Uuid, nullable=False),
        sa.Column("holder", sa.JSON, nullable=False),
        sa.Column("acquired_at", TIME, nullable=False),
        sa.Column("heartbeat_at", TIME, nullable=False),
    )


def create_ended_sessions() -> None:
    """Create the table `ended_sessions`."""
    op.create_table(
        "ended_sessions",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("ended_at", TIME, nullable=False, index=True),
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
