"""Tests of the TensorBoard writer."""

import struct
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from google.protobuf.message_factory import GetMessageClass
from tensorboardX.proto import event_pb2, plugin_hparams_pb2

from rl_teacher.common.errors import RunFolderUnusable
from rl_teacher.report.tensorboard import TensorBoard, scalars
from tests.robustness.processes import largest_file

Event = GetMessageClass(event_pb2.DESCRIPTOR.message_types_by_name["Event"])
HParamsPluginData = GetMessageClass(
    plugin_hparams_pb2.DESCRIPTOR.message_types_by_name["HParamsPluginData"]
)
SESSION_STARTS = 1

ROW = {
    "step": 1000,
    "true_return": 12.5,
    "predicted_return": None,
    "beats_untrained": 0.93,
    "loss": float("nan"),
    "correlation": 0.75,
    "labels_answered": 7,
    "comparisons": 9,
    "labels_desired": 10,
    "fit_steps": 300,
    "agent/policy_loss": -0.25,
    "wall_s": 3.0,
    "something new": 1.0,
}


def read_events(log_dir) -> Iterator[Any]:
    """Yield all events in file order (TFRecord: length, CRC, bytes, CRC)."""
    for path in sorted(log_dir.iterdir()):
        content, offset = path.read_bytes(), 0
        while offset < len(content):
            (length,) = struct.unpack_from("<Q", content, offset)
            yield Event.FromString(content[offset + 12 : offset + 12 + length])
            offset += 12 + length + 4


def visible_points(log_dir):
    """Return the points that TensorBoard shows; a session start drops later points."""
    points = {}
    for event in read_events(log_dir):
        if event.session_log.status == SESSION_STARTS:
            points = {key: value for key, value in points.items() if key[1] < event.step}
        for value in event.summary.value:
            points[value.tag, event.step] = value.simple_value
    return points


def test_returns_come_first_and_other_scalars_have_the_names_of_the_original_rl_teacher():
    assert scalars(ROW) == {
        "agent/total_steps": 1000.0,
        "Return/true_return": 12.5,
        "Return/beats_untrained": 0.93,
        "predictor/correlations": 0.75,
        "predictor/num_training_iters": 300.0,
        "labels/labeled_comparisons": 7.0,
        "labels/total_comparisons": 9.0,
        "labels/desired_labels": 10.0,
        "agent/policy_loss": -0.25,
    }


def test_points_are_written_at_step_of_row(tmp_path):
    with closing(TensorBoard(tmp_path)) as board:
        board.write(ROW)
    points = visible_points(tmp_path)
    assert points["Return/true_return", 1000] == 12.5
    assert min(points)[0] == "Return/beats_untrained"
    assert points["agent/policy_loss", 1000] == -0.25


def test_settings_are_written_as_hyperparameters(tmp_path):
    settings = {"seed": 3, "agent": "ppo", "ppo": {"gamma": 0.99, "hidden": (64, 64)}, "step": None}
    TensorBoard(tmp_path, settings=settings).close()
    contents: list[Any] = [
        HParamsPluginData.FromString(value.metadata.plugin_data.content)
        for event in read_events(tmp_path)
        for value in event.summary.value
    ]
    [started] = [
        each.session_start_info for each in contents if each.HasField("session_start_info")
    ]
    values = {name: value.ListFields()[0][1] for name, value in started.hparams.items()}
    assert values == {"seed": 3.0, "agent": "ppo", "ppo.gamma": 0.99, "ppo.hidden": "(64, 64)"}
    [shown] = [each.experiment for each in contents if each.HasField("experiment")]
    assert shown.metric_infos[0].name.tag == "Return/true_return"


def test_resumed_run_replaces_points_after_its_step(tmp_path):
    with closing(TensorBoard(tmp_path)) as board:
        for step in (0, 100, 200, 300):
            board.write({"step": step, "true_return": 1.0})
    with closing(TensorBoard(tmp_path, resumed_at_step=100)) as board:
        for step in (200, 300):
            board.write({"step": step, "true_return": 2.0})
    points = visible_points(tmp_path)
    curve = [points["Return/true_return", step] for step in (0, 100, 200, 300)]
    assert curve == [1.0, 1.0, 2.0, 2.0]


def test_new_run_drops_points_of_earlier_run(tmp_path):
    with closing(TensorBoard(tmp_path)) as board:
        board.write({"step": 500, "true_return": 1.0})
    TensorBoard(tmp_path).close()
    assert visible_points(tmp_path) == {}


def test_full_disk_is_warned_about_and_blocks_no_run(tmp_path, caplog):
    board = TensorBoard(tmp_path)
    board.write({"step": 0, "true_return": 1.0})
    with largest_file(200):
        # More than is buffered.
        for step in range(1, 3000):
            board.write({"step": step, "true_return": 1.0})
    assert not board.is_writing
    board.close()
    [warning] = caplog.messages
    assert str(tmp_path) in warning


def test_read_only_folder_is_named(tmp_path, bound_by_permissions):
    tmp_path.chmod(0o500)
    with pytest.raises(RunFolderUnusable, match="logs"):
        TensorBoard(tmp_path / "logs")
