"""Choice of the comparisons that labelers claim.

A comparison has at most as many leases as it needs more labels. SQLite has a single writer. On
PostgreSQL a claim locks the comparisons that it takes and skips those that others have locked.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Executable,
    Select,
    and_,
    bindparam,
    exists,
    func,
    literal_column,
    not_,
    or_,
    select,
    union_all,
)
from sqlalchemy.orm import aliased

from rl_teacher.store import sql
from rl_teacher.store.counters import IS_RENDERED
from rl_teacher.store.experiments import hash_uniform
from rl_teacher.store.records import AssignmentPolicy, Purpose
from rl_teacher.store.tables import Comparison, Label, Lease, Tally

LEASE_S = 300.0
"""Duration of a lease in seconds; a page renews its leases once a minute."""

MAX_AGE = timedelta(hours=1)
"""Age from which a lease is not renewed, so that nobody can hold a comparison for ever."""

COOL_DOWN = timedelta(minutes=5)
"""Time after the expiry of a lease of that age in which others may claim the comparison first."""

RENEWAL_MARGIN = timedelta(seconds=1)
"""Time before its expiry from which a lease is not renewed: another transaction, or a machine whose
clock is ahead, may be leasing the comparison to another labeler."""

CLOCK_TOLERANCE = timedelta(minutes=5)
"""Difference of two machines' clocks. A lease that lasts longer than it can was written before the
clock was set back, and does not keep a comparison from others."""

NUM_RECENT = 5
"""The comparisons of a labeler's newest labels are not repeated yet."""

REPEAT_WINDOW = 50
"""Number of a labeler's labels among which one to repeat is searched."""

Theirs, Mine, Repeated = aliased(Lease), aliased(Lease), aliased(Label)

ME, MOMENT, LATEST = bindparam("me"), bindparam("moment"), bindparam("latest")
BORN_BEFORE, COOLED_BEFORE = bindparam("born_before"), bindparam("cooled_before")
LABELER_IDS = bindparam("labeler_ids", expanding=True)


def is_held(lease: Any) -> ColumnElement[bool]:
    """Return whether a lease is held, or was held for so long that it is the turn of others."""
    return and_(
        lease.expires_at <= LATEST,
        or_(
            lease.expires_at > MOMENT,
            and_(lease.created_at <= BORN_BEFORE, lease.expires_at > COOLED_BEFORE),
        ),
    )


NUM_LEASES = (
    select(func.count())
    .select_from(Theirs)
    .where(
        Theirs.comparison_id == Comparison.id,
        Theirs.purpose == "answer",
        Theirs.expires_at > MOMENT,
        Theirs.expires_at <= LATEST,
    )
    .correlate(Comparison)
    .scalar_subquery()
)

NUM_PLACES = Comparison.wanted - Comparison.num_labels - NUM_LEASES


def exists_for_row(table: Any, *conditions: ColumnElement[bool]) -> ColumnElement[bool]:
    """Return whether a row of a table meets conditions, to be tested for one comparison at a time.

    The offset keeps PostgreSQL from converting the test to a join. In a new database, which has no
    statistics yet, such a join reads all labels of the labeler for each open comparison.
    """
    rows = select(literal_column("1")).select_from(table).where(*conditions)
    return exists(rows.correlate(Comparison).offset(literal_column("0")))


IS_MINE = exists_for_row(
    Mine, Mine.comparison_id == Comparison.id, Mine.labeler_id == ME, is_held(Mine)
)

IS_ANSWERED_BY_ME = exists_for_row(
    Label, Label.comparison_id == Comparison.id, Label.labeler_id == ME, sql.IS_CURRENT
)

IS_NOT_SKIPPED = Comparison.id.not_in(bindparam("skipped", expanding=True))

# The newest come first, because they show what the agent does now; within one step, in the order of
# the selector. A skipped row is locked by another claim, or by the recount after an answer.
UNFILLED = (
    select(Comparison.id)
    .where(sql.OF_EXPERIMENT, Comparison.is_open, IS_NOT_SKIPPED, NUM_PLACES > 0)
    .order_by(Comparison.asked_at_step.desc(), Comparison.id)
    .limit(bindparam("limit"))
    .with_for_update(of=Comparison, skip_locked=True, key_share=True)
)

FREE = UNFILLED.where(not_(IS_ANSWERED_BY_ME), not_(IS_MINE))

NUM_FREE = select(Comparison.id, NUM_PLACES.label("num_places")).where(
    sql.THESE, Comparison.is_open, NUM_PLACES > 0
)

# Pairs of a comparison and a labeler who has answered or holds it.
UNAVAILABLE = union_all(
    select(Label.comparison_id, Label.labeler_id).where(
        sql.OF_THESE, Label.labeler_id.in_(LABELER_IDS), sql.IS_CURRENT
    ),
    select(Lease.comparison_id, Lease.labeler_id).where(
        sql.IS_LEASE_OF_THESE,
        Lease.labeler_id.in_(LABELER_IDS),
        is_held(Lease),
    ),
)

# Neither locked nor limited by leases: any number of labelers may answer a gold comparison.
FREE_GOLD = (
    select(Comparison.id)
    .where(
        sql.OF_EXPERIMENT,
        Comparison.gold.is_not(None),
        IS_RENDERED,
        IS_NOT_SKIPPED,
        not_(IS_ANSWERED_BY_ME),
        not_(IS_MINE),
    )
    .order_by(Comparison.id)
    .limit(1)
)

MY_TALLY = select(Tally.num_given, Tally.first_label_id, Tally.last_label_id).where(
    Tally.experiment_id == bindparam("experiment_id"), Tally.labeler_id == ME
)


def repeatable() -> Select[Any]:
    """Return a query for the first comparison to repeat in a window of a labeler's labels."""
    window = (
        select(Label.id, Label.comparison_id)
        .where(Label.labeler_id == ME, Label.id >= bindparam("from_id"))
        .order_by(Label.id)
        # Limited first: the other conditions are then tested for these labels only.
        .limit(REPEAT_WINDOW)
        .subquery()
    )
    recent = (
        select(Label.comparison_id)
        .where(Label.labeler_id == ME)
        .order_by(Label.id.desc())
        .limit(NUM_RECENT)
    )
    is_repeated = exists().where(
        Repeated.comparison_id == Comparison.id,
        Repeated.labeler_id == ME,
        Repeated.purpose == "repeat",
    )
    return (
        select(Comparison.id)
        .join(window, window.c.comparison_id == Comparison.id)
        .where(
            sql.OF_EXPERIMENT,
            IS_RENDERED,
            IS_NOT_SKIPPED,
            IS_ANSWERED_BY_ME,
            not_(is_repeated),
            not_(IS_MINE),
            Comparison.id.not_in(recent),
        )
        .order_by(window.c.id)
        .limit(1)
    )


REPEATABLE = repeatable()


def times(moment: datetime) -> dict[str, datetime]:
    """Return the times that the conditions on leases compare with."""
    return {
        "moment": moment,
        "renewable_from": moment + RENEWAL_MARGIN,
        "latest": moment + timedelta(seconds=LEASE_S) + CLOCK_TOLERANCE,
        "born_before": moment - MAX_AGE,
        "cooled_before": moment - COOL_DOWN,
    }


@dataclass
class Claim:
    """A labeler's claim within a transaction.

    Attributes:
        who: Parameters of every statement: labeler, experiment and time.
        policy: Assignment policy of the experiment.
        room: Number of comparisons to choose.
        num_held: Number of comparisons that the labeler holds already.
        skipped: Ids of comparisons that are not to be chosen any more.
        practised: Ids of gold comparisons with which the labeler has practised.
        special: Ids of the chosen repeats and gold comparisons with their purposes, by position.
        ordinary: Ids of the other chosen comparisons.
    """

    who: dict[str, Any]
    policy: AssignmentPolicy
    room: int
    num_held: int
    skipped: set[int]
    practised: frozenset[int]
    special: dict[int, tuple[int, Purpose]] = field(default_factory=dict)
    ordinary: list[int] = field(default_factory=list)

    @property
    def num_missing(self) -> int:
        """Number of comparisons that are still to be chosen."""
        return self.room - len(self.special) - len(self.ordinary)

    def parameters(self, **more: Any) -> dict[str, Any]:
        """Return the parameters of a statement."""
        return {**self.who, "skipped": sorted(self.skipped), **more}

    def chosen(self) -> Iterator[tuple[int, Purpose]]:
        """Yield the ids of the comparisons in the order to show them, with their purposes.

        An ordinary comparison takes the place of a repeat or a gold comparison where there is none.
        """
        ordinary = iter(self.ordinary)
        for position in range(self.room):
            if position in self.special:
                yield self.special[position]
            elif (comparison_id := next(ordinary, None)) is not None:
                yield comparison_id, "answer"


@dataclass
class Places:
    """Free places of the comparisons that a transaction has locked.

    The leases of the transaction are stored at its end, so that the database does not count them.

    Attributes:
        left: Number of labelers who may still claim each comparison, by its id.
    """

    left: dict[int, int] = field(default_factory=dict)

    def full(self) -> set[int]:
        """Return the ids of the comparisons that nobody else may claim."""
        return {comparison_id for comparison_id, num_left in self.left.items() if num_left <= 0}

    def assign(self, comparison_id: int, claim: Claim) -> None:
        """Let a claim have a comparison."""
        claim.ordinary.append(comparison_id)
        claim.skipped.add(comparison_id)
        self.left[comparison_id] -= 1

    def lock(
        self, connection: Connection, statement: Executable, parameters: dict[str, Any]
    ) -> list[int]:
        """Lock free comparisons, count their places, and return their ids.

        A claim that commits after the comparisons were read and before they are locked is visible
        only to a new statement: then no place is left.
        """
        locked = list(connection.execute(statement, parameters).scalars())
        if new := [each for each in locked if each not in self.left]:
            self.left |= dict.fromkeys(new, 0)
            found = connection.execute(NUM_FREE, {**parameters, "comparison_ids": new})
            self.left |= {row.id: row.num_places for row in found}
        return locked


def choose(connection: Connection, claims: Sequence[Claim]) -> None:
    """Choose comparisons for the claims of different labelers in one experiment."""
    for claim in claims:
        claim.special = choose_special(connection, claim)
    places = Places()
    if len(claims) > 1 and not share(connection, claims, places):
        return
    for claim in claims:
        choose_free(connection, claim, places)


def share(connection: Connection, claims: Sequence[Claim], places: Places) -> bool:
    """Distribute the next free comparisons to several claims, of which earlier ones choose first.

    Returns:
        Whether a claim that got too few may find more: its labeler has answered some of these.
    """
    while (limit := sum(claim.num_missing for claim in claims)) > 0:
        parameters = {**claims[0].who, "skipped": sorted(places.full()), "limit": limit}
        found = places.lock(connection, UNFILLED, parameters)
        were_all_free = all(places.left[each] > 0 for each in found)
        distribute(found, claims, places, read_unavailable(connection, claims, found))
        if len(found) < limit:
            return False
        # Otherwise other transactions were faster: then the next ones are tried.
        if were_all_free:
            return True
    return False


def distribute(
    found: Sequence[int],
    claims: Sequence[Claim],
    places: Places,
    unavailable: Collection[tuple[int, int]],
) -> None:
    """Assign comparisons to claims.

    Args:
        found: Ids of locked comparisons in the order to show them.
        claims: Claims, of which earlier ones choose first.
        places: Free places of the comparisons.
        unavailable: Comparisons that labelers cannot claim; see `read_unavailable`.
    """
    left = found
    for claim in claims:
        left = [each for each in left if places.left[each] > 0]
        for each in left:
            if claim.num_missing == 0:
                break
            if (each, claim.who["me"]) not in unavailable and each not in claim.skipped:
                places.assign(each, claim)


def choose_free(connection: Connection, claim: Claim, places: Places) -> None:
    """Choose comparisons that one more labeler may answer."""
    while (limit := claim.num_missing) > 0:
        skipped = sorted(claim.skipped | places.full())
        found = places.lock(connection, FREE, {**claim.who, "skipped": skipped, "limit": limit})
        for each in found:
            # Not if another transaction was faster: then the next ones are tried.
            if places.left[each] > 0:
                places.assign(each, claim)
        if len(found) < limit:
            break


def read_unavailable(
    connection: Connection, claims: Sequence[Claim], found: Sequence[int]
) -> set[tuple[int, int]]:
    """Return the pairs of a comparison and the labeler of a claim who has answered or holds it."""
    if not found:
        return set()
    labeler_ids = [claim.who["me"] for claim in claims]
    parameters = {"comparison_ids": found, "labeler_ids": labeler_ids}
    rows = connection.execute(UNAVAILABLE, {**claims[0].who, **parameters})
    return {(row.comparison_id, row.labeler_id) for row in rows}


def choose_special(connection: Connection, claim: Claim) -> dict[int, tuple[int, Purpose]]:
    """Choose repeats and gold comparisons at random, by position in the claim."""
    policy = claim.policy
    if not policy.repeats and not policy.gold:
        return {}
    tally = connection.execute(MY_TALLY, claim.who).one_or_none()
    num_given = tally.num_given if tally else 0
    chosen: dict[int, tuple[int, Purpose]] = {}
    for position in range(claim.room):
        # The draw depends on the number of the answer alone, so that claiming again draws the same.
        number = num_given + claim.num_held + position
        u = hash_uniform("what comes next", claim.who["me"], number)
        if u < policy.repeats:
            comparison_id, purpose = choose_repeat(connection, claim, tally, number), "repeat"
        elif u < policy.repeats + policy.gold:
            parameters = claim.parameters(skipped=sorted(claim.skipped | claim.practised))
            gold = connection.execute(FREE_GOLD, parameters).scalar()
            comparison_id, purpose = gold, "answer"
        else:
            continue
        if comparison_id is not None:
            claim.skipped.add(comparison_id)
            chosen[position] = comparison_id, purpose
    return chosen


def choose_repeat(connection: Connection, claim: Claim, tally: Any, number: int) -> int | None:
    """Choose a comparison that this labeler has answered once, from a random point on."""
    if tally is None:
        return None
    # Ids of all labelers' labels lie in between, so that the choice is only roughly uniform.
    span = tally.last_label_id - tally.first_label_id
    u = hash_uniform("which to repeat", claim.who["me"], number)
    # From the beginning, if nothing can be repeated after the random point.
    for from_id in (tally.first_label_id + round(u * span), tally.first_label_id):
        parameters = claim.parameters(from_id=from_id)
        found = connection.execute(REPEATABLE, parameters).scalar()
        if found is not None:
            return found
    return None
