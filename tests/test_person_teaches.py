"""Tests of `-p human` with a simulated labeler who answers through the store."""

import contextlib
import shutil
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from rl_teacher import session as session_module
from rl_teacher.clips.answer import Answer
from rl_teacher.common.errors import ExperimentNotFound, RlTeacherError
from rl_teacher.config.experiment import PPOConfig, RunOptions, TeachConfig
from rl_teacher.queries.planner import LEAD
from rl_teacher.rewards.trainer import PredictorTrainer
from rl_teacher.runs.control import finish_run
from rl_teacher.runs.folder import Experiment, home
from rl_teacher.runs.status import Phase
from rl_teacher.session import WAITING_POLL_S, PreferenceSession
from rl_teacher.store.database import default_url
from rl_teacher.store.media import SegmentFiles
from rl_teacher.store.records import Control, NewLabel
from rl_teacher.store.store import Store
from rl_teacher.teach import TrainingLoop, teach
from tests.store.comparisons import answered_comparisons, open_comparisons

pytestmark = pytest.mark.usefixtures("_shapes_unchecked", "_no_page", "_prompt_control")

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


STOP_S = 60.0

OPTIONS = RunOptions(
    no_browser=True, no_tensorboard=True, port=0, workers=1, exit_when_finished=True
)


class Labeler(threading.Thread):
    """Labeler who prefers the higher true return and may revise the first answer once."""

    def __init__(self, *, name="mine", revises_first=False, limit=10_000, prefers=None):
        super().__init__()
        self._experiment, self._revises_first = name, revises_first
        self._prefers = prefers or self._preferred
        self.limit = limit
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
        for comparison in open_comparisons(store, experiment.id, limit=3):
            if len(self.answers) < self.limit:
                self._answer(store, comparison.id, self._prefers(comparison))
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


@contextlib.contextmanager
def running(config, options=OPTIONS):
    """Run an experiment in a thread; its outcome is set at the end."""
    run = SimpleNamespace(outcome=None, error=None)

    def execute():
        try:
            run.outcome = teach(config, options)
        except BaseException as error:
            run.error = error

    thread = threading.Thread(target=execute, daemon=True)
    thread.start()
    try:
        yield run
    except BaseException:
        # The database may be the reason of the failure, and the run cannot be stopped then.
        with contextlib.suppress(RlTeacherError):
            stop()
            thread.join(STOP_S)
        raise
    thread.join()
    assert run.error is None, run.error


def experiment_view():
    with Store.open(default_url(home())) as store:
        return store.experiments.get("mine")


def status():
    return experiment_view().status or {}


def waiting():
    with Store.open(default_url(home())) as store:
        return open_comparisons(store, store.experiments.get("mine").id, limit=100)


def extend(**targets):
    with Store.open(default_url(home())) as store:
        store.experiments.set_control(store.experiments.get("mine").id, Control(**targets))


@pytest.mark.parametrize(
    ("queries", "env_id"),
    [
        ("tree", "ShortReacher-v1"),
        ("sort", "ShortReacher-v1"),
        pytest.param("sort", "Pendulum-v1", marks=pytest.mark.slow),
    ],
)
def test_person_sorts_clips_and_one_of_null_actions(queries, env_id):
    """Comparisons depend on answers. Clips are poses, or videos of replayed episodes."""
    config = replace(
        CONFIG,
        env_id=env_id,
        queries=queries,
        n_clips=8,
        num_timesteps=3072,
        null_action_clip=True,
    )
    with Labeler() as labeler:
        assert teach(config, OPTIONS).is_finished
    row = Experiment.find("mine").metrics()[-1]
    assert row["labels_answered"] == len(labeler.answers) == 16
    assert row["clips_sorted"] == 8
    segments = SegmentFiles(home() / "segments")
    with Store.open(default_url(home())) as store:
        asked = store.comparisons.asked(store.experiments.get("mine").id)
        shown = {h for each in asked if each.is_rendered for h in (each.left_hash, each.right_hash)}
    assert len([each for each in shown if not segments.load(each).actions.any()]) == 1


def stored_diagnostics():
    with Store.open(default_url(home())) as store:
        diagnostics = store.experiments.diagnostics(store.experiments.get("mine").id)
    assert diagnostics is not None
    return diagnostics


def stop():
    extend(state="stop")


def seconds_until(condition, timeout_s=120.0):
    began = time.monotonic()
    while time.monotonic() - began < timeout_s:
        with contextlib.suppress(ExperimentNotFound, KeyError):
            if condition():
                return time.monotonic() - began
        # Each look opens the database, while the run computes in the same process.
        time.sleep(0.05)
    raise AssertionError(f"not within {timeout_s} s; status: {status()}")


def await_phase(phase, *, labels):
    """Wait until the run is in a phase with this many answers; return its step."""
    seconds_until(lambda: status()["phase"] == phase and experiment_view().answered == labels)
    return status()["step"]


def stored_answers():
    with Store.open(default_url(home())) as store:
        experiment = store.experiments.get("mine")
        return {each.id: each.answer for each in answered_comparisons(store, experiment.id)}


@pytest.mark.usefixtures("serves_page")
def test_run_waits_for_first_labels_and_asks_more_during_training(capsys):
    with Labeler() as labeler:
        outcome = teach(CONFIG, OPTIONS)
    assert outcome.is_finished
    assert "waiting" in labeler.seen_phases
    assert "page: http://127.0.0.1:" in capsys.readouterr().out
    assert stored_answers() == labeler.answers
    # It is paced by labels: it ends with all of them and all steps.
    assert outcome.step == CONFIG.num_timesteps
    last = Experiment.find("mine").metrics()[-1]
    assert last["labels_answered"] == last["labels_asked"] == len(labeler.answers) == 16


def test_run_that_waits_for_labels_reads_them_after_the_fit_in_the_background(monkeypatch):
    def refit_slowly(trainer):
        time.sleep(0.5)
        return refit(trainer)

    refit = PredictorTrainer._refit
    monkeypatch.setattr(PredictorTrainer, "_refit", refit_slowly)
    with Labeler() as labeler, running(replace(CONFIG, fit="async")) as run:
        seconds_until(lambda: run.outcome is not None)
    assert run.outcome.is_finished
    assert len(labeler.answers) == 16


def test_run_paced_by_labels_waits_for_an_absent_person_and_resumes_within_a_second(monkeypatch):
    slept_s, slept_before_resuming = record_waiting(monkeypatch)
    with Labeler(limit=12) as labeler:
        with running(CONFIG) as run:
            # 8 + 8 (1 - 0.01^(1024 / 3584)) / 0.99 = 13.9 labels are due 1,024 steps after the
            # exploration, which takes 512.
            seconds_until(lambda: status()["step"] == 1_536 and status()["num_missing"] == 2)
            diagnostics = stored_diagnostics()
            assert diagnostics["num_fits"] == status()["num_fits"] >= 1
            assert len(diagnostics["comparisons"]) == diagnostics["num_labels"] >= 8
            time.sleep(0.5)
            assert status()["step"] == 1_536
            with Store.open(default_url(home())) as store:
                for comparison in waiting()[:2]:
                    store.labels.add(comparison.id, Answer.LEFT, "owner")
                num_slept = len(slept_s)
            seconds_until(lambda: 1_536 in slept_before_resuming)
            labeler.limit = 14
        assert run.outcome.is_finished
    assert sum(slept_s[num_slept : slept_before_resuming[1_536]]) < 1.0


def record_waiting(monkeypatch):
    """Record how long a session sleeps, and how often it has before it resumes at each step."""
    monkeypatch.setattr(session_module, "WAITING_POLL_S", WAITING_POLL_S)
    slept_s, slept_before_resuming = [], {}

    def sleep(seconds):
        slept_s.append(seconds)
        time.sleep(seconds)

    def wait(session):
        wait_for_due_labels(session)
        slept_before_resuming[session.step] = len(slept_s)

    wait_for_due_labels = PreferenceSession.wait_for_due_labels
    monkeypatch.setattr(
        session_module, "time", SimpleNamespace(sleep=sleep, monotonic=time.monotonic)
    )
    monkeypatch.setattr(PreferenceSession, "wait_for_due_labels", wait)
    return slept_s, slept_before_resuming


def test_first_comparisons_are_asked_while_the_agent_explores(monkeypatch):
    # 600 steps of exploration for 30 comparisons: ten rollouts of 8 environments. Whole episodes
    # have 20 steps, recorded after three rollouts.
    config = replace(
        CONFIG,
        pretrain_labels=30,
        n_labels=30,
        clip_length=1.0,
        collect_only=True,
        ppo=PPOConfig(num_envs=8, rollout_steps=8),
    )
    asked = []
    observe = PreferenceSession.observe

    def recorded(session, rollout, **options):
        asked.append(session.learner.queue.num_asked)
        return observe(session, rollout, **options)

    monkeypatch.setattr(PreferenceSession, "observe", recorded)
    with Labeler() as labeler, running(config):
        seconds_until(lambda: len(labeler.answers) == 30)
    assert asked[:10] == [0, 0, 0, *(30 * 64 * rollouts // 600 for rollouts in range(3, 10))]


@pytest.mark.parametrize("from_page", [True, False], ids=["page", "command line"])
def test_finished_run_is_extended_by_labels_and_steps(from_page):
    longer = replace(CONFIG, n_labels=24, num_timesteps=8_192)
    with Labeler() as labeler:
        if from_page:
            with running(CONFIG, replace(OPTIONS, exit_when_finished=False)) as run:
                await_phase("finished", labels=16)
                assert Experiment.find("mine").summary().phase is Phase.FINISHED
                extend(target_labels=24, target_steps=8_192)
                seconds_until(lambda: status()["step"] >= 8_192)
                await_phase("finished", labels=24)
                stop()
            outcome = run.outcome
        else:
            assert teach(CONFIG, OPTIONS).is_finished
            outcome = teach(longer, OPTIONS)
    assert outcome.is_finished
    assert outcome.step == 8_192
    assert len(labeler.answers) == 24
    last = Experiment.find("mine").metrics()[-1]
    assert last["labels_answered"] == 24
    # The first command finds the extended experiment finished.
    assert teach(CONFIG, OPTIONS).step == 8_192


def test_run_without_given_steps_ends_some_time_after_its_last_label():
    config = replace(CONFIG, n_labels=9, num_timesteps=None)
    with Labeler(limit=8) as labeler, running(config):
        seconds_until(lambda: status().get("num_missing"))
        assert status()["num_steps"] == 0  # not known yet
        labeler.limit = 9
    # 32,000 and 2,000 for each label, to the end of a rollout.
    assert Experiment.find("mine").metrics()[-1]["step"] == 50_176
    assert status()["num_steps"] == 50_176
    with Labeler():
        # 50,176 * 10 / 9 steps, to the end of a rollout.
        assert teach(replace(config, n_labels=10), OPTIONS).step == 55_808
    assert experiment_view().answered == 10


@pytest.mark.parametrize(("answered", "steps"), [(5, 1_024), (12, 2_048)])
def test_finished_run_uses_its_labels_and_ends(answered, steps, monkeypatch):
    """It waits for its first 8 labels after the exploration, or for more during training."""
    fitted = []
    fit_if_due = PredictorTrainer.fit_if_due

    def record_fit(trainer, **options):
        fitted.append(len(trainer.labels))
        return fit_if_due(trainer, **options)

    monkeypatch.setattr(PredictorTrainer, "fit_if_due", record_fit)
    with Labeler(limit=answered), running(CONFIG) as run:
        seconds_until(lambda: status()["num_missing"] and experiment_view().answered == answered)
        with Store.open(default_url(home())) as store:
            finish_run(store, "mine")
    assert run.outcome.is_finished
    assert 0 < run.outcome.step <= steps
    assert fitted[-1] == answered
    assert any(Experiment.find("mine").predictor_folder.iterdir())
    # Repeated, the command finds it finished; with other numbers, it continues.
    assert teach(CONFIG, OPTIONS).step == run.outcome.step
    with Labeler():
        assert teach(replace(CONFIG, n_labels=20, num_timesteps=3_072), OPTIONS).step == 3_072
    assert experiment_view().answered == 20


def test_run_whose_clips_are_deleted_while_it_waits_is_taught_to_its_end(monkeypatch):
    monkeypatch.setattr(session_module, "CLIP_CHECK_S", 0.1)
    with running(CONFIG) as run:
        seconds_until(lambda: status().get("phase") == "waiting" and len(waiting()) == 8 + LEAD, 60)
        media = home() / "media" / "clips"
        shutil.rmtree(media)
        shown = {each.left.content_hash for each in waiting()}
        seconds_until(lambda: shown <= {each.stem for each in media.glob("*")}, 30)
        with Labeler():
            seconds_until(lambda: run.outcome is not None, 90)
    assert run.outcome.is_finished


def test_revised_answer_reaches_predictor(monkeypatch):
    """The answer is withdrawn and given again, which the run may read in one step or in two."""
    fitted = []
    fit_if_due = PredictorTrainer.fit_if_due

    def record_fit(self, **options):
        labels = self.labels
        fitted.append(dict(zip(labels.comparison_ids, labels.targets, strict=True)))
        return fit_if_due(self, **options)

    monkeypatch.setattr(PredictorTrainer, "fit_if_due", record_fit)
    with Labeler(revises_first=True) as labeler:
        teach(replace(CONFIG, num_timesteps=8192), OPTIONS)
    first = min(labeler.answers)
    assert labeler.answers[first] is Answer.EQUAL
    assert fitted[0][first] != 0.5
    assert fitted[-1][first] == 0.5


@pytest.mark.parametrize("env_id", ["CartPole-v1"])
def test_environment_without_mujoco_is_taught_by_videos(env_id):
    config = replace(CONFIG, env_id=env_id, num_timesteps=8_192, clip_length=0.5, n_labels=6)
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

    train_step = TrainingLoop.train_step

    def train_and_die(self):
        train_step(self)
        if self.session.learner.read_answers() > 10:
            raise Killed

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
        teach(replace(CONFIG, name="mine", num_timesteps=2_048), OPTIONS)
    with Store.open(default_url(home())) as store:
        first = store.experiments.get("mine")
        shared = set(store.clips.shared("ShortReacher-v1", 15))
    assert shared
    with Labeler(name="second") as labeler:
        changes = {"seed": 5, "num_timesteps": 2_048, "reuse_clips": True}
        teach(replace(CONFIG, name="second", **changes), OPTIONS)
    with Store.open(default_url(home())) as store:
        of_second = [store.comparisons.get(i) for i in labeler.answers]
    asked = {c.content_hash for each in of_second for c in (each.left, each.right)}
    assert first.answered
    assert asked & shared
    assert asked - shared


def test_diagnostics_contain_best_and_worst_clips_and_calibration():
    with Labeler():
        teach(replace(CONFIG, num_timesteps=1_024), OPTIONS)
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
