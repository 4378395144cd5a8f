"""Many labelers: who they are, what is in whose hands, and what is counted of their answers."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

MOMENT = sa.DateTime(timezone=True)

LIBRARY = "ix_clips_env_id_created_at_content_hash"

COUNT_LABELS = """
WITH current AS (
    SELECT labels.comparison_id, count(*) AS num_labels,
        count(DISTINCT CASE WHEN labels.answer <> 'cannot_tell' THEN labels.answer END) AS said
    FROM labels WHERE labels.answer IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM labels AS later WHERE later.comparison_id = labels.comparison_id
        AND later.labeler_id = labels.labeler_id AND later.id > labels.id)
    GROUP BY labels.comparison_id
)
UPDATE comparisons SET num_labels = current.num_labels, is_disputed = current.said > 1
FROM current WHERE current.comparison_id = comparisons.id
"""

OPEN = """
UPDATE comparisons SET is_open = true WHERE num_labels < wanted AND NOT EXISTS (
    SELECT 1 FROM clips WHERE clips.kind IS NULL
    AND clips.content_hash IN (comparisons.left_hash, comparisons.right_hash))
"""

COUNT_COMPARISONS = """
WITH counted AS (
    SELECT experiment_id, count(*) AS num_asked,
        sum(CASE WHEN num_labels > 0 THEN 1 ELSE 0 END) AS num_answered,
        sum(CASE WHEN is_open THEN 1 ELSE 0 END) AS num_open
    FROM comparisons GROUP BY experiment_id
)
UPDATE experiments SET num_asked = counted.num_asked, num_answered = counted.num_answered,
    num_open = counted.num_open
FROM counted WHERE counted.experiment_id = experiments.id
"""

TALLY = """
INSERT INTO tallies (experiment_id, labeler_id, num_labels, num_given, first_label_id,
    last_label_id, last_label_at)
SELECT comparisons.experiment_id, labels.labeler_id,
    sum(CASE WHEN labels.answer IS NOT NULL AND later.id IS NULL THEN 1 ELSE 0 END),
    count(labels.answer), min(labels.id), max(labels.id), max(labels.created_at)
FROM labels JOIN comparisons ON comparisons.id = labels.comparison_id
LEFT JOIN (
    SELECT comparison_id, labeler_id, max(id) AS id FROM labels GROUP BY comparison_id, labeler_id
) AS later ON later.comparison_id = labels.comparison_id
    AND later.labeler_id = labels.labeler_id AND later.id > labels.id
GROUP BY comparisons.experiment_id, labels.labeler_id
"""


def upgrade() -> None:
    """Add what is new and count what is there; every row stays."""
    for table, columns in new_columns().items():
        for column in columns:
            op.add_column(table, column)
    create_indexes()
    create_credentials()
    create_invites()
    create_leases()
    create_tallies()
    name_roles()
    count()


def downgrade() -> None:
    """Take it back; repeats go, or they would be taken for answers."""
    for table in ("tallies", "leases", "invites", "credentials"):
        op.drop_table(table)
    op.execute("DELETE FROM labels WHERE purpose = 'repeat'")
    drop_indexes()
    for table, columns in new_columns().items():
        for column in columns:
            op.drop_column(table, column.name)


def new_columns() -> dict[str, list[sa.Column]]:
    """By table."""
    return {
        "experiments": [
            *(counter(name) for name in ("num_asked", "num_answered", "num_open")),
            *(sa.Column(name, sa.JSON) for name in ("study", "control", "diagnostics")),
        ],
        "comparisons": [
            sa.Column("wanted", sa.Integer, nullable=False, server_default="1"),
            sa.Column("gold", sa.String(16)),
            counter("num_labels"),
            sa.Column("is_open", sa.Boolean, nullable=False, server_default=sa.false()),
            sa.Column("is_disputed", sa.Boolean, nullable=False, server_default=sa.false()),
        ],
        "labelers": [
            sa.Column("role", sa.String(16), nullable=False, server_default="labeler"),
            sa.Column("excluded_at", MOMENT),
        ],
        "labels": [
            sa.Column("purpose", sa.String(16), nullable=False, server_default="answer"),
            sa.Column("lease", sa.String(16), nullable=False, server_default="none"),
        ],
    }


def counter(name: str) -> sa.Column:
    """A number that begins at nothing."""
    return sa.Column(name, sa.Integer, nullable=False, server_default="0")


def create_indexes() -> None:
    """Whatever a labelling page asks is found in one of them."""
    op.drop_index("ix_labels_comparison_id_id_answer", "labels")
    op.drop_index("ix_labels_labeler_id", "labels")
    newest = ["comparison_id", "labeler_id", "purpose", "id", "answer"]
    op.create_index("ix_labels_newest", "labels", newest)
    op.create_index("ix_labels_labeler_id_id", "labels", ["labeler_id", "id"])
    for columns in comparison_indexes():
        op.create_index("ix_comparisons_" + "_".join(columns), "comparisons", columns)
    op.create_index(
        "ix_comparisons_open",
        "comparisons",
        ["experiment_id", "asked_at_step", "id"],
        # Note: SQLite uses the index only where a query says it in these words.
        sqlite_where=sa.text("is_open = 1"),
        postgresql_where=sa.text("is_open"),
    )
    op.create_index(
        "ix_comparisons_gold",
        "comparisons",
        ["experiment_id", "id"],
        sqlite_where=sa.text("gold IS NOT NULL"),
        postgresql_where=sa.text("gold IS NOT NULL"),
    )
    op.create_index(LIBRARY, "clips", ["env_id", "created_at", "content_hash"])


def comparison_indexes() -> list[list[str]]:
    """Columns of the indexes that hold every comparison."""
    return [
        ["left_hash"],
        ["right_hash"],
        ["experiment_id", "id"],
        ["experiment_id", "num_labels", "id"],
        ["experiment_id", "is_disputed", "id"],
    ]


def drop_indexes() -> None:
    """The second version's indexes take their places again."""
    op.drop_index(LIBRARY, "clips")
    for name in ("open", "gold", *("_".join(columns) for columns in comparison_indexes())):
        op.drop_index(f"ix_comparisons_{name}", "comparisons")
    op.drop_index("ix_labels_labeler_id_id", "labels")
    op.drop_index("ix_labels_newest", "labels")
    op.create_index(
        "ix_labels_comparison_id_id_answer", "labels", ["comparison_id", "id", "answer"]
    )
    op.create_index("ix_labels_labeler_id", "labels", ["labeler_id"])


def create_credentials() -> None:
    """Who somebody is, by the SHA-256 of a token."""
    op.create_table(
        "credentials",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("labeler_id", sa.Integer, nullable=False),
        sa.Column("token_hash", sa.String(64), nullable=False),
        sa.Column("hint", sa.String(16), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("expires_at", MOMENT),
        sa.Column("revoked_at", MOMENT),
        sa.Column("last_used_at", MOMENT),
        sa.PrimaryKeyConstraint("id", name="pk_credentials"),
        refers_to_labeler("credentials", "labeler_id"),
        sa.UniqueConstraint("token_hash", name="uq_credentials_token_hash"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_credentials_labeler_id", "credentials", ["labeler_id"])


def create_invites() -> None:
    """Links that make a credential, once."""
    op.create_table(
        "invites",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("token_hash", sa.String(64), nullable=False),
        sa.Column("hint", sa.String(16), nullable=False),
        sa.Column("name", sa.String),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("experiment_id", sa.Integer),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("expires_at", MOMENT, nullable=False),
        sa.Column("used_at", MOMENT),
        sa.Column("used_by", sa.Integer),
        sa.Column("revoked_at", MOMENT),
        sa.PrimaryKeyConstraint("id", name="pk_invites"),
        sa.ForeignKeyConstraint(
            ["experiment_id"],
            ["experiments.id"],
            name="fk_invites_experiment_id_experiments",
            ondelete="SET NULL",
        ),
        refers_to_labeler("invites", "used_by"),
        sa.UniqueConstraint("token_hash", name="uq_invites_token_hash"),
        sqlite_autoincrement=True,
    )


def create_leases() -> None:
    """What is in whose hands."""
    op.create_table(
        "leases",
        sa.Column("comparison_id", sa.Integer, nullable=False),
        sa.Column("labeler_id", sa.Integer, nullable=False),
        sa.Column("purpose", sa.String(16), nullable=False),
        sa.Column("token", sa.Uuid, nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("expires_at", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("comparison_id", "labeler_id", name="pk_leases"),
        sa.ForeignKeyConstraint(
            ["comparison_id"],
            ["comparisons.id"],
            name="fk_leases_comparison_id_comparisons",
            ondelete="CASCADE",
        ),
        refers_to_labeler("leases", "labeler_id"),
        sa.UniqueConstraint("token", name="uq_leases_token"),
    )
    op.create_index("ix_leases_labeler_id", "leases", ["labeler_id"])
    op.create_index("ix_leases_expires_at", "leases", ["expires_at"])


def create_tallies() -> None:
    """How much each labeler has done in each experiment."""
    op.create_table(
        "tallies",
        sa.Column("experiment_id", sa.Integer, nullable=False),
        sa.Column("labeler_id", sa.Integer, nullable=False),
        counter("num_labels"),
        counter("num_given"),
        sa.Column("first_label_id", sa.Integer, nullable=False),
        sa.Column("last_label_id", sa.Integer, nullable=False),
        sa.Column("last_label_at", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("experiment_id", "labeler_id", name="pk_tallies"),
        sa.ForeignKeyConstraint(
            ["experiment_id"],
            ["experiments.id"],
            name="fk_tallies_experiment_id_experiments",
            ondelete="CASCADE",
        ),
        refers_to_labeler("tallies", "labeler_id"),
    )
    op.create_index("ix_tallies_labeler_id", "tallies", ["labeler_id"])


def refers_to_labeler(table: str, column: str) -> sa.ForeignKeyConstraint:
    """Nobody is ever deleted."""
    return sa.ForeignKeyConstraint([column], ["labelers.id"], name=f"fk_{table}_{column}_labelers")


def name_roles() -> None:
    """Until now a name said who somebody is."""
    op.execute("UPDATE labelers SET role = 'owner' WHERE name = 'owner'")
    # Note: no pattern, since a driver may take its percent sign for a parameter.
    op.execute("UPDATE labelers SET role = 'teacher' WHERE substr(name, 1, 10) = 'synthetic:'")


def count() -> None:
    """Count the rows that are there."""
    op.execute(COUNT_LABELS)
    op.execute(OPEN)
    op.execute(COUNT_COMPARISONS)
    op.execute(TALLY)
