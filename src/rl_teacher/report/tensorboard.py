"""TensorBoard logs, with the scalar names of the original rl-teacher."""

import itertools
import logging
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_teacher.report.figures import is_missing
from rl_teacher.store.files import folder_errors

if TYPE_CHECKING:
    from tensorboardX import SummaryWriter

SCALARS = {
    "step": "agent/total_steps",
    "steps_per_second": "agent/steps_per_second",
    "rollout_s": "time/rollouts",
    "update_s": "time/agent_updates",
    "fit_s": "time/predictor_fits",
    "true_return": "agent/true_reward_per_episode",
    "predicted_return": "agent/predicted_reward_per_episode",
    "episodes": "agent/episodes",
    "labels_desired": "labels/desired_labels",
    "comparisons": "labels/total_comparisons",
    "labels_answered": "labels/labeled_comparisons",
    "labels_asked": "labels/asked_comparisons",
    "clips_sorted": "labels/sorted_clips",
    "loss": "predictor/loss",
    "held_out_loss": "predictor/held_out_loss",
    "loss_ratio": "predictor/loss_ratio",
    "held_out_accuracy": "predictor/held_out_accuracy",
    "calibration_error": "predictor/calibration_error",
    "agreement": "predictor/agreement",
    "l2": "predictor/l2",
    "disagreement": "predictor/disagreement",
    "correlation": "predictor/correlations",
    "step_correlation": "predictor/step_correlation",
    "over_estimation": "predictor/over_estimation",
    "clipped_inputs": "predictor/clipped_inputs",
    "unseen_inputs": "predictor/unseen_inputs",
    "steps_since_fit": "predictor/steps_since_fit",
    "steps_since_label": "predictor/steps_since_label",
    "uses_true_reward": "agent/uses_true_reward",
    "fits": "predictor/num_fits",
    "fit_steps": "predictor/num_training_iters",
}
"""Scalar name in TensorBoard of each metric."""

AGENT_PREFIX = "agent/"
"""Prefix of agent metrics, such as `agent/kl`, which keep their names."""

OWNER_FILE = "experiment.txt"
"""File with the path of the experiment that logs are of."""
FLUSH_EVERY_S = 5
MAX_QUEUE = 1000
"""Points that are queued before the training loop blocks."""


logger = logging.getLogger(__name__)


class TensorBoard:
    """Writer of metrics to a TensorBoard log folder.

    Args:
        log_dir: log folder.
        resumed_at_step: step from which a run is continued. Later points, left by a killed run, are
            hidden. None for a new run, which hides all existing points.
    """

    def __init__(self, log_dir: Path, resumed_at_step: int | None = None) -> None:
        first_step = 0 if resumed_at_step is None else resumed_at_step + 1
        self._log_dir = log_dir
        self._has_failed = False
        with folder_errors(log_dir):
            self._writer = open_writer(log_dir, first_step)
        file_writer: Any = self._writer.file_writer
        self._events = file_writer.event_writer

    @property
    def is_writing(self) -> bool:
        """False if the file could not be written, for example on a full disk."""
        # The thread of the library ends with the first error, and its queue blocks when it is full.
        return not self._has_failed and self._events._worker.is_alive()

    def write(self, row: Mapping[str, Any]) -> None:
        """Write the metrics of a row at its `step`; missing and non-finite ones are left out.

        Nothing is written any more after an error, which is logged: the curves are only a copy.
        """
        if self._has_failed:
            return
        for name, value in scalars(row).items():
            if not self.is_writing:
                self._fail()
                return
            self._writer.add_scalar(name, value, row["step"])

    def close(self) -> None:
        """Flush the queue and close the file."""
        if self.is_writing:
            try:
                self._writer.close()
            except OSError:
                self._fail()
        elif not self._has_failed:
            self._fail()

    def _fail(self) -> None:
        self._has_failed = True
        # Otherwise the process would wait for the queue to be emptied when it ends.
        self._events._event_queue.cancel_join_thread()
        logger.warning(
            "The curves of TensorBoard are not written any more to %s: the disk is full, or the "
            "file cannot be written. The run continues, and so do its metrics.",
            self._log_dir,
        )

    def __enter__(self) -> "TensorBoard":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def own_folder(parent: Path, name: str, experiment: Path) -> Path:
    """Return the folder for the logs of an experiment: NAME, or NAME-2 ... if NAME is in use.

    A new run hides the points of earlier ones in its folder, which must not be those of an
    experiment of the same name in another home.

    Args:
        parent: folder that several homes may share.
        name: name of the experiment.
        experiment: its folder, which is recorded in the folder of its logs.
    """
    folders = (parent / (name if n == 1 else f"{name}-{n}") for n in itertools.count(1))
    with folder_errors(parent):
        return next(folder for folder in folders if _is_owned(folder, str(experiment.resolve())))


def _is_owned(folder: Path, owner: str) -> bool:
    """Return whether a folder has the logs of this owner; an empty one becomes theirs."""
    record = folder / OWNER_FILE
    folder.mkdir(parents=True, exist_ok=True)
    if not any(folder.iterdir()):
        with suppress(FileExistsError), record.open("x") as file:  # another run was faster
            file.write(owner)
    return record.exists() and record.read_text() == owner


def open_writer(log_dir: Path, first_step: int) -> "SummaryWriter":
    """Create a writer whose session start makes TensorBoard hide points from `first_step` on."""
    # tensorboardX imports PyTorch if it is installed, which takes two seconds. It needs it only for
    # tensors, which are not logged here.
    with _hidden("torch"):
        from tensorboardX import SummaryWriter  # noqa: PLC0415 - heavy

    return SummaryWriter(
        str(log_dir),
        purge_step=first_step,
        max_queue=MAX_QUEUE,
        flush_secs=FLUSH_EVERY_S,
        # Default names have a resolution of one second, and a file of the same name is overwritten.
        filename_suffix=f".{time.time_ns()}",
    )


@contextmanager
def _hidden(name: str) -> Iterator[None]:
    """Hide a module from imports, unless it is loaded already."""
    is_loaded = name in sys.modules
    modules: dict[str, Any] = sys.modules
    if not is_loaded:
        modules[name] = None
    try:
        yield
    finally:
        if not is_loaded:
            del modules[name]


def scalars(row: Mapping[str, Any]) -> dict[str, float]:
    """Return the finite metrics of a row by their names in TensorBoard."""
    return {
        name: float(value)
        for key, value in row.items()
        if (name := scalar_name(key)) is not None and not is_missing(value)
    }


def scalar_name(key: str) -> str | None:
    """Return the name of a metric in TensorBoard, or None if it is not logged."""
    return key if key.startswith(AGENT_PREFIX) else SCALARS.get(key)
