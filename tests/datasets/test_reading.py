"""Tests of reading untrusted data sets: valid ones are loaded, others refused."""

import hashlib
import io
import json
import os
import pickle
import tracemalloc
import zipfile
from dataclasses import replace
from uuid import UUID

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.lib import format as npy

from rl_teacher.common.errors import BadInput, RlTeacherError
from rl_teacher.datasets import Dataset, load
from rl_teacher.datasets.arrays import pack_npz, read_npz
from rl_teacher.datasets.writing import arrays_of, files_of, zipped
from rl_teacher.predictor.inputs import InputSpace
from tests.datasets.conftest import ENV_ID, SPACE, row_of, segment


def contents(dataset):
    return [(each.pair, each.target, each.labeler) for each in dataset]


@pytest.fixture
def files(dataset):
    return files_of(dataset)


def written(path, files, **descriptions):
    """Write files with matching hashes; `descriptions` replace entries of dataset.json."""
    description = json.loads(files["dataset.json"])
    description["sha256"] = {
        name: hashlib.sha256(each).hexdigest()
        for name, each in files.items()
        if name != "dataset.json"
    }
    changed = {"dataset.json": json.dumps(description | descriptions).encode()}
    path.write_bytes(zipped(files | changed))
    return path


def test_saved_data_set_loads_unchanged(dataset, tmp_path):
    dataset.save(tmp_path / "new" / "set.zip")
    read = load(tmp_path / "new" / "set.zip")
    assert contents(read) == contents(dataset)
    assert read.rows == dataset.rows
    assert read.content_hash == dataset.content_hash
    assert read.space == dataset.space


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int64", "float16", "float64", "bool"])
def test_data_set_of_any_number_type_loads_unchanged(tmp_path, dtype):
    pair = [
        replace(each, observations=(each.observations > 0).astype(dtype))
        for each in (segment(0), segment(1))
    ]
    segments = {each.content_hash: each for each in pair}
    written = Dataset(ENV_ID, SPACE, segments, (row_of(0, pair),))
    written.save(tmp_path / "set")
    read = load(tmp_path / "set")
    assert read.content_hash == written.content_hash
    assert read[0].left.observations.dtype == dtype


def test_saved_uniform_images_are_not_refused_as_a_bomb(tmp_path):
    steps, space = 6_000, InputSpace((64, 64), (2,))
    pair = [
        replace(
            segment(seed, steps),
            observations=np.zeros((steps, 64, 64), np.uint8),
            actions=np.zeros((steps, 2), np.float32),
            rewards=np.full(steps, seed, np.float32),
            scene_states=np.zeros((steps, 4)),
        )
        for seed in range(2)
    ]
    segments = {each.content_hash: each for each in pair}
    Dataset(ENV_ID, space, segments, (row_of(0, pair),)).save(tmp_path / "set.zip")
    assert (tmp_path / "set.zip").stat().st_size < 10**6
    assert load(tmp_path / "set.zip").segments.keys() == segments.keys()


def test_saved_data_set_has_no_other_files(dataset, tmp_path):
    dataset.save(tmp_path / "set.zip")
    with zipfile.ZipFile(tmp_path / "set.zip") as archive:
        assert {*archive.namelist()} == {"dataset.json", "labels.jsonl", "segments.npz"}


def test_equal_data_sets_give_equal_bytes(dataset, tmp_path):
    for name in ("one.zip", "other.zip"):
        dataset.save(tmp_path / name)
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "other.zip").read_bytes()


def test_archive_with_folder_is_read(dataset, files, tmp_path):
    inner = {f"my set/{name}": content for name, content in files.items()}
    (tmp_path / "set.zip").write_bytes(zipped(inner))
    assert contents(load(tmp_path / "set.zip")) == contents(dataset)


@pytest.mark.parametrize("order", [1, -1])
def test_newest_of_several_current_answers_of_a_labeler_counts(dataset, tmp_path, order):
    # The first is earlier, since its time is that of another zone.
    answers = {"2024-05-01T10:00:00+02:00": "left", "2024-05-01T09:00:00+00:00": "right"}
    rows = [
        {
            **dataset.rows[0],
            "answer": answer,
            "answered_at": moment,
            "request_id": str(UUID(int=number)),
        }
        for number, (moment, answer) in enumerate(answers.items())
    ]
    replace(dataset, rows=tuple(rows[::order])).save(tmp_path / "set")
    read = load(tmp_path / "set")
    assert [(each.target, each.num_labels) for each in read] == [(0.0, 1)]


# --- pickles ---


class Trap:
    """Object that creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_pickle_is_refused_and_not_run(files, dataset, tmp_path):
    trap = Trap(tmp_path / "sprung")
    (tmp_path / "set.zip").write_bytes(pickle.dumps(trap))
    with pytest.raises(BadInput, match="pickle"):
        load(tmp_path / "set.zip")
    archive = io.BytesIO()
    arrays = arrays_of(dataset.segments)
    arrays["rewards"] = np.array([trap] * len(arrays["rewards"]), object)
    np.savez(archive, **arrays)  # pyright: ignore[reportArgumentType]
    for content in (pickle.dumps(trap), archive.getvalue()):
        with pytest.raises(BadInput, match="set"):
            load(written(tmp_path / "set", files | {"segments.npz": content}))
    assert not (tmp_path / "sprung").exists()


# --- sizes ---


def test_zip_bomb_is_refused_before_allocation(dataset, files, tmp_path):
    arrays = arrays_of(dataset.segments) | {"scene_states": np.zeros((10**6, 10))}
    files["segments.npz"] = pack_npz(arrays)
    assert len(files["segments.npz"]) < 10**6
    with pytest.raises(BadInput, match="max_bytes"):
        load(written(tmp_path / "set", files), max_bytes=10**7)


def test_small_file_with_many_labels_is_refused(dataset, tmp_path):
    """The labels take 100 times the size of the file."""
    replace(dataset, rows=dataset.rows[:1] * 5_000).save(tmp_path / "set.zip")
    assert (tmp_path / "set.zip").stat().st_size < 30_000
    with pytest.raises(BadInput, match="max_bytes"):
        load(tmp_path / "set.zip", max_bytes=10**7)


def test_declared_shape_is_compared_before_it_is_allocated(files, tmp_path):
    space = json.loads(files["dataset.json"])["space"]
    space["observation_shape"] = [2**25]
    path = written(tmp_path / "set", files, space=space)
    tracemalloc.start()
    with pytest.raises(BadInput, match="Observations"):
        load(path)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 20_000_000


def test_large_data_set_is_read_if_allowed(dataset, tmp_path):
    dataset.save(tmp_path / "set.zip")
    with pytest.raises(BadInput, match="max_bytes"):
        load(tmp_path / "set.zip", max_bytes=1000)
    assert len(load(tmp_path / "set.zip", max_bytes=10**5)) == len(dataset)


def claiming(shape, descr="<f4"):
    """Return an array file of 8 bytes whose header claims a shape."""
    member = io.BytesIO()
    header = {"descr": descr, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(member, header)
    return member.getvalue() + bytes(8)


@pytest.mark.parametrize("descr", ["|O", "<U4", "<c8", "<M8[s]", ">f4", [("a", "<f4")]])
@pytest.mark.parametrize("shape", [(1,), (10**15,), (2**62, 2**62)])
def test_array_of_another_type_or_size_is_refused(files, tmp_path, shape, descr):
    arrays = {"observations": claiming(shape, descr)}
    arrays |= {name: claiming((2,)) for name in ("actions", "rewards", "scene_states")}
    arrays |= {name: claiming((2,)) for name in ("offsets", "hashes")}
    files["segments.npz"] = zipped({f"{name}.npy": each for name, each in arrays.items()})
    with pytest.raises(BadInput, match="set"):
        load(written(tmp_path / "set", files))


# --- archives ---


def test_archive_is_not_unpacked(files, dataset, tmp_path):
    (tmp_path / "set.zip").write_bytes(zipped(files | {"../evil": b"{}", "cache/xla/program": b""}))
    assert contents(load(tmp_path / "set.zip")) == contents(dataset)
    assert {each.name for each in tmp_path.iterdir()} == {"set.zip", "rl-teacher"}


@pytest.mark.parametrize("content", [{}, {"one/dataset.json": b"{}", "two/dataset.json": b"{}"}])
def test_archive_without_one_description_is_refused(tmp_path, content):
    (tmp_path / "set.zip").write_bytes(zipped(content))
    with pytest.raises(BadInput, match=r"dataset\.json"):
        load(tmp_path / "set.zip")


def test_missing_file_is_named(tmp_path):
    with pytest.raises(BadInput, match="nothing"):
        load(tmp_path / "nothing")
    (tmp_path / "labels.jsonl").write_text("{}\n")
    with pytest.raises(BadInput, match="label data set"):
        load(tmp_path / "labels.jsonl")


# --- versions, hashes, shapes ---


@pytest.mark.parametrize("name", ["labels.jsonl", "segments.npz"])
def test_altered_file_is_refused(files, tmp_path, name):
    content = bytearray(files[name])
    content[len(content) // 2] ^= 1
    (tmp_path / "set").write_bytes(zipped(files | {name: bytes(content)}))
    with pytest.raises(BadInput, match=name):
        load(tmp_path / "set")


def test_newer_version_is_refused(files, tmp_path):
    with pytest.raises(BadInput, match=r"dataset\.json is 2"):
        load(written(tmp_path / "set", files, schema_version=2))
    newer = files["labels.jsonl"].replace(b'"schema_version": 1', b'"schema_version": 7')
    with pytest.raises(BadInput, match="label 1 is 7"):
        load(written(tmp_path / "other", files | {"labels.jsonl": newer}))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("format", "recipes"), ("schema_version", "1"), ("env_id", ""), ("env_id", 7)),
        *(
            ("env_id", "line\nbreak"),
            ("env_id", "\ud800"),
            ("space", {"action_shape": []}),
            ("space", None),
        ),
        *(("sha256", {}), ("sha256", {"labels.jsonl": 3})),
    ],
)
def test_invalid_description_is_refused(files, tmp_path, name, value):
    with pytest.raises(BadInput, match=r"dataset\.json|SHA-256"):
        load(written(tmp_path / "set", files, **{name: value}))


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *(("answer", "maybe"), ("left_clip", "../../etc/passwd"), ("is_current", 1)),
        *(("labeler", "x" * 201), ("labeler", "\ud800"), ("request_id", "1")),
        *(("answered_at", "yesterday"), ("asked_at_step", -1), ("asked_at_step", 2**80)),
        *(("details", [1]), ("details", {"note": "\ud800"}), ("details", {"note": "\x00"})),
    ],
)
def test_invalid_label_is_refused_with_number(files, tmp_path, column, value):
    rows = [json.loads(line) for line in files["labels.jsonl"].splitlines()]
    rows[1][column] = value
    lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
    with pytest.raises(BadInput, match=f"Label 2 has .* for its {column}"):
        load(written(tmp_path / "set", files | {"labels.jsonl": lines}))


def test_label_of_missing_segment_is_refused(files, tmp_path):
    lines = files["labels.jsonl"].splitlines()
    row = json.loads(lines[0])
    lines[0] = json.dumps(row | {"right_clip": "f" * 64}).encode()
    with pytest.raises(BadInput, match="label 1 is about segment ffff"):
        load(written(tmp_path / "set", files | {"labels.jsonl": b"\n".join(lines)}))


WRONG = {
    "offsets": lambda a: a[::-1].copy(),
    "hashes": lambda a: np.roll(a, 1, axis=0),
    "observations": lambda a: a[:, :3],
    "actions": lambda a: a[:-1],
    "rewards": lambda a: a.astype(np.float64),
    "scene_states": lambda a: a.ravel(),
}


@pytest.mark.parametrize("name", WRONG)
def test_inconsistent_arrays_are_refused(dataset, files, tmp_path, name):
    arrays = arrays_of(dataset.segments)
    files["segments.npz"] = pack_npz(arrays | {name: WRONG[name](arrays[name])})
    with pytest.raises(BadInput, match="set"):
        load(written(tmp_path / "set", files))


def test_nan_is_refused(dataset, files, tmp_path):
    arrays = arrays_of(dataset.segments)
    arrays["observations"][3, 2] = np.nan
    files["segments.npz"] = pack_npz(arrays)
    with pytest.raises(BadInput, match="observations"):
        load(written(tmp_path / "set", files))


# --- broken bytes ---

BROKEN = settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def load_or_refuse(path):
    """Load a path; require that an error is an RlTeacherError that names the path."""
    message = str(path)
    try:
        load(path, max_bytes=10**7)
    except RlTeacherError as error:
        message = str(error)
    assert str(path) in message


@st.composite
def damaged(draw, content):
    """Draw a copy of the content with bytes replaced, removed or inserted."""
    broken = bytearray(content)
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(broken)))
        broken[place : place + draw(st.integers(0, 6))] = draw(st.binary(max_size=6))
    return bytes(broken)


@BROKEN
@given(data=st.data())
@pytest.mark.parametrize("name", ["dataset.json", "labels.jsonl", "segments.npz"])
def test_broken_bytes_are_refused_without_another_error(files, tmp_path, name, data):
    broken = files | {name: data.draw(damaged(files[name]))}
    path = tmp_path / "set"
    if name == "dataset.json":
        path.write_bytes(zipped(broken))
    else:
        written(path, broken)
    load_or_refuse(path)


@BROKEN
@given(data=st.data())
def test_broken_archive_is_refused_without_another_error(files, tmp_path, data):
    path = tmp_path / "set.zip"
    path.write_bytes(data.draw(st.one_of(st.binary(max_size=200), damaged(zipped(files)))))
    load_or_refuse(path)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@BROKEN
@given(data=st.data())
def test_arbitrary_json_is_refused_without_another_error(files, tmp_path, data):
    said = json.loads(files["dataset.json"])
    row = json.loads(files["labels.jsonl"].splitlines()[0])
    key, column = data.draw(st.sampled_from(list(said))), data.draw(st.sampled_from(list(row)))
    row[column] = data.draw(json_values)
    lines = json.dumps(row).encode()
    load_or_refuse(written(tmp_path / "set", files | {"labels.jsonl": lines}))
    load_or_refuse(written(tmp_path / "set", files, **{key: data.draw(json_values)}))


def test_deeply_nested_json_is_refused(files, tmp_path):
    nested = files | {"labels.jsonl": b"[" * 200_000}
    with pytest.raises(BadInput, match="cannot be read"):
        load(written(tmp_path / "set", nested))


def test_array_that_is_shorter_than_its_shape_is_refused_before_it_is_allocated():
    header = io.BytesIO()
    npy.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (10**11,)})
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("rewards.npy", header.getvalue() + bytes(400))
    with pytest.raises(BadInput, match="rewards"):
        read_npz(archive.getvalue(), ["rewards"], 10**9)
