"""Vector environments of Atari games.

N: environments, T: steps of an episode, C: channels (stacked images times colours, newest last),
H, W: height and width in pixels.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from jaxtyping import Bool, Float, Float64, Int64, Integer

from rl_teacher.config.fields import MAX_SEED
from rl_teacher.config.preprocessing import FrameSettings
from rl_teacher.envs.atari.emulators import (
    CONTINUE,
    Emulators,
    Images,
)
from rl_teacher.envs.atari.names import AtariGame
from rl_teacher.envs.atari.rules import CLIP_FPS, RETAINS_MEMORY, rules_of
from rl_teacher.envs.episode_replay import (
    KEEP_STEPS,
    ReplayRecord,
    find_record,
    histories_of,
    pack_replays,
    unpack_histories,
    unpack_running,
)
from rl_teacher.envs.interface import SeededVectorEnv, Shard, check_saved_state, final_infos

logger = logging.getLogger(__name__)

Infos = dict[str, Any]

EPISODES_PER_SEED = 64
"""Episodes of an environment until it draws a new seed. Seeding costs as much as 170 steps, because
ALE loads the game again; but a replay resets through all episodes since the seed."""


class AtariVectorEnv(SeededVectorEnv):
    """N environments of one game; a finished episode is reset in the same step.

    Each step returns new observation arrays without copying: keep them, but do not write to them.

    `infos` has the [N] `lives` that are left and whether the step was a `lost_life`. In games with
    start points, `infos["ignores_action"]` is True where the next step plays one.
    """

    metadata = {  # noqa: RUF012
        "autoreset_mode": AutoresetMode.SAME_STEP,
        "render_modes": [],
        "render_fps": CLIP_FPS,
    }
    has_lives = True

    def __init__(
        self,
        game: AtariGame,
        num_envs: int,
        num_threads: int | None = None,
        keep_steps: int = KEEP_STEPS,
        frames: FrameSettings = FrameSettings(),  # noqa: B008 - it cannot change
        shard: Shard | None = None,
    ) -> None:
        """Create the environments.

        Args:
            game: the game and its kind.
            num_envs: N.
            num_threads: all CPUs by default. Results do not depend on it.
            keep_steps: an episode's record is kept until this many steps, counted over all
                environments, were taken after its end.
            frames: preprocessing of images.
            shard: which of the environments of a run these are; by default all of them.
        """
        super().__init__(num_envs)
        self._rules = rules_of(game.name)
        # Sticky actions draw random numbers in every frame, so the state after an episode depends
        # on its length. Such games, and those that keep memory, are seeded at every reset.
        self._has_fresh_seeds = game.is_sticky or game.rom in RETAINS_MEMORY
        self._emulators = Emulators(game, num_envs, num_threads, frames)
        self.single_observation_space = self._emulators.observation_space
        self.single_action_space = self._emulators.action_space
        self._num_actions = int(self._emulators.action_space.n)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._histories = histories_of(shard or Shard(0, num_envs, num_envs), keep_steps)
        self._env_indices = np.arange(num_envs)
        self._observations = np.zeros(self.observation_space.shape or (), np.uint8)
        # The running episodes: number, reset state, actions, and number of actions taken.
        self._episodes = np.full(num_envs, -1)
        self._reset_states: list[dict[str, Any]] = []
        # A byte holds any action: a console has 18 at most.
        self._taken = np.zeros((num_envs, self._rules.max_episode_steps), np.uint8)
        self._steps = np.zeros(num_envs, np.int64)
        self._elapsed = np.zeros(num_envs, np.int64)
        # Actions of the start points that are still to be played.
        self._start_left = np.zeros(num_envs, np.int64)
        self._is_starting = np.zeros(num_envs, np.bool_)
        self._lives = np.zeros(num_envs, np.int64)

    @property
    def scene_states(self) -> Float[np.ndarray, "env 2"]:
        """[N, 2] number of the running episode and step in it, see `replay_record`."""
        states = np.empty((self.num_envs, 2))
        states[:, 0], states[:, 1] = self._episodes, self._steps
        return states

    @property
    def observations(self) -> Images:
        """[N, C, H, W] the latest observations, which later steps do not overwrite."""
        return self._observations

    def replay_record(self, episode: int) -> ReplayRecord:
        """Return the record of an episode.

        Args:
            episode: the first of the two numbers in `scene_states`; the second is the step in it.

        Raises:
            LookupError: the episode finished more than `keep_steps` steps ago.
        """
        for env in np.flatnonzero(self._episodes == episode).tolist():
            return self._replay_record_of(env)
        return find_record(self._histories, episode)

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Images, Infos]:
        """Start new episodes.

        Args:
            seed: one seed (environment i gets seed + i), one per environment, or None to continue
                the generators.
            options: `elapsed_steps`, [N] initial step counts; `reset_mask`, [N] booleans, the
                environments to reset (Gymnasium's).
        """
        is_reset, elapsed = self.begin_reset(seed, options, self._rules.max_episode_steps)
        # New seeds, so that what follows `reset(seed)` does not depend on earlier episodes.
        self._observations = self._begin_episodes(is_reset, elapsed, draws_seeds=True)
        return self._observations, self._start_infos()

    def step(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, actions: Integer[np.ndarray, " env"]
    ) -> tuple[Images, Float64[np.ndarray, " env"], np.ndarray, np.ndarray, Infos]:
        """Step all environments; finished episodes are reset in the same step."""
        self.begin_step(actions)
        return self.end_step()

    def begin_step(self, actions: Integer[np.ndarray, " env"]) -> None:
        """Start a step in the emulators' threads; the caller may compute until `end_step`."""
        given = np.asarray(actions)
        if given.shape != (self.num_envs,):
            raise ValueError(f"The actions have shape {given.shape}; {(self.num_envs,)} is needed.")
        if given.min() < 0 or given.max() >= self._num_actions:
            raise ValueError(f"The actions are {given}; 0 to {self._num_actions - 1} are valid.")
        self._is_starting = self._start_left > 0
        played = given.astype(np.int64)
        for env in np.flatnonzero(self._is_starting):
            played[env] = self._reset_states[env]["start"][-self._start_left[env]]
            self._start_left[env] -= 1
        self._emulators.send(played)
        # Recorded while the emulators work.
        acting = self._env_indices[~self._is_starting]
        self._taken[acting, self._steps[acting]] = given[acting]
        self._steps[acting] += 1
        for env in acting.tolist():
            self._histories[env].count_step()

    def end_step(
        self,
    ) -> tuple[Images, Float64[np.ndarray, " env"], np.ndarray, np.ndarray, Infos]:
        """Wait for the step that `begin_step` started and return the result of `step`."""
        is_starting = self._is_starting
        images, rewards, terminated, lives = self._emulators.receive()
        if self._rules.min_lives is not None:
            terminated = terminated | (lives < self._rules.min_lives)
        # A game that ends on the way to its start point restarts: the agent did not play it.
        is_over_at_start = terminated & is_starting
        terminated = terminated & ~is_starting
        truncated = self._elapsed + self._steps >= self._rules.max_episode_steps
        infos: Infos = {"lives": lives, "lost_life": (lives < self._lives) & ~is_starting}
        self._lives = lives.copy()
        ended = terminated | truncated
        if ended.any():
            infos |= final_infos(images, ended)
        if ended.any() or is_over_at_start.any():
            needs_reset, elapsed = ended | is_over_at_start, np.zeros_like(self._elapsed)
            images = self._begin_episodes(needs_reset, elapsed, draws_seeds=self._has_fresh_seeds)
        self._observations = images
        rewards = np.where(is_starting, 0.0, rewards)
        return images, rewards, terminated, truncated, infos | self._start_infos()

    def get_state(self) -> dict[str, np.ndarray]:
        """Return the full state: replay records, because ALE's vector emulators cannot be saved."""
        running = [self._replay_record_of(env) for env in range(self.num_envs)]
        return {
            **pack_replays(running, self._histories),
            "episodes": self._episodes.copy(),
            "start_left": self._start_left.copy(),
            "lives": self._lives.copy(),
            "observations": self._observations.copy(),
            "rng": self.pack_generators(),
        }

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore a state by replaying its running episodes."""
        if not self._reset_states:
            self.reset(seed=0)
        check_saved_state(state, self.get_state())
        running = unpack_running(state)
        self._episodes = state["episodes"].copy()
        self._reset_states = [record.reset_state for record in running]
        self._elapsed = np.array([each["elapsed"] for each in self._reset_states])
        self._steps = np.array([len(record) for record in running])
        for taken, record in zip(self._taken, running, strict=True):
            taken[: len(record)] = record.actions
        self._start_left = state["start_left"].copy()
        self._lives = state["lives"].copy()
        self.unpack_generators(state["rng"])
        unpack_histories(self._histories, state)
        self._observations = self._replay(running)
        if not np.array_equal(self._observations, state["observations"]):
            logger.warning(
                "Replaying the running episodes did not reproduce the saved observations: another "
                "version of ALE, or other score areas, saved them. The run continues, but differs "
                "from an uninterrupted one."
            )

    def close_extras(self, **_: Any) -> None:
        """Free the emulators."""
        self.__dict__.pop("_emulators", None)

    # --- episodes ---

    def _start_infos(self) -> Infos:
        if not self._rules.has_start_points:
            return {}
        return {"ignores_action": self._start_left > 0}

    def _replay_record_of(self, env: int) -> ReplayRecord:
        taken = self._taken[env, : self._steps[env]]
        return ReplayRecord(self._reset_states[env], taken.astype(self.single_action_space.dtype))

    def _begin_episodes(
        self,
        is_reset: Bool[np.ndarray, " env"],
        elapsed: Int64[np.ndarray, " env"],
        *,
        draws_seeds: bool,
    ) -> Images:
        """Start episodes in some environments and return the images of all."""
        if not self._reset_states:
            self._reset_states = [{} for _ in self._env_indices]
        reset_envs = np.flatnonzero(is_reset).tolist()
        for env in reset_envs:
            # An episode without steps has nothing to replay.
            if self._steps[env] > 0:
                record = self._replay_record_of(env)
                self._histories[env].end_episode(int(self._episodes[env]), record)
            previous = {} if draws_seeds else self._reset_states[env]
            self._reset_states[env] = self._next_reset_state(env, previous, int(elapsed[env]))
            self._episodes[env] = self._histories[env].start_episode()
            self._start_left[env] = len(self._reset_states[env]["start"])
        # Unknown until the next step, in which none is lost.
        self._lives[is_reset] = 0
        self._steps[is_reset] = 0
        self._elapsed[is_reset] = elapsed[is_reset]
        reset_states = [self._reset_states[env] for env in reset_envs]
        seeds = [CONTINUE if each["place"] else each["seed"] for each in reset_states]
        return self._emulators.reset(np.array(seeds), is_reset)

    def _next_reset_state(self, env: int, previous: dict[str, Any], elapsed: int) -> dict[str, Any]:
        """Choose the seed, the place after it and the start point of an episode, as JSON values.

        Args:
            env: the environment whose generator draws.
            previous: the reset state of the previous episode; {} to draw a new seed.
            elapsed: the initial step count.
        """
        rng, start_points = self._rngs[env], self._rules.start_points
        place = (previous.get("place", -1) + 1) % EPISODES_PER_SEED if previous else 0
        return {
            "seed": previous["seed"] if place else int(rng.integers(MAX_SEED)),
            "place": place,
            "start": list(start_points[rng.integers(len(start_points))]),
            "elapsed": elapsed,
        }

    # --- restoring ---

    def _replay(self, running: Sequence[ReplayRecord]) -> Images:
        """Replay episodes of different lengths so that all finish in the same step."""
        replays = [
            [
                *record.reset_state["start"][: len(record.reset_state["start"]) - left],
                *record.actions,
            ]
            for record, left in zip(running, self._start_left, strict=True)
        ]
        lengths = np.array([len(each) for each in replays])
        longest = int(lengths.max())
        seeds = np.array([record.reset_state["seed"] for record in running])
        places = np.array([record.reset_state.get("place", 0) for record in running])
        start_steps = longest - lengths
        columns = np.zeros((longest, self.num_envs), np.int64)
        for env, replay in enumerate(replays):
            columns[longest - len(replay) :, env] = replay
        # All emulators must start together; those with shorter episodes are reset again when the
        # remaining steps of the longest equal their own.
        self._emulators.reset(seeds, np.ones(self.num_envs, np.bool_))
        images = self._emulators.skip_episodes(np.where(start_steps == 0, places, 0))
        for step in range(1, longest + 1):
            self._emulators.send(columns[step - 1])
            images, *_ = self._emulators.receive()
            needs_reset = start_steps == step
            if needs_reset.any():
                self._emulators.reset(seeds[needs_reset], needs_reset)
                images = self._emulators.skip_episodes(np.where(needs_reset, places, 0))
        return images
