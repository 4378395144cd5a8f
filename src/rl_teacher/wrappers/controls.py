"""Methods that both wrappers offer to the training loop around them."""

import itertools
from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rl_teacher.common.errors import BadConfig, BadInput, NoPredictor
from rl_teacher.common.text import counted
from rl_teacher.envs.interface import environment_seeds
from rl_teacher.predictor.ensemble import RewardPredictor
from rl_teacher.wrappers.driver import WrapperDriver

CHECK_EVERY = 256
"""Random steps of `pretrain` between two checks for the answers that the first fit needs."""


def hide_reward(name: str) -> None:
    """Refuse to look up an attribute of wrapped environments that leads to their true reward.

    Raises:
        BadInput: its name has "reward" in it.
    """
    if "reward" in name:
        raise BadInput(
            f"{name} of the wrapped environment is hidden: it leads to the true reward, which the "
            "agent must not learn from. HerReplayBuffer, which computes the rewards of other goals "
            "with compute_reward, cannot be used therefore: leave out replay_buffer_class. Your "
            "own code finds the attribute in `unwrapped`."
        )


class Controls:
    """Methods of a wrapper beyond those of an environment.

    Attributes:
        session: driver of the wrapper's session.
    """

    session: WrapperDriver
    _seed: int

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Refuse to pickle or copy the wrapper.

        Raises:
            BadInput: always.
        """
        raise BadInput(
            f"A {type(self).__name__} cannot be pickled or copied: it holds an open experiment and "
            "threads. Create the wrapper in the process that uses it. To transfer what was "
            "learned, use save_predictor and predictor_path, or save_labels and labels."
        )

    @abstractmethod
    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> Any:
        """Start episodes."""

    @abstractmethod
    def _random_steps(self, infos: dict[str, Any]) -> Iterator[int]:
        """Take random steps without end; yield the number of environment steps of each.

        Args:
            infos: what the reset before the first step returned, possibly with action masks.
        """

    def pretrain(self, max_steps: int = 1_000_000) -> None:
        """Take random actions until the first fit, before which the rewards are 0.

        Ends earlier if the owner presses stop, see `is_stop_wanted`.

        Args:
            max_steps: maximum number of environment steps, over all environments.

        Raises:
            BadConfig: nothing is ever fitted.
            NoPredictor: the labels did not suffice for a fit.
        """
        session, num_steps = self.session, 0
        learning = session.learning
        if learning is not None and learning.never_fits:
            raise BadConfig(
                "pretrain takes random actions until the first fit, but with collect_only=True "
                "there is none. Step the environment in a loop instead, or leave collect_only out."
            )
        # One number, since not every vector environment accepts a list of seeds.
        _, infos = self.reset(seed=environment_seeds(self._seed, 1)[0])
        steps = self._random_steps(infos)
        while learning is not None and not learning.has_fitted and not self.is_stop_wanted:
            if num_steps >= max_steps:
                raise NoPredictor(
                    f"{counted(session.num_labels, 'label')} after {num_steps:,} random steps: too "
                    "few to fit a predictor. Reduce pretrain_labels, increase max_steps, or choose "
                    "a teacher who prefers one clip more often."
                )
            num_steps += sum(itertools.islice(steps, -(-CHECK_EVERY // session.num_envs)))
            learning.wait_for_first_answers()
        # The first episode of the agent must not begin with random steps.
        self.reset()

    @property
    def using_predicted_reward(self) -> bool:
        """True if the next step returns the predicted reward."""
        return self.session.using_predicted_reward

    @property
    def predictor(self) -> RewardPredictor:
        """Current reward predictor."""
        return self.session.predictor

    @property
    def is_stop_wanted(self) -> bool:
        """True if the owner pressed stop on the experiment's page.

        The wrapper does not stop the training loop: the loop must check this property.
        """
        learning = self.session.learning
        return learning is not None and learning.session.control.is_stopped

    def switch_to_true_reward(self) -> None:
        """Return the true reward from now on."""
        self.session.uses_prediction = False

    def switch_to_predicted_reward(self) -> None:
        """Return the predicted reward from now on.

        Raises:
            NoPredictor: no fit is done yet.
        """
        self._need_predictor("switch to")
        self.session.uses_prediction = True

    def _need_predictor(self, purpose: str) -> None:
        learning = self.session.learning
        if learning is not None and not learning.has_predictor:
            raise NoPredictor(
                f"There is no fitted predictor to {purpose} yet, after "
                f"{counted(self.session.num_labels, 'label')}. Continue to step until "
                "using_predicted_reward is True, or start with labels or predictor_path."
            )

    def save_labels(self, path: str | Path) -> None:
        """Save all labels of the experiment, with their segments, as a label data set.

        Those that the wrapper was given as `labels` are not among them.

        Raises:
            BadInput: there are no labels.
        """
        if self.session.learning is None:
            raise BadInput(
                "A frozen predictor asks for no labels, so there are none to save. Give "
                "teacher='oracle' or another one to ask for labels and fine-tune it."
            )
        self.session.learning.labels().save(path)

    def save_predictor(self, path: str | Path) -> None:
        """Save the predictor in a folder for `RewardPredictor.load`.

        Raises:
            NoPredictor: no fit is done yet.
        """
        self._need_predictor("save")
        self.predictor.save(path)

    def start_segment_collection(self) -> None:
        """Cut segments from later steps."""
        self.session.set_collecting(True)

    def stop_segment_collection(self) -> None:
        """Stop cutting segments, asking and fitting."""
        self.session.set_collecting(False)
