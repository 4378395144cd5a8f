"""Tests of `-p human` with a simulated labeler who answers through the store."""

import threading
from dataclasses import replace

import pytest

from rl_teacher.clips.answer import Answer
from rl_teacher.common.errors import ExperimentNotFound
from rl_teacher.config.experiment import PPOConfig, RunOptions, TeachConfig
from rl_teacher.rewards.trainer import PredictorTrainer
from rl_teacher.runs.folder import Experiment, home
from rl_teacher.store.database import default_url
from rl_teacher.store.media import SegmentFiles
from rl_teacher.store.records import NewLabel
from rl_teacher.store.store import Store
from rl_teacher.teach import teach

pytestmark = pytest.mark.usefixtures("_shapes_unchecked")

CONFIG = TeachConfig(
    env_id="ShortReacher-v1",
    predictor="human",
    name="mine",
    pretrain_labels=8,
    n_labels=16,
    num_timesteps=4096,
    pretrain_iters=64,
    ppo=PPOConfig(num_envs=8, rollout_steps=64),
)


OPTIONS = RunOptions(no_browser=True, no_tensorboard=True, port=0, workers=1)


class Labeler(threading.Thread):
    """Labeler who prefers the higher true return and may revise the first answer once."""

    def __init__(self, *, name="mine", revises_first=False):
        super().__init__()
        self._experiment, self._revises_first = name, revises_first
        self._stop_asked = threading.Event()
        self.answers = {}
        self.seen_phases = []

    def run(self):
        with Store.open(default_url(home())) as store:
            while not self._stop_asked.wait(0.02):
                self._answer_waiting(store)

    def _answer_waiting(self, store):
        try:
            experiment = store.experiments.get(self._experiment)
        except ExperimentNotFound:
            return
        phase = (experiment.status or {}).get("phase")
        if phase not in self.seen_phases:
            self.seen_phases.append(phase)
        for comparison in store.comparisons.waiting(experiment.id, limit=3):
            self._answer(store, comparison.id, self._preferred(comparison))
        if self._revises_first and phase == "training" and self.answers:
            first = min(self.answers)
            store.labels.add_many([NewLabel(first, None, "owner")])
            self._answer(store, first, Answer.EQUAL)
            self._revises_first = False

    def _preferred(self, comparison):
        segments = SegmentFiles(home() / "segments")
        left, right = (
            segments.load(side.content_hash).true_return
            for side in (comparison.left, comparison.right)
        )
        return Answer.LEFT if left > right else Answer.RIGHT

    def _answer(self, store, comparison_id, answer):
        store.labels.add(comparison_id, answer, "owner")
        self.answers[comparison_id] = answer

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self._stop_asked.set()
        self.join()


def stored_answers():
    with Store.open(default_url(home())) as store:
        experiment = store.experiments.get("mine")
        return {each.id: each.answer for each in store.comparisons.answered(experiment.id)}


def test_run_waits_for_first_labels_and_asks_more_during_training(capsys):
    with Labeler() as labeler:
        outcome = teach(CONFIG, OPTIONS)
    assert outcome.is_finished
    assert "waiting" in labeler.seen_phases
    assert "page: http://127.0.0.1:" in capsys.readouterr().out
    assert stored_answers() == labeler.answers
    rows = Experiment.find("mine").metrics()
    assert rows[-1]["labels_answered"] > 8


def test_wait_for_labels_blocks_training_until_all_are_answered():
    with Labeler() as labeler:
        teach(CONFIG, replace(OPTIONS, wait_for_labels=True))
    last = Experiment.find("mine").metrics()[-1]
    assert last["labels_answered"] == last["labels_asked"] == len(labeler.answers)


def test_revised_answer_reaches_predictor(monkeypatch):
    rebuilt_targets = []
    rebuild = PredictorTrainer.rebuild

    def record(self, *args):
        rebuild(self, *args)
        rebuilt_targets.append(list(self.labels.targets))

    monkeypatch.setattr(PredictorTrainer, "rebuild", record)
    with Labeler(revises_first=True) as labeler:
        teach(replace(CONFIG, num_timesteps=8192), OPTIONS)
    assert labeler.answers[min(labeler.answers)] is Answer.EQUAL
    assert rebuilt_targets
    assert rebuilt_targets[-1][0] == 0.5


@pytest.mark.parametrize("env_id", ["CartPole-v1"])
def test_environment_without_mujoco_is_taught_by_videos(env_id):
    config = replace(CONFIG, env_id=env_id, num_timesteps=1024, clip_length=0.5, n_labels=6)
    with Labeler() as labeler:
        outcome = teach(replace(config, pretrain_labels=4), OPTIONS)
    assert outcome.is_finished
    assert len(labeler.answers) >= 4
    with Store.open(default_url(home())) as store:
        comparison = store.comparisons.get(min(labeler.answers))
    assert comparison.left.kind == comparison.right.kind == "video"


def test_answers_after_last_checkpoint_survive_kill_of_trainer(monkeypatch):
    class Killed(BaseException):
        pass

    from rl_teacher.teach import TrainingLoop

    train_step = TrainingLoop.train_step

    def train_and_die(self):
        metrics = train_step(self)
        if self.session.rewards.read_answers() > 10:
            raise Killed
        return metrics

    config = replace(CONFIG, num_timesteps=16_384)
    monkeypatch.setattr(TrainingLoop, "train_step", train_and_die)
    with Labeler() as labeler, pytest.raises(Killed):
        teach(config, OPTIONS)
    answered = dict(labeler.answers)
    assert len(answered) > 10
    monkeypatch.setattr(TrainingLoop, "train_step", train_step)
    with Labeler() as labeler:
        teach(config, OPTIONS)
    assert stored_answers() == answered | labeler.answers
    last = Experiment.find("mine").metrics()[-1]
    assert last["labels_answered"] == len(answered | labeler.answers)


@pytest.mark.slow
def test_first_comparisons_include_clips_of_other_experiments():
    with Labeler() as labeler:
        teach(replace(CONFIG, name="mine", num_timesteps=512), OPTIONS)
    with Store.open(default_url(home())) as store:
        first = store.experiments.get("mine")
        shared = set(store.clips.shared("ShortReacher-v1", 15))
    assert shared
    with Labeler(name="second") as labeler:
        teach(replace(CONFIG, name="second", seed=5, num_timesteps=512), OPTIONS)
    with Store.open(default_url(home())) as store:
        of_second = [store.comparisons.get(i) for i in labeler.answers]
    asked = {c.content_hash for each in of_second for c in (each.left, each.right)}
    assert first.answered
    assert asked & shared
    assert asked - shared


def test_diagnostics_contain_best_and_worst_clips_and_calibration():
    with Labeler():
        teach(replace(CONFIG, num_timesteps=512), OPTIONS)
    with Store.open(default_url(home())) as store:
        diagnostics = store.experiments.diagnostics(store.experiments.get("mine").id)
        assert diagnostics is not None
        kinds = [
            store.clips.get(each["clip"]).kind
            for each in (*diagnostics["best"], *diagnostics["least"])
        ]
    assert kinds == ["poses"] * 8
    returns = [
        each["predicted_return"] for each in (*diagnostics["best"], *reversed(diagnostics["least"]))
    ]
    assert returns == sorted(returns, reverse=True)
    assert diagnostics["calibration"]
