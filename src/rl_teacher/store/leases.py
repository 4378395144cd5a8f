"""Leases: comparisons that labelers have claimed, until they answer or the lease expires.

A comparison has at most as many leases as it needs more labels. The comparisons of the newest step
come first, because they show what the agent does now; within a step, in the order of the selector.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import (
    Connection,
    and_,
    bindparam,
    exists,
    func,
    not_,
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

LEASE_TIME = timedelta(minutes=5)
"""Duration of a lease; a page renews its leases once a minute."""

MAX_AGE = timedelta(hours=1)
"""Age from which a lease is not renewed, so that nobody can hold a comparison for ever."""

MAX_LEASES = 20
"""Comparisons of one experiment that one labeler may hold."""

KEPT_AFTER_EXPIRY = timedelta(days=7)
"""Expired leases are kept for a while: they show that a late answer is about a comparison that its
labeler was given."""

NUM_RECENT = 5
"""A labeler's newest labels that are not repeated yet."""

MAX_REPEATABLE = 1_000
"""Number of a labeler's newest labels among which one to repeat is chosen."""

FINISHED = "finished"
"""The phase in a run's status (`runs.control.Phase`) in which labels are not used any more."""

Choice = tuple[ComparisonView, Purpose]
"""A comparison to lease, and its purpose."""

Other, Mine, Repeated = aliased(Lease), aliased(Lease), aliased(Label)

ME, MOMENT, BORN_BEFORE = bindparam("me"), bindparam("moment"), bindparam("born_before")


NUM_LEASES = (
    select(func.count())
    .where(
        Other.comparison_id == Comparison.id,
        Other.purpose == "answer",
        Other.expires_at > MOMENT,
    )
    .correlate(Comparison)
    .scalar_subquery()
)

IS_MINE = exists().where(
    Mine.comparison_id == Comparison.id, Mine.labeler_id == ME, Mine.expires_at > MOMENT
)

IS_ANSWERED_BY_ME = exists().where(
    Label.comparison_id == Comparison.id, Label.labeler_id == ME, sql.IS_CURRENT
)

IS_MY_LEASE = and_(
    Lease.labeler_id == ME, Lease.expires_at > MOMENT, Lease.created_at > BORN_BEFORE
)

ADMITTED = (
    select(Experiment.assignment, Experiment.status)
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
    .offset(NUM_RECENT)
    .limit(MAX_REPEATABLE)
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
        # An expired lease of the same labeler is taken up again under its old token.
        upsert = sql.insert_into(database.dialect, Lease)
        new = upsert.excluded
        self._upsert = upsert.on_conflict_do_update(
            index_elements=[Lease.comparison_id, Lease.labeler_id],
            set_={name: new[name] for name in ("purpose", "expires_at", "created_at")},
        ).returning(Lease.comparison_id, Lease.token)

    def claim(
        self,
        experiment_id: int,
        labeler: str,
        limit: int,
        exclude: Collection[int] = (),
    ) -> list[ClaimedComparison]:
        """Lease comparisons to a labeler; see `claim_many`."""
        [claimed] = self.claim_many([ClaimRequest(experiment_id, labeler, limit, exclude)])
        return claimed

    def claim_many(self, requests: Sequence[ClaimRequest]) -> list[list[ClaimedComparison]]:
        """Lease comparisons to labelers in one transaction; those that they hold come first.

        An excluded labeler gets none, nor does anybody after the run has finished, because these
        answers would not be used.

        Args:
            requests: Requests, of which earlier ones choose first.

        Returns:
            For each request, the held comparisons that the client does not know of, because its
            page was reloaded, for example; and new ones.
        """
        id_of = self._labelers.ids_of({each.labeler for each in requests})
        with self._database.writing() as connection:
            moment = self._database.now()
            until = moment + LEASE_TIME
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
        excluded = set(request.exclude)
        known = [each for each in held if each.comparison.id not in excluded][: request.limit]
        room = min(request.limit - len(known), MAX_LEASES - len(held))
        skipped = excluded | {each.comparison.id for each in held}
        if room <= 0:
            return known
        policy = AssignmentPolicy(**(found.assignment or {}))
        places = range(len(held), len(held) + room)
        special = choose_special(connection, who, policy, places, skipped)
        skipped |= {comparison.id for comparison, _ in special.values()}
        limits = {"skipped": [*skipped], "limit": room - len(special)}
        rows = connection.execute(FREE, {**who, **limits}).mappings()
        chosen: list[Choice] = [(sql.comparison_view(row), "answer") for row in rows]
        for position, choice in special.items():
            chosen.insert(position, choice)
        return known + self.lease(connection, labeler_id, chosen, moment, until)

    def lease(
        self,
        connection: Connection,
        labeler_id: int,
        chosen: Sequence[Choice],
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
            }
            for comparison, purpose in chosen
        ]
        leases = connection.execute(self._upsert, rows)
        token_of = {row.comparison_id: row.token for row in leases}
        return [
            ClaimedComparison(comparison, token_of[comparison.id], until, purpose)
            for comparison, purpose in chosen
        ]

    def renew(self, labeler: str, leases: Sequence[UUID]) -> dict[UUID, datetime]:
        """Extend leases, and return the new expiry of those that are neither expired nor old."""
        labeler_id = self._labelers.id_of(labeler)
        with self._database.writing() as connection:
            moment = self._database.now()
            until = moment + LEASE_TIME
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
            "comparison_ids": [*{comparison_id for _, comparison_id in answered}],
            "labeler_ids": sorted(id_of.values()),
        }
        with self._database.reading() as connection:
            rows = connection.execute(sql.COMPARISONS_BY_ID, parameters).mappings()
            views = {row["id"]: sql.comparison_view(row) for row in rows}
            leases = read_leases(connection, parameters)
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
                    key in labelled,
                )
        return found


def times(moment: datetime) -> dict[str, datetime]:
    """Return the times that the conditions on leases compare with."""
    return {"moment": moment, "born_before": moment - MAX_AGE}


def read_leases(
    connection: Connection, parameters: Mapping[str, Any]
) -> dict[tuple[int, int], Any]:
    """Return the leases of some comparisons and labelers, by the ids of both."""
    rows = connection.execute(LEASES_OF_PAIRS, parameters)
    return {(row.comparison_id, row.labeler_id): row for row in rows}


def choose_special(
    connection: Connection,
    who: Mapping[str, Any],
    policy: AssignmentPolicy,
    places: Sequence[int],
    skipped: Collection[int],
) -> dict[int, Choice]:
    """Choose repeats and gold comparisons at random.

    Args:
        connection: Connection of the transaction.
        who: Parameters of the statements.
        policy: Assignment policy of the experiment.
        places: Places of the comparisons to choose among those that the labeler holds.
        skipped: Ids of comparisons that are not to be chosen.

    Returns:
        Choices by position in the claim, in its order.
    """
    chosen: dict[int, Choice] = {}
    if not policy.repeats and not policy.gold:
        return chosen
    taken = set(skipped)
    num_given = connection.execute(NUM_GIVEN, who).scalar() or 0
    for position, place in enumerate(places):
        # The draw depends on the number of the answer alone, so that claiming again draws the same.
        u = hash_uniform("what comes next", who["me"], num_given + place)
        if u < policy.repeats:
            repeatable = connection.execute(REPEATABLE, who).scalars()
            found = [each for each in repeatable if each not in taken]
            purpose = "repeat"
        elif u < policy.repeats + policy.gold:
            parameters = {**who, "skipped": [*taken], "limit": 1}
            found = [row.id for row in connection.execute(FREE_GOLD, parameters)]
            purpose = "answer"
        else:
            continue
        if found:
            place_of = hash_uniform("which to repeat", who["me"], num_given + place)
            these = {"comparison_ids": [found[int(place_of * len(found))]]}
            row = connection.execute(sql.COMPARISONS_BY_ID, these).mappings().one()
            chosen[position] = sql.comparison_view(row), purpose
            taken.add(row["id"])
    return chosen
