"""Leases: comparisons that labelers have claimed, until they answer or the lease expires."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import (
    Connection,
    and_,
    bindparam,
    delete,
    exists,
    not_,
    select,
    union_all,
    update,
)

from rl_teacher.clips.answer import Answer
from rl_teacher.store import sql
from rl_teacher.store.assignment import (
    BORN_BEFORE,
    IS_ANSWERED_BY_ME,
    LABELER_IDS,
    LEASE_S,
    ME,
    MOMENT,
    Claim,
    choose,
    times,
)
from rl_teacher.store.counters import IS_RENDERED
from rl_teacher.store.database import Database
from rl_teacher.store.labelers import Labelers
from rl_teacher.store.records import (
    Assigned,
    AssignmentPolicy,
    ClaimedComparison,
    ClaimRequest,
    ComparisonView,
    ComparisonWithLease,
    NewLabel,
)
from rl_teacher.store.tables import Comparison, Experiment, Label, Labeler, Lease

MAX_LEASES = 20
"""Comparisons of one experiment that one labeler may hold."""

KEPT_AFTER_EXPIRY = timedelta(days=7)
"""Expired leases are kept for a while: they show that a late answer is about a comparison that its
labeler was given."""

FINISHED = "finished"
"""The phase in a run's status (`runs.control.Phase`) in which labels are not used any more."""

# The locks on the labelers make two claims of the same labeler run one after the other. Every
# transaction takes them in the order of the ids, so that none waits for another in a circle.
LOCK_LABELERS = (
    select(Labeler.id, Labeler.excluded_at, Labeler.practised)
    .where(Labeler.id.in_(LABELER_IDS))
    .order_by(Labeler.id)
    .with_for_update(key_share=True)
)

EXPERIMENTS = select(
    Experiment.id, Experiment.assignment, Experiment.status, Experiment.archived_at
).where(Experiment.id.in_(bindparam("experiment_ids", expanding=True)))

IS_RENEWABLE = and_(Lease.expires_at > bindparam("renewable_from"), Lease.created_at > BORN_BEFORE)

IS_MY_LEASE = and_(Lease.labeler_id == ME, IS_RENEWABLE)

# In the order of the claims. A skipped lease is locked by an answer that is being stored. A clip
# that was shown may have been hidden since.
HELD = (
    sql.COMPARISONS.add_columns(
        Lease.labeler_id, Lease.token, Lease.expires_at, Lease.purpose, Comparison.experiment_id
    )
    .join(Lease, Lease.comparison_id == Comparison.id)
    .where(Lease.labeler_id.in_(LABELER_IDS), IS_RENEWABLE, IS_RENDERED)
    .order_by(Lease.created_at, Comparison.asked_at_step.desc(), Comparison.id)
    .with_for_update(of=Lease, skip_locked=True)
)

WITH_TOKENS = Lease.token.in_(bindparam("tokens", expanding=True))

LOCK_LEASES = sql.LEASES_IN_ORDER.where(WITH_TOKENS)

EXTEND = update(Lease).where(WITH_TOKENS).values(expires_at=bindparam("until"))

RENEW = (
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

LEASES_OF_PAIRS = select(
    Lease.comparison_id, Lease.labeler_id, Lease.created_at, Lease.expires_at
).where(Lease.labeler_id.in_(LABELER_IDS), sql.IS_LEASE_OF_THESE)

LOCK_LEASES_OF_PAIRS = LEASES_OF_PAIRS.with_for_update(skip_locked=True)

CLIPS_OF_COMPARISON = select(Comparison.left_hash, Comparison.right_hash).where(sql.OF_EXPERIMENT)

# One statement for each index. A leased comparison may be a repeat, which was answered before.
PENDING = union_all(
    CLIPS_OF_COMPARISON.where(Comparison.is_open, not_(IS_ANSWERED_BY_ME)),
    CLIPS_OF_COMPARISON.where(Comparison.gold.is_not(None), not_(IS_ANSWERED_BY_ME)),
    CLIPS_OF_COMPARISON.join(Lease, Lease.comparison_id == Comparison.id).where(IS_MY_LEASE),
)

LEASES_OF_LABELERS = select(
    Lease.comparison_id, Lease.labeler_id, Lease.token, Lease.purpose, Lease.expires_at
).where(Lease.labeler_id.in_(LABELER_IDS))

ANSWERED_LEASES = LEASES_OF_LABELERS.add_columns(
    exists()
    .where(Label.comparison_id == Lease.comparison_id, Label.labeler_id == Lease.labeler_id)
    .label("is_labelled")
)

LABELLED = select(Label.comparison_id, Label.labeler_id).where(
    sql.OF_THESE, Label.labeler_id.in_(LABELER_IDS)
)

REPEATS = LABELLED.where(Label.purpose == "repeat")

KNOWN_REQUESTS = select(Label.request_id).where(sql.WITH_REQUEST_IDS)

# Not ordered: with ORDER BY, SQLite would scan all labels of these labelers.
LABELS_OF_PAIRS = LABELLED.add_columns(Label.id, Label.purpose, Label.answer)

END = delete(Lease).where(Lease.token.in_(LOCK_LEASES))

DELETE_EXPIRED = delete(Lease).where(
    Lease.token.in_(
        select(Lease.token).where(Lease.expires_at <= MOMENT).with_for_update(skip_locked=True)
    )
)


class Leases:
    """The leases of all labelers."""

    def __init__(self, database: Database, labelers: Labelers) -> None:
        self._database = database
        self._labelers = labelers
        # An expired lease of the same labeler is taken up again under its old token.
        upsert = sql.insert_into(database.dialect, Lease)
        renewed = {name: upsert.excluded[name] for name in ("purpose", "created_at", "expires_at")}
        self._upsert = upsert.on_conflict_do_update(
            index_elements=[Lease.comparison_id, Lease.labeler_id], set_=renewed
        ).returning(Lease.comparison_id, Lease.labeler_id, Lease.token)

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
        """Lease comparisons to labelers; those that they hold already come first.

        An excluded labeler gets none, nor does anybody after the run has finished, because these
        answers would not be used.

        Args:
            requests: Requests, of which earlier ones choose first.
            lease_s: Time until the leases expire.

        Returns:
            The comparisons of each request.
        """
        id_of = self._labelers.ids_of({each.labeler for each in requests})
        claimed: dict[int, list[ClaimedComparison]] = {}
        with self._database.writing() as connection:
            labelers = lock_labelers(connection, sorted(id_of.values()))
            # After all that may have to wait.
            moment = self._database.now()
            until = moment + timedelta(seconds=lease_s)
            for turn in turns(requests):
                these = [(id_of[requests[place].labeler], requests[place]) for place in turn]
                found = self._claim_each(connection, these, labelers, moment, until)
                claimed.update(zip(turn, found, strict=True))
        return [claimed[place] for place in range(len(requests))]

    def _claim_each(
        self,
        connection: Connection,
        requests: Sequence[tuple[int, ClaimRequest]],
        labelers: Mapping[int, frozenset[int]],
        moment: datetime,
        until: datetime,
    ) -> Iterator[list[ClaimedComparison]]:
        """Yield the comparisons of each request.

        Args:
            connection: Connection of the transaction.
            requests: Ids of different labelers, and their requests.
            labelers: Result of `lock_labelers`.
            moment: Time of the claims.
            until: Expiry of the leases.
        """
        held, claims = open_claims(connection, requests, labelers, moment, until)
        by_experiment: dict[int, list[Claim]] = {}
        for claim in claims:
            by_experiment.setdefault(claim.who["experiment_id"], []).append(claim)
        for of_experiment in by_experiment.values():
            choose(connection, of_experiment)
        chosen = [list(claim.chosen()) for claim in claims]
        views = read_comparisons(connection, {each for these in chosen for each, _ in these})
        assigned = [
            Assigned(labeler_id, views[each], purpose)
            for (labeler_id, _), these in zip(requests, chosen, strict=True)
            for each, purpose in these
        ]
        leased = self.lease(connection, assigned, moment, until)
        for (labeler_id, _), known, these in zip(requests, held, chosen, strict=True):
            keys = ((each, labeler_id) for each, _ in these)
            yield known + [leased[key] for key in keys if key in leased]

    def lease(
        self,
        connection: Connection,
        assigned: Sequence[Assigned],
        moment: datetime,
        until: datetime,
    ) -> dict[tuple[int, int], ClaimedComparison]:
        """Lease comparisons to labelers within a transaction.

        Args:
            connection: Connection of the transaction, which has locked the labelers.
            assigned: Comparisons, their labelers and their purposes.
            moment: Time of the claims.
            until: Expiry of the leases.

        Returns:
            The leases by the ids of comparison and labeler. A comparison for which the labeler's
            answer is being stored under an earlier lease is left out.
        """
        if not assigned:
            return {}
        parameters = {
            "labeler_ids": sorted({each.labeler_id for each in assigned}),
            "comparison_ids": sorted({each.comparison.id for each in assigned}),
        }
        existing = connection.execute(LEASES_OF_PAIRS, parameters).all()
        being_ended: set[tuple[int, int]] = set()
        if existing and connection.dialect.name == "postgresql":
            # Waiting for that answer could end in a deadlock: its transaction waits for comparisons
            # that this one has locked.
            locked = connection.execute(LOCK_LEASES_OF_PAIRS, parameters).all()
            being_ended = {(row.comparison_id, row.labeler_id) for row in existing}
            being_ended -= {(row.comparison_id, row.labeler_id) for row in locked}
        # A lease that was released and claimed again keeps its age.
        cooled_before = times(moment)["cooled_before"]
        born_at = {
            (row.comparison_id, row.labeler_id): row.created_at
            for row in existing
            if row.expires_at > cooled_before
        }
        rows = [
            {
                "comparison_id": each.comparison.id,
                "labeler_id": each.labeler_id,
                "purpose": each.purpose,
                "token": uuid4(),
                "created_at": born_at.get((each.comparison.id, each.labeler_id), moment),
                "expires_at": until,
            }
            for each in assigned
            if (each.comparison.id, each.labeler_id) not in being_ended
        ]
        if not rows:
            return {}
        leases = connection.execute(self._upsert, rows)
        token_of = {(row.comparison_id, row.labeler_id): row.token for row in leases}
        return {
            key: ClaimedComparison(each.comparison, token_of[key], until, each.purpose)
            for each in assigned
            if (key := (each.comparison.id, each.labeler_id)) in token_of
        }

    def renew(
        self, labeler: str, leases: Sequence[UUID], lease_s: float = LEASE_S
    ) -> dict[UUID, datetime]:
        """Extend leases, and return the new expiry of those that are neither expired nor old."""
        labeler_id = self._labelers.id_of(labeler)
        tokens = {"tokens": list(leases)}
        with self._database.writing() as connection:
            sql.lock_rows(connection, LOCK_LEASES, tokens)
            moment = self._database.now()
            until = moment + timedelta(seconds=lease_s)
            parameters = {"me": labeler_id, **times(moment), "until": until, **tokens}
            return dict.fromkeys(connection.execute(RENEW, parameters).scalars(), until)

    def release(self, labeler: str, leases: Sequence[UUID]) -> None:
        """Return comparisons to the queue; leases of other labelers are left alone."""
        labeler_id = self._labelers.id_of(labeler)
        tokens = {"tokens": list(leases)}
        with self._database.writing() as connection:
            sql.lock_rows(connection, LOCK_LEASES, tokens)
            who = {"me": labeler_id, "moment": self._database.now()}
            connection.execute(RELEASE, {**who, **tokens})

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
        id_of = {name: self._labelers.id_of(name) for name in {name for name, _ in answered}}
        parameters = {
            "comparison_ids": sql.valid_ids({comparison_id for _, comparison_id in answered}),
            "labeler_ids": sorted(id_of.values()),
        }
        with self._database.reading() as connection:
            views = read_comparisons(connection, parameters["comparison_ids"])
            rows = connection.execute(ANSWERED_LEASES, parameters)
            leases = {(row.labeler_id, row.comparison_id): row for row in rows}
            moment = self._database.now()
            keys = {(id_of[name], comparison_id) for name, comparison_id in answered}
            labelled = read_labelled(connection, keys - leases.keys())
        found: dict[tuple[str, int], ComparisonWithLease] = {}
        for labeler, comparison_id in answered:
            key = id_of[labeler], comparison_id
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


def read_comparisons(
    connection: Connection, comparison_ids: Collection[int]
) -> dict[int, ComparisonView]:
    """Return comparisons by id."""
    if not comparison_ids:
        return {}
    parameters = {"comparison_ids": sorted(comparison_ids)}
    rows = connection.execute(sql.COMPARISONS_BY_ID, parameters).mappings()
    return {row["id"]: sql.comparison_view(row) for row in rows}


def read_labelled(
    connection: Connection, keys: Collection[tuple[int, int]]
) -> set[tuple[int, int]]:
    """Return those pairs of a labeler and a comparison for which there is a label."""
    if not keys:
        return set()
    parameters = {
        "labeler_ids": sorted({labeler_id for labeler_id, _ in keys}),
        "comparison_ids": sql.valid_ids({comparison_id for _, comparison_id in keys}),
    }
    return {(row.labeler_id, row.comparison_id) for row in connection.execute(LABELLED, parameters)}


# --- claims ---


def turns(requests: Sequence[ClaimRequest]) -> list[list[int]]:
    """Divide requests into groups of different labelers, and return their places.

    The second request of a labeler, from another tab, comes after the leases of the first.
    """
    found: list[list[int]] = []
    num_before: Counter[str] = Counter()
    for place, request in enumerate(requests):
        turn = num_before[request.labeler]
        num_before[request.labeler] += 1
        if turn == len(found):
            found.append([])
        found[turn].append(place)
    return found


def open_claims(
    connection: Connection,
    requests: Sequence[tuple[int, ClaimRequest]],
    labelers: Mapping[int, frozenset[int]],
    moment: datetime,
    until: datetime,
) -> tuple[list[list[ClaimedComparison]], list[Claim]]:
    """Extend the leases that labelers hold.

    Args:
        connection: Connection of the transaction.
        requests: Ids of different labelers, and their requests.
        labelers: Result of `lock_labelers`.
        moment: Time of the claims.
        until: Expiry of the leases.

    Returns:
        For each request, the held comparisons that the client does not know of, because its page
        was reloaded, for example; and the claim for further ones.
    """
    policies = read_policies(connection, {each.experiment_id for _, each in requests})
    admitted = {
        (labeler_id, each.experiment_id)
        for labeler_id, each in requests
        if labeler_id in labelers and each.experiment_id in policies
    }
    held = extend_held(connection, admitted, moment, until)
    unknown: list[list[ClaimedComparison]] = []
    claims: list[Claim] = []
    for labeler_id, request in requests:
        experiment_id = request.experiment_id
        mine = held.get((labeler_id, experiment_id), [])
        excluded = set(sql.valid_ids(request.exclude))
        old = [each for each in mine if each.comparison.id not in excluded][: request.limit]
        room = max(0, min(request.limit - len(old), MAX_LEASES - len(mine)))
        claim = Claim(
            who={"me": labeler_id, "experiment_id": experiment_id, **times(moment)},
            policy=policies.get(experiment_id, AssignmentPolicy()),
            room=room if (labeler_id, experiment_id) in admitted else 0,
            num_held=len(mine),
            skipped=excluded | {each.comparison.id for each in mine},
            practised=labelers.get(labeler_id, frozenset()),
        )
        unknown.append(old)
        claims.append(claim)
    return unknown, claims


def lock_labelers(connection: Connection, labeler_ids: Sequence[int]) -> dict[int, frozenset[int]]:
    """Lock labelers, and return the gold comparisons with which they practised.

    Returns:
        The ids of the comparisons by labeler; without labelers who are excluded.
    """
    rows = connection.execute(LOCK_LABELERS, {"labeler_ids": labeler_ids})
    return {row.id: frozenset(row.practised or ()) for row in rows if not row.excluded_at}


def read_policies(connection: Connection, ids: Collection[int]) -> dict[int, AssignmentPolicy]:
    """Return the assignment policies of those experiments that use further answers."""
    return {
        row.id: AssignmentPolicy(**(row.assignment or {}))
        for row in connection.execute(EXPERIMENTS, {"experiment_ids": sorted(ids)})
        if not row.archived_at and (row.status or {}).get("phase") != FINISHED
    }


def extend_held(
    connection: Connection,
    claimants: Collection[tuple[int, int]],
    moment: datetime,
    until: datetime,
) -> dict[tuple[int, int], list[ClaimedComparison]]:
    """Extend the leases of labelers in experiments, and return them by labeler and experiment."""
    parameters = {"labeler_ids": sorted({labeler_id for labeler_id, _ in claimants})}
    held: dict[tuple[int, int], list[ClaimedComparison]] = {key: [] for key in claimants}
    for row in connection.execute(HELD, {**parameters, **times(moment)}).mappings():
        if (key := (row["labeler_id"], row["experiment_id"])) in held:
            view = sql.comparison_view(row)
            held[key].append(ClaimedComparison(view, row["token"], until, row["purpose"]))
    # Most claims find no lease, and the update is then saved.
    if tokens := [each.lease for leases in held.values() for each in leases]:
        connection.execute(EXTEND, {"tokens": tokens, "until": until})
    return held


# --- ending leases with labels ---


def delete_old_leases(connection: Connection, moment: datetime) -> None:
    """Delete leases that expired long ago."""
    connection.execute(DELETE_EXPIRED, {"moment": moment - KEPT_AFTER_EXPIRY})


def end_leases(
    connection: Connection,
    rows: Sequence[dict[str, Any]],
    labels: Sequence[NewLabel],
    moment: datetime,
) -> dict[UUID, Answer]:
    """End the leases that labels answer, and set `purpose` and `lease` in their rows.

    Returns:
        The stored answer, by request id, of each label whose lease its labeler has used up with
        another label, as happens in two tabs. These labels must not be stored.
    """
    labeler_ids = sorted({row["labeler_id"] for row in rows})
    found = connection.execute(LEASES_OF_LABELERS, {"labeler_ids": labeler_ids}).all()
    lease_of = {(lease.comparison_id, lease.labeler_id): lease for lease in found}
    ended: list[UUID] = []
    held: set[UUID] = set()
    stale: set[UUID] = set()
    for row, label in zip(rows, labels, strict=True):
        key = key_of(row)
        lease = lease_of.get(key)
        if label.lease is not None and (lease is None or lease.token != label.lease):
            # The lease was used up or replaced, for example by another tab.
            stale.add(row["request_id"])
        if lease is None:
            continue
        if lease.token == label.lease:
            row["purpose"] = lease.purpose
            row["lease"] = "held" if lease.expires_at > moment else "late"
            held.add(row["request_id"])
        # A label without this lease answers the comparison itself: a repeat stays to be answered,
        # and so does a comparison whose answer is withdrawn.
        elif lease.purpose == "repeat" or label.answer is None:
            continue
        ended.append(lease_of.pop(key).token)
    if ended:
        connection.execute(END, {"tokens": ended})
    answered = find_answered(connection, rows, stale) if stale else {}
    rest = [row for row in rows if row["request_id"] not in answered]
    mark_revised_repeats(connection, rest, held)
    return answered


def find_answered(
    connection: Connection, rows: Sequence[dict[str, Any]], stale: Collection[UUID]
) -> dict[UUID, Answer]:
    """Return the stored answer of each new label whose comparison its labeler has answered.

    Args:
        connection: Connection of the transaction.
        rows: Labels in the order given.
        stale: Request ids of the labels to check.
    """
    keys = {key_of(row) for row in rows if row["request_id"] in stale}
    related = [row for row in rows if key_of(row) in keys]
    known, earlier = read_earlier(connection, related)
    newest = {key: answer for key, (_, answer) in earlier.items()}
    found: dict[UUID, Answer] = {}
    # As if the labels of one batch had been stored one after the other.
    for row in related:
        key, request_id = key_of(row), row["request_id"]
        if request_id in known:
            continue
        stored = newest.get(key)
        if request_id in stale and row["answer"] is not None and stored is not None:
            found[request_id] = Answer(stored)
        else:
            newest[key] = row["answer"]
    return found


def read_earlier(
    connection: Connection, rows: Sequence[dict[str, Any]]
) -> tuple[set[UUID], dict[tuple[int, int], tuple[str, str | None]]]:
    """Return the known request ids of labels, and the newest purpose and answer of each key."""
    parameters = {
        "request_ids": [row["request_id"] for row in rows],
        "comparison_ids": [row["comparison_id"] for row in rows],
        "labeler_ids": [row["labeler_id"] for row in rows],
    }
    known = set(connection.execute(KNOWN_REQUESTS, parameters).scalars())
    earlier = sorted(connection.execute(LABELS_OF_PAIRS, parameters), key=lambda label: label.id)
    return known, {
        (label.comparison_id, label.labeler_id): (label.purpose, label.answer) for label in earlier
    }


def mark_revised_repeats(
    connection: Connection, rows: Sequence[dict[str, Any]], held: Collection[UUID]
) -> None:
    """Set the purpose of labels without a lease that revise a repeat.

    A labeler who withdraws their newest label of a comparison withdraws the repeat, if it was one,
    and the label that follows is the new answer to the repeat. The original answer stays.

    Args:
        connection: Connection of the transaction.
        rows: Labels in the order given.
        held: Request ids of labels with a lease, whose purpose is known.
    """
    # Few comparisons were ever repeated, so that most labels need one query only.
    repeated = {key_of(row) for row in rows if row["purpose"] == "repeat"}
    repeated |= read_repeats(connection, rows)
    about_repeats = [row for row in rows if key_of(row) in repeated]
    if not about_repeats:
        return
    known, newest = read_earlier(connection, about_repeats)
    for row in about_repeats:
        if row["request_id"] in known:
            continue
        purpose, answer = newest.get(key_of(row), ("answer", None))
        if row["request_id"] not in held and (row["answer"] is None) != (answer is None):
            row["purpose"] = purpose
        newest[key_of(row)] = row["purpose"], row["answer"]


def read_repeats(connection: Connection, rows: Sequence[dict[str, Any]]) -> set[tuple[int, int]]:
    """Return the keys of labels whose comparison was repeated to the labeler before."""
    labeler_ids = sorted({row["labeler_id"] for row in rows})
    found: set[tuple[int, int]] = set()
    for chunk in sql.in_chunks(sorted({row["comparison_id"] for row in rows})):
        parameters = {"comparison_ids": chunk, "labeler_ids": labeler_ids}
        found.update((row[0], row[1]) for row in connection.execute(REPEATS, parameters))
    return found


def key_of(row: Mapping[str, Any]) -> tuple[int, int]:
    """Return the comparison and the labeler of a label."""
    return row["comparison_id"], row["labeler_id"]
