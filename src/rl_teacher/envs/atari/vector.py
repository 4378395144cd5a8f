"""Atari games, many at a time.

N: environments, T: steps of an episode, C: channels (pictures times colours, the newest last),
H, W: of a picture.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from jaxtyping import Bool, Float, Float64, Int64, Integer

from rl_teacher.common.errors import CorruptCheckpoint
from rl_teacher.common.state_dict import array_to_text, nest, part_of, text_to_array
from rl_teacher.config.preprocessing import FrameSettings
from rl_teacher.envs.atari.emulators import GO_ON, MAX_SEED, Emulators, Pictures
from rl_teacher.envs.atari.names import AtariGame
from rl_teacher.envs.atari.rules import REMEMBERING, rules_of
from rl_teacher.envs.episode_replay import (
    KEEP_STEPS,
    ReplayHistory,
    ReplayRecord,
    pack_replay_records,
    unpack_replay_records,
)
from rl_teacher.envs.interface import (
    SeededVectorEnv,
    checked_elapsed,
    generator_at,
    generators_after,
)

logger = logging.getLogger(__name__)

Infos = dict[str, Any]

EPISODES_OF_A_SEED = 64
"""Episodes of an environment, at most, until it draws a seed: that costs as much as 170 steps, but
to live an episode again, all warm_start since its seed are gone through again."""


class AtariVectorEnv(SeededVectorEnv):
    """N environments of one game; an episode that ends begins anew in the same step.

    The observations are new arrays each time, which are not copied: keep them, but write to none.

    Where a game has start points, `infos["ignores_action"]` tells where the next step lives one.
    """

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP, "render_modes": []}  # noqa: RUF012

    def __init__(
        self,
        game: AtariGame,
        num_envs: int,
        num_threads: int | None = None,
        keep_steps: int = KEEP_STEPS,
        frames: FrameSettings = FrameSettings(),  # noqa: B008 - it cannot change
    ) -> None:
        """Switch them on.

        Args:
            game: which, and in which kind.
            num_envs: N.
            num_threads: all CPUs by default. Results do not depend on it.
            keep_steps: an episode's record is kept until this many steps, counted over all
                environments, were lived after its end.
            frames: what is shown of it.
        """
        super().__init__(num_envs)
        self._rules = rules_of(game.name)
        # Note: where actions stick, there are draws in every frame, as many as frames were lived.
        self._has_fresh_seeds = game.is_sticky or game.rom in REMEMBERING
        self._frames = asdict(frames)
        self._emulators = Emulators(game, num_envs, num_threads, frames)
        self.single_observation_space = self._emulators.observation_space
        self.single_action_space = self._emulators.action_space
        self._num_actions = int(self._emulators.action_space.n)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._book = ReplayHistory(keep_steps)
        self._everyone = np.arange(num_envs)
        self._observations = np.zeros(self.observation_space.shape or (), np.uint8)
        # Of the running episodes: number, beginning, actions, and how many of these are lived.
        self._episodes = np.full(num_envs, -1)
        self._warm_start: list[dict[str, Any]] = []
        self._taken = np.zeros((num_envs, self._rules.max_episode_steps), np.uint8)
        self._steps = np.zeros(num_envs, np.int64)
        self._elapsed = np.zeros(num_envs, np.int64)
        # Actions of the start points that are still to be lived.
        self._start_left = np.zeros(num_envs, np.int64)
        self._is_starting = np.zeros(num_envs, np.bool_)

    @property
    def scene_states(self) -> Float[np.ndarray, "env 2"]:
        """[N, 2] the running episode's number, and the step in it: see `record`."""
        states = np.empty((self.num_envs, 2))
        states[:, 0], states[:, 1] = self._episodes, self._steps
        return states

    @property
    def observations(self) -> Pictures:
        """[N, C, H, W] what the last `reset`, `step` or `set_state` led to."""
        return self._observations

    def replay_record(self, episode: int) -> ReplayRecord:
        """How an episode is lived again.

        Args:
            episode: the first of the two numbers in `scene_states`; the second is the step in it.

        Raises:
            LookupError: it ended longer than `keep_steps` ago.
        """
        for env in np.flatnonzero(self._episodes == episode).tolist():
            return self._replay_record_of(env)
        return self._book[episode]

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Pictures, Infos]:
        """Begin new episodes.

        Args:
            seed: one for all (environment i gets seed + i), one for each, or None to draw on.
            options: `elapsed_steps`, [N] integers, where each step counter starts; `reset_mask`,
                [N] booleans, which environments begin anew (Gymnasium's).
        """
        options = options or {}
        self._rngs = generators_after(self.np_random, seed)
        which = np.ones(self.num_envs, np.bool_)
        if "reset_mask" in options and self._warm_start:
            which = np.asarray(options["reset_mask"], np.bool_)
        elapsed = np.zeros(self.num_envs, np.int64)
        if "elapsed_steps" in options:
            elapsed = checked_elapsed(
                options["elapsed_steps"], self.num_envs, self._rules.max_episode_steps
            )
        self._observations = self._begin(which, elapsed, draws_seeds=True)
        return self._observations, self._told()

    def step(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, actions: Integer[np.ndarray, " env"]
    ) -> tuple[Pictures, Float64[np.ndarray, " env"], np.ndarray, np.ndarray, Infos]:
        """One step of every environment; ended episodes begin anew."""
        self.begin_step(actions)
        return self.end_step()

    def begin_step(self, actions: Integer[np.ndarray, " env"]) -> None:
        """Let the emulators act; until `end_step` there is time for something else."""
        self._is_starting = self._start_left > 0
        checked = self._checked(actions)
        self._emulators.send(self._to_be_lived(checked))
        self._remember(checked)

    def end_step(
        self,
    ) -> tuple[Pictures, Float64[np.ndarray, " env"], np.ndarray, np.ndarray, Infos]:
        """What `step` returns, of the step that began."""
        is_starting = self._is_starting
        pictures, rewards, terminated, lives = self._emulators.receive()
        if self._rules.min_lives is not None:
            terminated = terminated | (lives < self._rules.min_lives)
        is_over_at_start = terminated & is_starting
        terminated = terminated & ~is_starting
        truncated = self._elapsed + self._steps >= self._rules.max_episode_steps
        infos: Infos = {"lives": lives}
        ended = terminated | truncated
        if ended.any():
            infos |= {"final_obs": pictures, "_final_obs": ended}
            infos |= {"final_info": {}, "_final_info": ended}
        if ended.any() or is_over_at_start.any():
            begins, elapsed = ended | is_over_at_start, np.zeros_like(self._elapsed)
            pictures = self._begin(begins, elapsed, draws_seeds=self._has_fresh_seeds)
        self._observations = pictures
        rewards = np.where(is_starting, 0.0, rewards)
        return pictures, rewards, terminated, truncated, infos | self._told()

    def get_state(self) -> dict[str, np.ndarray]:
        """Everything that the future depends on: records, since emulators cannot be saved so."""
        running = [self._replay_record_of(env) for env in range(self.num_envs)]
        return {
            **pack_replay_records(running, self.single_action_space),
            "episodes": self._episodes.copy(),
            "start_left": self._start_left.copy(),
            "observations": self._observations.copy(),
            "rng": text_to_array(json.dumps([rng.bit_generator.state for rng in self.np_random])),
            **nest({"book": self._book.get_state(self.single_action_space)}),
        }

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Live the running episodes again, and go on from there, here or in another process."""
        self._check_fits(state)
        running = unpack_replay_records(state)
        self._episodes = state["episodes"].copy()
        self._warm_start = [record.beginning for record in running]
        self._elapsed = np.array([each["elapsed"] for each in self._warm_start])
        self._steps = np.array([len(record) for record in running])
        for taken, record in zip(self._taken, running, strict=True):
            taken[: len(record)] = record.actions
        self._start_left = state["start_left"].copy()
        self._rngs = [generator_at(place) for place in json.loads(array_to_text(state["rng"]))]
        self._book.set_state(part_of(state, "book"))
        self._observations = self._live_again(running)
        if not np.array_equal(self._observations, state["observations"]):
            logger.warning(
                "The running episodes did not end where they were saved: another version of ALE "
                "saved them, or with other score areas. The run goes on, but not as it would have."
            )

    def close_extras(self, **_: Any) -> None:
        """Switch the emulators off."""
        self.__dict__.pop("_emulators", None)

    # --- steps ---

    def _checked(self, actions: Any) -> Int64[np.ndarray, " env"]:
        given = np.asarray(actions)
        if given.shape != (self.num_envs,):
            raise ValueError(f"Actions of shape {given.shape}; {(self.num_envs,)} is needed.")
        if given.min() < 0 or given.max() >= self._num_actions:
            raise ValueError(f"Actions {given}; 0 to {self._num_actions - 1} are known.")
        return given.astype(np.int64)

    def _to_be_lived(self, actions: Int64[np.ndarray, " env"]) -> Int64[np.ndarray, " env"]:
        """The actions, with those of start points in place of what is ignored."""
        if not self._rules.has_start_points:
            return actions
        lived = actions.copy()
        for env in np.flatnonzero(self._is_starting):
            lived[env] = self._warm_start[env]["start"][-self._start_left[env]]
            self._start_left[env] -= 1
        return lived

    def _remember(self, actions: Int64[np.ndarray, " env"]) -> None:
        """Take down what is done; the emulators are at work meanwhile."""
        acts = self._everyone[~self._is_starting]
        self._taken[acts, self._steps[acts]] = actions[acts]
        self._steps[acts] += 1
        self._book.live(len(acts))

    def _told(self) -> Infos:
        if not self._rules.has_start_points:
            return {}
        return {"ignores_action": self._start_left > 0}

    # --- episodes ---

    def _replay_record_of(self, env: int) -> ReplayRecord:
        taken = self._taken[env, : self._steps[env]]
        return ReplayRecord(self._warm_start[env], taken.astype(self.single_action_space.dtype))

    def _begin(
        self,
        which: Bool[np.ndarray, " env"],
        elapsed: Int64[np.ndarray, " env"],
        *,
        draws_seeds: bool,
    ) -> Pictures:
        """Begin episodes in some environments; what all of them show then."""
        if not self._warm_start:
            self._warm_start = [{} for _ in self._everyone]
        begun = np.flatnonzero(which).tolist()
        for env in begun:
            if self._steps[env] > 0:
                self._book.end(int(self._episodes[env]), self._replay_record_of(env))
            before = {} if draws_seeds else self._warm_start[env]
            self._warm_start[env] = self._next_beginning(env, before, int(elapsed[env]))
            self._episodes[env] = self._book.begin()
            self._start_left[env] = len(self._warm_start[env]["start"])
        self._steps[which] = 0
        self._elapsed[which] = elapsed[which]
        warm_start = [self._warm_start[env] for env in begun]
        seeds = [GO_ON if each["place"] else each["seed"] for each in warm_start]
        return self._emulators.begin(np.array(seeds), which)

    def _next_beginning(self, env: int, before: dict[str, Any], elapsed: int) -> dict[str, Any]:
        """Seed, place after it, and start point of an episode, in what JSON can say.

        Args:
            env: whose generator draws.
            before: the beginning that this one follows on; {} where a seed is to be drawn.
            elapsed: where its step counter starts.
        """
        rng, start_points = self._rngs[env], self._rules.start_points
        place = (before.get("place", -1) + 1) % EPISODES_OF_A_SEED if before else 0
        return {
            "seed": before["seed"] if place else int(rng.integers(MAX_SEED)),
            "place": place,
            "start": list(start_points[rng.integers(len(start_points))]),
            "elapsed": elapsed,
            "frames": self._frames,
        }

    # --- going on ---

    def _check_fits(self, state: Mapping[str, np.ndarray]) -> None:
        if not self._warm_start:
            self.reset(seed=0)
        needed = self.get_state()
        missing = needed.keys() - state.keys()
        if missing:
            raise CorruptCheckpoint(
                f"The environments' saved {', '.join(sorted(missing))} is missing."
            )
        given, wanted = state["observations"].shape, needed["observations"].shape
        if given != wanted:
            raise CorruptCheckpoint(
                f"The environments' saved observations are {given}; {wanted} is needed. They were "
                "saved with another number of environments, or other settings of frames."
            )

    def _live_again(self, running: Sequence[ReplayRecord]) -> Pictures:
        """Live episodes of different lengths, so that all arrive in the same step."""
        lives = [
            [
                *record.beginning["start"][: len(record.beginning["start"]) - left],
                *record.actions,
            ]
            for record, left in zip(running, self._start_left, strict=True)
        ]
        lengths = np.array([len(life) for life in lives])
        longest = int(lengths.max())
        seeds = np.array([record.beginning["seed"] for record in running])
        places = np.array([record.beginning.get("place", 0) for record in running])
        dues = longest - lengths
        columns = np.zeros((longest, self.num_envs), np.int64)
        for env, life in enumerate(lives):
            columns[longest - len(life) :, env] = life
        # Note: every emulator begins once now; those with less to live begin again, later.
        self._emulators.begin(seeds, np.ones(self.num_envs, np.bool_))
        pictures = self._emulators.go_on(np.where(dues == 0, places, 0))
        for step in range(1, longest + 1):
            pictures, *_ = self._emulators.act(columns[step - 1])
            begins = dues == step
            if begins.any():
                self._emulators.begin(seeds[begins], begins)
                pictures = self._emulators.go_on(np.where(begins, places, 0))
        return pictures
