"""Rankings: orderings of several clips, stored as labels of their pairs.

A labeler ranks the clips of comparisons that they hold. The pairs of these clips that have no
comparison yet get one, so that everything that reads labels reads rankings too.
"""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any
from uuid import UUID, uuid5

from sqlalchemy import Connection, bindparam, not_, select
from sqlalchemy.orm import aliased

from rl_teacher.clips.answer import Answer, mirror_answer, pairwise_answers
from rl_teacher.common.errors import BadRanking, RankingNotFound
from rl_teacher.store import sql
from rl_teacher.store.comparisons import find_ids, insert_pairs, read_num_asked
from rl_teacher.store.database import Database
from rl_teacher.store.labelers import Labelers
from rl_teacher.store.labels import RANKING, Labels
from rl_teacher.store.leases import LEASE_TIME, Leases
from rl_teacher.store.records import ClaimedComparison, NewLabel, NewRanking
from rl_teacher.store.tables import Comparison, Label, Labeler, Lease

MIN_CLIPS, MAX_CLIPS = 2, 5
"""Clips of one ranking."""

MAX_PAIRS = MAX_CLIPS * (MAX_CLIPS - 1) // 2

Pair = tuple[str, str]

Newer = aliased(Label)

# Expired leases are included: as with a single answer, a late ranking is kept.
LEASED = (
    select(
        Comparison.id,
        Comparison.left_hash,
        Comparison.right_hash,
        Comparison.asked_at_step,
        Lease.token,
    )
    .join(Lease, Lease.comparison_id == Comparison.id)
    .where(sql.OF_EXPERIMENT, Lease.labeler_id == bindparam("me"))
    .order_by(Comparison.id)
)

OF_RANKING = (
    select(
        Label.comparison_id,
        Label.purpose,
        Label.answer,
        Comparison.left_hash,
        Comparison.right_hash,
        not_(
            select(Newer.id)
            .where(
                Newer.comparison_id == Label.comparison_id,
                Newer.labeler_id == Label.labeler_id,
                Newer.id > Label.id,
            )
            .exists()
        ).label("is_newest"),
    )
    .join(Comparison, Comparison.id == Label.comparison_id)
    .where(
        sql.OF_EXPERIMENT,
        Label.labeler_id == bindparam("me"),
        sql.WITH_REQUEST_IDS,
    )
    .order_by(Label.id)
)

IS_EXCLUDED = select(Labeler.excluded_at.is_not(None)).where(Labeler.id == bindparam("me"))

LEASES_OF_THESE = (
    sql.COMPARISONS.add_columns(Lease.token, Lease.expires_at, Lease.purpose)
    .join(Lease, Lease.comparison_id == Comparison.id)
    .where(sql.THESE, Lease.labeler_id == bindparam("me"))
    .order_by(Comparison.id)
)


class Rankings:
    """The rankings of all experiments."""

    def __init__(
        self, database: Database, labelers: Labelers, labels: Labels, leases: Leases
    ) -> None:
        self._database = database
        self._labelers = labelers
        self._labels = labels
        self._leases = leases

    def add(self, experiment_id: int, ranking: NewRanking) -> list[int]:
        """Store a label of every pair of ranked clips, in one transaction.

        The pairs are the comparisons that the labeler holds, whose leases end, other comparisons of
        the experiment, and new ones. A comparison that the labeler holds with a clip that is left
        out gets the answer `cannot_tell`.

        Returns:
            Ids of the labelled comparisons. A ranking that is repeated under its request_id is not
            stored again.

        Raises:
            BadRanking: It has too few or too many clips, a clip twice, clips of comparisons that
                the labeler does not hold, or the request_id of a different ranking.
            ExperimentNotFound: The experiment was deleted.
        """
        check_clips(ranking)
        moment = self._database.now()
        who = {"experiment_id": experiment_id, "me": self._labelers.id_of(ranking.labeler)}
        with self._database.writing() as connection:
            if known := read_labels(connection, who, ranking.request_id):
                if not is_order_of(known, ranking):
                    raise request_reused()
                return [row.comparison_id for row in known]
            leased = connection.execute(LEASED, who).all()
            check_leases(ranking, [(row.left_hash, row.right_hash) for row in leased])
            token_of = {row.id: row.token for row in leased}
            held = {(row.left_hash, row.right_hash): row.id for row in leased}
            answers = answers_of(ranking, held)
            shown = set(clips_of(ranking))
            steps = [
                row.asked_at_step for row in leased if {row.left_hash, row.right_hash} <= shown
            ]
            asked = {"asked_at_step": max(steps), "created_at": moment}
            ids = find_or_insert(connection, experiment_id, answers, held, asked)
            labels = [
                NewLabel(
                    comparison_id,
                    mirror_answer(answer, swapped=swapped),
                    ranking.labeler,
                    label_request_id(ranking.request_id, number),
                    response_ms=ranking.response_ms,
                    details={**(ranking.details or {}), RANKING: str(ranking.request_id)},
                    lease=token_of.get(comparison_id),
                    is_too_fast=ranking.is_too_fast,
                )
                for number, ((comparison_id, swapped), answer) in enumerate(
                    zip(ids, answers.values(), strict=True)
                )
            ]
            # Labels under the request_id of another labeler's ranking are refused.
            if self._labels.write(connection, labels, {ranking.labeler: who["me"]}):
                raise request_reused()
        return [label.comparison_id for label in labels]

    def withdraw(
        self, experiment_id: int, labeler: str, ranking_id: UUID
    ) -> list[ClaimedComparison]:
        """Withdraw the labels of a ranking that count, and lease their comparisons to the labeler.

        A label that the labeler has replaced since, by an answer to its comparison, stays replaced.
        Repeating the call withdraws nothing more. An excluded labeler gets no lease.

        Returns:
            The comparisons that the labeler holds now, to be ranked again.

        Raises:
            RankingNotFound: The labeler has submitted no such ranking in this experiment.
        """
        moment = self._database.now()
        who = {"experiment_id": experiment_id, "me": self._labelers.id_of(labeler)}
        with self._database.writing() as connection:
            rows = read_labels(connection, who, ranking_id)
            if not rows:
                raise RankingNotFound(
                    f"You have submitted no ranking {ranking_id} in this experiment, or it was "
                    "deleted. Look at your latest labels."
                )
            current = {row.comparison_id: row.purpose for row in rows if row.is_newest}
            labels = [
                NewLabel(
                    comparison_id,
                    None,
                    labeler,
                    label_request_id(ranking_id, MAX_PAIRS + number),
                    details={RANKING: str(ranking_id)},
                )
                for number, comparison_id in enumerate(current)
            ]
            self._labels.write(connection, labels, {labeler: who["me"]})
            views = connection.execute(sql.COMPARISONS_BY_ID, {"comparison_ids": [*current]})
            chosen = [(sql.comparison_view(row), current[row["id"]]) for row in views.mappings()]
            if not connection.execute(IS_EXCLUDED, who).scalar():
                until = moment + LEASE_TIME
                self._leases.lease(connection, who["me"], chosen, moment, until)
            these = {"comparison_ids": [row.comparison_id for row in rows], "me": who["me"]}
            return [
                ClaimedComparison(
                    sql.comparison_view(row), row["token"], row["expires_at"], row["purpose"]
                )
                for row in connection.execute(LEASES_OF_THESE, these).mappings()
            ]


def label_request_id(ranking_id: UUID, number: int) -> UUID:
    """Derive the request id of a ranking's n-th label, by which it is found again."""
    return uuid5(ranking_id, str(number))


def read_labels(connection: Connection, who: Mapping[str, Any], ranking_id: UUID) -> Sequence[Any]:
    """Return the labels of a ranking, in its order; none if it is unknown."""
    request_ids = [label_request_id(ranking_id, number) for number in range(MAX_PAIRS)]
    return connection.execute(OF_RANKING, {**who, "request_ids": request_ids}).all()


def is_order_of(labels: Sequence[Any], ranking: NewRanking) -> bool:
    """Return whether labels that were stored under the request_id of a ranking are its own."""
    stored = {
        preference((label.left_hash, label.right_hash), label.answer)
        for label in labels
        if label.answer != Answer.CANNOT_TELL
    }
    return stored == {preference(*each) for each in pairwise_answers(ranking.groups).items()}


def preference(pair: Pair, answer: str) -> tuple[frozenset[str], str | None]:
    """Return the clips of a pair, and the better one; None if they are equally good."""
    left, right = pair
    return frozenset(pair), {Answer.LEFT: left, Answer.RIGHT: right}.get(Answer(answer))


def request_reused() -> BadRanking:
    """Return the error for a ranking with the request_id of a different one."""
    return BadRanking(
        "A different ranking has this request_id, so this one was not stored. Send it with a new "
        "UUID."
    )


def check_clips(ranking: NewRanking) -> None:
    """Check the number of clips, and that each occurs once.

    Raises:
        BadRanking: They are wrong.
    """
    clips = clips_of(ranking)
    if not all(ranking.groups):
        raise BadRanking("A group of the ranking is empty. Leave it out.")
    if len(set(clips)) < len(clips):
        raise BadRanking("A clip occurs twice in the ranking. Name each clip once.")
    if not MIN_CLIPS <= len(clips) <= MAX_CLIPS:
        raise BadRanking(
            f"The ranking has {len(clips)} clips. Rank {MIN_CLIPS} to {MAX_CLIPS} clips at once."
        )


def check_leases(ranking: NewRanking, leased: Sequence[Pair]) -> None:
    """Check that the clips belong to comparisons that the labeler holds.

    At least one of these comparisons is complete, so that a labeler cannot add any number of
    comparisons by ranking the same clips in ever new combinations.

    Raises:
        BadRanking: They do not.
    """
    clips = clips_of(ranking)
    if unknown := set(clips).difference(chain.from_iterable(leased)):
        raise BadRanking(
            f"Clip {min(unknown)[:80]} belongs to no comparison that is leased to you. Request the "
            "next comparisons and rank their clips."
        )
    if not any(set(pair) <= set(clips) for pair in leased):
        raise BadRanking(
            "The ranking has no two clips of one comparison that is leased to you. Rank both clips "
            "of at least one of them."
        )


def clips_of(ranking: NewRanking) -> list[str]:
    """Return all clips of a ranking, ranked or left out."""
    return [*chain.from_iterable(ranking.groups), *ranking.left_out]


def answers_of(ranking: NewRanking, held: Mapping[Pair, int]) -> dict[Pair, Answer]:
    """Return the answer of each pair of ranked clips, and of held comparisons with one left out."""
    answers = pairwise_answers(ranking.groups)
    shown, left_out = set(clips_of(ranking)), set(ranking.left_out)
    for pair in held:
        if set(pair) <= shown and left_out.intersection(pair) and pair[::-1] not in answers:
            answers[pair] = Answer.CANNOT_TELL
    return answers


def find_or_insert(
    connection: Connection,
    experiment_id: int,
    answers: Mapping[Pair, Answer],
    held: Mapping[Pair, int],
    asked: Mapping[str, Any],
) -> list[tuple[int, bool]]:
    """Return the comparison of each pair, and whether its sides are exchanged.

    One that the labeler holds comes before one that exists, in either order, before a new one.
    """
    num_asked = read_num_asked(connection, experiment_id)
    both = [*answers, *(pair[::-1] for pair in answers)]
    known = find_ids(connection, experiment_id, both)
    # Sorted by hash, which is random: otherwise the left clip would always be the better one.
    missing = [sided(pair) for pair in answers if find_pair(pair, known) is None]
    if missing:
        known |= insert_pairs(connection, experiment_id, missing, num_asked, asked)
    found = [find_pair(pair, held) or find_pair(pair, known) for pair in answers]
    return [each for each in found if each is not None]


def sided(pair: Pair) -> Pair:
    """Return a pair in the order in which it is stored, if it has no comparison yet."""
    left, right = sorted(pair)
    return left, right


def find_pair(pair: Pair, id_of: Mapping[Pair, int]) -> tuple[int, bool] | None:
    """Return the comparison of a pair, and whether its sides are exchanged."""
    left, right = pair
    for swapped, sides in ((False, (left, right)), (True, (right, left))):
        if sides in id_of:
            return id_of[sides], swapped
    return None
