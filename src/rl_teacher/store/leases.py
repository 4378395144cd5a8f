"""Leases: comparisons that labelers have claimed, until they answer or the lease expires.

A comparison has at most as many leases as it needs more labels. The comparisons of the newest step
come first, because they show what the agent does now; within a step, in the order of the selector.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import (
    ColumnElement,
    Connection,
    and_,
    bindparam,
    case,
    exists,
    func,
    not_,
    or_,
    select,
    union_all,
    update,
)
from sqlalchemy.orm import aliased

from rl_teacher.store import sql
from rl_teacher.store.counters import IS_RENDERED
from rl_teacher.store.database import Database
from rl_teacher.store.experiments import hash_uniform
from rl_teacher.store.labelers import Labelers
from rl_teacher.store.records import (
    AssignmentPolicy,
    ClaimedComparison,
    ClaimRequest,
    ComparisonView,
    ComparisonWithLease,
    Purpose,
)
from rl_teacher.store.tables import Comparison, Experiment, Label, Labeler, Lease, Tally

LEASE_S = 300.0
"""Duration of a lease in seconds; a page renews its leases once a minute."""

MAX_AGE = timedelta(hours=1)
"""Age from which a lease is not renewed, so that nobody can hold a comparison for ever."""

COOL_DOWN = timedelta(minutes=5)
"""Time after the expiry of a lease of that age in which others may claim the comparison first."""

CLOCK_TOLERANCE = timedelta(minutes=5)
"""Difference of two machines' clocks. A lease that lasts longer than it can was written before the
clock was set back, and does not keep a comparison from others."""

MAX_LEASES = 20
"""Comparisons of one experiment that one labeler may hold."""

KEPT_AFTER_EXPIRY = timedelta(days=7)
"""Expired leases are kept for a while: they show that a late answer is about a comparison that its
labeler was given."""

NUM_RECENT = 5
"""The comparisons of a labeler's newest labels are not repeated yet."""

MAX_REPEATABLE = 1_000
"""Number of a labeler's newest labels among which one to repeat is chosen."""

FINISHED = "finished"
"""The phase in a run's status (`runs.control.Phase`) in which labels are not used any more."""

Other, Mine, Repeated = aliased(Lease), aliased(Lease), aliased(Label)

ME, MOMENT, LATEST = bindparam("me"), bindparam("moment"), bindparam("latest")
BORN_BEFORE, COOLED_BEFORE = bindparam("born_before"), bindparam("cooled_before")


def is_valid(lease: Any) -> ColumnElement[bool]:
    """Return the condition that a lease has not expired."""
    return and_(lease.expires_at > MOMENT, lease.expires_at <= LATEST)


NUM_LEASES = (
    select(func.count())
    .where(Other.comparison_id == Comparison.id, Other.purpose == "answer", is_valid(Other))
    .correlate(Comparison)
    .scalar_subquery()
)

# Or was, for so long that others come first.
IS_MINE = exists().where(
    Mine.comparison_id == Comparison.id,
    Mine.labeler_id == ME,
    or_(
        is_valid(Mine),
        and_(Mine.created_at <= BORN_BEFORE, Mine.expires_at.between(COOLED_BEFORE, LATEST)),
    ),
)

IS_ANSWERED_BY_ME = exists().where(
    Label.comparison_id == Comparison.id, Label.labeler_id == ME, sql.IS_CURRENT
)

# Also one from before the clock was set back.
IS_MY_LEASE = and_(
    Lease.labeler_id == ME, Lease.expires_at > MOMENT, Lease.created_at > BORN_BEFORE
)

ADMITTED = (
    select(Experiment.assignment, Experiment.status, Labeler.practised)
    .join(Labeler, Labeler.id == ME)
    .where(
        Experiment.id == bindparam("experiment_id"),
        Experiment.archived_at.is_(None),
        Labeler.excluded_at.is_(None),
    )
)

# A clip that was shown may have been hidden since.
HELD = (
    sql.COMPARISONS.add_columns(Lease.token, Lease.purpose)
    .join(Lease, Lease.comparison_id == Comparison.id)
    .where(sql.OF_EXPERIMENT, IS_MY_LEASE, IS_RENDERED)
    .order_by(Lease.created_at, Comparison.asked_at_step.desc(), Comparison.id)
)

NEW = sql.COMPARISONS.where(
    sql.OF_EXPERIMENT,
    Comparison.id.not_in(bindparam("skipped", expanding=True)),
    not_(IS_ANSWERED_BY_ME),
    not_(IS_MINE),
).limit(bindparam("limit"))

FREE = NEW.where(
    Comparison.is_open, Comparison.wanted - Comparison.num_labels > NUM_LEASES
).order_by(Comparison.asked_at_step.desc(), Comparison.id)

# Any number of labelers may answer a gold comparison.
FREE_GOLD = NEW.where(Comparison.gold.is_not(None), IS_RENDERED).order_by(Comparison.id)

NUM_GIVEN = select(Tally.num_given).where(
    Tally.experiment_id == bindparam("experiment_id"), Tally.labeler_id == ME
)

REPEATABLE = (
    select(Comparison.id)
    .join(Label, Label.comparison_id == Comparison.id)
    .where(
        sql.OF_EXPERIMENT,
        Label.labeler_id == ME,
        sql.IS_CURRENT,
        IS_RENDERED,
        not_(IS_MINE),
        not_(
            exists().where(
                Repeated.comparison_id == Comparison.id,
                Repeated.labeler_id == ME,
                Repeated.purpose == "repeat",
            )
        ),
    )
    .order_by(Label.id.desc())
    .limit(MAX_REPEATABLE)
)

RECENT = (
    select(Label.comparison_id)
    .where(Label.labeler_id == ME)
    .order_by(Label.id.desc())
    .limit(NUM_RECENT)
)

WITH_TOKENS = Lease.token.in_(bindparam("tokens", expanding=True))

EXTEND = (
    update(Lease)
    .where(IS_MY_LEASE, WITH_TOKENS)
    .values(expires_at=bindparam("until"))
    .returning(Lease.token)
)

# Expired, not deleted: another tab may still answer the comparison.
RELEASE = (
    update(Lease)
    .where(Lease.labeler_id == ME, Lease.expires_at > MOMENT, WITH_TOKENS)
    .values(expires_at=MOMENT)
)

CLIPS_OF_COMPARISON = select(Comparison.left_hash, Comparison.right_hash).where(sql.OF_EXPERIMENT)

# One statement for each index. A leased comparison may be a repeat, which was answered before.
PENDING = union_all(
    CLIPS_OF_COMPARISON.where(Comparison.is_open, not_(IS_ANSWERED_BY_ME)),
    CLIPS_OF_COMPARISON.where(Comparison.gold.is_not(None), not_(IS_ANSWERED_BY_ME)),
    CLIPS_OF_COMPARISON.join(Lease, Lease.comparison_id == Comparison.id).where(IS_MY_LEASE),
)

LEASES_OF_PAIRS = select(
    Lease.comparison_id,
    Lease.labeler_id,
    Lease.token,
    Lease.purpose,
    Lease.expires_at,
    exists()
    .where(Label.comparison_id == Lease.comparison_id, Label.labeler_id == Lease.labeler_id)
    .label("is_labelled"),
).where(
    Lease.labeler_id.in_(bindparam("labeler_ids", expanding=True)),
    Lease.comparison_id.in_(bindparam("comparison_ids", expanding=True)),
)

LABELLED = select(Label.comparison_id, Label.labeler_id).where(
    sql.OF_THESE, Label.labeler_id.in_(bindparam("labeler_ids", expanding=True))
)


class Leases:
    """The leases of all labelers."""

    def __init__(self, database: Database, labelers: Labelers) -> None:
        self._database = database
        self._labelers = labelers
        # An expired lease of the same labeler is taken up again under its old token, and one that
        # was released a moment ago keeps its age.
        upsert = sql.insert_into(database.dialect, Lease)
        new = upsert.excluded
        born_at = case((Lease.expires_at > COOLED_BEFORE, Lease.created_at), else_=new.created_at)
        self._upsert = upsert.on_conflict_do_update(
            index_elements=[Lease.comparison_id, Lease.labeler_id],
            set_={"purpose": new.purpose, "expires_at": new.expires_at, "created_at": born_at},
        ).returning(Lease.comparison_id, Lease.token)

    def claim(
        self,
        experiment_id: int,
        labeler: str,
        limit: int,
        exclude: Collection[int] = (),
        lease_s: float = LEASE_S,
    ) -> list[ClaimedComparison]:
        """Lease comparisons to a labeler; see `claim_many`."""
        [claimed] = self.claim_many([ClaimRequest(experiment_id, labeler, limit, exclude)], lease_s)
        return claimed

    def claim_many(
        self, requests: Sequence[ClaimRequest], lease_s: float = LEASE_S
    ) -> list[list[ClaimedComparison]]:
        """Lease comparisons to labelers in one transaction; those that they hold come first.

        An excluded labeler gets none, nor does anybody after the run has finished, because these
        answers would not be used.

        Args:
            requests: Requests, of which earlier ones choose first.
            lease_s: Time until the leases expire.

        Returns:
            For each request, the held comparisons that the client does not know of, because its
            page was reloaded, for example; and new ones.
        """
        id_of = self._labelers.ids_of({each.labeler for each in requests})
        with self._database.writing() as connection:
            moment = self._database.now()
            until = moment + timedelta(seconds=lease_s)
            return [
                self._claim(connection, each, id_of[each.labeler], moment, until)
                for each in requests
            ]

    def _claim(
        self,
        connection: Connection,
        request: ClaimRequest,
        labeler_id: int,
        moment: datetime,
        until: datetime,
    ) -> list[ClaimedComparison]:
        who = {"experiment_id": request.experiment_id, "me": labeler_id, **times(moment)}
        found = connection.execute(ADMITTED, who).one_or_none()
        if found is None or (found.status or {}).get("phase") == FINISHED:
            return []
        held = [
            ClaimedComparison(sql.comparison_view(row), row["token"], until, row["purpose"])
            for row in connection.execute(HELD, who).mappings()
        ]
        if held:
            connection.execute(
                EXTEND, {**who, "tokens": [each.lease for each in held], "until": until}
            )
        excluded = set(sql.valid_ids(request.exclude))
        known = [each for each in held if each.comparison.id not in excluded][: request.limit]
        room = min(request.limit - len(known), MAX_LEASES - len(held))
        skipped = excluded | {each.comparison.id for each in held}
        policy = AssignmentPolicy(**(found.assignment or {}))
        special = choose_special(
            connection, who, policy, range(len(held), len(held) + room), skipped, found.practised
        )
        chosen = choose(connection, who, room, special, skipped)
        return known + self.lease(connection, labeler_id, chosen, moment, until)

    def lease(
        self,
        connection: Connection,
        labeler_id: int,
        chosen: Sequence[tuple[ComparisonView, Purpose]],
        moment: datetime,
        until: datetime,
    ) -> list[ClaimedComparison]:
        """Lease comparisons to a labeler within a transaction.

        Args:
            connection: Connection of the transaction.
            labeler_id: Labeler.
            chosen: Comparisons and their purposes.
            moment: Time of the claim.
            until: Expiry of the leases.
        """
        if not chosen:
            return []
        rows = [
            {
                "comparison_id": comparison.id,
                "labeler_id": labeler_id,
                "purpose": purpose,
                "token": uuid4(),
                "created_at": moment,
                "expires_at": until,
                "cooled_before": moment - COOL_DOWN,
            }
            for comparison, purpose in chosen
        ]
        leases = connection.execute(self._upsert, rows)
        token_of = {row.comparison_id: row.token for row in leases}
        return [
            ClaimedComparison(comparison, token_of[comparison.id], until, purpose)
            for comparison, purpose in chosen
        ]

    def renew(
        self, labeler: str, leases: Sequence[UUID], lease_s: float = LEASE_S
    ) -> dict[UUID, datetime]:
        """Extend leases, and return the new expiry of those that are neither expired nor old."""
        labeler_id = self._labelers.id_of(labeler)
        with self._database.writing() as connection:
            moment = self._database.now()
            until = moment + timedelta(seconds=lease_s)
            parameters = {"me": labeler_id, **times(moment), "until": until, "tokens": [*leases]}
            return dict.fromkeys(connection.execute(EXTEND, parameters).scalars(), until)

    def release(self, labeler: str, leases: Sequence[UUID]) -> None:
        """Return comparisons to the queue; leases of other labelers are left alone."""
        labeler_id = self._labelers.id_of(labeler)
        with self._database.writing() as connection:
            who = {"me": labeler_id, "moment": self._database.now(), "tokens": [*leases]}
            connection.execute(RELEASE, who)

    def pending_clips(self, experiment_id: int, labeler: str) -> set[str]:
        """Return the content hashes of the clips that a labeler may still be asked about."""
        who = {"me": self._labelers.id_of(labeler), **times(self._database.now())}
        rows = self._database.rows(PENDING, experiment_id=experiment_id, **who)
        return {content_hash for row in rows for content_hash in row.values()}

    def find(
        self, answered: Collection[tuple[str, int]]
    ) -> dict[tuple[str, int], ComparisonWithLease]:
        """Return comparisons that labelers have answered, with their leases.

        Args:
            answered: Pairs of a labeler's name and a comparison's id; unknown ids are left out.
        """
        id_of = self._labelers.ids_of({name for name, _ in answered})
        parameters = {
            "comparison_ids": sql.valid_ids({comparison_id for _, comparison_id in answered}),
            "labeler_ids": sorted(id_of.values()),
        }
        with self._database.reading() as connection:
            rows = connection.execute(sql.COMPARISONS_BY_ID, parameters).mappings()
            views = {row["id"]: sql.comparison_view(row) for row in rows}
            leases = read_leases(connection, parameters)
            labelled: set[Any] = set()
            if any((each, id_of[name]) not in leases for name, each in answered):
                labelled = {tuple(row) for row in connection.execute(LABELLED, parameters)}
        moment = self._database.now()
        found: dict[tuple[str, int], ComparisonWithLease] = {}
        for labeler, comparison_id in answered:
            key = comparison_id, id_of[labeler]
            lease = leases.get(key)
            if comparison_id in views:
                found[labeler, comparison_id] = ComparisonWithLease(
                    views[comparison_id],
                    lease.token if lease else None,
                    lease.purpose if lease else None,
                    lease is not None and lease.expires_at > moment,
                    lease.is_labelled if lease else key in labelled,
                )
        return found


def times(moment: datetime) -> dict[str, datetime]:
    """Return the times that the conditions on leases compare with."""
    return {
        "moment": moment,
        "latest": moment + timedelta(seconds=LEASE_S) + CLOCK_TOLERANCE,
        "born_before": moment - MAX_AGE,
        "cooled_before": moment - COOL_DOWN,
    }


def read_leases(
    connection: Connection, parameters: Mapping[str, Any]
) -> dict[tuple[int, int], Any]:
    """Return the leases of some comparisons and labelers, by the ids of both."""
    rows = connection.execute(LEASES_OF_PAIRS, parameters)
    return {(row.comparison_id, row.labeler_id): row for row in rows}


def choose(
    connection: Connection,
    who: Mapping[str, Any],
    room: int,
    special: Mapping[int, tuple[int, Purpose]],
    skipped: Collection[int],
) -> list[tuple[ComparisonView, Purpose]]:
    """Choose comparisons in the order to show them.

    Args:
        connection: Connection of the transaction.
        who: Parameters of the statements: labeler, experiment and time.
        room: Number of comparisons.
        special: Result of `choose_special`.
        skipped: Ids of comparisons that are not to be chosen.
    """
    if room <= 0:
        return []
    special_ids = [comparison_id for comparison_id, _ in special.values()]
    limits = {"skipped": [*skipped, *special_ids], "limit": room - len(special)}
    rows = connection.execute(FREE, {**who, **limits}).mappings()
    ordinary = iter([sql.comparison_view(row) for row in rows])
    views = {}
    if special_ids:
        found = connection.execute(sql.COMPARISONS_BY_ID, {"comparison_ids": special_ids})
        views = {row["id"]: sql.comparison_view(row) for row in found.mappings()}
    chosen: list[tuple[ComparisonView, Purpose]] = []
    for position in range(room):
        if position in special:
            comparison_id, purpose = special[position]
            chosen.append((views[comparison_id], purpose))
        elif (view := next(ordinary, None)) is not None:
            chosen.append((view, "answer"))
    return chosen


def choose_special(
    connection: Connection,
    who: Mapping[str, Any],
    policy: AssignmentPolicy,
    places: Sequence[int],
    skipped: Collection[int],
    practised: Collection[int] | None,
) -> dict[int, tuple[int, Purpose]]:
    """Choose repeats and gold comparisons at random.

    Args:
        connection: Connection of the transaction.
        who: Parameters of the statements.
        policy: Assignment policy of the experiment.
        places: Places of the comparisons to choose among those that the labeler holds.
        skipped: Ids of comparisons that are not to be chosen.
        practised: Ids of gold comparisons with which the labeler has practised.

    Returns:
        Ids of comparisons and their purposes, by position in the claim.
    """
    chosen: dict[int, tuple[int, Purpose]] = {}
    if not policy.repeats and not policy.gold:
        return chosen
    taken = set(skipped)
    num_given = connection.execute(NUM_GIVEN, who).scalar() or 0
    for position, place in enumerate(places):
        # The draw depends on the number of the answer alone, so that claiming again draws the same.
        u = hash_uniform("what comes next", who["me"], num_given + place)
        if u < policy.repeats:
            recent = set(connection.execute(RECENT, who).scalars())
            found = [*connection.execute(REPEATABLE, who).scalars()]
            found = [each for each in found if each not in recent | taken]
            purpose = "repeat"
        elif u < policy.repeats + policy.gold:
            parameters = {**who, "skipped": [*taken, *(practised or ())], "limit": 1}
            found = [row.id for row in connection.execute(FREE_GOLD, parameters)]
            purpose = "answer"
        else:
            continue
        if found:
            place_of = hash_uniform("which to repeat", who["me"], num_given + place)
            chosen[position] = found[int(place_of * len(found))], purpose
            taken.add(chosen[position][0])
    return chosen
