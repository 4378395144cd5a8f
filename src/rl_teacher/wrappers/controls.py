"""Methods that both wrappers offer to the training loop around them."""

from pathlib import Path

from rl_teacher.predictor.ensemble import RewardPredictor
from rl_teacher.wrappers.driver import WrapperDriver


class Controls:
    """Methods of a wrapper beyond those of an environment.

    Attributes:
        session: driver of the wrapper's session.
    """

    session: WrapperDriver

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
        return self.session.is_stop_wanted

    def switch_to_true_reward(self) -> None:
        """Return the true reward from now on."""
        self.session.switch_to_true_reward()

    def switch_to_predicted_reward(self) -> None:
        """Return the predicted reward from now on.

        Raises:
            NoPredictor: no fit is done yet.
        """
        self.session.switch_to_predicted_reward()

    def save_labels(self, path: str | Path) -> None:
        """Save all labels, with their segments, as a label data set.

        Raises:
            BadInput: there are no labels.
        """
        self.session.save_labels(path)

    def save_predictor(self, path: str | Path) -> None:
        """Save the predictor in a folder for `RewardPredictor.load`.

        Raises:
            NoPredictor: no fit is done yet.
        """
        self.session.save_predictor(path)

    def start_segment_collection(self) -> None:
        """Cut segments from later steps."""
        self.session.start_segment_collection()

    def stop_segment_collection(self) -> None:
        """Stop cutting segments, asking and fitting."""
        self.session.stop_segment_collection()
