"""TensorBoard logs: returns first, other scalars with the names of the original rl-teacher."""

import logging
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from platform import node
from typing import TYPE_CHECKING, Any

from rl_teacher.common.files import folder_errors
from rl_teacher.report.figures import is_missing

if TYPE_CHECKING:
    from tensorboardX.record_writer import RecordWriter

SCALARS = {
    # A capital letter is sorted before the other groups.
    "true_return": "Return/true_return",
    "predicted_return": "Return/predicted_return",
    "beats_untrained": "Return/beats_untrained",
    "step": "agent/total_steps",
    "steps_per_second": "agent/steps_per_second",
    "rollout_s": "time/rollouts",
    "update_s": "time/agent_updates",
    "fit_s": "time/predictor_fits",
    "episodes": "agent/episodes",
    "labels_desired": "labels/desired_labels",
    "comparisons": "labels/total_comparisons",
    "labels_answered": "labels/labeled_comparisons",
    "labels_asked": "labels/asked_comparisons",
    "clips_sorted": "labels/sorted_clips",
    "loss": "predictor/loss",
    "held_out_loss": "predictor/held_out_loss",
    "held_out_accuracy": "predictor/held_out_accuracy",
    "calibration_error": "predictor/calibration_error",
    "agreement": "predictor/agreement",
    "disagreement": "predictor/disagreement",
    "correlation": "predictor/correlations",
    "step_correlation": "predictor/step_correlation",
    "over_estimation": "predictor/over_estimation",
    "uses_true_reward": "agent/uses_true_reward",
    "fits": "predictor/num_fits",
    "fit_steps": "predictor/num_training_iters",
}
"""Scalar name in TensorBoard of each metric."""

AGENT_PREFIX = "agent/"
"""Prefix of agent metrics, such as `agent/kl`, which keep their names."""

FLUSH_EVERY_S = 5


logger = logging.getLogger(__name__)


class TensorBoard:
    """Writer of metrics to a TensorBoard log folder.

    Args:
        log_dir: log folder.
        resumed_at_step: step from which a run is continued. Later points, left by a killed run, are
            hidden. None for a new run, which hides all existing points.
        settings: settings of the run, which TensorBoard shows under HPARAMS.
    """

    def __init__(
        self,
        log_dir: Path,
        resumed_at_step: int | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self._log_dir = log_dir
        self._flushed_s = time.monotonic()
        self.is_writing = True
        """False after an error."""
        with folder_errors(log_dir):
            log_dir.mkdir(parents=True, exist_ok=True)
            self._file = open_records(log_dir)
            start = 0 if resumed_at_step is None else resumed_at_step + 1
            shown = hyperparameters(settings, start) if settings else []
            for each in [*session_start(start), *shown]:
                self._file.write(each)
            self._file.flush()

    def write(self, row: Mapping[str, Any]) -> None:
        """Write the metrics of a row at its `step`; missing and non-finite ones are left out.

        Nothing is written any more after an error, which is logged: the curves are only a copy.
        """
        if not self.is_writing:
            return
        try:
            for name, value in scalars(row).items():
                self._file.write(scalar_event(name, value, int(row["step"])))
            if time.monotonic() - self._flushed_s >= FLUSH_EVERY_S:
                self._file.flush()
                self._flushed_s = time.monotonic()
        except OSError as error:
            self._fail(error)

    def close(self) -> None:
        """Close the file."""
        try:
            self._file.close()
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError) -> None:
        if self.is_writing:
            logger.warning(
                "The curves of TensorBoard are not written any more to %s: %s. The run continues, "
                "and so do its metrics.",
                self._log_dir,
                error.strerror,
            )
        self.is_writing = False
        with suppress(OSError):
            self._file.close()


def open_records(log_dir: Path) -> "RecordWriter":
    """Create a file of events; none has the name of another one."""
    from tensorboardX.record_writer import RecordWriter  # noqa: PLC0415 - heavy

    now_ns = time.time_ns()
    name = f"events.out.tfevents.{now_ns // 10**9}.{node()}.{os.getpid()}.{now_ns}"
    return RecordWriter(str(log_dir / name))


def event(step: int, **content: Any) -> bytes:
    """Return an event with some content."""
    from tensorboardX.proto import event_pb2  # noqa: PLC0415 - heavy

    # Its classes are made at run time.
    proto: Any = event_pb2
    return proto.Event(wall_time=time.time(), step=step, **content).SerializeToString()


def session_start(first_step: int) -> list[bytes]:
    """Return the first events of a file, which make TensorBoard hide points from a step on."""
    start = {"status": "START"}
    return [event(first_step, file_version="brain.Event:2"), event(first_step, session_log=start)]


def hyperparameters(settings: Mapping[str, Any], step: int) -> list[bytes]:
    """Return the events of the settings of a run; those of sections as `ppo.gamma`."""
    from tensorboardX.summary import hparams  # noqa: PLC0415 - heavy

    flat = {}
    for name, value in settings.items():
        section = value if isinstance(value, Mapping) else {"": value}
        flat |= {f"{name}.{key}".rstrip("."): each for key, each in section.items()}
    shown = {
        name: value if isinstance(value, int | float) else str(value)
        for name, value in flat.items()
        if value is not None
    }
    metrics = dict.fromkeys((SCALARS["true_return"], SCALARS["predicted_return"]))
    return [event(step, summary=each) for each in hparams(shown, metrics)]


def scalar_event(name: str, value: float, step: int) -> bytes:
    """Return the event of a point."""
    from tensorboardX.summary import scalar  # noqa: PLC0415 - heavy

    return event(step, summary=scalar(name, value))


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
