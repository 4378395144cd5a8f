"""Create the tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Create every table, those without foreign keys first."""
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
        "leases",
        "labels",
        "tallies",
        "metrics",
        "invites",
        "events",
        "credentials",
        "comparisons",
        "labelers",
        "experiments",
        "clips",
    ):
        op.drop_table(table)


def create_clips() -> None:
    """Create the table `clips` and its indexes."""
    op.create_table(
        "clips",
        sa.Column("content_hash", sa.String(64), nullable=False),
        sa.Column("env_id", sa.String, nullable=False),
        sa.Column("num_steps", sa.Integer, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("kind", sa.String(16)),
        sa.Column("media_key", sa.String),
        sa.Column("scene_hash", sa.String(64)),
        sa.Column("num_frames", sa.Integer),
        sa.Column("fps", sa.Double),
        sa.PrimaryKeyConstraint("content_hash", name="pk_clips"),
    )
    op.create_index(
        "ix_clips_env_id_created_at_content_hash", "clips", ["env_id", "created_at", "content_hash"]
    )
    op.create_index("ix_clips_env_id_num_steps", "clips", ["env_id", "num_steps"])


def create_experiments() -> None:
    """Create the table `experiments` and its indexes."""
    op.create_table(
        "experiments",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
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
        sa.PrimaryKeyConstraint("id", name="pk_experiments"),
        sa.UniqueConstraint("name", name="uq_experiments_name"),
        sqlite_autoincrement=True,
    )


def create_labelers() -> None:
    """Create the table `labelers` and its indexes."""
    op.create_table(
        "labelers",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("name", sa.String, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("role", sa.String(16), server_default="labeler", nullable=False),
        sa.Column("excluded_at", TIME),
        sa.PrimaryKeyConstraint("id", name="pk_labelers"),
        sa.UniqueConstraint("name", name="uq_labelers_name"),
        sqlite_autoincrement=True,
    )


def create_comparisons() -> None:
    """Create the table `comparisons` and its indexes."""
    op.create_table(
        "comparisons",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("experiment_id", sa.Integer, nullable=False),
        sa.Column("left_hash", sa.String(64), nullable=False),
        sa.Column("right_hash", sa.String(64), nullable=False),
        sa.Column("asked_at_step", sa.BigInteger, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("wanted", sa.Integer, server_default="1", nullable=False),
        sa.Column("gold", sa.String(16)),
        sa.Column("num_labels", sa.Integer, server_default="0", nullable=False),
        sa.Column("is_open", sa.Boolean, server_default=sa.false(), nullable=False),
        sa.Column("is_disputed", sa.Boolean, server_default=sa.false(), nullable=False),
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
        sa.PrimaryKeyConstraint("id", name="pk_comparisons"),
        sa.UniqueConstraint(
            "experiment_id",
            "left_hash",
            "right_hash",
            name="uq_comparisons_experiment_id_left_hash_right_hash",
        ),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "ix_comparisons_experiment_id_asked_at_step",
        "comparisons",
        ["experiment_id", "asked_at_step"],
    )
    op.create_index("ix_comparisons_experiment_id_id", "comparisons", ["experiment_id", "id"])
    op.create_index(
        "ix_comparisons_experiment_id_is_disputed_id",
        "comparisons",
        ["experiment_id", "is_disputed", "id"],
    )
    op.create_index(
        "ix_comparisons_experiment_id_num_labels_id",
        "comparisons",
        ["experiment_id", "num_labels", "id"],
    )
    op.create_index(
        "ix_comparisons_gold",
        "comparisons",
        ["experiment_id", "id"],
        sqlite_where=sa.text("gold IS NOT NULL"),
        postgresql_where=sa.text("gold IS NOT NULL"),
    )
    op.create_index("ix_comparisons_left_hash", "comparisons", ["left_hash"])
    op.create_index(
        "ix_comparisons_open",
        "comparisons",
        ["experiment_id", "asked_at_step", "id"],
        sqlite_where=sa.text("is_open = 1"),
        postgresql_where=sa.text("is_open"),
    )
    op.create_index("ix_comparisons_right_hash", "comparisons", ["right_hash"])


def create_credentials() -> None:
    """Create the table `credentials` and its indexes."""
    op.create_table(
        "credentials",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("labeler_id", sa.Integer, nullable=False),
        sa.Column("token_hash", sa.String(64), nullable=False),
        sa.Column("hint", sa.String(16), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("expires_at", TIME),
        sa.Column("revoked_at", TIME),
        sa.Column("last_used_at", TIME),
        sa.Column("experiment", sa.String(255)),
        sa.ForeignKeyConstraint(
            ["labeler_id"], ["labelers.id"], name="fk_credentials_labeler_id_labelers"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_credentials"),
        sa.UniqueConstraint("token_hash", name="uq_credentials_token_hash"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_credentials_labeler_id", "credentials", ["labeler_id"])


def create_events() -> None:
    """Create the table `events` and its indexes."""
    op.create_table(
        "events",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("experiment_id", sa.Integer),
        sa.Column("labeler_id", sa.Integer),
        sa.Column("kind", sa.String(64), nullable=False),
        sa.Column("details", sa.JSON, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.ForeignKeyConstraint(
            ["experiment_id"],
            ["experiments.id"],
            name="fk_events_experiment_id_experiments",
            ondelete="SET NULL",
        ),
        sa.ForeignKeyConstraint(
            ["labeler_id"], ["labelers.id"], name="fk_events_labeler_id_labelers"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_events"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_events_experiment_id", "events", ["experiment_id"])


def create_invites() -> None:
    """Create the table `invites` and its indexes."""
    op.create_table(
        "invites",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("token_hash", sa.String(64), nullable=False),
        sa.Column("hint", sa.String(16), nullable=False),
        sa.Column("name", sa.String),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("expires_at", TIME, nullable=False),
        sa.Column("used_at", TIME),
        sa.Column("used_by", sa.Integer),
        sa.Column("revoked_at", TIME),
        sa.Column("experiment", sa.String(255)),
        sa.ForeignKeyConstraint(["used_by"], ["labelers.id"], name="fk_invites_used_by_labelers"),
        sa.PrimaryKeyConstraint("id", name="pk_invites"),
        sa.UniqueConstraint("token_hash", name="uq_invites_token_hash"),
        sqlite_autoincrement=True,
    )


def create_metrics() -> None:
    """Create the table `metrics` and its indexes."""
    op.create_table(
        "metrics",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("experiment_id", sa.Integer, nullable=False),
        sa.Column("step", sa.BigInteger, nullable=False),
        sa.Column("row", sa.JSON, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.ForeignKeyConstraint(
            ["experiment_id"],
            ["experiments.id"],
            name="fk_metrics_experiment_id_experiments",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name="pk_metrics"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_metrics_experiment_id_id", "metrics", ["experiment_id", "id"])
    op.create_index("ix_metrics_experiment_id_step", "metrics", ["experiment_id", "step"])


def create_tallies() -> None:
    """Create the table `tallies` and its indexes."""
    op.create_table(
        "tallies",
        sa.Column("experiment_id", sa.Integer, nullable=False),
        sa.Column("labeler_id", sa.Integer, nullable=False),
        sa.Column("num_labels", sa.Integer, server_default="0", nullable=False),
        sa.Column("num_given", sa.Integer, server_default="0", nullable=False),
        sa.Column("first_label_id", sa.Integer, nullable=False),
        sa.Column("last_label_id", sa.Integer, nullable=False),
        sa.Column("last_label_at", TIME, nullable=False),
        sa.ForeignKeyConstraint(
            ["experiment_id"],
            ["experiments.id"],
            name="fk_tallies_experiment_id_experiments",
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["labeler_id"], ["labelers.id"], name="fk_tallies_labeler_id_labelers"
        ),
        sa.PrimaryKeyConstraint("experiment_id", "labeler_id", name="pk_tallies"),
    )
    op.create_index("ix_tallies_labeler_id", "tallies", ["labeler_id"])


def create_labels() -> None:
    """Create the table `labels` and its indexes."""
    op.create_table(
        "labels",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("comparison_id", sa.Integer, nullable=False),
        sa.Column("answer", sa.String(16)),
        sa.Column("labeler_id", sa.Integer, nullable=False),
        sa.Column("request_id", sa.Uuid, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("is_swapped", sa.Boolean, server_default=sa.false(), nullable=False),
        sa.Column("response_ms", sa.Integer),
        sa.Column("details", sa.JSON),
        sa.Column("purpose", sa.String(16), server_default="answer", nullable=False),
        sa.Column("lease", sa.String(16), server_default="none", nullable=False),
        sa.CheckConstraint(
            "answer IN ('left', 'right', 'equal', 'cannot_tell')",
            name=op.f("ck_labels_is_one_of_four"),
        ),
        sa.ForeignKeyConstraint(
            ["comparison_id"],
            ["comparisons.id"],
            name="fk_labels_comparison_id_comparisons",
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["labeler_id"], ["labelers.id"], name="fk_labels_labeler_id_labelers"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_labels"),
        sa.UniqueConstraint("request_id", name="uq_labels_request_id"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_labels_labeler_id_id", "labels", ["labeler_id", "id"])
    op.create_index(
        "ix_labels_newest", "labels", ["comparison_id", "labeler_id", "purpose", "id", "answer"]
    )


def create_leases() -> None:
    """Create the table `leases` and its indexes."""
    op.create_table(
        "leases",
        sa.Column("comparison_id", sa.Integer, nullable=False),
        sa.Column("labeler_id", sa.Integer, nullable=False),
        sa.Column("purpose", sa.String(16), nullable=False),
        sa.Column("token", sa.Uuid, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("expires_at", TIME, nullable=False),
        sa.ForeignKeyConstraint(
            ["comparison_id"],
            ["comparisons.id"],
            name="fk_leases_comparison_id_comparisons",
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["labeler_id"], ["labelers.id"], name="fk_leases_labeler_id_labelers"
        ),
        sa.PrimaryKeyConstraint("comparison_id", "labeler_id", name="pk_leases"),
        sa.UniqueConstraint("token", name="uq_leases_token"),
    )
    op.create_index("ix_leases_expires_at", "leases", ["expires_at"])
    op.create_index("ix_leases_labeler_id", "leases", ["labeler_id"])
