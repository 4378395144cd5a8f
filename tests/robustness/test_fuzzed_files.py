"""Files with random bytes altered are refused with a readable error, or read as valid content.

Every kind of file that the package reads is altered: as a whole, and behind its checksum, whose
value is then corrected, as an attacker would. No alteration may cause another exception than
`RlTeacherError`, a warning, a hang, an allocation of more than `MAX_BYTES`, or run a pickle.
"""

import hashlib
import json
import math
import pickle
import resource
import shutil
import signal
import sqlite3
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from av.error import FFmpegError

from rl_teacher.agents.numpy_policy import ARRAYS, DESCRIPTION, NumpyPolicy
from rl_teacher.cli import main, run_command
from rl_teacher.clips.poses import pack as pack_poses
from rl_teacher.clips.video import decode_mp4, encode_gif, encode_mp4
from rl_teacher.common.errors import BadInput, RlTeacherError
from rl_teacher.datasets.import_export import labels_in_home
from rl_teacher.datasets.reading import load
from rl_teacher.datasets.writing import DESCRIPTION as DATASET
from rl_teacher.datasets.writing import files_of
from rl_teacher.envs.registry import env_spaces
from rl_teacher.play.actors import load_actor, load_config
from rl_teacher.predictor.inputs import InputSpace
from rl_teacher.report.label_export import jsonl, label_rows
from rl_teacher.runs.backup import restore_backup, save_backup
from rl_teacher.runs.folder import Experiment
from rl_teacher.runs.metrics_file import MetricsFile
from rl_teacher.runs.warm_start import load_predictor
from rl_teacher.store.checkpoints import list_checkpoints
from rl_teacher.store.media import MediaFiles, SegmentFiles, from_bytes, seal
from rl_teacher.store.store import Store
from rl_teacher.sweep import read_sweep
from rl_teacher.web.address import read_address
from rl_teacher.web.clip_export import ExportedClip, frames_of
from tests.robustness.alterations import (
    altered,
    altered_json,
    altered_line,
    altered_member,
    altered_safetensors,
    zipped,
)
from tests.web.conftest import SCENE

ENV_ID = "ShortReacher-v1"
RUN = [
    *("teach", "-e", ENV_ID, "-n", "run", "-p", "synth", "-l", "12", "-L", "8", "-i", "40"),
    *("--ppo.num-envs", "8", "--ppo.rollout-steps", "32", "-t", "1024", "--no-tensorboard"),
    *("--checkpoint-seconds", "0"),
]
MAX_BYTES = 1 << 30
"""Memory that reading one of these small files may take."""
MAX_CPU_S = 20
NUM_FILES = 500
MAX_TEXT = 2_500
"""Characters of an error."""

Alter = Callable[[bytes, Random], bytes]


@dataclass(frozen=True)
class Subject:
    """A kind of file.

    Attributes:
        content: valid content.
        write: puts altered content in its place, with corrected checksums.
        read: reads the file as the command line does, and returns what was read.
        alter: possible alterations.
        share: share of the alterations, for files that take long to read.
    """

    content: bytes
    write: Callable[[bytes], Any]
    read: Callable[[], Any]
    alter: tuple[Alter, ...] = (altered,)
    share: float = 1.0


class Hang(BaseException):
    """A file took too long to be read."""


SUBJECTS: dict[str, Callable[["Files"], Subject]] = {}


def subject(function):
    SUBJECTS[function.__name__] = function
    return function


@pytest.fixture(scope="session")
def trained_home(tmp_path_factory):
    """Return a home with a small run."""
    home = tmp_path_factory.mktemp("altered")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RL_TEACHER_HOME", str(home))
        assert main(RUN) == 0
    return home


class Exploit:
    """Object that creates a file when it is unpickled."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return Path.touch, (self.mark,)


class Files:
    """Valid files of each kind, in a home of the test."""

    def __init__(self, original, home, folder, monkeypatch):
        self.original, self.home = original, home
        self.folder, self.monkeypatch = folder, monkeypatch
        self.mark = folder / "a-pickle-was-opened"
        self.run = home / "experiments" / "run"
        folder.mkdir()

    def pickled(self, _content, _random):
        """Return a harmful pickle."""
        return pickle.dumps(Exploit(self.mark))

    def with_pickle(self, content, random):
        """Return a zip archive with a harmful pickle in place of a member."""
        return altered_member(content, random, self.pickled)

    def in_place(self, path, read, *alter, share=1.0):
        """Return the subject of a file that is altered where it is."""
        return Subject(path.read_bytes(), path.write_bytes, read, alter or (altered,), share)


@pytest.fixture
def files(trained_home, tmp_path, monkeypatch):
    home = tmp_path / "rl-teacher"
    shutil.copytree(trained_home, home)
    return Files(trained_home, home, tmp_path / "files", monkeypatch)


# --- clips ---


@subject
def sealed_clip(files):
    path = next((files.home / "media" / "clips").glob("*.poses"))
    media = MediaFiles(files.home / "media")
    return files.in_place(path, lambda: media.get(f"clips/{path.name}"))


class NoRenderer:
    """Renderer that draws nothing: the check of a clip comes before."""

    def draw(self, view, poses, targets):
        assert np.isfinite(poses).all()
        assert np.isfinite(targets).all()
        assert 0 < view.distance < math.inf
        return iter([np.zeros((2, 2, 3), np.uint8)] * len(poses))


NO_RENDERER: Any = NoRenderer()


def clip_subject(files, poses, scene, altered_part):
    """Return the subject of a clip or a scene behind its seal."""
    media = MediaFiles(files.folder / "media")
    name = "0" * 64
    keys = {"clip": f"clips/{name}.poses", "scene": f"scenes/{name}.json"}
    contents = {"clip": poses, "scene": scene}
    for part, key in keys.items():
        media.put(key, contents[part])

    def read():
        clip = ExportedClip(media.get(keys["clip"]), 20.0, 1.0, media.get(keys["scene"]))
        return len([*frames_of(clip, NO_RENDERER)])

    alter = (altered, altered_json) if altered_part == "scene" else (altered,)
    path = files.folder / "media" / keys[altered_part]
    return Subject(
        contents[altered_part], lambda content: path.write_bytes(seal(content)), read, alter
    )


@subject
def scene(files):
    poses = np.random.default_rng(0).normal(size=(20, 4, 7)).astype(np.float32)
    return clip_subject(files, pack_poses(poses, 20.0), SCENE, "scene")


@subject
def video(files):
    frames = np.random.default_rng(0).integers(0, 255, (5, 16, 16, 3), np.uint8)
    path = files.folder / "clip.mp4"
    path.write_bytes(encode_mp4(iter(frames), 20.0))

    def read():
        frames = [*decode_mp4(path.read_bytes())]
        encode_gif(frames, 20.0)
        return len(frames)

    return files.in_place(path, read)


# --- segments, data sets ---


@subject
def segment_with_hash(files):
    original = next((files.home / "segments").glob("*/*.safetensors"))
    folder = files.folder / "segments" / ENV_ID

    def write(content):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        try:
            name = from_bytes(content).content_hash
        except Exception:
            name = "0" * 64
        (folder / f"{name}.safetensors").write_bytes(content)

    def read():
        [path] = folder.iterdir()
        found = SegmentFiles(folder.parent).load(path.stem)
        return found.content_hash, len(found)

    return Subject(original.read_bytes(), write, read, (altered, altered_safetensors))


def dataset_subject(files, alter_parts):
    """Return the subject of a data set whose parts are altered behind their hashes."""
    members = files_of(labels_in_home("run"))
    path = files.folder / "labels.zip"

    def alter(content, random):
        name = random.choice([*alter_parts])
        changed = members | {name: random.choice(alter_parts[name])(members[name], random)}
        if name != DATASET:
            description = json.loads(members[DATASET])
            description["sha256"][name] = hashlib.sha256(changed[name]).hexdigest()
            changed[DATASET] = json.dumps(description).encode()
        return zipped(changed)

    return Subject(zipped(members), path.write_bytes, lambda: summary(load(path)), (alter,))


def summary(dataset):
    """Return what a data set contains; its use for fitting must succeed."""
    space = dataset.space
    for each in dataset.segments.values():
        assert np.isfinite(space.rows(each.observations, each.actions)).all()
    return dataset.env_id, [*dataset.segments], [json.dumps(row) for row in dataset.rows]


@subject
def dataset_zip(files):
    path = files.folder / "labels.zip"
    labels_in_home("run").save(path)
    return files.in_place(path, lambda: summary(load(path)))


@subject
def dataset_description(files):
    return dataset_subject(files, {DATASET: (altered, altered_json)})


@subject
def dataset_labels(files):
    return dataset_subject(files, {"labels.jsonl": (altered, altered_line)})


@subject
def dataset_segments(files):
    alterations = altered, altered_member, files.with_pickle
    return dataset_subject(files, {"segments.npz": alterations})


# --- runs ---


@subject
def checkpoint_with_hash(files):
    folder = files.run / "checkpoints"
    newest = list_checkpoints(folder)[0]
    content = newest.path.read_bytes()

    def write(content):
        for each in folder.iterdir():
            each.unlink()
        digest = hashlib.sha256(content).hexdigest()
        (folder / f"checkpoint-000001-step-1024-{digest}.safetensors").write_bytes(content)

    def read():
        Experiment.find("run").checkpoints.load()
        actor = load_actor("run", "latest")
        try:
            return act_once(actor)
        finally:
            actor.venv.close()

    return Subject(content, write, read, (altered, altered_safetensors, files.pickled), 0.2)


def act_once(actor):
    observations = np.zeros((1, 10), np.float32)
    actions = actor.policy(explore=False)(observations)
    return actions.tolist(), actor.predictor(observations, actions).tolist()


def predictor_subject(files, name, *alter):
    folder = files.run / "predictor"
    spaces = InputSpace.from_spaces(*env_spaces(ENV_ID))

    def read():
        predictor = load_predictor(str(folder), spaces)
        rewards = predictor(np.zeros((3, 10), np.float32), np.zeros((3, 2), np.float32))
        assert np.isfinite(rewards).all()
        return rewards.tolist()

    return files.in_place(folder / name, read, *alter, share=0.5)


@subject
def predictor_description(files):
    return predictor_subject(files, "predictor.json", altered, altered_json)


@subject
def predictor_arrays(files):
    return predictor_subject(files, "predictor.safetensors", altered, altered_safetensors)


def read_policy(folder):
    policy = NumpyPolicy.load(folder)
    observations = np.zeros((3, *policy.encoder.shape), np.float32)
    # Finite weights may be too large to be multiplied.
    with np.errstate(all="ignore"):
        return policy.environment_actions(policy.encoder.features(observations), None).tolist()


@subject
def policy_description(files):
    folder = next((files.run / "history").iterdir())
    return files.in_place(folder / DESCRIPTION, lambda: read_policy(folder), altered, altered_json)


@subject
def policy_arrays_with_hash(files):
    folder = next((files.run / "history").iterdir())
    description = json.loads((folder / DESCRIPTION).read_bytes())

    def write(content):
        (folder / ARRAYS).write_bytes(content)
        changed = description | {"sha256": hashlib.sha256(content).hexdigest()}
        (folder / DESCRIPTION).write_text(json.dumps(changed))

    content = (folder / ARRAYS).read_bytes()
    return Subject(content, write, lambda: read_policy(folder), (altered, altered_safetensors))


@subject
def configuration(files):
    def read():
        assert run_command(["runs"]) == 0
        experiment = Experiment.find("run")
        load_config(experiment)
        try:
            actor = load_actor("run", "latest")
        except MemoryError as error:  # of layer sizes, which the command line reports
            raise BadInput(f"Memory ran out: {error}.") from None
        actor.venv.close()
        act_once(actor)
        with Experiment.open("run", json.loads(original)):
            pass
        return repr(load_config(experiment))

    original = (files.run / "config.json").read_bytes()
    return files.in_place(files.run / "config.json", read, altered, altered_json, share=0.5)


@subject
def metrics(files):
    path = files.run / "metrics.jsonl"

    def read():
        assert run_command(["runs"]) == 0
        assert run_command(["report", "run"]) == 0
        MetricsFile(path).drop_after(500)
        return MetricsFile(path).rows()

    return files.in_place(path, read, altered, altered_line, altered_line, share=0.5)


# --- others ---


SWEEP = b"""flags = "-p synth -e ShortHopper-v1 -l 100 -t 4000 --teacher 'a b'"
seeds = [0, 1, 2, 3, 4]

[grid]
"--reward.l2" = [10.0, 100.0]
"-e" = ["ShortHopper-v1", "ShortWalker-v1"]
"""


@subject
def sweep_file(files):
    path = files.folder / "sweep.toml"
    path.write_bytes(SWEEP)
    return files.in_place(path, lambda: [run.flags for run in read_sweep(path).runs()])


@subject
def backup(files):
    path = files.folder / "backup.zip"
    save_backup(path)

    def read():
        target = files.folder / "restored"
        shutil.rmtree(target, ignore_errors=True)
        files.monkeypatch.setenv("RL_TEACHER_HOME", str(target))
        try:
            summary = restore_backup(path)
            assert run_command(["doctor"]) in (0, 1)
            return summary
        finally:
            files.monkeypatch.setenv("RL_TEACHER_HOME", str(files.home))

    return files.in_place(path, read, altered, altered_member, share=0.3)


@subject
def database(files):
    path = files.home / "labels.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()

    def write(content):
        for each in files.home.glob("labels.sqlite-*"):
            each.unlink()
        path.write_bytes(content)

    def read():
        with Store.open(path) as store:
            assert len([*jsonl(label_rows(store, "run"))]) <= 12
        assert run_command(["runs"]) == 0
        return run_command(["doctor"])

    return Subject(path.read_bytes(), write, read, share=0.3)


@subject
def address(files):
    path = files.home / "service.json"
    path.write_text(
        json.dumps(
            {
                **{"url": "http://127.0.0.1:1", "host": "127.0.0.1", "port": 1, "pid": 1},
                **{"instance": "one", "database": "a", "media": "b"},
            }
        )
    )
    return files.in_place(path, lambda: repr(read_address(path)), altered, altered_json)


# --- reading ---


@contextmanager
def bounded():
    """Limit memory and processor time; the latter does not depend on the load of the machine."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + MAX_BYTES, before[1]))
    handler = signal.signal(signal.SIGPROF, hang)
    signal.setitimer(signal.ITIMER_PROF, MAX_CPU_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, handler)
        resource.setrlimit(resource.RLIMIT_AS, before)


def hang(*_):
    raise Hang


def outcome_of(subject, expected):
    """Read a file; return `refused`, `identical` or `valid`.

    Raises:
        AssertionError: an error does not say what is wrong.
    """
    try:
        with bounded():
            found = subject.read()
    except RlTeacherError as error:
        check_error(error)
        return "refused"
    return "identical" if found == expected else "valid"


def check_error(error):
    """Check that an error has a text, and hides neither a hang nor an allocation."""
    assert 20 <= len(str(error)) <= MAX_TEXT, str(error)
    hidden = [each for each in causes(error) if isinstance(each, MemoryError | Hang)]
    # FFmpeg has this error for sizes that it refuses to allocate.
    assert not [each for each in hidden if not isinstance(each, FFmpegError)]


def causes(error):
    while error is not None:
        yield error
        hidden = None if error.__suppress_context__ else error.__context__
        error = error.__cause__ or hidden


def fuzz(name, subject, num_files):
    """Read altered files; return numbers of outcomes, and descriptions of what is not accepted."""
    counts, faults = Counter(), []
    subject.write(subject.content)
    with bounded():
        expected = subject.read()
    for number in range(max(2, round(num_files * subject.share))):
        random = Random(f"{name} {number}")
        subject.write(random.choice(subject.alter)(subject.content, random))
        try:
            counts[outcome_of(subject, expected)] += 1
        except (Exception, SystemExit, Hang) as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            faults.append(
                f"{name} {number}: {error!r:.300} at {Path(place.filename).name}:{place.lineno}"
            )
    subject.write(subject.content)
    return counts, faults


@pytest.mark.slow
@pytest.mark.parametrize("name", SUBJECTS)
@pytest.mark.usefixtures("_shapes_unchecked")  # as for users
def test_altered_file_is_refused_or_valid(files, name):
    counts, faults = fuzz(name, SUBJECTS[name](files), NUM_FILES)
    assert not faults, "\n".join(faults[:20])
    assert counts.total() > 1
    assert not files.mark.exists()
