"""Comparisons that sort clips, instead of unrelated pairs.

    tree    each new clip enters an order by binary insertion (rl-teacher-atari)
    sort    clips are compared with their neighbours in the current ranking

N: clips, M: ensemble members.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import islice

import numpy as np
from jaxtyping import Float64, Shaped

from rl_teacher.clips.answer import TARGETS, Answer
from rl_teacher.clips.recorder import Recorder
from rl_teacher.clips.segment import Segment
from rl_teacher.common.state_dict import StateDict, array_to_text, text_to_array
from rl_teacher.config.experiment import SortingMethod
from rl_teacher.predictor.ensemble import RewardPredictor
from rl_teacher.predictor.fit import subsampled_weights
from rl_teacher.queries.pairs import SHARED_EVERY, sampled_steps
from rl_teacher.queries.queue import Answers, Pair, Query, QueryQueue, mean_target
from rl_teacher.queries.ranking import PRIOR_STD, ClipRanking, answer_probabilities
from rl_teacher.queries.sorting import MAX_DISTANCE, InsertionOrder, neighbour_pairs

COMPARISONS_PER_CLIP = 2.0
"""Comparisons per clip with `sort`, unless the number of clips is given."""
MAX_DRAWS = 4
"""Draws of new clips until there are enough that differ from all others."""
IMPROBABLE = 0.01
"""Probability below which an answer contradicts the ranking, and is asked for once more. With 10 %
of wrong answers this changes the rank correlation by less than 0.01; with 20 % and a limit of 0.1,
it was 0.88 instead of 0.90 (200 clips, 12 answers per clip, 3 seeds)."""


@dataclass(frozen=True)
class SorterSettings:
    """Settings of `ClipSorter`.

    Attributes:
        method: `tree` or `sort`.
        comparisons_per_clip: with `sort`: a clip is added after as many comparisons.
        max_clips: number of clips; with `tree`, neighbours are compared then. None: no limit.
        shared_segments: segments of other experiments in the same environment.
    """

    method: SortingMethod
    comparisons_per_clip: float = COMPARISONS_PER_CLIP
    max_clips: int | None = None
    shared_segments: Sequence[Segment] = ()


def sorter_settings(
    method: SortingMethod,
    num_labels: int | None,
    num_clips: int | None,
    shared: Sequence[Segment],
) -> SorterSettings:
    """Return the settings for a way of sorting.

    Args:
        method: `tree` or `sort`.
        num_labels: total number of labels, if there is one.
        num_clips: number of clips to sort, if it is given.
        shared: segments of other experiments.
    """
    if num_clips is None:
        return SorterSettings(method, shared_segments=shared)
    per_clip = COMPARISONS_PER_CLIP if num_labels is None else num_labels / num_clips
    return SorterSettings(method, per_clip, num_clips, shared)


class ClipSorter:
    """Chooses comparisons that sort clips.

    Everything but the list of clips and the sequence of answers follows from the answers in the
    store: a changed or undone answer changes the order of all clips that depended on it.
    """

    def __init__(
        self,
        settings: SorterSettings,
        queue: QueryQueue,
        recorder: Recorder,
        predictor: RewardPredictor,
        rng: np.random.Generator,
    ) -> None:
        """Initialise without clips.

        Args:
            settings: of the sorting.
            queue: comparisons asked so far.
            recorder: recent steps from which new clips are cut.
            predictor: predicts the qualities of clips, once it is fitted.
            rng: generator of the caller.
        """
        self._settings = settings
        self._queue = queue
        self._recorder = recorder
        self._predictor = predictor
        self._num_weighted, self._stride = sampled_steps(recorder.segment_steps, predictor)
        self._rng = rng
        self._known: Set[str] = frozenset()
        self._shared = list(settings.shared_segments)
        self._ranking = ClipRanking()
        # Input rows of every k-th step of each clip, and their weights.
        self._steps: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        # The insertion order with its answers, by comparison in the order in which they count.
        self._order = InsertionOrder()
        self._inserted: dict[int, Answer] = {}
        # Numbers of the clips that cannot be shown any more.
        self._hidden: set[int] = set()

    @property
    def num_clips(self) -> int:
        """Number of clips that are sorted."""
        return len(self._ranking)

    @property
    def num_compared(self) -> int:
        """Number of clips, with those of comparisons that an earlier run has asked."""
        compared = (each for query in self._queue.asked() for each in query.segments)
        return len({*self._ranking.clips, *compared})

    @property
    def max_clips(self) -> int | None:
        """Number of clips to sort; None if it is not limited."""
        return self._settings.max_clips

    def choose(self, num: int, *, is_fitted: bool) -> list[Pair]:
        """Choose comparisons that may be open at the same time; no clip is in two of them.

        Args:
            num: pairs wanted; there are fewer if they depend on answers that are missing.
            is_fitted: whether the predictor is fitted.
        """
        if num <= 0:
            return []
        queries = self._queue.asked()
        self._read(queries)
        self._hidden = hidden = self._hidden_clips()
        self._order.hide(hidden)
        self._add_clips(self._num_new_clips(num))
        # A new clip may find none that it can be compared with.
        self._order.hide(hidden)
        if not self.num_clips:  # too few steps are recorded
            return []
        waiting = {each.id for each in queries if not self._queue.answers_to(each)}
        busy = {clip for each in waiting for clip in self._ranking.pairs[each]} | hidden
        if self._settings.method == "tree" and self._order.pending:
            numbers = list(islice(self._order.questions(busy), num))
        else:
            scores = self._predicted_scores() if is_fitted else None
            numbers = self._neighbours(num, busy, self._fit(scores))
        clips = self._ranking.clips
        return [
            (self._queue.segment(clips[left]), self._queue.segment(clips[right]))
            for left, right in numbers
        ]

    # --- clips ---

    def _hidden_clips(self) -> set[int]:
        """Return the clips that cannot be shown any more."""
        if not self._queue.hidden:
            return set()
        return {n for n, each in enumerate(self._ranking.clips) if each in self._queue.hidden}

    def _num_new_clips(self, num: int) -> int:
        """Return how many clips to add for further comparisons."""
        settings = self._settings
        num_clips = self.num_clips - len(self._hidden)
        if settings.method == "tree":
            # A clip at a time is compared, so that as many are needed as comparisons.
            missing = num + self._queue.num_waiting - len(self._order.pending) + (not num_clips)
        else:
            num_asked = self._queue.num_asked + num
            wanted = 1 + math.ceil(num_asked / settings.comparisons_per_clip)
            # N clips have N (N - 1) / 2 pairs.
            least = math.ceil(0.5 + math.sqrt(0.25 + 2 * num_asked))
            missing = max(wanted, least) - num_clips
        limit = settings.max_clips
        return missing if limit is None else min(missing, limit - num_clips)

    def _add_clips(self, num: int) -> None:
        """Add clips, cut from the recorded steps; fewer if the environment repeats itself."""
        wanted = self.num_clips + num
        for _ in range(MAX_DRAWS):
            cuts = self._recorder.cut(max(wanted - self.num_clips, 0), self._rng)
            for own in self._recorder.segments(cuts):
                if own.content_hash in self._known:
                    continue
                # Other experiments may have preprocessed the observations differently.
                self._shared = [each for each in self._shared if each.layout == own.layout]
                is_shared = self._shared and self.num_clips % SHARED_EVERY == 0
                self.add_clip(self._shared.pop() if is_shared else own)

    def leave_out(self, clips: Set[str], *, are_shared: bool) -> None:
        """Add no clips with these content hashes; see `PairChooser.leave_out`."""
        self._known |= clips
        if are_shared:
            self._leave_out_shared(clips)

    def _leave_out_shared(self, clips: Set[str]) -> None:
        self._shared = [each for each in self._shared if each.content_hash not in clips]

    def add_clip(self, segment: Segment) -> None:
        """Add a clip to sort, unless it is one already."""
        # Saved before a comparison or a checkpoint names it.
        self._queue.save_segment(segment)
        self._add_clip(segment.content_hash)

    def _add_clip(self, content_hash: str) -> None:
        if self._ranking.add_clip(content_hash) == self._order.num_clips:
            self._order.add_clip()

    def _predicted_scores(self) -> Float64[np.ndarray, " clip"]:
        """Predict [N] scores of all clips; see `RewardPredictor.clip_scores`."""
        predictor, clips = self._predictor, self._ranking.clips
        for content_hash in clips:
            if content_hash not in self._steps:
                self._steps[content_hash] = self._sampled_steps(self._queue.segment(content_hash))
        rows, weights = map(np.stack, zip(*(self._steps[each] for each in clips), strict=True))
        rewards = predictor.normalised(predictor.member_rewards(rows))
        return predictor.clip_scores(rewards, weights)

    def _sampled_steps(
        self, segment: Segment
    ) -> tuple[Shaped[np.ndarray, "time features"], Float64[np.ndarray, " time"]]:
        """Return every k-th input row of a clip with its weight; see `fit.gather_steps`."""
        discount, num_steps = self._predictor.config.segment_discount, np.array([len(segment)])
        weights, scale = subsampled_weights(num_steps, self._num_weighted, self._stride, discount)
        # Padded steps, which have no weight, repeat the last one.
        steps = np.minimum(np.arange(weights.shape[1]) * self._stride, len(segment) - 1)
        rows = self._predictor.space.rows(segment.observations[steps], segment.actions[steps])
        return rows, (weights[0] * scale[0]).astype(np.float64)

    # --- answers ---

    def _read(self, queries: Sequence[Query], inserted: Sequence[int] = ()) -> None:
        """Read the current answers to all comparisons.

        Args:
            queries: all of them, in the order asked. The fit sums in this order.
            inserted: ids of those whose answers count first in the tree.
        """
        known = {}
        self._ranking.keep({query.id for query in queries})
        for query in queries:
            for each in query.segments:
                self._add_clip(each)
            answers = self._queue.answers_to(query)
            self._ranking.set_answers(query.id, query.left, query.right, answers)
            if answers:
                known[query.id] = consensus(answers)
        if self._settings.method == "tree":
            self._insert({each: known[each] for each in inserted if each in known} | known)

    def _insert(self, known: Mapping[int, Answer]) -> None:
        """Update the insertion order: by the new answers, or from the start if one was changed."""
        remaining = {each: known[each] for each in self._inserted if each in known}
        if remaining != self._inserted:
            self._order = InsertionOrder(self.num_clips)
            self._inserted = {}
        for comparison_id, answer in (remaining | dict(known)).items():
            if comparison_id not in self._inserted:
                self._inserted[comparison_id] = answer
                self._order.add_answer(*self._ranking.pairs[comparison_id], answer)

    # --- comparisons ---

    def _fit(self, scores: Float64[np.ndarray, " clip"] | None) -> Float64[np.ndarray, " clip"]:
        """Compute [N] qualities, with the error rate of each labeler and predicted prior means."""
        prior = None if scores is None else PRIOR_STD * (scores - scores.mean()) / _std(scores)
        return self._ranking.fit(self._ranking.reliability(self._queue.gold()), prior)

    def _neighbours(
        self, num: int, busy: set[int], qualities: Float64[np.ndarray, " clip"]
    ) -> list[tuple[int, int]]:
        """Choose pairs of neighbours, after those whose answers contradict the ranking."""
        asked = set(self._ranking.pairs.values())
        taken, chosen = set(busy), []

        def choose(pairs: Iterable[tuple[int, int]]) -> None:
            for pair in pairs:
                # Asked once more with the sides exchanged, or it would be the same comparison.
                one, other = pair if self._rng.random() < 0.5 else pair[::-1]
                if (one, other) in asked:
                    one, other = other, one
                if (one, other) not in asked and not taken & {one, other} and len(chosen) < num:
                    taken.update((one, other))
                    chosen.append((one, other))

        choose(self._contradicting_pairs(qualities))
        distance = MAX_DISTANCE
        while len(chosen) < num and distance < 2 * self.num_clips:
            near = neighbour_pairs(
                qualities, self._ranking.pairs.values(), taken, self._rng, distance
            )
            choose(near)
            # Clips that are farther apart, where all neighbours have been compared.
            distance *= 2
        return chosen

    def _contradicting_pairs(
        self, qualities: Float64[np.ndarray, " clip"]
    ) -> list[tuple[int, int]]:
        """Return the pairs of improbable answers, the most improbable first."""
        answers = self._ranking.answers()
        probability = answer_probabilities(answers, qualities)
        worst = np.argsort(probability, kind="stable")
        worst = worst[probability[worst] < IMPROBABLE]
        return list(zip(answers.left[worst].tolist(), answers.right[worst].tolist(), strict=True))

    # --- state ---

    def state(self, places: Mapping[int, int]) -> StateDict:
        """Return what does not follow from the answers; clips are on disk.

        Args:
            places: places of the comparisons in the order asked, since ids differ between stores.
        """
        # A comparison whose answer was undone may have been withdrawn since the last choice.
        inserted = [places[each] for each in self._inserted if each in places]
        saved = [self._ranking.clips, inserted]
        return {"sorted": text_to_array(json.dumps(saved))}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore a saved state, after that of the queue."""
        clips, inserted = json.loads(array_to_text(state["sorted"]))
        for content_hash in clips:
            self._add_clip(content_hash)
        self._leave_out_shared(set(clips))
        queries = self._queue.asked()
        self._read(queries, [queries[place].id for place in inserted])


def consensus(answers: Answers) -> Answer:
    """Combine the answers of several labelers: the better side by their mean, or `equal`."""
    target = mean_target(answers)
    if target is None:
        return Answer.CANNOT_TELL
    if target == TARGETS[Answer.EQUAL]:
        return Answer.EQUAL
    return Answer.LEFT if target > TARGETS[Answer.EQUAL] else Answer.RIGHT


def _std(scores: Float64[np.ndarray, " clip"]) -> float:
    """Return the standard deviation; 1 if all scores are equal."""
    return float(scores.std()) or 1.0
