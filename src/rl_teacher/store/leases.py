"""Who has which comparison in hand: claimed in one transaction, held while it is renewed.

A comparison is in no more hands than labelers shall answer it. SQLite has one writer at a time; on
PostgreSQL a claim locks the comparisons that it takes and passes over those that another claim has
locked.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import (
    Connection,
    Insert,
    Select,
    and_,
    bindparam,
    delete,
    exists,
    func,
    not_,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import aliased

from rl_teacher.store.counters import CAN_BE_SHOWN
from rl_teacher.store.hash_random import drawn
from rl_teacher.store.label_queries import IS_CURRENT, in_chunks, possible
from rl_teacher.store.records import Claimed, ComparisonView, InQuestion, NewLabel, Purpose, Study
from rl_teacher.store.tables import Comparison, Experiment, Label, Labeler, Lease, Tally
from rl_teacher.store.views import COMPARISONS, comparison_view
from rl_teacher.store.writer import StoreWriter

LEASE_S = 300.0

MOST_IN_HAND = 100
"""Comparisons of one experiment that one labeler may hold."""

KEPT_AFTER_END = timedelta(days=7)
"""How long an expired lease is remembered, so that a late answer is known for what it is."""

LAST_SEEN = 5
"""A labeler's newest labels; what these are about is not asked again yet."""

LOOKED_THROUGH = 50
"""A labeler's labels among which one to ask again is sought."""

Theirs, Mine, Asked = aliased(Lease), aliased(Lease), aliased(Label)

ME, MOMENT = bindparam("me"), bindparam("moment")

IN_OTHER_HANDS = (
    select(func.count())
    .select_from(Theirs)
    .where(
        Theirs.comparison_id == Comparison.id,
        Theirs.labeler_id != ME,
        Theirs.purpose == "answer",
        Theirs.expires_at > MOMENT,
    )
    .correlate(Comparison)
    .scalar_subquery()
)

IS_MINE = exists().where(
    Mine.comparison_id == Comparison.id, Mine.labeler_id == ME, Mine.expires_at > MOMENT
)

IS_ANSWERED_BY_ME = exists().where(
    Label.comparison_id == Comparison.id, Label.labeler_id == ME, IS_CURRENT
)

IS_FREE = and_(
    Comparison.is_open,
    not_(IS_ANSWERED_BY_ME),
    not_(IS_MINE),
    Comparison.num_labels + IN_OTHER_HANDS < Comparison.wanted,
)

OTHER_THAN = Comparison.id.not_in(bindparam("others", expanding=True))

# Note: what is passed over is locked by another claim, or by an answer that is just coming in.
FREE = (
    COMPARISONS.where(Comparison.experiment_id == bindparam("experiment_id"), IS_FREE, OTHER_THAN)
    .order_by(Comparison.asked_at_step.desc(), Comparison.id)
    .limit(bindparam("limit"))
    .with_for_update(of=Comparison, skip_locked=True, key_share=True)
)

# Note: a claim that ended between the start of the statement above and its lock is seen only by a
# statement that starts afterwards.
STILL_FREE = select(Comparison.id).where(
    Comparison.id.in_(bindparam("comparison_ids", expanding=True)), IS_FREE
)

FREE_GOLD = (
    select(Comparison.id)
    .where(
        Comparison.experiment_id == bindparam("experiment_id"),
        Comparison.gold.is_not(None),
        CAN_BE_SHOWN,
        OTHER_THAN,
        not_(IS_ANSWERED_BY_ME),
        not_(IS_MINE),
    )
    .order_by(Comparison.id)
    .limit(1)
)

LOCK_MYSELF = (
    select(Labeler.excluded_at, Experiment.study)
    .join(Experiment, Experiment.id == bindparam("experiment_id"))
    .where(Labeler.id == ME)
    .with_for_update(of=Labeler, key_share=True)
)

THESE = COMPARISONS.where(Comparison.id.in_(bindparam("comparison_ids", expanding=True)))

MY_TALLY = select(Tally.num_given, Tally.first_label_id, Tally.last_label_id).where(
    Tally.experiment_id == bindparam("experiment_id"), Tally.labeler_id == ME
)

IN_THIS_EXPERIMENT = exists().where(
    Comparison.id == Lease.comparison_id,
    Comparison.experiment_id == bindparam("of_experiment"),
)

RENEW_ALL = (
    update(Lease)
    .where(Lease.labeler_id == ME, Lease.expires_at > MOMENT, IN_THIS_EXPERIMENT)
    .values(expires_at=bindparam("until"))
)

RENEW = (
    update(Lease)
    .where(
        Lease.labeler_id == ME,
        Lease.expires_at > MOMENT,
        Lease.token.in_(bindparam("tokens", expanding=True)),
    )
    .values(expires_at=bindparam("until"))
    .returning(Lease.token)
)

RELEASE = delete(Lease).where(
    Lease.labeler_id == ME, Lease.token.in_(bindparam("tokens", expanding=True))
)

IN_MY_HANDS = (
    COMPARISONS.add_columns(Lease.token, Lease.expires_at, Lease.purpose)
    .join(Lease, Lease.comparison_id == Comparison.id)
    .where(
        Lease.labeler_id == ME,
        Lease.expires_at > MOMENT,
        Comparison.experiment_id == bindparam("experiment_id"),
    )
    .order_by(Lease.created_at, Comparison.asked_at_step.desc(), Comparison.id)
)
"""The first to be claimed comes first."""

HANDS = select(
    Lease.comparison_id, Lease.labeler_id, Lease.token, Lease.purpose, Lease.expires_at
).where(Lease.labeler_id.in_(bindparam("labeler_ids", expanding=True)))

REPEATED = select(Label.comparison_id, Label.labeler_id).where(
    Label.comparison_id.in_(bindparam("comparison_ids", expanding=True)),
    Label.labeler_id.in_(bindparam("labeler_ids", expanding=True)),
    Label.purpose == "repeat",
)

KNOWN_REQUESTS = select(Label.request_id).where(
    Label.request_id.in_(bindparam("request_ids", expanding=True))
)

# Note: in no order, or SQLite would look through all labels of these labelers.
SAID = select(Label.id, Label.comparison_id, Label.labeler_id, Label.purpose, Label.answer).where(
    Label.comparison_id.in_(bindparam("comparison_ids", expanding=True)),
    Label.labeler_id.in_(bindparam("labeler_ids", expanding=True)),
)

END = delete(Lease).where(Lease.token.in_(bindparam("ended", expanding=True)))

FORGET = delete(Lease).where(Lease.expires_at <= MOMENT)


def my_labels_from() -> Select[Any]:
    """The first comparison that a labeler may be asked again, of some labels from one on."""
    some = (
        select(Label.id, Label.comparison_id)
        .where(Label.labeler_id == ME, Label.id >= bindparam("from_id"))
        .order_by(Label.id)
        .limit(LOOKED_THROUGH)
        .subquery()
    )
    newest = (
        select(Label.comparison_id)
        .where(Label.labeler_id == ME)
        .order_by(Label.id.desc())
        .limit(LAST_SEEN)
    )
    is_asked_again = exists().where(
        Asked.comparison_id == Comparison.id, Asked.labeler_id == ME, Asked.purpose == "repeat"
    )
    return (
        select(Comparison.id)
        .join(some, some.c.comparison_id == Comparison.id)
        .where(
            Comparison.experiment_id == bindparam("experiment_id"),
            OTHER_THAN,
            IS_ANSWERED_BY_ME,
            not_(is_asked_again),
            not_(IS_MINE),
            Comparison.id.not_in(newest),
        )
        .order_by(some.c.id)
        .limit(1)
    )


TO_ASK_AGAIN = my_labels_from()


@dataclass
class Claim:
    """One claim on its way, inside its transaction.

    Attributes:
        who: what every statement asks for: whose claim, in which experiment, when.
        study: who shall answer what how often.
        passed_over: comparisons that are not sought again.
    """

    connection: Connection
    who: dict[str, Any]
    study: Study
    passed_over: set[int]

    def sought(self, **more: Any) -> dict[str, Any]:
        """The parameters of a statement."""
        return {**self.who, "others": sorted(self.passed_over), **more}


class LeaseStore(StoreWriter):
    """Comparisons in labelers' hands."""

    def claim(
        self,
        experiment_id: int,
        labeler: str,
        limit: int,
        exclude: Collection[int] = (),
        lease_s: float = LEASE_S,
    ) -> list[Claimed]:
        """Put comparisons into a labeler's hands; those that are there already come first.

        Note: an excluded labeler gets none, since their answers would not count.

        Args:
            experiment_id: whose comparisons.
            labeler: in whose hands.
            limit: so many at most.
            exclude: ids that they have before them already, and that stay in their hands.
            lease_s: for how long, unless it is renewed.
        """
        labeler_id = self._id_of_labeler(labeler)
        moment = self._now()
        until = moment + timedelta(seconds=lease_s)
        who = {"me": labeler_id, "experiment_id": experiment_id, "moment": moment}
        at_hand = set(possible(exclude))
        with self._database.writing() as connection:
            myself = connection.execute(LOCK_MYSELF, who).one_or_none()
            if myself is None or myself.excluded_at is not None:
                return []
            held = self._renewed(connection, who, until)
            old = [each for each in held if each.comparison.id not in at_hand][:limit]
            in_hand = {each.comparison.id for each in held}
            claim = Claim(connection, who, Study(**(myself.study or {})), at_hand | in_hand)
            room = min(limit - len(old), MOST_IN_HAND - len(held))
            chosen = choose(claim, room, len(held)) if room > 0 else []
            if not chosen:
                return old
            rows = [
                {
                    "comparison_id": comparison.id,
                    "labeler_id": labeler_id,
                    "purpose": purpose,
                    "token": uuid4(),
                    "created_at": moment,
                    "expires_at": until,
                }
                for comparison, purpose in chosen
            ]
            put = connection.execute(put_into_hands(self._database.dialect), rows)
            token_of = {row.comparison_id: row.token for row in put}
        return old + [
            Claimed(comparison, token_of[comparison.id], until, purpose)
            for comparison, purpose in chosen
        ]

    def _renewed(
        self, connection: Connection, who: dict[str, Any], until: datetime
    ) -> list[Claimed]:
        """What the labeler holds, held for longer now."""
        if not in_my_hands(connection, who):
            return []
        mine = {"me": who["me"], "moment": who["moment"], "of_experiment": who["experiment_id"]}
        connection.execute(RENEW_ALL, {**mine, "until": until})
        return in_my_hands(connection, who)

    def renew(
        self, labeler: str, leases: Sequence[UUID], lease_s: float = LEASE_S
    ) -> dict[UUID, datetime]:
        """Hold leases for longer; until when, for those that have not ended."""
        labeler_id = self._id_of_labeler(labeler)
        moment = self._now()
        until = moment + timedelta(seconds=lease_s)
        asked = {"me": labeler_id, "moment": moment, "until": until}
        with self._database.writing() as connection:
            alive = connection.execute(RENEW, asked | {"tokens": list(leases)}).scalars()
            return dict.fromkeys(alive, until)

    def release(self, labeler: str, leases: Sequence[UUID]) -> None:
        """Put comparisons back; what is somebody else's stays theirs."""
        labeler_id = self._id_of_labeler(labeler)
        with self._database.writing() as connection:
            connection.execute(RELEASE, {"me": labeler_id, "tokens": list(leases)})

    def in_question(
        self, answered: Collection[tuple[str, int]]
    ) -> dict[tuple[str, int], InQuestion]:
        """Comparisons that labelers have answered, each with the lease that they have of it.

        Args:
            answered: labelers and comparisons' ids; what does not exist is left out.
        """
        names = {labeler for labeler, _ in answered}
        id_of = {name: self._id_of_labeler(name) for name in names}
        asked = {
            "comparison_ids": possible({comparison_id for _, comparison_id in answered}),
            "labeler_ids": sorted(id_of.values()),
        }
        with self._database.reading() as connection:
            views = {
                row["id"]: comparison_view(row)
                for row in connection.execute(THESE, asked).mappings()
            }
            hands = connection.execute(HANDS, asked)
            leases = {(row.labeler_id, row.comparison_id): row for row in hands}
        found: dict[tuple[str, int], InQuestion] = {}
        for labeler, comparison_id in answered:
            lease = leases.get((id_of[labeler], comparison_id))
            if comparison_id in views:
                found[labeler, comparison_id] = InQuestion(
                    views[comparison_id],
                    lease.token if lease else None,
                    lease.purpose if lease else None,
                )
        return found


@cache
def put_into_hands(dialect: str) -> Insert:
    """A lease; one of the same labeler that has expired is taken up again under its old token."""
    add = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}[dialect](Lease)
    again = {name: add.excluded[name] for name in ("purpose", "created_at", "expires_at")}
    return add.on_conflict_do_update(
        index_elements=[Lease.comparison_id, Lease.labeler_id], set_=again
    ).returning(Lease.comparison_id, Lease.token)


def in_my_hands(connection: Connection, who: dict[str, Any]) -> list[Claimed]:
    """What a labeler holds of an experiment, in the order claimed."""
    rows = connection.execute(IN_MY_HANDS, who).mappings()
    return [
        Claimed(comparison_view(row), row["token"], row["expires_at"], row["purpose"])
        for row in rows
    ]


def choose(claim: Claim, room: int, num_held: int) -> list[tuple[ComparisonView, Purpose]]:
    """Comparisons to put into a labeler's hands, in the order to show them, each with its purpose.

    Where there is nothing to repeat, and no gold left, something else takes the place.
    """
    special = choose_special(claim, room, num_held)
    ordinary = iter(choose_free(claim, room - len(special)))
    chosen: list[tuple[ComparisonView, Purpose]] = []
    for place in range(room):
        if place in special:
            chosen.append(special[place])
        elif (comparison := next(ordinary, None)) is not None:
            chosen.append((comparison, "answer"))
    return chosen


def choose_free(claim: Claim, room: int) -> list[ComparisonView]:
    """Comparisons that may go into one more pair of hands, and are locked for it."""
    chosen: list[ComparisonView] = []
    while len(chosen) < room:
        limit = room - len(chosen)
        found = claim.connection.execute(FREE, claim.sought(limit=limit)).mappings().all()
        locked = [comparison_view(row) for row in found]
        claim.passed_over.update(each.id for each in locked)
        chosen += still_free(claim, locked)
        if len(locked) < limit:
            break
    return chosen


def still_free(claim: Claim, locked: Sequence[ComparisonView]) -> Iterable[ComparisonView]:
    """Those that nobody has claimed before they were locked; SQLite has no such moment."""
    if claim.connection.dialect.name == "sqlite" or not locked:
        return locked
    these = {**claim.who, "comparison_ids": [each.id for each in locked]}
    still = set(claim.connection.execute(STILL_FREE, these).scalars())
    return [each for each in locked if each.id in still]


def choose_special(
    claim: Claim, room: int, num_held: int
) -> dict[int, tuple[ComparisonView, Purpose]]:
    """Repeats and gold comparisons by the place that chance gave them."""
    study = claim.study
    if not study.repeats and not study.gold:
        return {}
    tally = claim.connection.execute(MY_TALLY, claim.who).one_or_none()
    num_given = tally.num_given if tally else 0
    chosen: dict[int, tuple[int, Purpose]] = {}
    for place in range(room):
        number = num_given + num_held + place
        chance = drawn("what comes next", claim.who["me"], number)
        if chance < study.repeats:
            comparison_id, purpose = choose_repeat(claim, tally, number), "repeat"
        elif chance < study.repeats + study.gold:
            comparison_id, purpose = choose_gold(claim), "answer"
        else:
            continue
        if comparison_id is not None:
            claim.passed_over.add(comparison_id)
            chosen[place] = comparison_id, purpose
    if not chosen:
        return {}
    found = claim.connection.execute(
        THESE, {"comparison_ids": [each for each, _ in chosen.values()]}
    )
    view_of = {row["id"]: comparison_view(row) for row in found.mappings()}
    return {place: (view_of[each], purpose) for place, (each, purpose) in chosen.items()}


def choose_repeat(claim: Claim, tally: Any, number: int) -> int | None:
    """A comparison that this labeler has answered, and was not asked again."""
    if tally is None:
        return None
    span = tally.last_label_id - tally.first_label_id
    place = drawn("which to repeat", claim.who["me"], number)
    for from_id in (tally.first_label_id + round(place * span), tally.first_label_id):
        found = claim.connection.execute(TO_ASK_AGAIN, claim.sought(from_id=from_id)).scalar()
        if found is not None:
            return found
    return None


def choose_gold(claim: Claim) -> int | None:
    """A comparison with a known answer that this labeler has not answered."""
    return claim.connection.execute(FREE_GOLD, claim.sought()).scalar()


def forget_leases(connection: Connection, moment: datetime) -> None:
    """Leases that expired long ago are gone."""
    connection.execute(FORGET, {"moment": moment - KEPT_AFTER_END})


def end_leases(
    connection: Connection,
    rows: Sequence[dict[str, Any]],
    labels: Sequence[NewLabel],
    moment: datetime,
) -> None:
    """End the leases that labels answer, and say in their rows what became of each."""
    labeler_ids = sorted({row["labeler_id"] for row in rows})
    found = connection.execute(HANDS, {"labeler_ids": labeler_ids}).all()
    lease_of = {(lease.comparison_id, lease.labeler_id): lease for lease in found}
    ended: list[UUID] = []
    held: set[UUID] = set()
    for row, label in zip(rows, labels, strict=True):
        hands = hands_of(row)
        lease = lease_of.get(hands)
        if lease is None:
            continue
        if lease.token == label.lease:
            row["purpose"] = lease.purpose
            row["lease"] = "held" if lease.expires_at > moment else "late"
            held.add(row["request_id"])
        elif lease.purpose == "repeat" or label.answer is None:
            continue
        ended.append(lease_of.pop(hands).token)
    if ended:
        connection.execute(END, {"ended": ended})
    go_on_with_repeats(connection, rows, held)


def go_on_with_repeats(
    connection: Connection, rows: Sequence[dict[str, Any]], held: Collection[UUID]
) -> None:
    """Say in the rows which labels without a lease are about a repeat.

    Whoever takes back what they said last takes the repeat back, if it was one; and what they say
    instead is the repeat's new answer. The answer that the comparison had before stays.

    Args:
        connection: of the transaction.
        rows: labels in the order given.
        held: the requests among them that answered under a lease, whose purpose is known.
    """
    repeated = {hands_of(row) for row in rows if row["purpose"] == "repeat"}
    repeated |= repeated_before(connection, rows)
    about_repeats = [row for row in rows if hands_of(row) in repeated]
    if not about_repeats:
        return
    sought = {
        "request_ids": [row["request_id"] for row in about_repeats],
        "comparison_ids": [row["comparison_id"] for row in about_repeats],
        "labeler_ids": [row["labeler_id"] for row in about_repeats],
    }
    known = set(connection.execute(KNOWN_REQUESTS, sought).scalars())
    oldest_first = sorted(connection.execute(SAID, sought), key=lambda label: label.id)
    said = {
        (label.comparison_id, label.labeler_id): (label.purpose, label.answer)
        for label in oldest_first
    }
    for row in about_repeats:
        if row["request_id"] in known:
            continue
        purpose, answer = said.get(hands_of(row), ("answer", None))
        if row["request_id"] not in held and (row["answer"] is None) != (answer is None):
            row["purpose"] = purpose
        said[hands_of(row)] = row["purpose"], row["answer"]


def repeated_before(connection: Connection, rows: Sequence[dict[str, Any]]) -> set[tuple[int, int]]:
    """Comparisons among these, and the labelers who were asked again about them."""
    labeler_ids = sorted({row["labeler_id"] for row in rows})
    found: set[tuple[int, int]] = set()
    for chunk in in_chunks(sorted({row["comparison_id"] for row in rows})):
        sought = {"comparison_ids": chunk, "labeler_ids": labeler_ids}
        found.update((row[0], row[1]) for row in connection.execute(REPEATED, sought))
    return found


def hands_of(row: Mapping[str, Any]) -> tuple[int, int]:
    """A label's comparison and labeler."""
    return row["comparison_id"], row["labeler_id"]
