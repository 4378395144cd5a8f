"""What an owner looks through: comparisons, labels, clips and events, a page at a time.

Note: a page goes on from the last row of the one before it, and never counts what it leaves out.
The thousandth page costs what the first does, and rows that come in between move none.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy import (
    ColumnElement,
    Connection,
    bindparam,
    exists,
    func,
    or_,
    select,
    tuple_,
)
from sqlalchemy.orm import aliased

from rl_teacher.clips.answer import Answer
from rl_teacher.common.errors import BadCursor
from rl_teacher.store.label_queries import EXPERIMENT_OF_LABEL, IS_CURRENT
from rl_teacher.store.reading import StoreReader
from rl_teacher.store.records import (
    ClipView,
    ComparisonFilter,
    EventView,
    ExportedLabel,
    LibraryClip,
    OwnersComparison,
    Page,
    Sort,
    Vote,
)
from rl_teacher.store.sampling import LabelSample, maybe_answer, sample
from rl_teacher.store.tables import Clip, Comparison, Event, Experiment, Label, Labeler
from rl_teacher.store.views import CLIP_COLUMNS, CLIP_FIELDS, Left, Right, both_clips

Row = TypeVar("Row")

MAX_KEY = 2**31 - 1

KEYS: dict[Sort, tuple[Any, ...]] = {
    Sort.NEWEST: (Comparison.id,),
    Sort.OLDEST: (Comparison.id,),
    Sort.LABELS: (Comparison.num_labels, Comparison.id),
    Sort.DISPUTED: (Comparison.is_disputed, Comparison.id),
}
"""What each order goes by; all but one from the highest down."""

OWN_COLUMNS = (
    "id",
    "asked_at_step",
    "created_at",
    "wanted",
    "num_labels",
    "is_open",
    "is_disputed",
)

COMPARISONS = (
    select(
        *(getattr(Comparison, name) for name in OWN_COLUMNS),
        Comparison.gold,
        *CLIP_COLUMNS,
    )
    .select_from(Comparison)
    .join(Left, Left.content_hash == Comparison.left_hash)
    .join(Right, Right.content_hash == Comparison.right_hash)
)

VOTES = (
    select(
        Label.comparison_id,
        Label.labeler_id,
        Labeler.name.label("labeler"),
        Label.answer,
        Label.created_at,
        Label.response_ms,
        Label.is_swapped,
        Label.lease,
        Labeler.excluded_at.is_not(None).label("is_excluded"),
    )
    .join(Labeler, Labeler.id == Label.labeler_id)
    .where(Label.comparison_id.in_(bindparam("comparison_ids", expanding=True)), IS_CURRENT)
    .order_by(Label.id)
)

LABEL_ROWS = (
    select(
        Label.id,
        Label.request_id,
        Label.comparison_id,
        Comparison.left_hash,
        Comparison.right_hash,
        Comparison.asked_at_step,
        Comparison.gold,
        Label.answer,
        Label.labeler_id,
        Labeler.name.label("labeler"),
        Labeler.role,
        Label.created_at,
        Label.response_ms,
        Label.is_swapped,
        Label.purpose,
        Label.lease,
        Label.details,
        IS_CURRENT.label("is_current"),
        Labeler.excluded_at.is_not(None).label("is_excluded"),
    )
    .join(Comparison, Comparison.id == Label.comparison_id)
    .join(Labeler, Labeler.id == Label.labeler_id)
    .where(Label.id > bindparam("after_id"), bindparam("experiment_id") == EXPERIMENT_OF_LABEL)
    .order_by(Label.id)
    .limit(bindparam("limit"))
)

NUM_COMPARISONS_WITH = (
    select(func.count())
    .select_from(Comparison)
    .where(
        or_(Comparison.left_hash == Clip.content_hash, Comparison.right_hash == Clip.content_hash)
    )
    .correlate(Clip)
    .scalar_subquery()
)

LIBRARY = (
    select(
        *(getattr(Clip, name) for name in CLIP_FIELDS),
        Clip.created_at,
        NUM_COMPARISONS_WITH.label("num_comparisons"),
    )
    .where(Clip.env_id == bindparam("env_id"), Clip.kind.is_not(None))
    .order_by(Clip.created_at.desc(), Clip.content_hash.desc())
    .limit(bindparam("limit"))
)

Last = aliased(Clip)

AFTER_CLIP = tuple_(Clip.created_at, Clip.content_hash) < (
    select(Last.created_at, Last.content_hash)
    .where(Last.content_hash == bindparam("after_hash"))
    .scalar_subquery()
)

EVENTS = (
    select(
        Event.id,
        Event.kind,
        Event.details,
        Experiment.name.label("experiment"),
        Labeler.name.label("labeler"),
        Event.created_at,
    )
    .outerjoin(Experiment, Experiment.id == Event.experiment_id)
    .outerjoin(Labeler, Labeler.id == Event.labeler_id)
    .where(Event.id < bindparam("before_id"))
    .order_by(Event.id.desc())
    .limit(bindparam("limit"))
)

EVENTS_OF = EVENTS.where(Event.experiment_id == bindparam("experiment_id"))


class OwnerReader(StoreReader):
    """What an owner looks through."""

    def comparisons(
        self,
        experiment_id: int,
        wanted: ComparisonFilter = ComparisonFilter(),  # noqa: B008 - frozen
        sort: Sort = Sort.NEWEST,
        after: str | None = None,
        limit: int = 50,
    ) -> Page[OwnersComparison]:
        """An experiment's comparisons, with what every labeler says of each now.

        Args:
            experiment_id: whose.
            wanted: which of them.
            sort: in which order.
            after: `next` of the page before, in the same order.
            limit: so many at most.

        Raises:
            BadCursor: no page gave this `after`.
        """
        keys = KEYS[sort]
        sought = (
            COMPARISONS.where(Comparison.experiment_id == experiment_id, *conditions(wanted))
            .order_by(*(key if sort is Sort.OLDEST else key.desc() for key in keys))
            .limit(limit + 1)
        )
        if after is not None:
            sought = sought.where(is_beyond(sort, read_cursor(after, len(keys))))
        with self._database.reading() as connection:
            rows = connection.execute(sought).mappings().all()
            said = votes_of(connection, [row["id"] for row in rows[:limit]])
        found = [owners_comparison(row, said.get(row["id"], [])) for row in rows]
        return page_of(found, limit, lambda row: cursor_of(row, sort))

    def label_rows(
        self, experiment_id: int, after_id: int = 0, limit: int = 1000
    ) -> list[ExportedLabel]:
        """Every label of an experiment that came after one, current or not, oldest first."""
        sought = {"experiment_id": experiment_id, "after_id": after_id, "limit": limit}
        with self._database.reading() as connection:
            rows = connection.execute(LABEL_ROWS, sought).mappings()
            return [exported(row) for row in rows]

    def label_sample(self, experiment_id: int, most: int) -> LabelSample:
        """An experiment's newest labels, some so many; see `LabelSample`."""
        with self._database.reading() as connection:
            return sample(connection, experiment_id, most)

    def environment_clips(
        self, env_id: str, after: str | None = None, limit: int = 50
    ) -> Page[LibraryClip]:
        """An environment's clips that can be shown, the newest first.

        Args:
            env_id: whose.
            after: `next` of the page before.
            limit: so many at most.
        """
        sought: dict[str, Any] = {"env_id": env_id, "limit": limit + 1}
        statement = LIBRARY
        if after is not None:
            statement, sought = LIBRARY.where(AFTER_CLIP), sought | {"after_hash": after}
        with self._database.reading() as connection:
            rows = connection.execute(statement, sought).mappings().all()
        found = [library_clip(row) for row in rows]
        return page_of(found, limit, lambda row: row.clip.content_hash)

    def events(
        self, experiment_id: int | None = None, after: str | None = None, limit: int = 50
    ) -> Page[EventView]:
        """What was done and by whom, the newest first.

        Args:
            experiment_id: to which experiment; to any, and to none, if None.
            after: `next` of the page before.
            limit: so many at most.

        Raises:
            BadCursor: no page gave this `after`.
        """
        before_id = MAX_KEY if after is None else read_cursor(after, 1)[0]
        sought = {"before_id": before_id, "limit": limit + 1}
        statement = EVENTS
        if experiment_id is not None:
            statement, sought = EVENTS_OF, sought | {"experiment_id": experiment_id}
        with self._database.reading() as connection:
            rows = connection.execute(statement, sought).mappings()
            found = [EventView(**row) for row in rows]
        return page_of(found, limit, lambda row: write_cursor([row.id]))


def conditions(wanted: ComparisonFilter) -> list[ColumnElement[bool]]:
    """What a comparison must fulfil."""
    found: list[ColumnElement[bool]] = []
    if wanted.status == "answered":
        # Note: the sum keeps SQLite from an index in which it would have to sort what it finds.
        found.append(Comparison.num_labels + 0 > 0)
    if wanted.status == "open":
        found.append(Comparison.is_open.is_(True))
    if wanted.is_disputed is not None:
        found.append(Comparison.is_disputed.is_(wanted.is_disputed))
    if wanted.is_gold is not None:
        found.append(Comparison.gold.is_not(None) if wanted.is_gold else Comparison.gold.is_(None))
    if wanted.answer is not None or wanted.labeler is not None:
        found.append(is_said(wanted.answer, wanted.labeler))
    return found


def is_said(answer: Answer | None, labeler: str | None) -> ColumnElement[bool]:
    """Somebody says so now, or says anything."""
    said = [Label.comparison_id == Comparison.id, IS_CURRENT]
    if answer is not None:
        said.append(Label.answer == Answer(answer).value)
    if labeler is not None:
        whose = select(Labeler.id).where(Labeler.name == labeler).scalar_subquery()
        said.append(Label.labeler_id == whose)
    return exists().where(*said)


def is_beyond(sort: Sort, place: Sequence[int]) -> ColumnElement[bool]:
    """Of a comparison: it comes after this place."""
    if sort is Sort.OLDEST:
        return Comparison.id > place[0]
    if sort is Sort.NEWEST:
        return Comparison.id < place[0]
    if sort is Sort.DISPUTED:
        return tuple_(Comparison.is_disputed, Comparison.id) < (bool(place[0]), place[1])
    return tuple_(Comparison.num_labels, Comparison.id) < (place[0], place[1])


def cursor_of(row: OwnersComparison, sort: Sort) -> str:
    """The place after this row."""
    return write_cursor([int(getattr(row, key.key)) for key in KEYS[sort]])


def write_cursor(place: Sequence[int]) -> str:
    """A place in a list, as one gives it back."""
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode().rstrip("=")


def read_cursor(cursor: str, length: int) -> list[int]:
    """A place in a list.

    Raises:
        BadCursor: no list gave it.
    """
    try:
        place = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, RecursionError) as error:
        raise BadCursor(cursor) from error
    is_place = isinstance(place, list) and len(place) == length
    if not is_place or not all(type(each) is int and 0 <= each <= MAX_KEY for each in place):
        raise BadCursor(cursor)
    return place


def page_of(found: Sequence[Row], limit: int, cursor: Any) -> Page[Row]:
    """The rows asked for; one more was sought to see whether any come after them."""
    rows = list(found[:limit])
    return Page(rows, cursor(rows[-1]) if len(found) > limit and rows else None)


def votes_of(connection: Connection, comparison_ids: Sequence[int]) -> dict[int, list[Vote]]:
    """What everybody says of these comparisons now, the first to say so first."""
    said: dict[int, list[Vote]] = {}
    for row in connection.execute(VOTES, {"comparison_ids": list(comparison_ids)}).mappings():
        vote = dict(row)
        comparison_id = vote.pop("comparison_id")
        vote["answer"] = Answer(vote["answer"])
        said.setdefault(comparison_id, []).append(Vote(**vote))
    return said


def owners_comparison(row: Mapping[Any, Any], said: Sequence[Vote]) -> OwnersComparison:
    """A row of `COMPARISONS`, and the votes."""
    left, right = both_clips(row)
    own = {name: row[name] for name in OWN_COLUMNS}
    return OwnersComparison(
        **own, left=left, right=right, gold=maybe_answer(row["gold"]), votes=tuple(said)
    )


def exported(row: Mapping[Any, Any]) -> ExportedLabel:
    """A row of `LABEL_ROWS`."""
    answers = {name: maybe_answer(row[name]) for name in ("gold", "answer")}
    return ExportedLabel(**{**row, **answers})


def library_clip(row: Mapping[Any, Any]) -> LibraryClip:
    """A row of `LIBRARY`."""
    clip = ClipView(**{name: row[name] for name in CLIP_FIELDS})
    return LibraryClip(clip, row["created_at"], row["num_comparisons"])
