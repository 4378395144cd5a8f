"""Leases: comparisons that labelers have claimed, until they answer or the lease expires.

A comparison has at most as many leases as it needs more labels. SQLite has a single writer. On
PostgreSQL a claim locks the comparisons that it takes and skips those that others have locked.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import (
    Connection,
    Select,
    and_,
    bindparam,
    delete,
    exists,
    func,
    not_,
    or_,
    select,
    union_all,
    update,
)
from sqlalchemy.orm import aliased

from rl_teacher.clips.answer import Answer
from rl_teacher.store import sql
from rl_teacher.store.counters import IS_RENDERED
from rl_teacher.store.database import Database
from rl_teacher.store.experiments import hash_uniform
from rl_teacher.store.labelers import Labelers
from rl_teacher.store.records import (
    AssignmentPolicy,
    ClaimedComparison,
    ComparisonView,
    ComparisonWithLease,
    NewLabel,
    Purpose,
)
from rl_teacher.store.tables import Comparison, Experiment, Label, Labeler, Lease, Tally

LEASE_S = 300.0
"""Duration of a lease in seconds; a page renews its leases once a minute."""

MAX_LEASES = 20
"""Comparisons of one experiment that one labeler may hold."""

MAX_AGE = timedelta(hours=1)
"""Age from which a lease is not renewed, so that nobody can hold a comparison for ever."""

COOL_DOWN = timedelta(minutes=5)
"""Time after the expiry of a lease of that age in which others may claim the comparison first."""

KEPT_AFTER_EXPIRY = timedelta(days=7)
"""Expired leases are kept for a while: they show that a late answer is about a comparison that its
labeler was given."""

NUM_RECENT = 5
"""The comparisons of a labeler's newest labels are not repeated yet."""

REPEAT_WINDOW = 50
"""Number of a labeler's labels among which one to repeat is searched."""

Theirs, Mine, Repeated = aliased(Lease), aliased(Lease), aliased(Label)

CLOCK_TOLERANCE = timedelta(minutes=5)
"""Difference of two machines' clocks. A lease that lasts longer than it can was written before the
clock was set back, and does not keep a comparison from others."""

ME, MOMENT, LATEST = bindparam("me"), bindparam("moment"), bindparam("latest")

NUM_LEASES_OF_OTHERS = (
    select(func.count())
    .select_from(Theirs)
    .where(
        Theirs.comparison_id == Comparison.id,
        Theirs.labeler_id != ME,
        Theirs.purpose == "answer",
        Theirs.expires_at > MOMENT,
        Theirs.expires_at <= LATEST,
    )
    .correlate(Comparison)
    .scalar_subquery()
)

BORN_BEFORE, COOLED_BEFORE = bindparam("born_before"), bindparam("cooled_before")

# Held now, or held for so long that it is the turn of others.
IS_MINE = exists().where(
    Mine.comparison_id == Comparison.id,
    Mine.labeler_id == ME,
    Mine.expires_at <= LATEST,
    or_(
        Mine.expires_at > MOMENT,
        and_(Mine.created_at <= BORN_BEFORE, Mine.expires_at > COOLED_BEFORE),
    ),
)

IS_ANSWERED_BY_ME = exists().where(
    Label.comparison_id == Comparison.id, Label.labeler_id == ME, sql.IS_CURRENT
)

IS_FREE = and_(
    Comparison.is_open,
    not_(IS_ANSWERED_BY_ME),
    not_(IS_MINE),
    Comparison.num_labels + NUM_LEASES_OF_OTHERS < Comparison.wanted,
)

IS_NOT_SKIPPED = Comparison.id.not_in(bindparam("skipped", expanding=True))

# The newest come first, because they show what the agent does now; within one step, in the order of
# the selector. A skipped row is locked by another claim, or by an answer that is being stored.
FREE = (
    sql.COMPARISONS.where(sql.OF_EXPERIMENT, IS_FREE, IS_NOT_SKIPPED)
    .order_by(Comparison.asked_at_step.desc(), Comparison.id)
    .limit(bindparam("limit"))
    .with_for_update(of=Comparison, skip_locked=True, key_share=True)
)

# A claim that committed after FREE started and before it locked is visible only to a new statement.
STILL_FREE = select(Comparison.id).where(sql.THESE, IS_FREE)

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

FINISHED = "finished"
"""The phase in a run's status (`runs.control.Phase`) in which labels are not used any more."""

# The lock on the labeler makes two claims of the same labeler run one after the other.
LOCK_LABELER = (
    select(
        Labeler.excluded_at,
        Labeler.practised,
        Experiment.assignment,
        Experiment.status,
        Experiment.archived_at,
    )
    .join(Experiment, Experiment.id == bindparam("experiment_id"))
    .where(Labeler.id == ME)
    .with_for_update(of=Labeler, key_share=True)
)

MY_TALLY = select(Tally.num_given, Tally.first_label_id, Tally.last_label_id).where(
    Tally.experiment_id == bindparam("experiment_id"), Tally.labeler_id == ME
)

IS_MY_LEASE = and_(
    Lease.labeler_id == ME, Lease.expires_at > MOMENT, Lease.created_at > BORN_BEFORE
)

RENEW_ALL = (
    update(Lease)
    .where(
        IS_MY_LEASE,
        exists().where(
            Comparison.id == Lease.comparison_id,
            Comparison.experiment_id == bindparam("of_experiment"),
        ),
    )
    .values(expires_at=bindparam("until"))
)

RENEW = (
    update(Lease)
    .where(IS_MY_LEASE, Lease.token.in_(bindparam("tokens", expanding=True)))
    .values(expires_at=bindparam("until"))
    .returning(Lease.token)
)

# Expired, not deleted: another tab may still answer the comparison.
RELEASE = (
    update(Lease)
    .where(
        Lease.labeler_id == ME,
        Lease.expires_at > MOMENT,
        Lease.token.in_(bindparam("tokens", expanding=True)),
    )
    .values(expires_at=MOMENT)
)

BIRTHS = select(Lease.comparison_id, Lease.created_at).where(
    Lease.labeler_id == ME,
    Lease.expires_at > COOLED_BEFORE,
    Lease.comparison_id.in_(bindparam("comparison_ids", expanding=True)),
)

# In the order of the claims.
MY_LEASES = (
    sql.COMPARISONS.add_columns(Lease.token, Lease.expires_at, Lease.purpose)
    .join(Lease, Lease.comparison_id == Comparison.id)
    .where(IS_MY_LEASE, sql.OF_EXPERIMENT)
    .order_by(Lease.created_at, Comparison.asked_at_step.desc(), Comparison.id)
)

CLIPS_OF_COMPARISON = select(Comparison.left_hash, Comparison.right_hash).where(sql.OF_EXPERIMENT)

# One statement for each index. A leased comparison may be a repeat, which was answered before.
PENDING = union_all(
    CLIPS_OF_COMPARISON.where(Comparison.is_open, not_(IS_ANSWERED_BY_ME)),
    CLIPS_OF_COMPARISON.where(Comparison.gold.is_not(None), not_(IS_ANSWERED_BY_ME)),
    CLIPS_OF_COMPARISON.join(Lease, Lease.comparison_id == Comparison.id).where(IS_MY_LEASE),
)

LEASES_OF_LABELERS = select(
    Lease.comparison_id, Lease.labeler_id, Lease.token, Lease.purpose, Lease.expires_at
).where(Lease.labeler_id.in_(bindparam("labeler_ids", expanding=True)))

REPEATS = select(Label.comparison_id, Label.labeler_id).where(
    sql.OF_THESE,
    Label.labeler_id.in_(bindparam("labeler_ids", expanding=True)),
    Label.purpose == "repeat",
)

LABELLED = select(Label.comparison_id, Label.labeler_id).where(
    sql.OF_THESE, Label.labeler_id.in_(bindparam("labeler_ids", expanding=True))
)

KNOWN_REQUESTS = select(Label.request_id).where(
    Label.request_id.in_(bindparam("request_ids", expanding=True))
)

# Not ordered: with ORDER BY, SQLite would scan all labels of these labelers.
LABELS_OF_PAIRS = select(
    Label.id, Label.comparison_id, Label.labeler_id, Label.purpose, Label.answer
).where(
    sql.OF_THESE,
    Label.labeler_id.in_(bindparam("labeler_ids", expanding=True)),
)

END = delete(Lease).where(Lease.token.in_(bindparam("ended", expanding=True)))

DELETE_EXPIRED = delete(Lease).where(Lease.expires_at <= MOMENT)


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
        ).returning(Lease.comparison_id, Lease.token)

    def claim(
        self,
        experiment_id: int,
        labeler: str,
        limit: int,
        exclude: Collection[int] = (),
        lease_s: float = LEASE_S,
    ) -> list[ClaimedComparison]:
        """Lease comparisons to a labeler; those that they hold already come first.

        An excluded labeler gets none, nor does anybody after the run has finished, because these
        answers would not be used.

        Args:
            experiment_id: Experiment.
            labeler: Name of the labeler.
            limit: Maximum number of comparisons.
            exclude: Ids of comparisons that the client has; their leases are kept.
            lease_s: Time until the leases expire.
        """
        moment = self._database.now()
        until = moment + timedelta(seconds=lease_s)
        me = self._labelers.id_of(labeler)
        who = {"me": me, "experiment_id": experiment_id, **times(moment)}
        excluded = set(sql.valid_ids(exclude))
        with self._database.writing() as connection:
            locked = connection.execute(LOCK_LABELER, who).one_or_none()
            if locked is None or locked.excluded_at or locked.archived_at:
                return []
            if (locked.status or {}).get("phase") == FINISHED:
                return []
            held = renew_all(connection, who, until)
            # Held, but unknown to the client: its page was reloaded, for example.
            old = [each for each in held if each.comparison.id not in excluded][:limit]
            skipped = excluded | {each.comparison.id for each in held}
            policy = AssignmentPolicy(**(locked.assignment or {}))
            claim = Claim(connection, who, policy, skipped, frozenset(locked.practised or ()))
            room = min(limit - len(old), MAX_LEASES - len(held))
            chosen = choose(claim, room, len(held)) if room > 0 else []
            return old + self.lease(connection, who, chosen, until)

    def lease(
        self,
        connection: Connection,
        who: Mapping[str, Any],
        chosen: Sequence[tuple[ComparisonView, Purpose]],
        until: datetime,
    ) -> list[ClaimedComparison]:
        """Lease comparisons to a labeler within a transaction, each for its purpose.

        Args:
            connection: Connection of the transaction.
            who: Id of the labeler (`me`) and `times`.
            chosen: Comparisons and their purposes.
            until: Expiry of the leases.
        """
        if not chosen:
            return []
        ids = [comparison.id for comparison, _ in chosen]
        found = connection.execute(BIRTHS, {**who, "comparison_ids": ids})
        born_at = {row.comparison_id: row.created_at for row in found}
        rows = [
            {
                "comparison_id": comparison.id,
                "labeler_id": who["me"],
                "purpose": purpose,
                "token": uuid4(),
                # A lease that was released and claimed again keeps its age.
                "created_at": born_at.get(comparison.id, who["moment"]),
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

    def renew(
        self, labeler: str, leases: Sequence[UUID], lease_s: float = LEASE_S
    ) -> dict[UUID, datetime]:
        """Extend leases, and return the new expiry of those that are neither expired nor old."""
        labeler_id = self._labelers.id_of(labeler)
        moment = self._database.now()
        until = moment + timedelta(seconds=lease_s)
        who = {"me": labeler_id, **times(moment)}
        parameters = {**who, "until": until, "tokens": list(leases)}
        with self._database.writing() as connection:
            return dict.fromkeys(connection.execute(RENEW, parameters).scalars(), until)

    def release(self, labeler: str, leases: Sequence[UUID]) -> None:
        """Return comparisons to the queue; leases of other labelers are left alone."""
        labeler_id = self._labelers.id_of(labeler)
        with self._database.writing() as connection:
            who = {"me": labeler_id, "moment": self._database.now()}
            connection.execute(RELEASE, {**who, "tokens": list(leases)})

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
            views = {
                row["id"]: sql.comparison_view(row)
                for row in connection.execute(sql.COMPARISONS_BY_ID, parameters).mappings()
            }
            rows = connection.execute(LEASES_OF_LABELERS, parameters)
            leases = {(row.labeler_id, row.comparison_id): row for row in rows}
            keys = {(id_of[name], comparison_id) for name, comparison_id in answered}
            labelled = read_labelled(connection, keys - leases.keys())
        found: dict[tuple[str, int], ComparisonWithLease] = {}
        for labeler, comparison_id in answered:
            lease = leases.get((id_of[labeler], comparison_id))
            if comparison_id in views:
                found[labeler, comparison_id] = ComparisonWithLease(
                    views[comparison_id],
                    lease.token if lease else None,
                    lease.purpose if lease else None,
                    (id_of[labeler], comparison_id) in labelled,
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


def renew_all(
    connection: Connection, who: dict[str, Any], until: datetime
) -> list[ClaimedComparison]:
    """Extend all leases that a labeler holds in an experiment, and return them."""
    # Most claims find no lease, and the update is then saved.
    if not read_leases(connection, who):
        return []
    mine = {name: value for name, value in who.items() if name != "experiment_id"}
    of_experiment = who["experiment_id"]
    connection.execute(RENEW_ALL, {**mine, "of_experiment": of_experiment, "until": until})
    return read_leases(connection, who)


def read_leases(connection: Connection, who: dict[str, Any]) -> list[ClaimedComparison]:
    """Return the leases that a labeler holds in an experiment, in the order of the claims."""
    return [
        ClaimedComparison(sql.comparison_view(row), row["token"], row["expires_at"], row["purpose"])
        for row in connection.execute(MY_LEASES, who).mappings()
    ]


# --- choosing comparisons for a claim ---


@dataclass
class Claim:
    """The state of one claim within its transaction.

    Attributes:
        connection: Connection of the transaction.
        who: Parameters of every statement: labeler, experiment and time.
        policy: Assignment policy of the experiment.
        skipped: Ids of comparisons that are not to be chosen any more.
        practised: Ids of gold comparisons with which the labeler has practised.
    """

    connection: Connection
    who: dict[str, Any]
    policy: AssignmentPolicy
    skipped: set[int]
    practised: frozenset[int]

    def parameters(self, **more: Any) -> dict[str, Any]:
        """Return the parameters of a statement."""
        return {**self.who, "skipped": sorted(self.skipped), **more}


def choose(claim: Claim, room: int, num_held: int) -> list[tuple[ComparisonView, Purpose]]:
    """Choose comparisons and their purposes, in the order to show them.

    An ordinary comparison takes the place of a repeat or a gold comparison where there is none.
    """
    special = choose_special(claim, room, num_held)
    ordinary = iter(choose_free(claim, room - len(special)))
    chosen: list[tuple[ComparisonView, Purpose]] = []
    for position in range(room):
        if position in special:
            chosen.append(special[position])
        elif (comparison := next(ordinary, None)) is not None:
            chosen.append((comparison, "answer"))
    return chosen


def choose_free(claim: Claim, room: int) -> list[ComparisonView]:
    """Choose and lock comparisons that one more labeler may answer."""
    chosen: list[ComparisonView] = []
    while len(chosen) < room:
        limit = room - len(chosen)
        found = claim.connection.execute(FREE, claim.parameters(limit=limit)).mappings().all()
        locked = [sql.comparison_view(row) for row in found]
        claim.skipped.update(each.id for each in locked)
        # Fewer than locked, if others were faster: then the next ones are tried.
        chosen += still_free(claim, locked)
        if len(locked) < limit:
            break
    return chosen


def still_free(claim: Claim, locked: Sequence[ComparisonView]) -> Iterable[ComparisonView]:
    """Drop comparisons that were claimed just before they were locked; not possible on SQLite."""
    if claim.connection.dialect.name == "sqlite" or not locked:
        return locked
    parameters = {**claim.who, "comparison_ids": [each.id for each in locked]}
    free = set(claim.connection.execute(STILL_FREE, parameters).scalars())
    return [each for each in locked if each.id in free]


def choose_special(
    claim: Claim, room: int, num_held: int
) -> dict[int, tuple[ComparisonView, Purpose]]:
    """Choose repeats and gold comparisons at random, by position in the claim."""
    policy = claim.policy
    if not policy.repeats and not policy.gold:
        return {}
    tally = claim.connection.execute(MY_TALLY, claim.who).one_or_none()
    num_given = tally.num_given if tally else 0
    chosen: dict[int, tuple[int, Purpose]] = {}
    for position in range(room):
        # The draw depends on the number of the answer alone, so that claiming again draws the same.
        number = num_given + num_held + position
        u = hash_uniform("what comes next", claim.who["me"], number)
        if u < policy.repeats:
            comparison_id, purpose = choose_repeat(claim, tally, number), "repeat"
        elif u < policy.repeats + policy.gold:
            parameters = claim.parameters(skipped=sorted(claim.skipped | claim.practised))
            gold = claim.connection.execute(FREE_GOLD, parameters).scalar()
            comparison_id, purpose = gold, "answer"
        else:
            continue
        if comparison_id is not None:
            claim.skipped.add(comparison_id)
            chosen[position] = comparison_id, purpose
    if not chosen:
        return {}
    parameters = {"comparison_ids": [each for each, _ in chosen.values()]}
    rows = claim.connection.execute(sql.COMPARISONS_BY_ID, parameters).mappings()
    view_of = {row["id"]: sql.comparison_view(row) for row in rows}
    return {position: (view_of[each], purpose) for position, (each, purpose) in chosen.items()}


def choose_repeat(claim: Claim, tally: Any, number: int) -> int | None:
    """Choose a comparison that this labeler has answered once, from a random point on."""
    if tally is None:
        return None
    # Ids of all labelers' labels lie in between, so that the choice is only roughly uniform.
    span = tally.last_label_id - tally.first_label_id
    u = hash_uniform("which to repeat", claim.who["me"], number)
    # From the beginning, if nothing can be repeated after the random point.
    for from_id in (tally.first_label_id + round(u * span), tally.first_label_id):
        parameters = claim.parameters(from_id=from_id)
        found = claim.connection.execute(REPEATABLE, parameters).scalar()
        if found is not None:
            return found
    return None


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
        connection.execute(END, {"ended": ended})
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
