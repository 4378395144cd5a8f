"""A sorter with a store and a teacher, for tests."""

from dataclasses import replace

import gymnasium as gym
import numpy as np

from rl_teacher.clips.recorder import Recorder
from rl_teacher.config.experiment import PredictorConfig
from rl_teacher.envs.rollout import Rollout
from rl_teacher.plan import LabelPlan
from rl_teacher.predictor.ensemble import RewardPredictor
from rl_teacher.predictor.inputs import InputSpace
from rl_teacher.queries.queue import NamedTeacher, QueryQueue, QueryStore
from rl_teacher.queries.sorter import ClipSorter
from rl_teacher.store.media import SegmentFiles
from rl_teacher.store.store import Store
from rl_teacher.teachers.registry import teacher_named

ENV_ID = "ShortReacher-v1"
NUM_ENVS, NUM_STEPS, LENGTH = 8, 400, 5
SPACE = InputSpace.from_spaces(gym.spaces.Box(-9, 9, (1,)), gym.spaces.Box(-1, 1, (1,)))
RECENT = 1.0, 10.0
SORT = LabelPlan(queries="sort", total=168, n_clips=21)
TREE = LabelPlan(queries="tree", n_clips=20)


def recorded(seed=0):
    """Return a recorder of random walks, whose reward is the position."""
    rng = np.random.default_rng(seed)
    places = np.cumsum(rng.standard_normal((NUM_STEPS, NUM_ENVS)), 0).astype(np.float32)
    never = np.zeros(places.shape, bool)
    column = places[..., None]
    recorder = Recorder(ENV_ID, segment_steps=LENGTH, capacity=NUM_STEPS)
    recorder.observe(
        Rollout(column, np.zeros_like(column), places, column, never, never, ~never, column)
    )
    return recorder


class Display:
    """A display of clips that renders nothing.

    Attributes:
        gone: content hashes of clips that cannot be shown.
        hidden: those of them that were to be shown.
    """

    def __init__(self, *, shows_others=True, gone=()):
        self.shows_others = shows_others
        self.gone = set(gone)
        self.hidden = set()

    def show(self, segments, *, is_recent=True):
        self.hidden |= self.gone & {each.content_hash for each in segments}

    def missing(self, content_hashes):
        return self.gone & set(content_hashes)


class Sorting:
    """A sorter whose comparisons a teacher answers through the store."""

    def __init__(self, folder, database, settings=SORT, teacher=None, shared=()):
        self.store = Store.open(database)
        self.experiment_id = self.store.experiments.ensure("mine", ENV_ID, {})
        files = SegmentFiles(folder / "segments")
        self._query_store = QueryStore(self.store, self.experiment_id, files)
        teacher = teacher_named("oracle") if teacher is None else teacher
        self._teacher = NamedTeacher(teacher, "synthetic:oracle", 0)
        self.recorder = recorded()
        self._shared = shared
        self.predictor = RewardPredictor(SPACE, PredictorConfig(hidden=(4,)), seed=1)
        self.start(settings)

    def lose_media(self, clips):
        """Show comparisons to a person from now on, but none with these clips."""
        self._query_store = replace(self._query_store, display=Display(gone=clips))
        state, sorted_state = self.queue.state(), self.sorter.state()
        self.start(self.settings)
        self.queue.load_state(state, ENV_ID)
        self.sorter.load_state(sorted_state)

    def start(self, settings):
        """Start with an empty queue, as a new process does."""
        self.settings = settings
        self.queue = QueryQueue(self._query_store, self._teacher)
        rng = np.random.default_rng(3)
        self.sorter = ClipSorter(
            settings, self.queue, self.recorder, self.predictor, rng, self._shared
        )

    def ask(self, num, *, is_fitted=False):
        """Ask up to `num` comparisons, and read the answers; return the pairs."""
        pairs = self.sorter.choose(num, is_fitted=is_fitted)
        self.queue.ask(pairs, 0, RECENT)
        self.queue.read_answers()
        return pairs

    def sort(self, num):
        """Ask `num` comparisons in turns."""
        while self.queue.num_asked < num and self.ask(num - self.queue.num_asked):
            pass

    def true_returns(self):
        """Return the true returns of the clips, in order of arrival."""
        return np.array([self.queue.segment(each).true_return for each in self.clips])

    @property
    def clips(self):
        return list(self.sorter._clips)

    def close(self):
        self.store.close()
