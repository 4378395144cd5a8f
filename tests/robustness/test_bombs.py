"""Small files that declare or unpack to much more than they contain are refused in little memory.

Every format that the package reads has its bombs, which are valid but for their size: behind
checksums, nested compression, and shapes that only multiply when the arrays are used. They are read
in another process, whose peak above its idle memory is measured.
"""

import functools
import gc
import hashlib
import io
import json
import os
import resource
import shutil
import subprocess
import sys
import zipfile
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as safetensors

from rl_teacher.agents.actions import ActionHead
from rl_teacher.agents.numpy_policy import ARRAYS, DESCRIPTION, NumpyPolicy, VectorNormaliser
from rl_teacher.cli import main
from rl_teacher.clips.poses import HEADER, MAGIC
from rl_teacher.clips.poses import pack as pack_poses
from rl_teacher.clips.poses import unpack as unpack_poses
from rl_teacher.clips.video import decode_mp4, encode_mp4
from rl_teacher.common.errors import RlTeacherError
from rl_teacher.common.files import pack
from rl_teacher.config.experiment import PredictorConfig
from rl_teacher.datasets.dataset import Dataset
from rl_teacher.datasets.reading import load
from rl_teacher.datasets.writing import files_of
from rl_teacher.nn.numpy_networks import NumpyMLP
from rl_teacher.play.actors import load_actor
from rl_teacher.predictor.ensemble import RewardPredictor
from rl_teacher.runs.backup import restore_backup, save_backup
from rl_teacher.runs.folder import home, open_store
from rl_teacher.runs.metrics_file import MetricsFile
from rl_teacher.store.checkpoints import CheckpointFiles
from rl_teacher.store.media import SegmentFiles
from rl_teacher.web.clip_export import ExportedClip, encode
from tests.datasets.conftest import ENV_ID, SPACE, row_of, segment
from tests.robustness.alterations import zipped
from tests.robustness.test_fuzzed_files import RUN
from tests.runs.test_backup import change_database
from tests.web.conftest import SCENE

MAX_PEAK_MB = 300
MAX_FILE_BYTES = 1_000_000
LIMIT_MB = 8_000
"""Address space of the process, so that a bomb does not disturb the machine."""

NUM_STEPS = 5_000_000
"""Steps of a segment that takes 340 MB."""

BOMBS = {}


def bomb(function):
    """Register a function that writes a file to a folder, and returns what reads it."""
    BOMBS[function.__name__] = function
    return function


# --- data sets ---


def dataset_of(folder, pair, rows=None, **changes):
    segments = {each.content_hash: each for each in pair}
    space = replace(SPACE, observation_shape=pair[0].observations.shape[1:])
    members = files_of(Dataset(ENV_ID, space, segments, rows or (row_of(0, pair),))) | changes
    (folder / "labels.zip").write_bytes(zipped(members))
    return lambda: load(folder / "labels.zip")


def zeros(seed, steps):
    shapes = {"observations": (10,), "actions": (2,), "scene_states": (4,)}
    arrays = {name: np.zeros((steps, *shape), np.float32) for name, shape in shapes.items()}
    rewards = np.zeros(steps, np.float32)
    rewards[0] = seed
    return replace(segment(seed), rewards=rewards, **arrays)


def members_of(folder):
    with zipfile.ZipFile(folder / "labels.zip") as file:
        return {each: file.read(each) for each in file.namelist()}


def rewritten(folder, name, content):
    """Replace a file of the data set, and its hash."""
    members = members_of(folder) | {name: content}
    description = json.loads(members["dataset.json"])
    description["sha256"][name] = hashlib.sha256(content).hexdigest()
    members["dataset.json"] = json.dumps(description).encode()
    (folder / "labels.zip").write_bytes(zipped(members))


@bomb
def dataset_compressed_twice(folder):
    """Zeros in an archive in an archive."""
    return dataset_of(folder, [zeros(1, NUM_STEPS), zeros(2, 1)])


@bomb
def dataset_of_900_kb(folder):
    """As above, with labels that cannot be compressed."""
    rng, pair = np.random.default_rng(0), [zeros(1, NUM_STEPS), zeros(2, 1)]
    row = row_of(0, pair)
    rows = tuple({**row, "details": {"noise": rng.bytes(4_000).hex()}} for _ in range(200))
    return dataset_of(folder, pair, rows)


@bomb
def dataset_that_is_barely_allowed(folder):
    """One that is not compressed twice, and as large as a file of its size may be."""
    rng, pair = np.random.default_rng(0), [zeros(1, 1_300_000), zeros(2, 1)]
    row = row_of(0, pair)
    rows = tuple({**row, "details": {"noise": rng.bytes(4_000).hex()}} for _ in range(180))
    read = dataset_of(folder, pair, rows)
    with np.load(io.BytesIO(members_of(folder)["segments.npz"])) as arrays:
        stored = io.BytesIO()
        np.savez(stored, **{name: arrays[name] for name in arrays if name != "padding"})
    rewritten(folder, "segments.npz", stored.getvalue())
    return read


@bomb
def dataset_of_equal_labels(folder):
    pair = [zeros(1, 3), zeros(2, 3)]
    return dataset_of(folder, pair, (row_of(0, pair),) * 100_000)


@bomb
def dataset_with_labels_that_nest(folder):
    pair = [zeros(1, 3), zeros(2, 3)]
    row = row_of(0, pair) | {"details": {"a": "nested"}}
    read = dataset_of(folder, pair)
    nested = f"[{'[],' * 10_000_000}[]]"
    rewritten(folder, "labels.jsonl", json.dumps(row).replace('"nested"', nested).encode())
    return read


@bomb
def dataset_with_a_long_description(folder):
    pair = [zeros(1, 3), zeros(2, 3)]
    read = dataset_of(folder, pair)
    members = members_of(folder) | {"dataset.json": b"[" + b"[]," * 10**8}
    (folder / "labels.zip").write_bytes(zipped(members))
    return read


# --- saved networks ---


def predictor(folder, **changes):
    """Write a predictor with other values in parts of its description."""
    RewardPredictor(SPACE, PredictorConfig()).save(folder)
    path = folder / "predictor.json"
    description = json.loads(path.read_bytes())
    for part, values in changes.items():
        description[part] |= values
    path.write_text(json.dumps(description))
    return lambda: RewardPredictor.load(folder)


@bomb
def predictor_with_wide_layers(folder):
    return predictor(folder, config={"hidden": [100_000, 100_000]})


@bomb
def predictor_with_many_layers(folder):
    return predictor(folder, config={"hidden": [50] * 50_000})


@bomb
def predictor_with_many_members(folder):
    return predictor(folder, config={"ensemble_size": 10**7})


@bomb
def predictor_of_large_images(folder):
    image = {"shape": [100_000, 100_000, 3], "channel_axis": 2}
    return predictor(folder, space={"observation_shape": image["shape"], "image": image})


def policy(folder, arrays, observations=None, layers=None, actions=None):
    """Write a policy with some other arrays and descriptions."""
    head = ActionHead("gaussian", (1,), np.zeros(1, np.float32))
    ones = np.ones((1, 1), np.float32)
    encoder = VectorNormaliser((1,), ones[0], ones[0], 1.0)
    NumpyPolicy(encoder, NumpyMLP((ones,), (ones[0],), "tanh"), head).save(folder)
    content = safetensors(load_arrays((folder / ARRAYS).read_bytes()) | arrays)
    (folder / ARRAYS).write_bytes(content)
    description = json.loads((folder / DESCRIPTION).read_bytes())
    given = {"observations": observations, "layers": layers, "actions": actions}
    description |= {name: values for name, values in given.items() if values is not None}
    description["sha256"] = hashlib.sha256(content).hexdigest()
    (folder / DESCRIPTION).write_text(json.dumps(description))
    return lambda: NumpyPolicy.load(folder)


@bomb
def policy_whose_arrays_multiply_when_added(folder):
    """Three arrays of 4 kB are broadcast to one of 4 GB."""
    shapes = [(1_000, 1, 1), (1, 1_000, 1), (1, 1, 1_000)]
    arrays = {f"layers/{i}/weights": np.ones((*s, 1, 1), np.float32) for i, s in enumerate(shapes)}
    arrays |= {f"layers/{i}/biases": np.ones(1, np.float32) for i in range(3)}
    return policy(folder, arrays, layers={"number": 3, "activation": "tanh"})


@bomb
def policy_with_a_column_of_means(folder):
    num = 30_000
    column = {name: np.ones((num, 1), np.float32) for name in ("mean", "inverse_std")}
    arrays = {f"observations/{name}": each for name, each in column.items()}
    return policy(folder, arrays, {"shape": [num], "limit": 1.0})


@bomb
def policy_with_a_table_of_bounds(folder):
    side = 100_000
    row, column = np.ones((1, side), np.float32), np.ones((side, 1), np.float32)
    arrays = {"actions/middle": row, "actions/half_range": column}
    return policy(folder, arrays, actions={"kind": "gaussian", "shape": [1], "first": 0})


@bomb
def policy_with_large_images(folder):
    """A convolution with 64 filters of a pixel each."""
    arrays = {
        "observations/filters/0": np.ones((1, 1, 1, 64), np.float32),
        "observations/biases/0": np.ones(64, np.float32),
        "observations/weights": np.ones((64, 1), np.float32),
        "observations/bias": np.ones(1, np.float32),
    }
    images = {"shape": [4_000, 4_000, 1], "channel_axis": 2, "strides": [1]}
    return policy(folder, arrays, images)


# --- runs ---


@functools.cache
def trained_home():
    assert main(RUN) == 0
    return home()


def trained(folder):
    """Return the folder of a small run in the home."""
    if trained_home() != home():
        shutil.copytree(trained_home(), home())
    return home() / "experiments" / "run"


def checkpoint(folder, arrays, compressed):
    content = pack(arrays, {"step": 1, "meta": {}, "compressed": compressed})
    digest = hashlib.sha256(content).hexdigest()
    (folder / f"checkpoint-000001-step-1-{digest}.safetensors").write_bytes(content)
    return CheckpointFiles(folder).load


@bomb
def checkpoint_of_compressed_zeros(folder):
    size = 400_000_000
    packed = np.frombuffer(zlib.compress(bytes(size)), np.uint8)
    return checkpoint(folder, {"images": packed}, {"images": [size]})


@bomb
def checkpoint_with_small_arrays_of_large_shapes(folder):
    packed = np.frombuffer(zlib.compress(bytes(20)), np.uint8)
    return checkpoint(folder, {"images": packed}, {"images": [10**6, 10**6]})


def configuration(folder, section):
    """Write the configuration of a run with wide layers."""
    path = trained(folder) / "config.json"
    config = json.loads(path.read_bytes())
    config[section]["hidden"] = [20_000, 20_000]
    path.write_text(json.dumps(config))
    return lambda: load_actor("run", "latest")


@bomb
def configuration_with_a_wide_agent(folder):
    return configuration(folder, "ppo")


@bomb
def configuration_with_a_wide_predictor(folder):
    return configuration(folder, "reward")


@bomb
def metrics_that_nest(folder):
    path = trained(folder) / "metrics.jsonl"
    path.write_text('{"step": 1, "a": ' + "[" + "[]," * 300_000 + "[]]}\n")
    return MetricsFile(path).rows


# --- clips ---


@bomb
def segment_of_a_large_shape(folder):
    header = {"rewards": {"dtype": "F32", "shape": [10**10], "data_offsets": [0, 4 * 10**10]}}
    text = json.dumps(header).encode()
    (folder / ENV_ID).mkdir()
    path = folder / ENV_ID / f"{'0' * 64}.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text)
    return lambda: SegmentFiles(folder).load(path.stem)


@bomb
def clip_with_many_bodies(folder):
    content = HEADER.pack(MAGIC, 1, 2**31, 2**31, 20.0) + bytes(28)
    return lambda: unpack_poses(content)


@bomb
def video_of_large_frames(folder):
    path = folder / "clip.mp4"
    path.write_bytes(encode_mp4(iter([np.zeros((4_000, 6_000, 3), np.uint8)] * 2), 20.0))
    return lambda: [None for _ in decode_mp4(path.read_bytes())]


def scene_with(folder, **changes):
    poses = np.zeros((5, 4, 7), np.float32)
    poses[..., 3] = 1.0
    scene = json.dumps(json.loads(SCENE) | changes).encode()
    return lambda: encode([ExportedClip(pack_poses(poses, 20.0), 20.0, 1.0, scene)], "gif")


@bomb
def scene_with_a_large_height_field(folder):
    field = {"rows": 40_000, "columns": 40_000, "size": [1, 1, 1, 1], "data": "AAAAAA=="}
    return scene_with(folder, hfields=[field])


# --- homes ---


@bomb
def backup_that_is_compressed(folder):
    path = folder / "backup.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("labels.sqlite", bytes(400_000_000))
    return lambda: restore_backup(path)


@bomb
def backup_with_a_table_that_is_computed(folder):
    home().mkdir()
    open_store().close()
    path = folder / "backup.zip"
    save_backup(path)
    shutil.rmtree(home())
    change_database(
        path, "DROP TABLE metrics; CREATE VIEW metrics AS SELECT zeroblob(900000000) AS id"
    )
    return lambda: restore_backup(path)


# --- measurement ---


def memory_mb(key):
    [line] = [each for each in Path("/proc/self/status").read_text().splitlines() if key in each]
    return int(line.split()[1]) / 1024


def measure(names, folder):
    """Read bombs one after another; print what became of each as a line of JSON."""
    for name in names:
        read = BOMBS[name](folder / name)
        files = [each for each in (folder / name).rglob("*") if each.is_file()]
        gc.collect()
        Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten
        idle_mb = memory_mb("VmRSS")
        try:
            outcome = f"read {read()!r:.100}"
        except RlTeacherError as error:
            outcome = f"refused: {error!s:.200}"
        except BaseException as error:
            outcome = f"{error!r:.200}"
        peak_mb = memory_mb("VmHWM") - idle_mb
        largest = max((each.stat().st_size for each in files), default=0)
        line = json.dumps([name, outcome, round(peak_mb), largest])
        sys.stdout.write(f"{line}\n")


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """Return the outcome, the peak in MB and the size of the largest file of each bomb."""
    folder = tmp_path_factory.mktemp("bombs")
    done = subprocess.run(
        [sys.executable, "-m", "tests.robustness.test_bombs", folder],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=500,
    )
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('["')]
    return {name: rest for name, *rest in found}


@pytest.mark.slow
@pytest.mark.parametrize("name", BOMBS)
def test_small_file_takes_little_memory(outcomes, name):
    outcome, peak_mb, size_bytes = outcomes[name]
    assert outcome.startswith(("refused: ", "read "))
    assert peak_mb < MAX_PEAK_MB
    assert size_bytes < MAX_FILE_BYTES


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    limit = LIMIT_MB << 20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for name in sys.argv[2:] or BOMBS:
        (folder / name).mkdir(parents=True)
        os.environ["RL_TEACHER_HOME"] = str(folder / name / "home")
        measure([name], folder)
