"""Comparisons that sort clips, instead of unrelated pairs.

    tree    each new clip enters an order by binary insertion (rl-teacher-atari)
    sort    clips are compared with their neighbours in the current ranking

N: clips, M: ensemble members.
"""

import json
import math
from collections.abc import Mapping, Sequence, Set
from itertools import islice

import numpy as np
from jaxtyping import Float64, Shaped

from rl_teacher.clips.answer import TARGETS, Answer
from rl_teacher.clips.recorder import Recorder
from rl_teacher.clips.segment import Segment
from rl_teacher.common.state_dict import StateDict, array_to_text, text_to_array
from rl_teacher.plan import LabelPlan
from rl_teacher.predictor.ensemble import RewardPredictor
from rl_teacher.predictor.fit import subsampled_weights
from rl_teacher.quality.reliability import estimate_reliability
from rl_teacher.quality.votes import Votes
from rl_teacher.queries.pairs import SHARED_EVERY, sampled_steps
from rl_teacher.queries.queue import Answers, Pair, QueryQueue, mean_target
from rl_teacher.queries.ranking import PRIOR_STD, RankingAnswers, fit_qualities
from rl_teacher.queries.sorting import MAX_DISTANCE, InsertionOrder, neighbour_pairs

COMPARISONS_PER_CLIP = 2.0
"""Comparisons per clip with `sort`, unless the number of clips is given."""
MAX_DRAWS = 4
"""Draws of new clips until there are enough that differ from all others."""


class ClipSorter:
    """Chooses comparisons that sort clips.

    Everything but the list of clips follows from the answers in the store, in the order asked: a
    changed or undone answer changes the order of all clips that depended on it.

    Attributes:
        max_clips: number of clips to sort; None if it is not limited. With `tree`, neighbours are
            compared once they are sorted.
    """

    def __init__(
        self,
        labels: LabelPlan,
        queue: QueryQueue,
        recorder: Recorder,
        predictor: RewardPredictor,
        rng: np.random.Generator,
        shared_segments: Sequence[Segment] = (),
    ) -> None:
        """Initialise without clips.

        Args:
            labels: way of sorting, and the numbers of labels and of clips.
            queue: comparisons asked so far.
            recorder: recent steps from which new clips are cut.
            predictor: predicts the qualities of clips, once it is fitted.
            rng: generator of the caller.
            shared_segments: segments of other experiments in the same environment.
        """
        self.max_clips = labels.n_clips
        self._is_tree = labels.queries == "tree"
        self._comparisons_per_clip = COMPARISONS_PER_CLIP
        if labels.n_clips is not None and labels.total is not None:
            self._comparisons_per_clip = labels.total / labels.n_clips
        self._queue = queue
        self._recorder = recorder
        self._predictor = predictor
        self._num_weighted, self._stride = sampled_steps(recorder.segment_steps, predictor)
        self._rng = rng
        self._known: Set[str] = frozenset()
        self._shared = list(shared_segments)
        # Numbers of the clips by content hash, in order of arrival.
        self._clips: dict[str, int] = {}
        # Numbers of both clips and the answers, by comparison in the order asked.
        self._pairs: dict[int, tuple[int, int]] = {}
        self._answers: dict[int, Answers] = {}
        # Input rows of every k-th step of each clip, and their weights.
        self._steps: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        # The insertion order, and the answers in it.
        self._order = InsertionOrder()
        self._inserted: list[tuple[int, int, Answer]] = []
        # Numbers of the clips that cannot be shown any more.
        self._hidden: set[int] = set()

    @property
    def num_clips(self) -> int:
        """Number of clips that are sorted."""
        return len(self._clips)

    @property
    def num_compared(self) -> int:
        """Number of clips, with those of comparisons that an earlier run has asked."""
        compared = (each for query in self._queue.asked() for each in query.segments)
        return len({*self._clips, *compared})

    def choose(self, num: int, *, is_fitted: bool) -> list[Pair]:
        """Choose comparisons that may be open at the same time; no clip is in two of them.

        Args:
            num: pairs wanted; there are fewer if they depend on answers that are missing.
            is_fitted: whether the predictor is fitted.
        """
        if num <= 0:
            return []
        self._read()
        gone = self._queue.hidden
        self._hidden = hidden = {number for each, number in self._clips.items() if each in gone}
        self._order.hide(hidden)
        self._add_clips(self._num_new_clips(num))
        # A new clip may find none that it can be compared with.
        self._order.hide(hidden)
        if not self._clips:  # too few steps are recorded
            return []
        waiting = [self._pairs[each] for each, answers in self._answers.items() if not answers]
        busy = {clip for pair in waiting for clip in pair} | hidden
        if self._is_tree and self._order.pending:
            numbers = list(islice(self._order.questions(busy), num))
        else:
            scores = self._predicted_scores() if is_fitted else None
            numbers = self._neighbours(num, busy, self._fit(scores))
        clips = list(self._clips)
        return [
            (self._queue.segment(clips[left]), self._queue.segment(clips[right]))
            for left, right in numbers
        ]

    # --- clips ---

    def _num_new_clips(self, num: int) -> int:
        """Return how many clips to add for further comparisons."""
        num_clips = self.num_clips - len(self._hidden)
        if self._is_tree:
            # A clip at a time is compared, so that as many are needed as comparisons.
            missing = num + self._queue.num_waiting - len(self._order.pending) + (not num_clips)
        else:
            num_asked = self._queue.num_asked + num
            wanted = 1 + math.ceil(num_asked / self._comparisons_per_clip)
            # N clips have N (N - 1) / 2 pairs.
            least = math.ceil(0.5 + math.sqrt(0.25 + 2 * num_asked))
            missing = max(wanted, least) - num_clips
        return missing if self.max_clips is None else min(missing, self.max_clips - num_clips)

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

    def _add_clip(self, content_hash: str) -> int:
        """Add a clip unless it is known; return its number."""
        number = self._clips.setdefault(content_hash, len(self._clips))
        if number == self._order.num_clips:
            self._order.add_clip()
        return number

    def _predicted_scores(self) -> Float64[np.ndarray, " clip"]:
        """Predict [N] scores of all clips; see `RewardPredictor.clip_scores`."""
        predictor = self._predictor
        for content_hash in self._clips:
            if content_hash not in self._steps:
                self._steps[content_hash] = self._sampled_steps(self._queue.segment(content_hash))
        rows, weights = map(
            np.stack, zip(*(self._steps[each] for each in self._clips), strict=True)
        )
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

    def _read(self) -> None:
        """Read the current answers to all comparisons."""
        # In the order asked: the fit sums in this order, and answers enter the tree in it.
        queries = self._queue.asked()
        self._pairs = {
            each.id: (self._add_clip(each.left), self._add_clip(each.right)) for each in queries
        }
        self._answers = {each.id: self._queue.answers_to(each) for each in queries}
        if self._is_tree:
            self._insert(
                [
                    (*self._pairs[each], consensus(answers))
                    for each, answers in self._answers.items()
                    if answers
                ]
            )

    def _insert(self, known: list[tuple[int, int, Answer]]) -> None:
        """Update the insertion order: by the new answers, or from the start if others changed."""
        if known[: len(self._inserted)] != self._inserted:
            self._order, self._inserted = InsertionOrder(self.num_clips), []
        for answer in known[len(self._inserted) :]:
            self._order.add_answer(*answer)
        self._inserted = known

    # --- comparisons ---

    def _fit(self, scores: Float64[np.ndarray, " clip"] | None) -> Float64[np.ndarray, " clip"]:
        """Compute [N] qualities, with the error rate of each labeler and predicted prior means."""
        prior = np.zeros(self.num_clips)
        if scores is not None:
            # The standard deviation is 0 if all scores are equal.
            prior = PRIOR_STD * (scores - scores.mean()) / (float(scores.std()) or 1.0)
        rows = (
            (*self._pairs[comparison_id], answer, labeler)
            for comparison_id, answers in self._answers.items()
            for labeler, answer in answers.items()
        )
        reliability = estimate_reliability(Votes.of(self._answers), self._queue.gold())
        return fit_qualities(RankingAnswers.of(rows, reliability), prior)

    def _neighbours(
        self, num: int, busy: set[int], qualities: Float64[np.ndarray, " clip"]
    ) -> list[tuple[int, int]]:
        """Choose pairs of neighbours in the ranking."""
        pairs = self._pairs.values()
        asked, taken, chosen = set(pairs), set(busy), []
        distance = MAX_DISTANCE
        while len(chosen) < num and distance < 2 * self.num_clips:
            for pair in neighbour_pairs(qualities, pairs, taken, self._rng, distance):
                # Asked once more with the sides exchanged, or it would be the same comparison.
                one, other = pair if self._rng.random() < 0.5 else pair[::-1]
                if (one, other) in asked:
                    one, other = other, one
                if (one, other) not in asked and not taken & {one, other} and len(chosen) < num:
                    taken.update((one, other))
                    chosen.append((one, other))
            # Clips that are farther apart, where all neighbours have been compared.
            distance *= 2
        return chosen

    # --- state ---

    def state(self) -> StateDict:
        """Return what does not follow from the answers; clips are on disk."""
        return {"sorted": text_to_array(json.dumps(list(self._clips)))}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore a saved state."""
        clips = json.loads(array_to_text(state["sorted"]))
        for content_hash in clips:
            self._add_clip(content_hash)
        self._leave_out_shared(set(clips))


def consensus(answers: Answers) -> Answer:
    """Combine the answers of several labelers: the better side by their mean, or `equal`."""
    target = mean_target(answers)
    if target is None:
        return Answer.CANNOT_TELL
    if target == TARGETS[Answer.EQUAL]:
        return Answer.EQUAL
    return Answer.LEFT if target > TARGETS[Answer.EQUAL] else Answer.RIGHT
