"""The reward learner: owns recorder, selector, teacher and predictor, and knows three verbs.

    observe   take in a rollout, and give it its rewards
    ask       ask what is due
    fit       learn from the labels that have come

`teach.py` drives it, and so does anything else that wants predicted rewards.
"""

import json
from collections.abc import Iterable, Mapping, Sequence, Set
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float32, Int64, Shaped

from rl_teacher.clips.recorder import Cuts, Recorder
from rl_teacher.clips.segment import Segment
from rl_teacher.common.state_dict import (
    StateDict,
    array_to_rng,
    array_to_text,
    nest,
    part_of,
    rng_to_array,
    text_to_array,
)
from rl_teacher.config.experiment import LabelerWeights, PredictorConfig
from rl_teacher.envs.rollout import Rollout
from rl_teacher.predictor.diagnostics import Diagnostics, FitReport
from rl_teacher.predictor.ensemble import RewardPredictor
from rl_teacher.predictor.fit import FitResult, Fitter, gather_steps, subsampling_stride
from rl_teacher.predictor.inputs import InputSpace
from rl_teacher.predictor.labels import LabelledPair, LabelSet
from rl_teacher.quality.reliability import (
    estimate_reliability,
    mean_targets,
    posterior_targets,
)
from rl_teacher.quality.votes import Votes
from rl_teacher.queries.queue import Pair, QueryQueue, Question, RecentEpisodes
from rl_teacher.queries.schedules import Budget, Progress, Schedule, at_another_rate
from rl_teacher.queries.selectors import Candidates, Selector, uniform

REMEMBERED_STEPS = 48_000
"""Environment steps, over all environments, out of which segments are cut."""
ASKED_AT_ONCE = 50
"""Comparisons, at most, asked after one rollout of training."""
LIBRARY_EVERY = 4
"""Of so many first comparisons, one is with a segment of another experiment."""
FIT_GROWTH = 0.02
"""The predictor is fitted again when the labels have grown by this share, or by one."""
FIT_GROWTH_PICTURES = 0.1
"""The same where it learns to see: a fit takes some ten seconds of a processor there."""
REFIT_STEPS = 32
"""Gradient steps, at most, of such a fit: it starts warm."""
REFIT_PATIENCE = 1
LEAST_TO_REFIT = 20
"""Labels, at least, before a predictor that was fitted elsewhere is fitted further."""
REMEMBERED_BYTES = 400_000_000
"""That observations may fill there; pictures are large."""
FEATURE_STRIDE = 16
"""Of how many bytes of a picture one is compared where pairs are to be unlike each other."""
REMEASURED_SEGMENTS = 64
"""Recent segments on which the spread of the predicted reward is measured after a fit."""

Metrics = dict[str, float | int]


@dataclass(frozen=True)
class Observed:
    """What a rollout was worth.

    Attributes:
        rewards: [T, N] what the agent learns from.
        figures: to report.
    """

    rewards: Float32[np.ndarray, "time env"]
    figures: Metrics


@runtime_checkable
class RewardSource(Protocol):
    """Whoever gives a rollout its rewards."""

    @property
    def predictor(self) -> RewardPredictor | None:
        """What says what a step is worth; None where the environment does."""
        ...

    def observe(self, rollout: Rollout) -> Observed:
        """Take in a rollout, and give it its rewards."""
        ...

    def ask(self, progress: Progress, recent: RecentEpisodes) -> int:
        """Ask what is due; the number of comparisons asked."""
        ...

    def plan(self, progress: Progress, seconds_between: float | None, total: int | None) -> None:
        """Ask at another rate, or another number in all; None leaves it as it is."""
        ...

    @property
    def num_asked(self) -> int:
        """Comparisons asked so far."""
        ...

    @property
    def num_answered(self) -> int:
        """Comparisons whose answer was taken in."""
        ...

    def take_answers(self) -> int:
        """Take in the answers that have come; how many comparisons have one by now."""
        ...

    def fit(self) -> FitReport | None:
        """Learn from the labels that have come; None when nothing was done."""
        ...

    def figures(self) -> Metrics:
        """Labels and fits so far, to report."""
        ...

    def diagnostics(self, shown: Set[str]) -> Diagnostics | None:
        """What is made of clips that can be shown; None while there is nothing new."""
        ...

    def state(self) -> StateDict:
        """Everything needed to go on exactly."""
        ...

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from a saved state."""
        ...

    def close(self) -> None:
        """Let go of threads."""
        ...


class Untaught:
    """Half of a source of rewards that nobody teaches: it asks nothing, and never changes."""

    def ask(self, progress: Progress, recent: RecentEpisodes) -> int:  # noqa: ARG002
        """Nothing is asked."""
        return 0

    def plan(self, progress: Progress, seconds_between: float | None, total: int | None) -> None:
        """Nothing is asked at any rate."""

    @property
    def num_asked(self) -> int:
        """None."""
        return 0

    @property
    def num_answered(self) -> int:
        """None."""
        return 0

    def take_answers(self) -> int:
        """Nobody answers."""
        return 0

    def fit(self) -> FitReport | None:
        """Nothing is fitted."""
        return None

    def figures(self) -> Metrics:
        """Nothing to report."""
        return {}

    def diagnostics(self, shown: Set[str]) -> Diagnostics | None:  # noqa: ARG002
        """Nothing is predicted."""
        return None

    def state(self) -> StateDict:
        """Nothing to save."""
        return {}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Nothing to load."""

    def close(self) -> None:
        """Nothing to close."""


class TrueReward(Untaught):
    """The baseline: the environment's own reward, no teacher, no predictor."""

    predictor = None

    def __init__(self, clip: float = 0.0) -> None:
        """Rewards beyond the size `clip` count no more than it; with 0, all count in full."""
        self._clip = clip

    def observe(self, rollout: Rollout) -> Observed:
        """The rollout's own rewards."""
        rewards = rollout.rewards
        return Observed(rewards.clip(-self._clip, self._clip) if self._clip else rewards, {})


class FrozenReward(Untaught):
    """A saved predictor as it is: the same step is worth the same, from first to last.

    Note: its scale is frozen too. What it was measured over comes with the saved predictor.
    """

    def __init__(self, predictor: RewardPredictor) -> None:
        self.predictor = predictor

    def observe(self, rollout: Rollout) -> Observed:
        """What the predictor says of the rollout."""
        rows = self.predictor.space.rows(rollout.observations, rollout.actions)
        members = self.predictor.member_rewards(rows)
        rewards = self.predictor.normalised(members)
        return Observed(rewards, _figures_of(rollout, members, rewards))


@dataclass(frozen=True)
class Subject:
    """What a reward is learned for.

    Attributes:
        env_id: what the segments say they come from.
        space: shapes of observations and actions.
        num_envs: N, environments of a rollout.
        segment_steps: L, the length of a segment.
        shows_ends: whether segments may be cut short by an end of the environment's own rules,
            after which nothing is earned; see `Recorder` and `RewardPredictor.keeps_zero`.
        most_remembered: steps, at most, that are remembered of each environment; None: as many as
            are usual.
    """

    env_id: str
    space: InputSpace
    num_envs: int
    segment_steps: int
    shows_ends: bool = False
    most_remembered: int | None = None

    @property
    def stride(self) -> int:
        """Of how many consecutive steps of a segment one is looked at."""
        return subsampling_stride(self.segment_steps, is_image=self.space.has_byte_rows)


@dataclass(frozen=True)
class Asking:
    """What is asked, and when.

    Attributes:
        selector: chooses among candidates.
        schedule: how many may have been asked by now.
        budget: what the schedule spreads.
        candidates_per_pair: pairs looked at for each one asked.
        most_waiting: comparisons, at most, that wait for an answer during training, so that a
            person who comes back after an hour is asked about the agent of now; None: no limit.
        library: segments of other experiments in the same environment; a part of the first
            comparisons is with one of them.
    """

    selector: Selector
    schedule: Schedule
    budget: Budget
    candidates_per_pair: int
    most_waiting: int | None = None
    library: Sequence[Segment] = ()


@dataclass(frozen=True)
class Fitting:
    """How the predictor is fitted.

    Attributes:
        config: of the predictor.
        pretrain_iters: gradient steps, at most, of the first fit.
        in_background: fit in a thread while training goes on, instead of between rollouts.
        seed: of networks, bootstrap samples, and the selection of comparisons.
        labeler_weights: what labelers who disagree count: the same, or by how often each is
            estimated to be right.
        pretrained: a predictor that was fitted before, with networks as large as the config says;
            it gives the rewards from the start, and is fitted further.
    """

    config: PredictorConfig
    pretrain_iters: int
    in_background: bool
    seed: int
    labeler_weights: LabelerWeights = "equal"
    pretrained: RewardPredictor | None = None


class RewardLearner:
    """Learns a reward from comparisons: see the module's text."""

    def __init__(
        self, subject: Subject, asking: Asking, fitting: Fitting, query_queue: QueryQueue
    ) -> None:
        config, seed, length = fitting.config, fitting.seed, subject.segment_steps
        space = subject.space.for_encoder(config.image_encoder)
        self._subject = subject = replace(subject, space=space)
        self._fit_growth = FIT_GROWTH_PICTURES if space.has_byte_rows else FIT_GROWTH
        self._asking = asking
        self._pretrain_iters = fitting.pretrain_iters
        self._query_queue = query_queue
        self._rng = np.random.default_rng([seed, 6])
        self.predictor = RewardPredictor(subject.space, config, seed)
        remembered = remembered_steps(
            asking.budget.pretraining, length, subject.num_envs, subject.space
        )
        capacity = remembered // subject.num_envs
        self.recorder = Recorder(
            subject.env_id,
            segment_steps=length,
            capacity=min(capacity, subject.most_remembered or capacity),
            shows_ends=subject.shows_ends,
        )
        self._fitter = Fitter(subject.space, config, seed=seed)
        self._predictor_config, self._seed = config, seed
        self._budget = asking.budget
        self._labeler_weights = fitting.labeler_weights
        self._given: list[LabelledPair] = []
        self._pretrained = fitting.pretrained
        if fitting.pretrained is not None:
            self._warm_start_from(fitting.pretrained)
        self._labels = self._no_labels()
        self._number_of: dict[int, int] = {}
        self._is_revised = False
        self._fitted_labels = 0
        self._num_more = 0
        self._num_fits = 0
        self._fit_steps = 0
        self._num_due = 0
        self._report: FitReport | None = None
        self._thread = ThreadPoolExecutor(1, "reward-fit") if fitting.in_background else None
        self._running: Future[FitResult] | None = None

    def _warm_start_from(self, pretrained: RewardPredictor) -> None:
        """Be as one that was fitted before, and go on from its networks."""
        self.predictor.load_state(pretrained.state())
        self._fitter.warm_start_from(pretrained.networks, pretrained.normaliser)

    def _no_labels(self) -> LabelSet:
        config = self._predictor_config
        labels = LabelSet(
            self._subject.segment_steps,
            self._subject.space,
            config.ensemble_size,
            self._seed,
            config.segment_discount,
            config.label_buffer,
        )
        if self._pretrained is not None:
            labels.warm_start_from(self._pretrained.normaliser)
        return labels

    # --- begin with what others learned ---

    def learn_from(self, pairs: Iterable[LabelledPair]) -> None:
        """Take in labels that no question of this experiment's asked for; before all others."""
        for pair in pairs:
            self._given.append(pair)
            self._labels.add(pair)

    # --- observe ---

    def observe(self, rollout: Rollout) -> Observed:
        """Remember a rollout, and predict its rewards.

        Note: the moments of the predicted reward take this rollout in before it is normalised by
        them, so that the very first rewards are on scale.
        """
        self.recorder.observe(rollout)
        rows = self._subject.space.rows(rollout.observations, rollout.actions)
        members = self.predictor.member_rewards(rows)
        self.predictor.recent.update(members[:, rollout.is_valid])
        rewards = self.predictor.normalised(members)
        return Observed(rewards, _figures_of(rollout, members, rewards))

    # --- ask ---

    def ask(self, progress: Progress, recent: RecentEpisodes) -> int:
        """Ask as many comparisons as the schedule says are due.

        Returns:
            How many were asked: fewer than are due while too little was lived to cut them from.
        """
        self._num_due = self._asking.schedule(self._budget, progress)
        due = self._num_due - self._query_queue.num_asked
        if self._has_fitted and progress.step > 0:
            most_waiting, waiting = self._asking.most_waiting, self._query_queue.num_waiting
            due = min(due, ASKED_AT_ONCE if most_waiting is None else most_waiting - waiting)
        pairs = self._choose(due) if due > 0 else []
        self._query_queue.ask(pairs, progress.step, recent)
        return len(pairs)

    def plan(self, progress: Progress, seconds_between: float | None, total: int | None) -> None:
        """Ask at another rate, or another number in all; None leaves it as it is.

        Args:
            progress: how far the run has come; the constant schedule goes on from here.
            seconds_between: two comparisons of the constant schedule.
            total: labels over the whole run.
        """
        budget = self._budget
        if seconds_between is not None and seconds_between != budget.seconds_between:
            budget = at_another_rate(budget, seconds_between, progress)
        if total is not None:
            # Note: the first comparisons are waited for, so there are never fewer.
            budget = replace(budget, total=max(total, budget.pretraining))
        self._budget = budget

    @property
    def num_asked(self) -> int:
        """Comparisons asked so far."""
        return self._query_queue.num_asked

    @property
    def num_answered(self) -> int:
        """Comparisons whose answer was taken in."""
        return self._query_queue.num_answered

    def _choose(self, num: int) -> list[Pair]:
        """The pairs most worth asking, among random candidates."""
        num_candidates = num * (self._asking.candidates_per_pair if self._has_fitted else 1)
        cuts = self.recorder.cut(2 * num_candidates, self._rng)
        num_pairs = len(cuts) // 2
        if num_pairs == 0:
            return []
        left, right = cuts.take(slice(num_pairs)), cuts.take(slice(num_pairs, 2 * num_pairs))
        chosen = self._selected(left, right, num)
        sides = (self.recorder.segments(side.take(chosen)) for side in (left, right))
        pairs = list(zip(*sides, strict=True))
        return pairs if self._has_fitted else self._some_with_library(pairs)

    def _some_with_library(self, pairs: list[Pair]) -> list[Pair]:
        """Every n-th pair compares with a segment of another experiment, if there are any.

        A random policy seldom shows what is wanted; an agent that was taught before may.
        """
        library = self._asking.library
        for place in range(0, len(pairs) if library else 0, LIBRARY_EVERY):
            other = library[int(self._rng.integers(len(library)))]
            pairs[place] = (pairs[place][0], other)
        return pairs

    def _selected(self, left: Cuts, right: Cuts, num: int) -> np.ndarray:
        if not self._has_fitted:
            no_opinion = Candidates(np.zeros((1, len(left))), np.zeros((len(left), 1)))
            return uniform(no_opinion, num, self._rng)
        (rewards_left, rows_left), (rewards_right, rows_right) = map(self._judge, (left, right))
        candidates = Candidates(rewards_left - rewards_right, rows_left - rows_right)
        return self._asking.selector(candidates, num, self._rng)

    def _judge(self, cuts: Cuts) -> tuple[np.ndarray, np.ndarray]:
        """[M, C] each member's return of the segments, and [C, F] their mean input row."""
        stride = self._subject.stride
        rows, is_real = self._input_rows(cuts, stride)
        rewards = self.predictor.member_rewards(rows) * is_real
        return stride * rewards.sum(-1), self._features(rows)

    def _features(self, rows: np.ndarray) -> np.ndarray:
        """[C, F] the mean input row of segments; of pictures, that of some of their pixels."""
        if self._subject.space.has_byte_rows:
            return rows[..., ::FEATURE_STRIDE].mean(1, dtype=np.float32) / 255
        return self.predictor.normaliser(rows).mean(1)

    def _input_rows(self, cuts: Cuts, stride: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """[C, L/k, F] what the predictor sees of segments, and [C, L/k] which steps are real."""
        observations, is_real = self.recorder.gather("observations", cuts, stride)
        actions, _ = self.recorder.gather("actions", cuts, stride)
        return self._subject.space.rows(observations, actions), is_real

    # --- fit ---

    @property
    def num_fits(self) -> int:
        """Fits that are done; that of a predictor to begin with is one."""
        return self._num_fits + (self._pretrained is not None)

    @property
    def num_labels(self) -> int:
        """Comparisons that are learned from."""
        return len(self._labels)

    @property
    def _has_fitted(self) -> bool:
        return self.num_fits > 0

    @property
    def _least_to_refit(self) -> int:
        """A handful of labels would only make a predictor forget what it has learned before."""
        return min(LEAST_TO_REFIT, self._budget.pretraining or self._budget.total or LEAST_TO_REFIT)

    def take_answers(self) -> int:
        """Take in the answers that have come, unless a fit in the background needs the labels.

        Returns:
            How many comparisons have an answer by now.
        """
        if self._running is None:
            taken = self._query_queue.take_answers()
            if taken.has_revised:
                self._learn_anew()
            elif taken.new or taken.more:
                self._learn_of([*taken.new, *taken.more])
                self._num_more += len(taken.more)
        return self._query_queue.num_answered

    def adopt_earlier_questions(self) -> None:
        """Take over what a run that was killed had asked a person; see `QueryQueue.adopt`."""
        self._query_queue.adopt()

    def fit(self, *, again: bool = False) -> FitReport | None:
        """Take in the answers that have come, and fit if there are enough new ones.

        Args:
            again: fit although there is nothing new.
        """
        if self._running is not None:
            return self._finish_running(wait=False)
        self.take_answers()
        num_new = self._labels.num_added - self._fitted_labels + self._num_more
        num_known = min(self._fitted_labels, len(self._labels))
        is_due = num_new > 0 and num_new >= self._fit_growth * num_known
        if self._pretrained is not None and len(self._labels) < self._least_to_refit:
            return None
        is_due = is_due or (again and len(self._labels) > 0)
        return self._start_fit() if is_due or self._is_revised else None

    def _learn_of(self, questions: Iterable[Question]) -> None:
        """Take in comparisons with their first answer, and second opinions on others."""
        answered = list(questions)
        targets = self._targets_of(answered)
        for question in answered:
            if question.id in targets and question.id not in self._number_of:
                left, right = (self._rows_of(each) for each in (question.left, question.right))
                pair = LabelledPair(left, right, targets[question.id])
                self._number_of[question.id] = self._labels.add(pair)
        for i in targets.keys() & self._number_of.keys():
            self._labels.set_target(self._number_of[i], targets[i])

    def _targets_of(self, questions: Sequence[Question]) -> dict[int, float]:
        """What is to be learned of comparisons; nothing where nobody could tell.

        With estimated reliabilities it is of all comparisons: each answer bears on every other.
        """
        if self._labeler_weights == "equal":
            return mean_targets(self._votes(questions))
        votes = self._votes(self._query_queue.answered())
        return posterior_targets(votes, estimate_reliability(votes, self._query_queue.gold()))

    def _votes(self, questions: Sequence[Question]) -> Votes:
        return Votes.of({each.id: self._query_queue.answers_to(each) for each in questions})

    def _learn_anew(self) -> None:
        """Somebody thought better of an answer: read all of them again, as they are now.

        Note: a label's bootstrap draw belongs to its number among the labels, so most keep theirs.
        """
        self._labels, self._number_of = self._no_labels(), {}
        for pair in self._given:
            self._labels.add(pair)
        self._learn_of(self._query_queue.answered())
        self._is_revised = len(self._labels) > 0

    def _rows_of(self, content_hash: str) -> Shaped[np.ndarray, "time features"]:
        segment = self._query_queue.segment(content_hash)
        return self._subject.space.rows(segment.observations, segment.actions)

    def _start_fit(self) -> FitReport | None:
        """The first fit goes on to convergence, and is waited for; later ones start warm."""
        self._fitted_labels, self._num_more = self._labels.num_added, 0
        self._is_revised = False
        if not self._has_fitted:
            return self._adopt(self._fitter.fit(self._labels, self._pretrain_iters))
        if self._thread is None:
            return self._adopt(self._refit())
        self._running = self._thread.submit(self._refit)
        return None

    def _refit(self) -> FitResult:
        return self._fitter.fit(self._labels, REFIT_STEPS, patience=REFIT_PATIENCE)

    def _finish_running(self, *, wait: bool) -> FitReport | None:
        """Take over a fit from the background once it is done; new labels wait meanwhile."""
        if self._running is None or not (wait or self._running.done()):
            return None
        fitted, self._running = self._running.result(), None
        return self._adopt(fitted)

    def _adopt(self, fitted: FitResult) -> FitReport:
        self.predictor.set_networks(fitted.networks, fitted.normaliser)
        if self._subject.shows_ends:
            self.predictor.keeps_zero = self._labels.has_unequal_lengths
        self._measure_spread()
        self._report = fitted.report
        self._num_fits += 1
        self._fit_steps += fitted.report.num_steps
        return fitted.report

    def _measure_spread(self) -> None:
        """Begin the window of predicted rewards anew: what the new networks say of recent steps."""
        cuts = self.recorder.cut(REMEASURED_SEGMENTS, self._rng)
        self.predictor.recent.clear()
        if len(cuts):
            rows, is_real = self._input_rows(cuts)
            rows = rows[is_real]
        else:  # nothing was lived: what was labelled is all there is
            rows = self._labels.rows[self._labels.weights > 0]
        self.predictor.recent.update(self.predictor.member_rewards(rows))

    # --- report, save, load ---

    def figures(self) -> Metrics:
        """Labels and fits so far, to report."""
        counts: Metrics = {
            "labels_desired": self._num_due,
            "labels_asked": self._query_queue.num_asked,
            "labels_answered": self._query_queue.num_answered,
            "comparisons": len(self._labels),
            "fits": self._num_fits,
            "fit_steps": self._fit_steps,
        }
        return counts | (self._report.metrics() if self._report is not None else {})

    def diagnostics(self, shown: Set[str]) -> Diagnostics | None:
        """What the predictor makes of clips that can be shown; None before the first fit."""
        if self._report is None:
            return None
        bins = [
            {"predicted": each.predicted, "observed": each.observed, "count": each.num}
            for each in self._report.calibration
        ]
        return Diagnostics(self._predicted_returns(shown), bins)

    def _predicted_returns(self, shown: Set[str]) -> dict[str, float]:
        """Of each segment that was learned of and is shown; a k-th of its steps, each for k."""
        questions = {each.id: each for each in self._query_queue.asked()}
        places = {
            segment: (place, side)
            for i, number in self._number_of.items()
            for side, segment in enumerate((questions[i].left, questions[i].right))
            if segment in shown and (place := self._labels.index_of(number)) is not None
        }
        if not places:
            return {}
        comparisons, sides = np.array(list(places.values())).T
        seen = gather_steps(self._labels, comparisons, 0)
        rows, weights = (seen[name][np.arange(len(sides)), sides] for name in ("rows", "weights"))
        rewards = self.predictor.normalised(self.predictor.member_rewards(rows))
        returns = (rewards * weights).sum(-1)
        return dict(zip(places, returns.tolist(), strict=True))

    def state(self) -> StateDict:
        """Everything needed to go on exactly; segments and answers stay in the store."""
        self._finish_running(wait=True)
        own: StateDict = {
            "rng": rng_to_array(self._rng),
            "fitted_labels": np.asarray(self._fitted_labels),
            "num_fits": np.asarray(self._num_fits),
            "fit_steps": np.asarray(self._fit_steps),
            "num_due": np.asarray(self._num_due),
            "num_more": np.asarray(self._num_more),
            "budget": text_to_array(json.dumps(asdict(self._budget))),
            "learned": self._learned(),
            "report": text_to_array(json.dumps(self._report and asdict(self._report))),
        }
        parts = {
            "predictor": self.predictor.state(),
            "fitter": self._fitter.state(),
            "recorder": self.recorder.state(),
            "query_queue": self._query_queue.state(),
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
        self._num_due = int(state["self/num_due"])
        self._report = _loaded_report(state)
        self._query_queue.load_state(part_of(state, "query_queue"), self._subject.env_id)
        self._load_newer(state)

    def _load_newer(self, state: Mapping[str, np.ndarray]) -> None:
        """What checkpoints have held only since several people may label one run."""
        asked = self._query_queue.asked()
        learned = self._query_queue.answered()
        if "self/learned" in state:
            learned = [asked[place] for place in state["self/learned"]]
            self._num_more = int(state["self/num_more"])
            self._budget = Budget(**json.loads(array_to_text(state["self/budget"])))
        self._learn_of(learned)

    def _learned(self) -> Int64[np.ndarray, " comparison"]:
        """[C] which of the questions each comparison of the label set is, by the order asked."""
        order_asked = {each.id: place for place, each in enumerate(self._query_queue.asked())}
        return np.array([order_asked[i] for i in self._number_of], np.int64)

    def close(self) -> None:
        """Let go of threads."""
        self._fitter.close()
        if self._thread is not None:
            self._thread.shutdown()


def remembered_steps(
    pretraining: int, segment_steps: int, num_envs: int, space: InputSpace | None = None
) -> int:
    """Environment steps to remember: enough for all the first comparisons, a multiple of N."""
    first_steps = 2 * pretraining * segment_steps
    usual = REMEMBERED_STEPS
    if space is not None and space.image is not None:
        usual = min(usual, REMEMBERED_BYTES // space.image.num_bytes)
    per_env = -(-max(usual, first_steps) // num_envs)
    return num_envs * max(per_env, 2 * segment_steps)


def _loaded_report(state: Mapping[str, np.ndarray]) -> FitReport | None:
    saved = json.loads(array_to_text(state["self/report"]))
    return None if saved is None else FitReport.from_json(saved)


def _figures_of(
    rollout: Rollout,
    members: Float32[np.ndarray, "member time env"],
    rewards: Float32[np.ndarray, "time env"],
) -> Metrics:
    """Disagreement of the members, and the correlation with the true reward.

    Both over each environment's stretch of the rollout, summed: that is what is compared.
    """
    predicted, true = rewards.sum(0), rollout.rewards.sum(0)
    returns = members.sum(1)
    disagreement = returns.std(0).mean() / max(float(returns.std(1).mean()), 1e-9)
    figures: Metrics = {"disagreement": float(disagreement)}
    if len(true) > 2 and predicted.std() > 0 and true.std() > 0:
        figures["correlation"] = float(np.corrcoef(predicted, true)[0, 1])
    return figures
