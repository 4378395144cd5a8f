"""The reward learner: owns recorder, selector, teacher and predictor, and knows three verbs.

    observe   take in a rollout, and give it its rewards
    ask       ask what is due
    fit       learn from the labels that have come

`teach.py` drives it, and so does anything else that wants predicted rewards.
"""

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from jaxtyping import Float32

from rl_teacher.clips.answer import Answer
from rl_teacher.clips.recorder import Cuts, Recorder
from rl_teacher.clips.segment import Segment
from rl_teacher.config import PredictorConfig
from rl_teacher.envs.rollout import Rollout
from rl_teacher.named_arrays import (
    NamedArrays,
    array_to_rng,
    array_to_text,
    nest,
    part_of,
    rng_to_array,
    text_to_array,
)
from rl_teacher.predictor.ensemble import RewardPredictor
from rl_teacher.predictor.fit import Fitted, Fitter, FitReport
from rl_teacher.predictor.inputs import InputSpace
from rl_teacher.predictor.labels import LabelledPair, LabelSet
from rl_teacher.queries.schedules import Budget, Progress, Schedule
from rl_teacher.queries.selectors import Candidates, Selector, uniform
from rl_teacher.store.media import SegmentFiles
from rl_teacher.store.store import NewLabel, Store
from rl_teacher.teachers.teacher import Circumstances, Teacher, rng_of

REMEMBERED_STEPS = 48_000
"""Environment steps, over all environments, out of which segments are cut."""
FIT_GROWTH = 0.02
"""The predictor is fitted again when the labels have grown by this share, or by one."""
REFIT_STEPS = 16
"""Gradient steps, at most, of such a fit: it starts warm."""
REFIT_PATIENCE = 2
ASKED_AT_ONCE = 50
"""Comparisons, at most, asked after one rollout of training."""


@dataclass(frozen=True)
class Asking:
    """How comparisons are chosen and who answers them.

    Attributes:
        teacher: answers at once, or says None: somebody will, through the store.
        labeler: what the store calls the teacher.
        selector: chooses among candidates.
        schedule: how many may have been asked by now.
        budget: what the schedule spreads.
        candidates_per_pair: pairs looked at for each one asked.
        segment_steps: L, the length of a segment.
    """

    teacher: Teacher
    labeler: str
    selector: Selector
    schedule: Schedule
    budget: Budget
    candidates_per_pair: int
    segment_steps: int


@dataclass(frozen=True)
class Shelf:
    """Where an experiment's questions and answers are kept.

    Attributes:
        store: comparisons and labels.
        experiment_id: whose.
        segments: the arrays of what was compared.
    """

    store: Store
    experiment_id: int
    segments: SegmentFiles


@dataclass
class Question:
    """A comparison that was asked.

    Attributes:
        id: in the store.
        left: content hash of the left segment.
        right: of the right one.
        answer: as far as the predictor knows it; None before.
    """

    id: int
    left: str
    right: str
    answer: Answer | None = None


@dataclass(frozen=True)
class Observed:
    """What a rollout was worth.

    Attributes:
        rewards: [T, N] what the agent learns from.
        figures: to report.
    """

    rewards: Float32[np.ndarray, "time env"]
    figures: dict[str, float]


class RewardSource(Protocol):
    """Whoever gives a rollout its rewards."""

    def observe(self, rollout: Rollout) -> Observed:
        """Take in a rollout, and give it its rewards."""
        ...

    def ask(self, progress: Progress, circumstances: "RecentEpisodes") -> int:
        """Ask what is due; the number of comparisons asked."""
        ...

    def fit(self) -> FitReport | None:
        """Learn from the labels that have come; None when nothing was done."""
        ...

    def figures(self) -> dict[str, float]:
        """Labels and fits so far, to report."""
        ...

    def state(self) -> NamedArrays:
        """Everything needed to go on exactly."""
        ...

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from a saved state."""
        ...

    def close(self) -> None:
        """Let go of threads."""
        ...


@dataclass(frozen=True)
class RecentEpisodes:
    """The latest finished episodes; NaN before the first.

    Attributes:
        mean_return: true return.
        mean_steps: length.
    """

    mean_return: float
    mean_steps: float


class TrueReward:
    """The baseline: the environment's own reward, no teacher, no predictor."""

    def observe(self, rollout: Rollout) -> Observed:
        """The rollout's own rewards."""
        return Observed(rollout.rewards, {})

    def ask(self, progress: Progress, circumstances: RecentEpisodes) -> int:  # noqa: ARG002
        """Nothing is asked."""
        return 0

    def fit(self) -> FitReport | None:
        """Nothing is fitted."""
        return None

    def figures(self) -> dict[str, float]:
        """Nothing to report."""
        return {}

    def state(self) -> NamedArrays:
        """Nothing to save."""
        return {}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Nothing to load."""

    def close(self) -> None:
        """Nothing to close."""


class RewardLearner:
    """Learns a reward from comparisons: see the module's text."""

    def __init__(  # noqa: PLR0913
        self,
        env_id: str,
        space: InputSpace,
        config: PredictorConfig,
        asking: Asking,
        shelf: Shelf,
        *,
        num_envs: int,
        seed: int,
        pretrain_iters: int,
        in_background: bool = False,
    ) -> None:
        """Make a learner that knows nothing yet.

        Args:
            env_id: what the segments say they come from.
            space: shapes of observations and actions.
            config: of the predictor.
            asking: how comparisons are chosen and answered.
            shelf: where they are kept.
            num_envs: N, environments of a rollout.
            seed: of networks, bootstrap samples, selection and synthetic answers.
            pretrain_iters: gradient steps, at most, of the first fit.
            in_background: fit in a thread while training goes on, instead of between rollouts.
        """
        self._env_id = env_id
        self._space = space
        self._asking = asking
        self._shelf = shelf
        self._seed = seed
        self._pretrain_iters = pretrain_iters
        self._rng = np.random.default_rng([seed, 6])
        self.predictor = RewardPredictor(space, config, seed)
        self._fitter = Fitter(space, config, seed=seed)
        length = asking.segment_steps
        first_steps = 2 * asking.budget.pretraining * length
        capacity = -(-max(REMEMBERED_STEPS, first_steps) // num_envs)
        self.recorder = Recorder(env_id, segment_steps=length, capacity=max(capacity, 2 * length))
        self._labels = LabelSet(length, space.num_features, config.ensemble_size, seed)
        self._questions: list[Question] = []
        self._num_answered = 0
        self._fitted_labels = 0
        self._num_fits = 0
        self._fit_steps = 0
        self._report: FitReport | None = None
        self._thread = ThreadPoolExecutor(1, "reward-fit") if in_background else None
        self._running: Future[Fitted] | None = None

    # --- observe ---

    def observe(self, rollout: Rollout) -> Observed:
        """Remember a rollout, and predict its rewards.

        Note: the moments of the predicted reward take this rollout in before it is normalised by
        them, so that the very first rewards are on scale.
        """
        self.recorder.observe(rollout)
        rows = self._space.rows(rollout.observations, rollout.actions)
        members = self.predictor.member_rewards(rows)
        self.predictor.recent.update(members[:, rollout.is_valid])
        rewards = self.predictor.normalised(members)
        return Observed(rewards, _figures_of(rollout, members, rewards))

    # --- ask ---

    @property
    def num_asked(self) -> int:
        """Comparisons asked so far."""
        return len(self._questions)

    @property
    def num_answered(self) -> int:
        """Comparisons whose answer has come."""
        return self._num_answered

    @property
    def has_fitted(self) -> bool:
        """Whether the predictor has learned anything yet."""
        return self._num_fits > 0

    def ask(self, progress: Progress, circumstances: RecentEpisodes) -> int:
        """Ask as many comparisons as the schedule says are due.

        Returns:
            How many were asked: fewer than are due while too little was lived to cut them from.
        """
        due = self._asking.schedule(self._asking.budget, progress) - self.num_asked
        if self.has_fitted:
            due = min(due, ASKED_AT_ONCE)
        if due <= 0:
            return 0
        pairs = self._choose(due)
        self._ask_pairs(pairs, progress.step, circumstances)
        return len(pairs)

    def _choose(self, num: int) -> list[tuple[Segment, Segment]]:
        """The pairs most worth asking, among random candidates."""
        num_candidates = num * (self._asking.candidates_per_pair if self.has_fitted else 1)
        cuts = self.recorder.cut(2 * num_candidates, self._rng)
        num_pairs = len(cuts) // 2
        left, right = cuts.take(slice(num_pairs)), cuts.take(slice(num_pairs, 2 * num_pairs))
        if num_pairs == 0:
            return []
        chosen = self._selected(left, right, num)
        return list(
            zip(
                self.recorder.segments(left.take(chosen)),
                self.recorder.segments(right.take(chosen)),
                strict=True,
            )
        )

    def _selected(self, left: Cuts, right: Cuts, num: int) -> np.ndarray:
        if not self.has_fitted:
            no_opinion = Candidates(np.zeros((1, len(left))), np.zeros((len(left), 1)))
            return uniform(no_opinion, num, self._rng)
        (rewards_left, rows_left), (rewards_right, rows_right) = map(self._judge, (left, right))
        candidates = Candidates(rewards_left - rewards_right, rows_left - rows_right)
        return self._asking.selector(candidates, num, self._rng)

    def _judge(self, cuts: Cuts) -> tuple[np.ndarray, np.ndarray]:
        """[M, C] each member's return of the segments, and [C, F] their mean input row."""
        observations, is_real = self.recorder.gather("observations", cuts)
        actions, _ = self.recorder.gather("actions", cuts)
        rows = self._space.rows(observations, actions)
        rewards = self.predictor.member_rewards(rows) * is_real
        scaled = (rows - self.predictor.input_mean) / self.predictor.input_std
        return rewards.sum(-1), scaled.mean(1)

    def _ask_pairs(
        self,
        pairs: Sequence[tuple[Segment, Segment]],
        step: int,
        circumstances: RecentEpisodes,
    ) -> None:
        """Put the questions into the store, and the answers of a teacher who answers at once.

        Note: segments are on disk before the question that names them is in the store.
        """
        shelf, asking = self._shelf, self._asking
        for segment in {s.content_hash: s for pair in pairs for s in pair}.values():
            shelf.segments.save(segment)
        hashes = [(left.content_hash, right.content_hash) for left, right in pairs]
        ids = shelf.store.ask(
            shelf.experiment_id, hashes, self._env_id, asking.segment_steps, step
        )
        self._questions += [Question(i, *pair) for i, pair in zip(ids, hashes, strict=True)]
        known = shelf.store.answers(ids)
        answers = [
            (comparison_id, self._answer(*pair, circumstances))
            for comparison_id, pair in zip(ids, pairs, strict=True)
            if comparison_id not in known
        ]
        shelf.store.answer_many(
            [NewLabel(i, answer, asking.labeler) for i, answer in answers if answer is not None]
        )

    def _answer(
        self, left: Segment, right: Segment, circumstances: RecentEpisodes
    ) -> Answer | None:
        rng = rng_of(self._seed, left, right)
        mean_return, mean_steps = circumstances.mean_return, circumstances.mean_steps
        return self._asking.teacher(left, right, Circumstances(mean_return, mean_steps, rng))

    # --- fit ---

    def fit(self) -> FitReport | None:
        """Take in the answers that have come, and fit if there are enough new ones."""
        if self._running is not None:
            return self._finish_running()
        self._take_answers()
        num_new = len(self._labels) - self._fitted_labels
        if num_new == 0 or num_new < FIT_GROWTH * self._fitted_labels:
            return None
        return self._start_fit()

    def _take_answers(self) -> None:
        waiting = {q.id: q for q in self._questions if q.answer is None}
        if not waiting:
            return
        for comparison_id, answer in sorted(self._shelf.store.answers(waiting).items()):
            self._take_answer(waiting[comparison_id], answer)

    def _take_answer(self, question: Question, answer: Answer) -> None:
        question.answer = answer
        self._num_answered += 1
        left, right = (self._rows_of(h) for h in (question.left, question.right))
        self._labels.add(LabelledPair(left, right, answer))

    def _rows_of(self, content_hash: str) -> np.ndarray:
        segment = self._shelf.segments.load(content_hash)
        return self._space.rows(segment.observations, segment.actions)

    def _start_fit(self) -> FitReport | None:
        self._fitted_labels = len(self._labels)
        limits = (REFIT_STEPS, REFIT_PATIENCE) if self.has_fitted else (self._pretrain_iters, 8)
        if self._thread is not None and self.has_fitted:
            self._running = self._thread.submit(
                self._fitter.fit, self._labels, limits[0], patience=limits[1]
            )
            return None
        return self._adopt(self._fitter.fit(self._labels, limits[0], patience=limits[1]))

    def _finish_running(self) -> FitReport | None:
        """Take over a fit from the background, if it is done; labels wait meanwhile."""
        if self._running is None or not self._running.done():
            return None
        fitted, self._running = self._running.result(), None
        return self._adopt(fitted)

    def _adopt(self, fitted: Fitted) -> FitReport:
        self.predictor.adopt(fitted.networks, fitted.input_mean, fitted.input_std)
        self._report = fitted.report
        self._num_fits += 1
        self._fit_steps += fitted.report.num_steps
        return fitted.report

    # --- report, save, load ---

    def figures(self) -> dict[str, float]:
        """Labels and fits so far, to report."""
        figures: dict[str, float] = {
            "labels_asked": self.num_asked,
            "labels_answered": self.num_answered,
            "comparisons": len(self._labels),
            "fits": self._num_fits,
            "fit_steps": self._fit_steps,
        }
        if self._report is not None:
            figures |= {
                "loss": self._report.loss,
                "held_out_loss": self._report.held_out_loss,
                "loss_ratio": self._report.loss_ratio,
                "held_out_accuracy": self._report.held_out_accuracy,
                "calibration_error": self._report.calibration_error,
                "agreement": self._report.agreement,
                "l2": self._report.l2,
            }
        return figures

    def state(self) -> NamedArrays:
        """Everything needed to go on exactly; segments and answers stay in the store."""
        if self._running is not None:
            self._running.result()
            self._finish_running()
        questions = [[q.left, q.right, q.answer] for q in self._questions]
        own = {
            "rng": rng_to_array(self._rng),
            "questions": text_to_array(json.dumps(questions)),
            "fitted_labels": np.asarray(self._fitted_labels),
            "num_fits": np.asarray(self._num_fits),
            "fit_steps": np.asarray(self._fit_steps),
        }
        parts = {
            "predictor": self.predictor.state(),
            "fitter": self._fitter.state(),
            "recorder": self.recorder.state(),
        }
        return nest({"self": own, **parts})

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from a saved state.

        Note: the answers the predictor had learned from are those of the checkpoint, in its
        order; what was answered since is taken in by the next `fit`, as it would have been.
        """
        self.predictor.load_state(part_of(state, "predictor"))
        self._fitter.load_state(part_of(state, "fitter"))
        self.recorder.load_state(part_of(state, "recorder"))
        array_to_rng(self._rng, state["self/rng"])
        self._fitted_labels = int(state["self/fitted_labels"])
        self._num_fits = int(state["self/num_fits"])
        self._fit_steps = int(state["self/fit_steps"])
        self._load_questions(json.loads(array_to_text(state["self/questions"])))

    def _load_questions(self, questions: list[tuple[str, str, str | None]]) -> None:
        shelf = self._shelf
        ids = shelf.store.ask(
            shelf.experiment_id,
            [(left, right) for left, right, _ in questions],
            self._env_id,
            self._asking.segment_steps,
            0,
        )
        for comparison_id, (left, right, answer) in zip(ids, questions, strict=True):
            question = Question(comparison_id, left, right)
            self._questions.append(question)
            if answer is not None:
                self._take_answer(question, Answer(answer))

    def close(self) -> None:
        """Let go of threads."""
        if self._thread is not None:
            self._thread.shutdown()


def _figures_of(
    rollout: Rollout,
    members: Float32[np.ndarray, "member time env"],
    rewards: Float32[np.ndarray, "time env"],
) -> dict[str, float]:
    """Disagreement of the members, and the correlation with the true reward.

    Both over each environment's stretch of the rollout, summed: that is what is compared.
    """
    predicted, true = rewards.sum(0), rollout.rewards.sum(0)
    spread = members.sum(1)
    disagreement = spread.std(0).mean() / max(float(spread.std(1).mean()), 1e-9)
    figures = {"disagreement": float(disagreement)}
    if len(true) > 2 and predicted.std() > 0 and true.std() > 0:
        figures["correlation"] = float(np.corrcoef(predicted, true)[0, 1])
    return figures
