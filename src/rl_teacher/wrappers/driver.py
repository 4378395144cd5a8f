"""Driver of a wrapper's session: records steps and returns true or predicted rewards.

N: number of environments.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from jaxtyping import Bool, Float, Float32, Shaped

from rl_teacher.common.errors import BadInput, BadObservation, NoPredictor
from rl_teacher.predictor.ensemble import RewardPredictor
from rl_teacher.wrappers.learning import WrapperLearning
from rl_teacher.wrappers.parts import fitting_predictor
from rl_teacher.wrappers.settings import WrapperSettings
from rl_teacher.wrappers.steps import StepBuffer, StepRecord
from rl_teacher.wrappers.world import World

ROLLOUT_STEPS = 32
"""Minimum length of a rollout, in steps of each environment."""
ROLLOUT_SIZE = 128
"""Minimum size of a rollout, in steps of all environments together."""


@dataclass(frozen=True)
class Outcome:
    """Outcome of one step of N environments.

    Attributes:
        observations: [N, ...] inputs of the predictor, after any reset.
        led_to: [N, ...] next observations, before any reset.
        rewards: [N] true rewards.
        terminated: [N] True where the episode terminated.
        truncated: [N] True where the episode was truncated.
    """

    observations: Shaped[np.ndarray, "env ..."]
    led_to: Shaped[np.ndarray, "env ..."]
    rewards: Float[np.ndarray, " env"]
    terminated: Bool[np.ndarray, " env"]
    truncated: Bool[np.ndarray, " env"]


class WrapperDriver:
    """Buffers the steps of a wrapper's environments and returns their rewards.

    Attributes:
        is_over: [N] True where the next step is not a transition: the environment only resets
            itself, or waits for a reset.
        is_closed: True after `close`.
    """

    def __init__(self, world: World, settings: WrapperSettings) -> None:
        self._world = world
        self._learning: WrapperLearning | None = None
        if settings.is_frozen:
            self._frozen = fitting_predictor(settings, world.input_space)
        else:
            self._learning = WrapperLearning(world, settings)
        self._is_wanted: bool | None = None
        self._is_collecting = not settings.train_only
        self.is_closed = False
        num_envs = world.num_envs
        self._buffer = StepBuffer(max(ROLLOUT_STEPS, -(-ROLLOUT_SIZE // num_envs)))
        self._observations: np.ndarray | None = None
        self._scene_states = world.scene_states()
        self.is_over = np.zeros(num_envs, bool)

    # --- stepping ---

    def begin(
        self,
        observations: Shaped[np.ndarray, "env ..."],
        begun: Bool[np.ndarray, " env"] | None = None,
    ) -> None:
        """Start episodes.

        Args:
            observations: [N, ...] inputs of the predictor; environments that were not reset
                keep their latest observations.
            begun: [N] True where an environment was reset; None if all were.
        """
        _check_finite("observations", observations)
        begun = np.ones(self._world.num_envs, bool) if begun is None else begun
        self._buffer.break_off(begun)
        self.is_over = self.is_over & ~begun
        self._observations = observations
        self._scene_states = self._world.scene_states()

    def live(self, actions: Any, outcome: Outcome) -> Float[np.ndarray, " env"]:
        """Record one step and return its rewards.

        Args:
            actions: [N, ...] actions passed to the environments.
            outcome: outcome of the step.

        Returns:
            [N] rewards for the agent; 0 where an environment only reset itself.

        Raises:
            BadObservation: observations or rewards are not finite.
            TeacherFailed: the teacher raised an error or returned an invalid answer.
        """
        if self._observations is None:
            raise BadInput("step was called before reset. Call reset first.")
        _check_finite("observations", outcome.led_to)
        _check_finite("rewards", outcome.rewards)
        self._hand_over_if_full()
        step = self._step_record(actions, outcome)
        rewards = self._rewards_of(step, outcome.rewards)
        self._buffer.append(step)
        self._observations = outcome.observations
        self._scene_states = self._world.scene_states()
        return rewards

    def _step_record(self, actions: Any, outcome: Outcome) -> StepRecord:
        assert self._observations is not None  # noqa: S101 - checked in `live`
        is_valid = ~self.is_over
        terminated, truncated = outcome.terminated & is_valid, outcome.truncated & is_valid
        ended = terminated | truncated
        if self._world.autoreset_mode == AutoresetMode.NEXT_STEP:
            self.is_over = ended
        elif self._world.autoreset_mode == AutoresetMode.DISABLED:
            self.is_over = self.is_over | ended
        return StepRecord(
            observations=self._observations,
            actions=self._world.actions(actions),
            rewards=outcome.rewards.astype(np.float32),
            next_observations=outcome.led_to,
            terminated=terminated,
            truncated=truncated,
            is_valid=is_valid,
            scene_states=self._scene_states,
        )

    def _rewards_of(
        self, step: StepRecord, true_rewards: Float[np.ndarray, " env"]
    ) -> Float[np.ndarray, " env"]:
        if not self.using_predicted_reward:
            return true_rewards
        return np.where(step.is_valid, self.predicted(step), 0.0)

    def predicted(self, step: StepRecord) -> Float32[np.ndarray, " env"]:
        """Predict the rewards [N] of one step."""
        return self.predictor(step.observations, step.actions)

    def rewards_of(
        self, observations: Shaped[np.ndarray, "time env ..."], actions: Shaped[np.ndarray, "..."]
    ) -> Float32[np.ndarray, "time env"]:
        """Predict the rewards [T, N] of earlier steps with the current predictor.

        Args:
            observations: [T, N, ...] observations as the environments returned them.
            actions: [T, N, ...] actions.
        """
        view, space = self._world.view, self.predictor.space
        if view.is_plain:
            seen = np.asarray(observations, view.space.dtype)
        else:
            each = observations.reshape(-1, *observations.shape[2:])
            seen = np.stack([view.one(one) for one in each])
        batch = observations.shape[:2]
        seen = seen.reshape(*batch, *space.observation_shape)
        taken = actions.reshape(*batch, *space.action_shape)
        is_continuous = not (space.num_actions or space.action_choices)
        return self.predictor(seen, taken if is_continuous else taken.astype(np.int64))

    def _hand_over_if_full(self) -> None:
        if self._buffer.is_full:
            self._hand_over()

    def _hand_over(self) -> None:
        """Pass the buffered steps to the learner as a rollout."""
        rollout = self._buffer.take()
        if rollout is None or self._learning is None:
            return
        if self._is_collecting:
            self._learning.observe(rollout)
        else:
            self._learning.count(rollout)

    def wait_for_first_answers(self) -> None:
        """Wait for the answers that the first fit needs, once all of them are asked for."""
        if self._learning is not None:
            self._learning.wait_for_first_answers()

    @property
    def is_stop_wanted(self) -> bool:
        """True if the owner pressed stop on the experiment's page."""
        return self._learning is not None and self._learning.is_stop_wanted

    # --- choice of the reward ---

    @property
    def predictor(self) -> RewardPredictor:
        """Current reward predictor."""
        return self._frozen if self._learning is None else self._learning.predictor

    @property
    def using_predicted_reward(self) -> bool:
        """True if the next step returns the predicted reward."""
        is_ready = self._learning is None or self._learning.has_fitted
        return is_ready if self._is_wanted is None else self._is_wanted

    def switch_to_true_reward(self) -> None:
        """Return the true reward from now on."""
        self._is_wanted = False

    def switch_to_predicted_reward(self) -> None:
        """Return the predicted reward from now on.

        Raises:
            NoPredictor: no fit is done yet.
        """
        self._need_predictor("switched to")
        self._is_wanted = True

    def _need_predictor(self, purpose: str) -> None:
        if self._learning is not None and not self._learning.has_predictor:
            raise NoPredictor(
                f"There is no fitted predictor yet that could be {purpose}: "
                f"{self._learning.learner.num_labels} labels have come. Go on stepping until "
                "using_predicted_reward is True, or give labels or predictor."
            )

    # --- saving ---

    @property
    def name(self) -> str | None:
        """Name of the experiment; None with a frozen predictor."""
        return None if self._learning is None else self._learning.name

    @property
    def num_labels(self) -> int:
        """Number of labels in the training set."""
        return 0 if self._learning is None else self._learning.learner.num_labels

    def save_labels(self, path: str | Path) -> None:
        """Save all labels, with their segments.

        Raises:
            BadInput: there are no labels.
        """
        if self._learning is None:
            raise BadInput("A predictor that is used as it is asks for no labels; none to save.")
        self._learning.save_labels(path)

    def save_predictor(self, path: str | Path) -> None:
        """Save the predictor in a folder for `RewardPredictor.load`.

        Raises:
            NoPredictor: no fit is done yet.
        """
        self._need_predictor("saved")
        self.predictor.save(path)

    def start_segment_collection(self) -> None:
        """Cut segments from later steps."""
        if not self._is_collecting:
            self._break_off()
            self._is_collecting = True

    def stop_segment_collection(self) -> None:
        """Stop cutting segments, asking and fitting."""
        if self._is_collecting:
            self._break_off()
            self._is_collecting = False

    def _break_off(self) -> None:
        """End the buffered episodes, so that later steps do not continue them."""
        self._buffer.break_off(np.ones(self._world.num_envs, bool))
        self._hand_over()

    def close(self) -> None:
        """Save and close; a second call does nothing."""
        if self.is_closed:
            return
        self.is_closed = True
        if self._learning is not None:
            self._learning.close()


def _check_finite(what: str, values: np.ndarray) -> None:
    if not np.issubdtype(values.dtype, np.floating) or np.isfinite(values).all():
        return
    env = int(np.argwhere(~np.isfinite(values))[0][0])
    raise BadObservation(
        f"Environment number {env} returned {what} that are not finite numbers: {values[env]}. "
        "Nothing was learned from it. Mend the environment, or wrap it so that it never returns "
        "NaN or infinity."
    )
