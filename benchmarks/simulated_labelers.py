"""Simulated labelers of given reliability, who answer one run through its store.

J: number of labelers.
"""

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.settings import saved_to_config
from rl_teacher.clips.answer import Answer
from rl_teacher.config.experiment import RunOptions, TeachConfig
from rl_teacher.store.media import SegmentFiles
from rl_teacher.store.records import ClaimedComparison, NewLabel
from rl_teacher.store.store import Store

RELIABILITIES = (0.95, 0.9, 0.8, 0.7, 0.6)
AT_ONCE = 3
"""Comparisons that a labeler claims at a time; the same number as the page."""
PAUSE_S = 0.05

Metrics = dict[str, Any]


def name_of(place: int) -> str:
    """Return the name of a simulated labeler in the store."""
    return f"labeler-{place + 1}"


class Labelers(threading.Thread):
    """Thread in which all labelers answer in turn, independently and equally often."""

    def __init__(self, experiment: str, reliabilities: tuple[float, ...], seed: int) -> None:
        super().__init__(daemon=True)
        self._experiment = experiment
        self._reliabilities = reliabilities
        self._rng = np.random.default_rng([seed, 100])
        self._is_over = threading.Event()
        self.failure: Exception | None = None

    def run(self) -> None:
        """Answer whatever can be claimed until the run is over."""
        from rl_teacher.common.errors import ExperimentNotFound
        from rl_teacher.runs.folder import home
        from rl_teacher.store.database import default_url

        segments = SegmentFiles(home() / "segments")
        try:
            with Store.open(default_url(home()), is_synced=False) as store:
                while not self._is_over.wait(PAUSE_S):
                    with contextlib.suppress(ExperimentNotFound):
                        experiment_id = store.experiments.get(self._experiment).id
                        while self._once_round(store, experiment_id, segments):
                            pass
        except Exception as error:
            self.failure = error

    def _once_round(self, store: Store, experiment_id: int, segments: SegmentFiles) -> int:
        """Let every labeler answer their claimed comparisons; return the number of answers."""
        num = 0
        for place in self._rng.permutation(len(self._reliabilities)):
            name = name_of(place)
            claimed = store.leases.claim(experiment_id, name, AT_ONCE)
            labels = [self._label(each, int(place), segments) for each in claimed]
            store.labels.add_many(labels)
            num += len(labels)
        return num

    def _label(self, claimed: ClaimedComparison, place: int, segments: SegmentFiles) -> NewLabel:
        right = true_answer(claimed.comparison, segments)
        is_right = self._rng.random() < self._reliabilities[place]
        answer = right if is_right else OPPOSITE[right]
        return NewLabel(claimed.comparison.id, answer, name_of(place), lease=claimed.lease)

    def __enter__(self) -> "Labelers":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self.join()


OPPOSITE = {Answer.LEFT: Answer.RIGHT, Answer.RIGHT: Answer.LEFT, Answer.EQUAL: Answer.LEFT}


def true_answer(comparison: Any, segments: SegmentFiles) -> Answer:
    """Answer by the true return."""
    left, right = (
        segments.load(side.content_hash).true_return for side in (comparison.left, comparison.right)
    )
    return Answer.EQUAL if left == right else Answer.LEFT if left > right else Answer.RIGHT


# --- the job ---


def study(saved: Mapping[str, Any], overlap: float, overlap_labelers: int) -> Metrics:
    """Train one run that all labelers answer; return its return and the estimates of the labelers.

    Args:
        saved: configuration, as returned by `TeachConfig.saved`.
        overlap: share of the comparisons that several labelers answer.
        overlap_labelers: number of labelers per comparison with overlap.
    """
    from benchmarks._ours import curve_figures
    from rl_teacher.runs.folder import Experiment, home
    from rl_teacher.store.database import default_url

    config = saved_to_config(saved)
    options = RunOptions(
        workers=1,
        no_tensorboard=True,
        exit_when_finished=True,
        overlap=overlap,
        overlap_labelers=overlap_labelers,
    )
    start_s = time.perf_counter()
    with Labelers(config.name, RELIABILITIES, config.seed) as labelers:
        teach_without_page(config, options)
    if labelers.failure is not None:
        raise labelers.failure
    metrics = curve_figures(Experiment.find(config.name).metrics())
    metrics["work_s"] = time.perf_counter() - start_s
    with Store.open(default_url(home())) as store:
        return metrics | labeler_metrics(store, config.name, SegmentFiles(home() / "segments"))


def teach_without_page(config: TeachConfig, options: RunOptions) -> None:
    """Run `teach` without serving the page."""
    from rl_teacher.common import runtime
    from rl_teacher.preparation import check, experiment_spec, initial_agent
    from rl_teacher.report.progress import Progress
    from rl_teacher.runs.folder import home
    from rl_teacher.runs.opening import open_experiment
    from rl_teacher.teach import TrainingLoop

    runtime.prepare(home() / "cache" / "xla")
    plan = check(config, options)
    env_info = plan.env_info
    config = replace(config, env_id=env_info.id)
    with contextlib.ExitStack() as stack:
        experiment = stack.enter_context(open_experiment(experiment_spec(config, options)))
        display = stack.enter_context(Progress(config.name, env_info.id, config.num_timesteps))
        agent = initial_agent(config)
        loop = TrainingLoop(plan, experiment, display, agent)
        loop.session.control.set_assignment(options)
        stack.callback(loop.close)
        loop.run()


def labeler_metrics(store: Store, name: str, segments: SegmentFiles) -> Metrics:
    """Compute agreement, reliability estimates, and the share of targets on the right side."""
    from rl_teacher.quality.agreement import agreement
    from rl_teacher.quality.reliability import (
        estimate_reliability,
        mean_targets,
    )
    from rl_teacher.quality.votes import Votes

    asked = [each.id for each in store.comparisons.asked(store.experiments.get(name).id)]
    votes = Votes.of(store.labels.votes(asked))
    truth = {each: true_answer(store.comparisons.get(each), segments) for each in asked}
    estimates = estimate_reliability(votes)
    overlap_agreement = agreement(votes.telling)
    return {
        "votes": len(votes),
        "overlapping": overlap_agreement.num_comparisons,
        "alpha": overlap_agreement.alpha,
        "alpha_low": overlap_agreement.low,
        "alpha_high": overlap_agreement.high,
        "raw_agreement": overlap_agreement.raw,
        "labelers": dict(metrics_by_labeler(store, votes, truth, estimates)),
        "right_by_mean": share_right(mean_targets(votes), truth),
    }


def metrics_by_labeler(
    store: Store, votes: Any, truth: Mapping[int, Answer], estimates: Mapping[int, Any]
) -> Iterator[tuple[str, Metrics]]:
    """Yield true reliability, share of right answers and estimate of each labeler."""
    from rl_teacher.quality.votes import CODES

    id_of = {labeler.name: labeler.id for labeler in store.labelers.all()}
    for place, reliability in enumerate(RELIABILITIES):
        own = votes.where(votes.labeler == id_of[name_of(place)])
        pairs = zip(own.comparison.tolist(), own.answer.tolist(), strict=True)
        right = [answer_code == CODES[truth[comparison]] for comparison, answer_code in pairs]
        yield (
            name_of(place),
            {
                "reliability": reliability,
                "right": float(np.mean(right)),
                "estimate": estimates[id_of[name_of(place)]].estimate,
                "answers": len(right),
                "counted": estimates[id_of[name_of(place)]].num,
            },
        )


def share_right(targets: Mapping[int, float], truth: Mapping[int, Answer]) -> float:
    """Compute the share of targets on the better side; 0.5 counts half, ties are ignored."""
    sides = {Answer.LEFT: 1.0, Answer.RIGHT: 0.0}
    leans = [
        0.5 if target == 0.5 else float((target > 0.5) == (sides[truth[i]] > 0.5))
        for i, target in targets.items()
        if truth[i] in sides
    ]
    return float(np.mean(leans))
