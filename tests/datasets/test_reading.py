"""Tests of reading untrusted data sets: valid ones are loaded, others refused."""

import hashlib
import io
import json
import os
import pickle
import tracemalloc
import zipfile
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rl_teacher.common.errors import BadInput, RlTeacherError
from rl_teacher.datasets import Dataset, Spaces, load
from rl_teacher.datasets.arrays import pack_npz, read_npz
from rl_teacher.datasets.imitation import row_of
from rl_teacher.datasets.reading import rows_of_parquet
from rl_teacher.datasets.writing import arrays_of, files_of, zipped
from rl_teacher.report.label_export import parquet
from tests.datasets.conftest import ENV_ID, SPACES, segment


def contents(dataset):
    return [(each.pair, each.target, each.labeler) for each in dataset]


@pytest.fixture
def files(dataset):
    return files_of(dataset, "jsonl")


def written(folder, files, **descriptions):
    """Write files with matching hashes; `descriptions` replace entries of dataset.json."""
    description = json.loads(files["dataset.json"])
    description["sha256"] = {
        name: hashlib.sha256(each).hexdigest()
        for name, each in files.items()
        if name != "dataset.json"
    }
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    (folder / "dataset.json").write_text(json.dumps(description | descriptions))
    return folder


@pytest.mark.parametrize("format_name", ["jsonl", "parquet"])
@pytest.mark.parametrize("name", ["folder", "file.zip"])
def test_saved_data_set_loads_unchanged(dataset, tmp_path, name, format_name):
    dataset.save(tmp_path / name, format_name)
    read = load(tmp_path / name)
    assert contents(read) == contents(dataset)
    assert read.rows == dataset.rows
    assert read.content_hash == dataset.content_hash
    assert read.spaces.to_json() == dataset.spaces.to_json()


DTYPES = [f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32)]


@pytest.mark.parametrize("dtype", [*DTYPES, "int64", "float16", "float32", "float64", "bool"])
def test_data_set_of_any_number_type_loads_unchanged(tmp_path, dtype):
    box = gym.spaces.Box(0, 1, (10,), np.dtype(dtype).type)
    pair = [
        replace(each, observations=(each.observations > 0).astype(dtype))
        for each in (segment(0), segment(1))
    ]
    written = Dataset(
        ENV_ID,
        Spaces(box, SPACES.action),
        {each.content_hash: each for each in pair},
        (row_of(0, pair, 1.0, "2026-11-03T12:00:00+00:00"),),
    )
    written.save(tmp_path / "set")
    read = load(tmp_path / "set")
    assert read.spaces.to_json() == written.spaces.to_json()
    assert read.content_hash == written.content_hash
    assert read[0].left.observations.dtype == dtype


def test_equal_data_sets_give_equal_bytes(dataset, tmp_path):
    for name in ("one.zip", "other.zip"):
        dataset.save(tmp_path / name)
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "other.zip").read_bytes()


def test_data_set_is_overwritten_but_other_files_are_not(dataset, tmp_path):
    dataset.save(tmp_path / "set", "parquet")
    dataset.save(tmp_path / "set")
    names = {each.name for each in (tmp_path / "set").iterdir()}
    assert names == {"dataset.json", "labels.jsonl", "segments.npz"}
    (tmp_path / "set" / "thesis.tex").write_text("years of work")
    with pytest.raises(BadInput, match=r"thesis\.tex"):
        dataset.save(tmp_path / "set")


def test_archive_with_folder_is_read(dataset, files, tmp_path):
    inner = {f"my set/{name}": content for name, content in files.items()}
    (tmp_path / "set.zip").write_bytes(zipped(inner))
    assert contents(load(tmp_path / "set.zip")) == contents(dataset)


ADDED_COLUMNS = ("comparison_number", "is_too_fast", "is_held_out")


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


def test_jsonl_without_columns_added_later_is_read(files, tmp_path):
    rows = [json.loads(line) for line in files["labels.jsonl"].splitlines()]
    older = [{name: row[name] for name in row if name not in ADDED_COLUMNS} for row in rows]
    lines = "".join(json.dumps(row) + "\n" for row in older).encode()
    loaded = load(written(tmp_path / "set", files | {"labels.jsonl": lines}))
    added = {name: [row[name] for row in loaded.rows] for name in ADDED_COLUMNS}
    assert added == {
        "comparison_number": [None] * 4,
        "is_too_fast": [False] * 4,
        "is_held_out": [False] * 4,
    }


def test_parquet_without_columns_added_later_is_read(dataset, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    files = files_of(dataset, "parquet")
    table = parquet.read_table(io.BytesIO(files["labels.parquet"])).drop_columns(ADDED_COLUMNS)
    older = io.BytesIO()
    parquet.write_table(table, older)
    loaded = load(written(tmp_path / "set", files | {"labels.parquet": older.getvalue()}))
    assert [row["answer"] for row in loaded.rows] == [row["answer"] for row in dataset.rows]
    assert {row["is_too_fast"] for row in loaded.rows} == {False}


# --- pickles ---


class Trap:
    """Object that creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_pickle_trap_runs_when_unpickled(tmp_path):
    pickle.loads(pickle.dumps(Trap(tmp_path / "sprung")))  # noqa: S301 - that is the point
    assert (tmp_path / "sprung").exists()


@pytest.mark.parametrize("name", ["set.zip", "set.npz", "set"])
def test_renamed_pickle_is_refused_and_not_run(tmp_path, name):
    (tmp_path / name).write_bytes(pickle.dumps(Trap(tmp_path / "sprung")))
    with pytest.raises(BadInput, match="looks like a pickle"):
        load(tmp_path / name)
    assert not (tmp_path / "sprung").exists()


def test_pickle_in_place_of_arrays_is_refused_and_not_run(files, tmp_path):
    files["segments.npz"] = pickle.dumps(Trap(tmp_path / "sprung"))
    with pytest.raises(BadInput, match="looks like a pickle"):
        load(written(tmp_path / "set", files))
    assert not (tmp_path / "sprung").exists()


def test_array_of_pickled_objects_is_refused_and_not_run(files, dataset, tmp_path):
    arrays = arrays_of(dataset.segments)
    arrays["rewards"] = np.array([Trap(tmp_path / "sprung")] * len(arrays["rewards"]), object)
    archive = io.BytesIO()
    np.savez(archive, **arrays)  # pyright: ignore[reportArgumentType]
    files["segments.npz"] = archive.getvalue()
    with pytest.raises(BadInput, match="array of object"):
        load(written(tmp_path / "set", files))
    assert not (tmp_path / "sprung").exists()


# --- sizes ---


def test_zip_bomb_is_refused_before_allocation(dataset, files, tmp_path):
    files["segments.npz"] = zipped({"observations.npy": bytes(10**8)})
    (tmp_path / "bomb.zip").write_bytes(zipped(files))
    assert (tmp_path / "bomb.zip").stat().st_size < 10**6
    written(tmp_path / "set", files)
    with pytest.raises(BadInput, match=r"arrays .* are missing"):
        load(tmp_path / "set", max_bytes=10**7)
    files["segments.npz"] = pack_npz(
        arrays_of(dataset.segments) | {"scene_states": np.zeros((10**6, 10))}
    )
    with pytest.raises(BadInput, match=r"would fill [\d,]+ bytes; 10,000,000 are allowed"):
        load(written(tmp_path / "set", files), max_bytes=10**7)


def repeated(dataset, num_labels):
    """Return a data set with a label many times."""
    [row, *_] = dataset.rows
    return replace(dataset, rows=(row,) * num_labels)


@pytest.mark.parametrize("format_name", ["jsonl", "parquet"])
def test_small_file_with_many_labels_is_refused(dataset, tmp_path, format_name):
    repeated(dataset, 5_000).save(tmp_path / "set.zip", format_name)
    assert (tmp_path / "set.zip").stat().st_size < 30_000
    with pytest.raises(BadInput, match=r"more than .* labels, which cannot be in a file"):
        load(tmp_path / "set.zip")


@pytest.mark.parametrize(("column", "limit"), [("details", "120,000"), ("purpose", "1,000")])
def test_long_text_in_parquet_is_refused_before_it_is_expanded(dataset, tmp_path, column, limit):
    text = "x" * 1_000_000
    rows = [{**row, column: {"x": text} if column == "details" else text} for row in dataset.rows]
    content = b"".join(parquet(rows * 15))
    tracemalloc.start()
    with pytest.raises(BadInput, match=rf"bytes for its {column}; {limit} are allowed"):
        list(rows_of_parquet(content, 2**32))
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 30_000_000


def test_declared_shape_is_compared_before_it_is_allocated(files, tmp_path):
    spaces = json.loads(files["dataset.json"])["spaces"]
    spaces["observation"]["shape"] = [2**25]
    path = written(tmp_path / "set", files, spaces=spaces)
    tracemalloc.start()
    with pytest.raises(BadInput, match=r"observations are .* each; the space has"):
        load(path)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 20_000_000


def test_large_data_set_is_read_if_allowed(dataset, tmp_path):
    dataset.save(tmp_path / "set.zip")
    with pytest.raises(BadInput, match="allow more with max_bytes"):
        load(tmp_path / "set.zip", max_bytes=1000)
    assert len(load(tmp_path / "set.zip", max_bytes=10**6)) == len(dataset)


def claiming(shape, descr="<f4"):
    """Return an array file of 8 bytes whose header claims a shape."""
    member = io.BytesIO()
    header = {"descr": descr, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(member, header)
    return member.getvalue() + bytes(8)


@pytest.mark.parametrize("shape", [(10**15,), (2**62, 2**62), (3,), (1, 1), (0,)])
def test_header_with_wrong_size_is_refused(shape):
    content = zipped({"a.npy": claiming(shape)})
    with pytest.raises(BadInput, match=r"a\.npy declares"):
        read_npz(content, ["a"], 10**9)


@pytest.mark.parametrize("descr", ["|O", "<U4", "<c8", "<M8[s]", ">f4", [("a", "<f4")]])
def test_array_of_another_type_is_refused(descr):
    with pytest.raises(BadInput, match="is an array of"):
        read_npz(zipped({"a.npy": claiming((1,), descr)}), ["a"], 10**9)


# --- archives ---


@pytest.mark.parametrize("name", ["../dataset.json", "/etc/dataset.json", "a/../../b", "C:\\x"])
def test_path_traversal_in_archive_is_refused(files, tmp_path, name):
    (tmp_path / "set.zip").write_bytes(zipped(files | {name: b"{}"}))
    with pytest.raises(BadInput, match="leads out of it"):
        load(tmp_path / "set.zip")
    assert {each.name for each in tmp_path.iterdir()} == {"set.zip", "rl-teacher"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "it has no dataset.json"),
        ({"one/dataset.json": b"{}", "two/dataset.json": b"{}"}, "in several folders"),
    ],
)
def test_archive_without_one_folder_is_refused(tmp_path, content, message):
    (tmp_path / "set.zip").write_bytes(zipped(content))
    with pytest.raises(BadInput, match=message):
        load(tmp_path / "set.zip")


def test_duplicate_file_names_are_refused(files, tmp_path):
    with zipfile.ZipFile(tmp_path / "set.zip", "w") as file:
        for content in ("{}", "[]"):
            with pytest.warns(UserWarning, match="Duplicate") if content == "[]" else no_warning():
                file.writestr("dataset.json", content)
    with pytest.raises(BadInput, match="two of one name"):
        load(tmp_path / "set.zip")


class no_warning:
    def __enter__(self):
        return None

    def __exit__(self, *_):
        return None


def test_missing_file_is_named(tmp_path):
    with pytest.raises(BadInput, match="no such file"):
        load(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match=r"no dataset\.json"):
        load(tmp_path / "empty")
    (tmp_path / "labels.jsonl").write_text("{}\n")
    with pytest.raises(BadInput, match="cannot be read as a label data set"):
        load(tmp_path / "labels.jsonl")


# --- versions, hashes, shapes ---


@pytest.mark.parametrize("name", ["labels.jsonl", "segments.npz"])
def test_altered_file_is_refused(files, tmp_path, name):
    written(tmp_path / "set", files)
    content = bytearray((tmp_path / "set" / name).read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "set" / name).write_bytes(content)
    with pytest.raises(BadInput, match="its SHA-256 differs"):
        load(tmp_path / "set")


def test_newer_version_is_refused(files, tmp_path):
    with pytest.raises(BadInput, match=r"dataset\.json is 2; this rl-teacher reads up to 1"):
        load(written(tmp_path / "set", files, schema_version=2))
    newer = files["labels.jsonl"].replace(b'"schema_version": 1', b'"schema_version": 7')
    with pytest.raises(BadInput, match="label 1 is 7; this rl-teacher reads up to 1"):
        load(written(tmp_path / "other", files | {"labels.jsonl": newer}))


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("format", "recipes", "is not 'rl-teacher-labels'"),
        ("schema_version", "1", "a number is needed"),
        ("env_id", "", "for its env_id"),
        ("env_id", 7, "7 for its env_id"),
        ("env_id", "line\nbreak", "for its env_id"),
        ("env_id", "\ud800", "for its env_id"),
        ("spaces", {}, "{} for its spaces"),
        ("spaces", None, "None for its spaces"),
        ("sha256", {}, "one file of labels"),
        ("sha256", {"labels.jsonl": 3}, "for its sha256"),
    ],
)
def test_invalid_description_is_refused(files, tmp_path, name, value, says):
    with pytest.raises(BadInput, match=says):
        load(written(tmp_path / "set", files, **{name: value}))


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("answer", "maybe"),
        ("left_clip", "../../etc/passwd"),
        ("is_current", 1),
        ("labeler", "x" * 201),
        ("labeler", "\ud800"),
        ("request_id", "1"),
        ("answered_at", "yesterday"),
        ("asked_at_step", -1),
        ("asked_at_step", 2**80),
        ("details", [1]),
        ("details", {"note": "\ud800"}),
        ("details", {"note": "\x00"}),
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
    with pytest.raises(BadInput, match=r"offsets|hash|space has|steps are needed|needed"):
        load(written(tmp_path / "set", files))


def test_nan_is_refused(dataset, files, tmp_path):
    arrays = arrays_of(dataset.segments)
    arrays["observations"][3, 2] = np.nan
    files["segments.npz"] = pack_npz(arrays)
    with pytest.raises(BadInput, match="the observations have NaN"):
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
    folder = tmp_path / "set"
    if name == "dataset.json":
        folder.mkdir(exist_ok=True)
        for each, content in broken.items():
            (folder / each).write_bytes(content)
    else:
        written(folder, broken)
    load_or_refuse(folder)


@BROKEN
@given(data=st.data())
def test_broken_archive_is_refused_without_another_error(files, tmp_path, data):
    path = tmp_path / "set.zip"
    path.write_bytes(data.draw(st.one_of(st.binary(max_size=200), damaged(zipped(files)))))
    load_or_refuse(path)


@BROKEN
@given(
    header=st.fixed_dictionaries(
        {
            "descr": st.sampled_from(["<f4", "<i8", "|O", "<f8", "junk"]),
            "fortran_order": st.booleans(),
            "shape": st.lists(st.integers(-2, 2**40), max_size=4).map(tuple),
        }
    ),
    tail=st.binary(max_size=64),
)
def test_arbitrary_header_is_refused_without_another_error(files, tmp_path, header, tail):
    member = io.BytesIO()
    np.lib.format.write_array_header_1_0(member, header)
    arrays = {name: member.getvalue() + tail for name in ("observations", "actions", "rewards")}
    others = ("scene_states", "offsets", "hashes")
    arrays |= {name: claiming((2,)) for name in others}
    files["segments.npz"] = zipped({f"{name}.npy": each for name, each in arrays.items()})
    load_or_refuse(written(tmp_path / "set", files))


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


def test_error_names_path(tmp_path):
    path = Path(tmp_path / "holiday.zip")
    path.write_bytes(b"PK\x03\x04 not really")
    with pytest.raises(BadInput, match=r"holiday\.zip cannot be read as a label data set"):
        load(path)
