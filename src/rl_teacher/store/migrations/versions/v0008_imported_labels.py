"""Keep the original values of imported labels in a column that no labeler can write."""

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

MAYBE_JSON = sa.JSON(none_as_null=True)

LABELS = sa.table(
    "labels",
    sa.column("id", sa.Integer),
    sa.column("labeler_id", sa.Integer),
    sa.column("details", MAYBE_JSON),
    sa.column("imported", MAYBE_JSON),
)
LABELERS = sa.table("labelers", sa.column("id", sa.Integer), sa.column("name", sa.String))
CREDENTIALS = sa.table("credentials", sa.column("labeler_id", sa.Integer))

# A person may have joined under a name with the prefix; only imported labelers lack a credential.
IMPORTED_LABELS = (
    sa.select(LABELS.c.id, LABELS.c.details)
    .join(LABELERS, LABELERS.c.id == LABELS.c.labeler_id)
    .where(
        LABELERS.c.name.startswith("imported:"),
        LABELERS.c.id.not_in(sa.select(CREDENTIALS.c.labeler_id)),
    )
)

SET = (
    sa.update(LABELS)
    .where(LABELS.c.id == sa.bindparam("label_id"))
    .values(details=sa.bindparam("rest"), imported=sa.bindparam("original"))
)


def upgrade() -> None:
    """Add the column `imported`, and move the original values from `details` to it."""
    op.add_column("labels", sa.Column("imported", sa.JSON))
    connection = op.get_bind()
    if moved := list(split_details(connection.execute(IMPORTED_LABELS))):
        connection.execute(SET, moved)


def split_details(labels: Any) -> Iterator[dict[str, Any]]:
    """Split the details of each imported label into the original values and the rest."""
    for label_id, details in labels:
        rest = dict(details or {})
        original = rest.pop("imported", None)
        if isinstance(original, dict):
            yield {"label_id": label_id, "rest": rest or None, "original": original}


def downgrade() -> None:
    """Drop the column `imported`."""
    op.drop_column("labels", "imported")
