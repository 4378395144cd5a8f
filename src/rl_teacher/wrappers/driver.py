"""Driver of a wrapper's session: records steps and returns their rewards.

N: number of environments.
"""

from dataclasses import replace

import numpy as np
from gymnasium.vector import AutoresetMode
from jaxtyping import Bool, Float, Shaped

from rl_teacher.common.errors import BadConfig, BadInput
from rl_teacher.envs.rollout import Rollout, check_numbers
from rl_teacher.predictor.ensemble import RewardPredictor
from rl_teacher.predictor.inputs import InputSpace
from rl_teacher.wrappers.environments import WrappedEnvs
from rl_teacher.wrappers.learning import WrapperLearning
from rl_teacher.wrappers.settings import WrapperSettings, resolve_wrapper

ROLLOUT_STEPS = 32
"""Minimum length of a rollout, in steps of each environment."""
ROLLOUT_SIZE = 128
"""Minimum size of a rollout, in steps of all environments together."""


StepColumns = dict[str, np.ndarray]
"""One step of N environments: the columns of a `Rollout`, [N, ...] each."""


class WrapperDriver:
    """Buffers the steps of a wrapper's environments and returns their rewards.

    Attributes:
        learning: learner that the steps are passed to; None with a frozen predictor.
        is_over: [N] True where the next step is not a transition: the environment only resets
            itself, waits for a reset, or ignores the action.
        is_closed: True after `close`.
        num_steps: steps taken by each environment.
        latest_rewards: [N] rewards that the latest step returned.
        latest_is_valid: [N] False where the latest step was not a transition.
        uses_prediction: whether steps return the predicted reward; None as soon as it is fitted.
    """

    def __init__(self, envs: WrappedEnvs, settings: WrapperSettings) -> None:
        has_images = envs.input_space.image is not None
        env_info = replace(envs.env_info, has_image_observations=has_images)
        plan = resolve_wrapper(settings, env_info)
        if plan.predictor is not None:
            _check_predictor(plan.predictor, envs.input_space)
        self._envs = envs
        self._frozen = plan.predictor
        self.learning: WrapperLearning | None = None
        if plan.learning is not None:
            self.learning = WrapperLearning(envs, plan, plan.learning)
        self.uses_prediction: bool | None = None
        self._is_collecting = True
        # Without fits, the environment keeps its own reward.
        self._hides_true_reward = not (plan.true_reward_until_fit or plan.collects_only)
        self.is_closed = False
        self._rollout_steps = max(ROLLOUT_STEPS, -(-ROLLOUT_SIZE // envs.num_envs))
        self._steps: list[StepColumns] = []
        self._observations: np.ndarray | None = None
        self._scene_states = envs.scene_states()
        self.is_over = np.zeros(envs.num_envs, bool)
        self.num_steps = 0
        self.latest_rewards = np.zeros(envs.num_envs)
        self.latest_is_valid = np.ones(envs.num_envs, bool)
        self._latest_inputs: tuple[np.ndarray, np.ndarray]
        self._latest_rows: np.ndarray | None = None

    # --- stepping ---

    def check_open(self, method: str) -> None:
        """Refuse to start or continue episodes after `close`.

        Raises:
            BadInput: `close` was called.
        """
        if self.is_closed:
            raise BadInput(f"{method} was called after close. Create a new wrapper to continue.")

    def begin(
        self,
        observations: Shaped[np.ndarray, "env ..."],
        was_reset: Bool[np.ndarray, " env"] | None = None,
    ) -> None:
        """Start episodes.

        Args:
            observations: [N, ...] inputs of the predictor; environments that were not reset
                keep their latest observations.
            was_reset: [N] True where an environment was reset; None if all were.
        """
        check_numbers("observations", observations)
        was_reset = np.ones(self._envs.num_envs, bool) if was_reset is None else was_reset
        # A reset in mid-episode ends the episode, as a time limit would.
        self._truncate(was_reset)
        self.is_over = self.is_over & ~was_reset
        self._observations = observations
        self._scene_states = self._envs.scene_states()

    def step(
        self,
        actions: Shaped[np.ndarray, "env ..."],
        observations: Shaped[np.ndarray, "env ..."],
        next_observations: Shaped[np.ndarray, "env ..."],
        true_rewards: Float[np.ndarray, " env"],
        ends: tuple[Bool[np.ndarray, " env"], Bool[np.ndarray, " env"]],
    ) -> Float[np.ndarray, " env"]:
        """Record one step and return its rewards.

        Args:
            actions: [N, ...] actions passed to the environments, see `WrappedEnvs.actions`.
            observations: [N, ...] inputs of the predictor, after any reset.
            next_observations: [N, ...] the same before any reset.
            true_rewards: [N] rewards of the environments.
            ends: where the episode terminated [N], and where it was truncated [N].

        Returns:
            [N] rewards for the agent; 0 where the step is not a transition.

        Raises:
            BadInput: an action is not finite, or `begin` was not called.
            BadObservation: observations or rewards are not finite.
            TeacherFailed: the teacher raised an error or returned an invalid answer.
        """
        if self._observations is None:
            raise BadInput("step was called before reset. Call reset first.")
        # First, since environments must not be blamed for what the agent did.
        _check_actions(actions)
        check_numbers("observations", next_observations)
        # With SAME_STEP autoreset, these may be the first ones of the next episode.
        check_numbers("observations", observations)
        check_numbers("rewards", true_rewards)
        # Before this step is added, since a reset may still truncate the latest one.
        if len(self._steps) >= self._rollout_steps:
            self._observe_steps()
        is_valid = ~self.is_over
        terminated, truncated = (each & is_valid for each in ends)
        columns = {
            "observations": self._observations,
            "actions": actions,
            "rewards": true_rewards.astype(np.float32),
            "next_observations": next_observations,
            "terminated": terminated,
            "truncated": truncated,
            "is_valid": is_valid,
            "scene_states": self._scene_states,
        }
        ended = terminated | truncated
        if self._envs.autoreset_mode == AutoresetMode.NEXT_STEP:
            self.is_over = ended
        elif self._envs.autoreset_mode == AutoresetMode.DISABLED:
            # Until the caller resets these environments, see `begin`.
            self.is_over = self.is_over | ended
        # Input rows are computed only where the predictor or `RelabelReplay` needs them.
        self._latest_inputs, self._latest_rows = (self._observations, actions), None
        rewards = true_rewards
        if self.using_predicted_reward:
            rewards = np.where(is_valid, self.predictor.predict_rows(self.latest_rows), 0.0)
        elif self.uses_prediction is None and self._hides_true_reward:
            rewards = np.zeros_like(true_rewards)
        self.num_steps += 1
        self.latest_rewards, self.latest_is_valid = rewards, is_valid
        self._steps.append(columns)
        self._observations = observations
        self._scene_states = self._envs.scene_states()
        return rewards

    @property
    def latest_rows(self) -> Shaped[np.ndarray, "env features"]:
        """[N, F] input rows of the predictor in the latest step, computed at most once."""
        if self._latest_rows is None:
            self._latest_rows = self.predictor.space.rows(*self._latest_inputs)
        return self._latest_rows

    def _truncate(self, envs: Bool[np.ndarray, " env"]) -> None:
        """Mark the latest step truncated in environments that were reset."""
        if self._steps:
            last = self._steps[-1]
            last["truncated"][envs & last["is_valid"] & ~last["terminated"]] = True

    def _take_rollout(self) -> Rollout | None:
        """Return and remove the buffered steps as one rollout; None if there are none."""
        if not self._steps:
            return None
        steps, self._steps = self._steps, []
        return Rollout(**{name: np.stack([step[name] for step in steps]) for name in steps[0]})

    def _observe_steps(self) -> None:
        """Pass the buffered steps to the learner as a rollout."""
        rollout = self._take_rollout()
        if rollout is not None and self.learning is not None:
            self.learning.observe(rollout, is_collecting=self._is_collecting)

    def set_collecting(self, is_collecting: bool) -> None:
        """Start or stop to cut segments, to ask and to fit."""
        if is_collecting != self._is_collecting:
            # Later steps must not continue the buffered episodes.
            self._truncate(np.ones(self._envs.num_envs, bool))
            self._observe_steps()
            self._is_collecting = is_collecting

    # --- state ---

    @property
    def num_envs(self) -> int:
        """N, the number of environments."""
        return self._envs.num_envs

    @property
    def predictor(self) -> RewardPredictor:
        """Current reward predictor."""
        if self.learning is not None:
            return self.learning.learner.predictor
        assert self._frozen is not None  # noqa: S101 - there is one, or one is fitted
        return self._frozen

    @property
    def using_predicted_reward(self) -> bool:
        """True if the next step returns the predicted reward."""
        if self.uses_prediction is not None:
            return self.uses_prediction
        return self.learning is None or self.learning.has_fitted

    @property
    def name(self) -> str | None:
        """Name of the experiment; None with a frozen predictor."""
        return None if self.learning is None else self.learning.name

    @property
    def num_labels(self) -> int:
        """Number of labels in the training set."""
        return 0 if self.learning is None else len(self.learning.learner.trainer.labels)

    def close(self) -> None:
        """Save and close; a second call does nothing."""
        if self.is_closed:
            return
        self.is_closed = True
        if self.learning is not None:
            self.learning.close(self._take_rollout())


def _check_predictor(predictor: RewardPredictor, space: InputSpace) -> None:
    if predictor.space != space:
        raise BadConfig(
            f"The predictor was made for {predictor.space.description}, but this environment has "
            f"{space.description}. Use one that was fitted in this environment, with the same "
            "observation_transform."
        )


def _check_actions(actions: np.ndarray) -> None:
    if np.issubdtype(actions.dtype, np.floating) and not np.isfinite(actions).all():
        env = int(np.argwhere(~np.isfinite(actions))[0][0])
        raise BadInput(
            f"Environment number {env} was given the action {actions[env]}, which is not finite. "
            "Nothing was learned from this step. The agent has probably diverged: lower its "
            "learning rate."
        )
