"""What a labelling page needs: clips that can be shown, labelers, undo, status, figures, events."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Add what is new; every row stays.

    Note: experiments, clips and comparisons are altered in place. SQLite's other way, a new table
    in the place of the old one, would drop a table that others refer to, and take their rows along.
    """
    add_columns("experiments", experiment_columns())
    add_columns("clips", clip_columns())
    op.create_index("ix_clips_env_id_num_steps", "clips", ["env_id", "num_steps"])
    op.create_index(
        "ix_comparisons_experiment_id_asked_at_step",
        "comparisons",
        ["experiment_id", "asked_at_step"],
    )
    create_labelers()
    refer_to_labelers()
    create_events()
    create_metrics()


def downgrade() -> None:
    """Take it back; what a label that was taken back said is forgotten, as it has to be."""
    op.drop_table("metrics")
    op.drop_table("events")
    name_labelers()
    op.drop_table("labelers")
    op.drop_index("ix_comparisons_experiment_id_asked_at_step", "comparisons")
    op.drop_index("ix_clips_env_id_num_steps", "clips")
    drop_columns("clips", clip_columns())
    drop_columns("experiments", experiment_columns())


def experiment_columns() -> list[sa.Column]:
    """What is said to whoever labels, and what the trainer says of itself."""
    return [
        sa.Column("instructions", sa.Text, nullable=False, server_default=""),
        sa.Column("target_labels", sa.Integer),
        sa.Column("status", sa.JSON),
        sa.Column("status_at", MOMENT),
        sa.Column("latest_episode", sa.JSON),
    ]


def clip_columns() -> list[sa.Column]:
    """How a clip is shown."""
    return [
        sa.Column("kind", sa.String(16)),
        sa.Column("media_key", sa.String),
        sa.Column("scene_hash", sa.String(64)),
        sa.Column("num_frames", sa.Integer),
        sa.Column("fps", sa.Double),
    ]


def label_columns() -> list[sa.Column]:
    """How an answer came about."""
    return [
        sa.Column("is_swapped", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("response_ms", sa.Integer),
        sa.Column("details", sa.JSON),
    ]


def add_columns(table: str, columns: list[sa.Column]) -> None:
    """Add columns in place."""
    for column in columns:
        op.add_column(table, column)


def drop_columns(table: str, columns: list[sa.Column]) -> None:
    """Drop columns in place."""
    for column in columns:
        op.drop_column(table, column.name)


def create_labelers() -> None:
    """Everybody whose name is on a label."""
    op.create_table(
        "labelers",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("name", sa.String, nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_labelers"),
        sa.UniqueConstraint("name", name="uq_labelers_name"),
        sqlite_autoincrement=True,
    )
    op.execute(
        "INSERT INTO labelers (name, created_at) "
        "SELECT labeler, min(created_at) FROM labels GROUP BY labeler ORDER BY min(id)"
    )


def refer_to_labelers() -> None:
    """Labels name their labeler by id, and may have no answer."""
    op.drop_index("ix_labels_comparison_id", "labels")
    op.add_column("labels", sa.Column("labeler_id", sa.Integer))
    op.execute(
        "UPDATE labels SET labeler_id = "
        "(SELECT labelers.id FROM labelers WHERE labelers.name = labels.labeler)"
    )
    before = labels_table(sa.Column("labeler", sa.String, nullable=False), is_answered=True)
    before.append_column(sa.Column("labeler_id", sa.Integer))
    with op.batch_alter_table("labels", copy_from=before) as labels:
        labels.drop_column("labeler")
        labels.alter_column("labeler_id", existing_type=sa.Integer, nullable=False)
        labels.alter_column("answer", existing_type=sa.String(16), nullable=True)
        labels.create_foreign_key(
            "fk_labels_labeler_id_labelers", "labelers", ["labeler_id"], ["id"]
        )
    add_columns("labels", label_columns())
    op.create_index(
        "ix_labels_comparison_id_id_answer", "labels", ["comparison_id", "id", "answer"]
    )
    op.create_index("ix_labels_labeler_id", "labels", ["labeler_id"])


def name_labelers() -> None:
    """Labels carry their labeler's name, and always an answer."""
    op.drop_index("ix_labels_labeler_id", "labels")
    op.drop_index("ix_labels_comparison_id_id_answer", "labels")
    op.execute(
        "DELETE FROM labels WHERE EXISTS (SELECT 1 FROM labels AS later WHERE later.answer IS NULL "
        "AND later.comparison_id = labels.comparison_id AND later.id >= labels.id)"
    )
    drop_columns("labels", label_columns())
    op.add_column("labels", sa.Column("labeler", sa.String))
    op.execute(
        "UPDATE labels SET labeler = "
        "(SELECT labelers.name FROM labelers WHERE labelers.id = labels.labeler_id)"
    )
    before = labels_table(sa.Column("labeler_id", sa.Integer, nullable=False), is_answered=False)
    before.append_constraint(
        sa.ForeignKeyConstraint(
            ["labeler_id"], ["labelers.id"], name="fk_labels_labeler_id_labelers"
        )
    )
    before.append_column(sa.Column("labeler", sa.String))
    with op.batch_alter_table("labels", copy_from=before) as labels:
        labels.drop_constraint("fk_labels_labeler_id_labelers", type_="foreignkey")
        labels.drop_column("labeler_id")
        labels.alter_column("labeler", existing_type=sa.String, nullable=False)
        labels.alter_column("answer", existing_type=sa.String(16), nullable=False)
    op.create_index("ix_labels_comparison_id", "labels", ["comparison_id"])


def labels_table(labeler: sa.Column, *, is_answered: bool) -> sa.Table:
    """The labels as they stand; SQLite is told, since it cannot say all of it."""
    return sa.Table(
        "labels",
        sa.MetaData(),
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("comparison_id", sa.Integer, nullable=False),
        sa.Column("answer", sa.String(16), nullable=not is_answered),
        labeler,
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
            "answer IN ('left', 'right', 'equal', 'cannot_tell')",
            name="ck_labels_is_one_of_four",
        ),
        sqlite_autoincrement=True,
    )


def create_events() -> None:
    """What was done, and by whom."""
    op.create_table(
        "events",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("experiment_id", sa.Integer),
        sa.Column("labeler_id", sa.Integer),
        sa.Column("kind", sa.String(64), nullable=False),
        sa.Column("details", sa.JSON, nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_events"),
        sa.ForeignKeyConstraint(
            ["experiment_id"],
            ["experiments.id"],
            name="fk_events_experiment_id_experiments",
            ondelete="SET NULL",
        ),
        sa.ForeignKeyConstraint(
            ["labeler_id"], ["labelers.id"], name="fk_events_labeler_id_labelers"
        ),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_events_experiment_id", "events", ["experiment_id"])


def create_metrics() -> None:
    """The trainers' figures."""
    op.create_table(
        "metrics",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("experiment_id", sa.Integer, nullable=False),
        sa.Column("step", sa.BigInteger, nullable=False),
        sa.Column("row", sa.JSON, nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_metrics"),
        sa.ForeignKeyConstraint(
            ["experiment_id"],
            ["experiments.id"],
            name="fk_metrics_experiment_id_experiments",
            ondelete="CASCADE",
        ),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_metrics_experiment_id_id", "metrics", ["experiment_id", "id"])
    op.create_index("ix_metrics_experiment_id_step", "metrics", ["experiment_id", "step"])
