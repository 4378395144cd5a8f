from types import SimpleNamespace

import numpy as np
import pytest

from rl_teacher.clips.recorder import Episode, EpisodeWatcher
from rl_teacher.clips.renderer import ClipFile
from rl_teacher.clips.segment import Segment
from rl_teacher.common.timer import RunTimer
from rl_teacher.envs.registry import EnvInfo, make_vector
from rl_teacher.envs.rollout import Rollout
from rl_teacher.predictor.diagnostics import Diagnostics
from rl_teacher.runs.clip_renderer import ClipRenderer
from rl_teacher.runs.folder import Experiment
from rl_teacher.runs.history import EpisodeVideos
from rl_teacher.runs.reporting import EPISODES_KEPT, MetricsLogger, RunReporter, StatusReporter
from rl_teacher.runs.status import Phase, RunStatus
from rl_teacher.store.media import MediaFiles
from rl_teacher.store.records import RenderedClip
from rl_teacher.store.store import Store

NO_REWARDS = np.zeros((0, 1), np.float32)
NO_STEPS = {name: np.zeros((0, 1), bool) for name in ("terminated", "truncated", "is_valid")}
NO_ROLLOUT = Rollout(
    observations=NO_REWARDS,
    actions=NO_REWARDS,
    rewards=NO_REWARDS,
    next_observations=NO_REWARDS,
    scene_states=NO_REWARDS[..., None],
    **NO_STEPS,
)


class InstantClipRenderer(ClipRenderer):
    """A renderer that renders at once, unless its storage does not answer."""

    answers = True

    def __init__(self, store, media):
        env_info = EnvInfo("X-v0", 60.0, 6, False, "batch", "")
        super().__init__(env_info, make_vector("ShortReacher-v1", 1), store, media)

    @property
    def kind(self):
        return "poses"

    def to_mp4(self, clip):
        return clip.content

    def render_if_possible(self, segment, then, venv=None):
        if not self.answers:
            return False
        key = f"clips/{segment.content_hash}.poses"
        self.media.put(key, b"poses")
        shown = RenderedClip(segment.env_id, len(segment), "poses", key, None, 6, 60.0)
        self.store.clips.publish({segment.content_hash: shown})
        then(ClipFile("poses", b"poses", 6, 60.0))
        return True


class ScriptedWatcher(EpisodeWatcher):
    """A watcher whose latest episode the test sets."""

    def observe(self, rollout, predicted_rewards):
        pass


@pytest.fixture
def board(tmp_path, database):
    with Store.open(database) as store:
        experiment_id = store.experiments.ensure("mine", "ShortHopper-v1", {})
        clock = SimpleNamespace(s=100.0)
        media = MediaFiles(tmp_path / "media")
        clip_renderer = InstantClipRenderer(store, media)
        watcher = ScriptedWatcher("ShortHopper-v1", starts_at_reset=True)
        reporter = RunReporter(store, experiment_id, clip_renderer, watcher, lambda: clock.s)
        yield SimpleNamespace(
            store=store,
            experiment_id=experiment_id,
            media=media,
            clock=clock,
            watcher=watcher,
            status=StatusReporter(store, experiment_id, RunTimer(), lambda: clock.s),
            reporter=reporter,
        )


def status(board):
    return board.store.experiments.get("mine").status


def test_new_phase_is_written_at_once_and_same_phase_once_per_second(board):
    board.status.set(RunStatus(Phase.RANDOM, "acting", 0, 10))
    board.status.set(RunStatus(Phase.TRAINING, "training", 1, 10))
    assert status(board)["step"] == 1
    board.status.set(RunStatus(Phase.TRAINING, "training", 2, 10))
    assert status(board)["step"] == 1
    board.clock.s += 1.0
    board.status.set(RunStatus(Phase.TRAINING, "training", 3, 10, 99.0))
    assert status(board)["step"] == 3
    assert status(board)["steps_per_second"] == 99.0


def test_waiting_since_is_constant_while_waiting(board):
    board.status.set(RunStatus(Phase.WAITING, "1/2", 0, 10))
    since = status(board)["waiting_since"]
    board.clock.s += 5.0
    board.status.set(RunStatus(Phase.WAITING, "1/2", 0, 10))
    assert since is not None
    assert status(board)["waiting_since"] == since
    board.status.set(RunStatus(Phase.TRAINING, "training", 1, 10))
    assert status(board)["waiting_since"] is None


def test_metrics_logger_writes_every_row_to_store_file_and_sinks(board):
    rows = []
    with Experiment.open("mine", {}) as experiment:
        metrics = MetricsLogger(board.store, board.experiment_id, experiment)
        metrics.add_sink(rows.append)
        for step in (1, 2, 3):
            metrics.log({"step": step, "true_return": float("nan")})
        metrics.drop_after(2)
        assert [row.step for row in board.store.metrics.after(1)] == [1, 2]
        assert [row["step"] for row in experiment.metrics()] == [1, 2]
    assert [row["step"] for row in rows] == [1, 2, 3]


def test_latest_episode_is_shown_at_most_every_10_s_with_predicted_rewards(board):
    board.watcher.latest = an_episode(1.0)
    board.reporter.watch(NO_ROLLOUT, NO_REWARDS, 7, 1_000_000)
    shown = board.store.experiments.get("mine").latest_episode
    assert shown["predicted_rewards"] == [0.0, 0.25, 0.5, 0.75, 1.0, 1.25]
    assert shown["true_return"] == 6.0
    assert shown["step"] == 7
    board.watcher.latest = an_episode(2.0)
    board.reporter.watch(NO_ROLLOUT, NO_REWARDS, 8, 1_000_000)
    assert board.store.experiments.get("mine").latest_episode["step"] == 7
    board.clock.s += 10.0
    board.reporter.watch(NO_ROLLOUT, NO_REWARDS, 9, 1_000_000)
    assert board.store.experiments.get("mine").latest_episode["step"] == 9


def test_episodes_are_rendered_for_at_most_a_twentieth_of_the_time(board):
    board.reporter._clip_renderer.episode_s = 1.0
    for seconds in (0.0, 19.0, 1.0):
        board.clock.s += seconds
        board.watcher.latest = an_episode(seconds)
        board.reporter.watch(NO_ROLLOUT, NO_REWARDS, int(seconds), 1_000_000)
    assert board.store.experiments.get("mine").latest_episode["true_return"] == 6.0


def show(board, reward, num_steps=1_000_000):
    """Show one more episode; return its clip's hash."""
    board.watcher.latest = an_episode(reward)
    board.reporter.watch(NO_ROLLOUT, NO_REWARDS, int(reward), num_steps)
    board.clock.s += 10.0
    return an_episode(reward).segment.content_hash


def history(board):
    return [each["step"] for each in board.store.episodes.all(board.experiment_id)]


def test_episodes_are_kept_at_steps_spread_over_run_with_their_clips(board):
    shown = [show(board, reward, num_steps=300) for reward in range(11)]
    # 1 % of the run is 3 steps.
    assert history(board) == [0, 3, 6, 9]
    assert kept(board, shown) == [0, 3, 6, 7, 8, 9, 10]
    assert board.store.episodes.all(board.experiment_id)[3] == {
        "clip": shown[9],
        "predicted_rewards": [0.0, 0.25, 0.5, 0.75, 1.0, 1.25],
        "predicted_return": 3.75,
        "true_return": 54.0,
        "step": 9,
    }


def test_next_episode_is_kept_in_place_of_one_that_was_not_rendered(board):
    renderer = board.reporter._clip_renderer
    renderer.answers = False
    show(board, 0, num_steps=1_000)
    renderer.answers = True
    show(board, 5, num_steps=1_000)
    assert history(board) == [5]


def test_episodes_after_checkpoint_are_dropped_and_recorded_again(board):
    shown = [show(board, reward, num_steps=100) for reward in range(8)]
    board.store.experiments.set_latest_episode(board.experiment_id, {"clip": shown[0]})
    board.reporter.drop_episodes_after(4)
    assert history(board) == [0, 1, 2, 3, 4]
    assert kept(board, shown) == [0, 1, 2, 3, 4, 6]
    show(board, 6, num_steps=100)
    assert history(board) == [0, 1, 2, 3, 4, 6]


def test_episode_without_predictor_has_no_predicted_rewards(board):
    reporter = RunReporter(
        *(board.store, board.experiment_id, board.reporter._clip_renderer, board.watcher),
        has_predictor=False,
    )
    board.watcher.latest = an_episode(1.0)
    reporter.watch(NO_ROLLOUT, NO_REWARDS, 7, 100)
    [episode] = board.store.episodes.all(board.experiment_id)
    assert (episode["predicted_rewards"], episode["predicted_return"]) == (None, None)


@pytest.fixture
def videos(board, tmp_path):
    board.reporter.videos = EpisodeVideos(tmp_path / "videos")
    return board.reporter.videos


def test_videos_are_written_of_kept_episodes_only(board, videos):
    for reward in (0, 1, 3):
        show(board, reward, num_steps=300)
    assert history(board) == videos.steps == [0, 3]


def test_first_failure_of_a_video_is_logged_and_ends_writing(board, videos, monkeypatch, caplog):
    monkeypatch.setattr(board.reporter._clip_renderer, "to_mp4", lambda _: 1 / 0)
    for reward in (0, 3):
        show(board, reward, num_steps=300)
    assert (history(board), videos.steps) == ([0, 3], [])
    [warning] = caplog.messages
    assert "step 0" in warning


def kept(board, shown):
    """Return the indices of the clips that still have a file; the store must agree."""
    files = [n for n, each in enumerate(shown) if board.media.exists(f"clips/{each}.poses")]
    assert sorted(shown[n] for n in files) == sorted(board.store.clips.shared("ShortHopper-v1", 6))
    return files


def test_clips_of_first_and_latest_episodes_are_kept_and_others_deleted(board):
    shown = [show(board, reward) for reward in range(7)]
    assert EPISODES_KEPT == 4
    assert kept(board, shown) == [0, 3, 4, 5, 6]
    assert board.store.experiments.get("mine").latest_episode["clip"] == shown[6]


def test_clip_of_compared_episode_is_kept(board):
    shown = [show(board, reward) for reward in range(2)]
    board.store.comparisons.add(board.experiment_id, [(shown[0], shown[1])], "ShortHopper-v1", 6, 0)
    shown += [show(board, reward) for reward in range(2, 8)]
    assert kept(board, shown) == [0, 1, 4, 5, 6, 7]


def an_episode(reward):
    steps = np.zeros((6, 1), np.float32)
    rewards = np.full(6, reward, np.float32)
    segment = Segment("ShortHopper-v1", steps, steps, rewards, steps.astype(np.float64))
    return Episode(segment, np.arange(6, dtype=np.float32) / 4)


def ask_and_show(board, *pairs):
    board.store.comparisons.add(1, pairs, "ShortHopper-v1", 6, 0)
    shown = RenderedClip("ShortHopper-v1", 6, "poses", "clips/x", None, 6, 60.0)
    hashes = {each for pair in pairs for each in pair}
    board.store.clips.publish(dict.fromkeys(hashes, shown))


def diagnostics_of(predicted_returns, comparisons=None, num_fits=1):
    comparisons = comparisons or {}
    return Diagnostics(predicted_returns, [], comparisons, num_fits, len(comparisons))


def test_diagnostics_cover_shown_clips_and_are_written_at_most_every_10_s(board):
    ask_and_show(board, ("a", "b"))
    board.store.comparisons.add(1, [("c", "d")], "ShortHopper-v1", 6, 0)
    asked_about = []

    def diagnose(shown):
        asked_about.append(shown)
        return diagnostics_of({"a": 1.0, "b": -2.0})

    board.reporter.update_diagnostics(diagnose, 3)
    board.reporter.update_diagnostics(diagnose, 4)
    assert asked_about == [{"a", "b"}]
    board.clock.s += 10.0
    board.reporter.update_diagnostics(diagnose, 5)
    written = board.store.experiments.diagnostics(1)
    assert written["step"] == 5
    assert written["best"] == [{"clip": "a", "predicted_return": 1.0}]
    assert written["least"] == [{"clip": "b", "predicted_return": -2.0}]


def test_best_and_worst_lists_have_four_clips_and_no_overlap():
    written = diagnostics_of({str(i): float(i) for i in range(20)}).to_json(0)
    assert [each["clip"] for each in written["best"]] == ["19", "18", "17", "16"]
    assert [each["clip"] for each in written["least"]] == ["0", "1", "2", "3"]
    few = diagnostics_of({"a": 1.0, "b": 2.0, "c": 3.0}).to_json(0)
    assert [len(few["best"]), len(few["least"])] == [1, 1]
    assert diagnostics_of({}).to_json(0)["best"] == []
