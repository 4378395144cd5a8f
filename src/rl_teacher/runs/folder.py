"""The home, and the run folders of experiments in it.

<home>/experiments/<name>/
    config.json      configuration; fixed for the life of the experiment
    checkpoints/     the last two, each written atomically
    predictor/       the reward predictor, see `RewardPredictor.save`
    labels.zip       copy of the labels that the run started with, see `GivenLabels.keep`
    metrics.jsonl    one row of metrics per line
    history/         earlier policies, see `PolicyHistory`
    videos/          videos of episodes, see `EpisodeVideos`
    lock             held by the process that runs the experiment
    plot.png
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

from rl_teacher.common.errors import (
    INVALID_CONTENT,
    BadExperimentName,
    BadInput,
    ConfigMismatch,
    CorruptCheckpoint,
    ExperimentInUse,
    ExperimentNotFound,
    StoreUnavailable,
    UnknownName,
)
from rl_teacher.common.files import (
    TEMPORARY_SUFFIX,
    folder_errors,
    make_private_home,
    remove_unfinished,
    write_atomically,
)
from rl_teacher.common.paths import user_path
from rl_teacher.runs.config_comparison import OFFLINE_FIT, check_same_config, kind_of
from rl_teacher.runs.history import EpisodeVideos, PolicyHistory
from rl_teacher.runs.metrics_file import MetricsFile, Row, number_in
from rl_teacher.runs.status import ENDED, Phase, reported_phase
from rl_teacher.store.checkpoints import (
    CheckpointFiles,
)
from rl_teacher.store.lock import FolderLock, is_locked
from rl_teacher.store.media import SegmentFiles, default_media
from rl_teacher.store.records import ExperimentView, normalise_experiment_name

if TYPE_CHECKING:
    from rl_teacher.store.store import Store
    from rl_teacher.store.waiting import DatabaseWait

MAX_CHARACTERS = 100
MAX_BYTES = 240
"""Common file systems accept 255 bytes, which leaves room for suffixes such as `.zip`."""
NAME = re.compile(
    rf"(?![.\s])[^/\\\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]{{1,{MAX_CHARACTERS}}}(?<!\s)"
)
"""A name, except that it may be too long in bytes, or that of an unfinished file."""


class Counts(NamedTuple):
    """Numbers of comparisons asked and answered."""

    asked: int
    answered: int


@dataclass(frozen=True)
class ExperimentSummary:
    """One line of `rl-teacher runs`.

    `clips` is 0 unless the experiment sorts clips; see `note_of` for the note.
    """

    name: str
    env_id: str
    phase: Phase
    step: int
    labels: Counts
    clips: int
    changed_at: datetime
    note: str = ""


def home() -> Path:
    """Return the absolute path of the folder of all data: RL_TEACHER_HOME, or `~/.rl-teacher`."""
    return user_path(os.environ.get("RL_TEACHER_HOME") or "~/.rl-teacher").absolute()


def open_store(*, is_synced: bool = True, wait: "DatabaseWait | None" = None) -> "Store":
    """Open the database of the home; see `Store.open`."""
    from rl_teacher.store.store import Store  # noqa: PLC0415 - slow

    return Store.open(database_url(), is_synced=is_synced, wait=wait)


@contextmanager
def store_to_read() -> "Iterator[Store]":
    """Open the database of the home to read it; if its file cannot be written, a copy.

    Opening an SQLite database writes to it, for example to recover its write-ahead log.
    """
    from rl_teacher.store.database import as_url, file_of, sqlite_files  # noqa: PLC0415 - slow
    from rl_teacher.store.store import Store  # noqa: PLC0415 - slow

    url = database_url()
    file = file_of(as_url(url))
    with TemporaryDirectory() as folder:
        if file is not None and file.exists() and not os.access(file, os.W_OK):
            database, log, _ = sqlite_files(file)
            for each in filter(Path.exists, (database, log)):
                shutil.copyfile(each, Path(folder) / each.name)
            url = Path(folder) / file.name
        with Store.open(url) as store:
            yield store


def database_url() -> str:
    """Return the URL or the path of the home's database."""
    from rl_teacher.store.database import default_url  # noqa: PLC0415 - slow

    return default_url(home())


def segment_files() -> SegmentFiles:
    """Return the arrays of the home's segments."""
    return SegmentFiles(home() / "segments")


def media_url() -> str:
    """Return the folder or URL of the clips."""
    return default_media(home())


def experiments_folder() -> Path:
    """Return the folder that has one subfolder per experiment."""
    return home() / "experiments"


def tensorboard_folder(name: str) -> Path:
    """Return the folder of an experiment's TensorBoard curves, if no other one is given."""
    return home() / "tensorboard" / name


def validate_name(name: str) -> str:
    """Return a name in Unicode normal form C if every file system accepts it.

    Raises:
        BadExperimentName: some file system does not.
    """
    composed = normalise_experiment_name(name)
    if not is_valid_name(composed):
        shown = composed if len(composed) <= 60 else composed[:60] + "..."
        raise BadExperimentName(
            f"{shown!r} cannot be the name of an experiment. Choose one of up to {MAX_CHARACTERS} "
            f"characters and {MAX_BYTES} bytes without slashes, backslashes and control "
            "characters, which begins neither with a dot nor a space, and does not end with a "
            f"space or {TEMPORARY_SUFFIX}."
        )
    return composed


def is_valid_name(name: str) -> bool:
    """Return whether every file system accepts a name in Unicode normal form C."""
    is_short = len(encoded(name)) <= MAX_BYTES
    return bool(NAME.fullmatch(name)) and is_short and not name.endswith(TEMPORARY_SUFFIX)


def shortened_name(stem: str, suffix: str) -> str:
    """Return the name `stem` + `suffix`; a stem that makes it too long is shortened.

    A hash keeps the names of different stems distinct.

    Raises:
        BadExperimentName: the name breaks another rule.
    """
    stem = normalise_experiment_name(stem)
    whole = f"{stem}{suffix}"
    if len(whole) > MAX_CHARACTERS or len(encoded(whole)) > MAX_BYTES:
        ending = f"-{hashlib.sha256(encoded(stem)).hexdigest()[:8]}{suffix}"
        kept = encoded(stem[: MAX_CHARACTERS - len(ending)])[: MAX_BYTES - len(encoded(ending))]
        # The last character may be cut.
        whole = f"{kept.decode(errors='ignore')}{ending}"
    return validate_name(whole)


def encoded(name: str) -> bytes:
    """Encode a name, which may contain surrogates."""
    return name.encode(errors="replace")


class Experiment:
    """One named experiment on disk.

    `open` acquires the lock and returns a writable experiment; `find` returns a read-only one.

    Attributes:
        name: name of the experiment.
        folder: its folder.
        starts_over: whether `open` discarded an earlier experiment of this name.
        checkpoints: states from which the run continues.
        metrics_file: a copy of the metrics.
        history: policies of earlier steps.
        videos: videos of episodes at earlier steps.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder
        self.starts_over = False
        self.history = PolicyHistory(folder / "history")
        self.videos = EpisodeVideos(folder / "videos")
        self._lock = FolderLock(folder / "lock")
        self.checkpoints = CheckpointFiles(folder / "checkpoints")
        self.metrics_file = MetricsFile(folder / "metrics.jsonl")

    @classmethod
    def open(
        cls,
        name: str,
        config: Mapping[str, Any],
        force_new: bool = False,
        stored_config: Mapping[str, Any] | None = None,
    ) -> "Experiment":
        """Create an experiment or resume the one with this name.

        Args:
            name: see `validate_name`.
            config: JSON-compatible; must equal the configuration of an existing experiment.
            force_new: delete existing data. The caller asks for confirmation.
            stored_config: configuration of the experiment in the database, which several homes may
                share; None if it has no records there.

        Raises:
            BadExperimentName, ConfigMismatch, ExperimentInUse, RunFolderUnusable, StoreUnavailable.
        """
        name = validate_name(name)
        experiment = cls(name, experiments_folder() / name)
        with folder_errors(experiment.folder):
            make_private_home(home())
            experiment.folder.mkdir(parents=True, exist_ok=True)
            if not experiment._lock.acquire():
                raise ExperimentInUse(
                    f"Experiment {name!r} is being run by {experiment._lock.holder}. Wait until it "
                    "ends, stop it (it saves first), or choose another name."
                )
            try:
                experiment._lock.sign()
                experiment.starts_over = force_new or experiment._must_start_over(
                    as_json(config), stored_config
                )
                experiment._prepare(config)
            except BaseException:
                experiment._lock.release()
                raise
        return experiment

    @classmethod
    def find(cls, name: str) -> "Experiment":
        """Return an existing experiment, read-only.

        Raises:
            ExperimentNotFound: no experiment has this name; the message suggests the nearest one.
            RunFolderUnusable: the folder may not be read.
        """
        experiment = cls.find_or_none(name)
        if experiment is None:
            raise ExperimentNotFound(not_found_message(validate_name(name)))
        return experiment

    @classmethod
    def find_or_none(cls, name: str) -> "Experiment | None":
        """Return an existing experiment, read-only; None if no experiment has this name."""
        name = validate_name(name)
        experiment = cls(name, experiments_folder() / name)
        with folder_errors(experiment.folder):
            return experiment if experiment._config_path.exists() else None

    @staticmethod
    def all() -> list[ExperimentSummary]:
        """Return summaries of all experiments, most recently changed first."""
        names = experiment_names()
        stored = listed_experiments() if names else {}
        summaries = []
        for name in names:
            with suppress(ExperimentNotFound, FileNotFoundError):  # deleted meanwhile
                summaries.append(Experiment.find(name).summary(stored))
        return sorted(summaries, key=lambda summary: summary.changed_at, reverse=True)

    @property
    def config(self) -> dict[str, Any]:
        """Configuration of the experiment.

        Raises:
            CorruptCheckpoint: config.json cannot be read.
        """
        try:
            config = json.loads(self._config_path.read_bytes())
            if not isinstance(config, dict):
                raise TypeError("it is no JSON object")
        except (OSError, *INVALID_CONTENT) as error:
            raise CorruptCheckpoint(
                f"{self._config_path} cannot be read: {error}. Put it back from a backup, or "
                "delete the experiment with `rl-teacher delete` to start over."
            ) from error
        return config

    @property
    def is_offline_fit(self) -> bool:
        """True if `rl-teacher fit` has created it, so that the store has no entry of it."""
        # A run that was refused leaves a folder without configuration.
        return self._config_path.exists() and kind_of(self.config) == OFFLINE_FIT

    @property
    def predictor_folder(self) -> Path:
        """Folder of the saved reward predictor."""
        return self.folder / "predictor"

    @property
    def plot_path(self) -> Path:
        """Path of the plot of the learning curves."""
        return self.folder / "plot.png"

    @property
    def is_running(self) -> bool:
        """True if a process runs the experiment, or waits to extend it."""
        return is_locked(self._lock.path)

    def phase(self, view: ExperimentView | None) -> Phase:
        """Return the phase of its run; LOST if that has ended without reporting it.

        Args:
            view: its entry in the store; None if it has none.
        """
        reported = reported_phase(None if view is None else view.status)
        if self.is_running:
            return Phase.STARTING if reported in (Phase.STOPPED, Phase.FAILED) else reported
        if view is None:  # of `rl-teacher fit`, or refused before it was created
            return Phase.FINISHED if self.predictor_folder.exists() else Phase.STOPPED
        return reported if reported in ENDED else Phase.LOST

    @property
    def has_records(self) -> bool:
        """True if it has a checkpoint, a predictor or comparisons.

        Raises:
            StoreUnavailable: they cannot be looked up.
        """
        if self.checkpoints.files() or self.predictor_folder.exists():
            return True
        view = stored_experiments().get(self.name)
        return view is not None and view.asked > 0

    def close(self) -> None:
        """Release the lock."""
        self._lock.release()

    def __enter__(self) -> "Experiment":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def metrics(self) -> list[Row]:
        """Return all rows of metrics, oldest first."""
        return self.metrics_file.rows()

    def summary(self, stored: Mapping[str, ExperimentView] | None = None) -> ExperimentSummary:
        """Summarise the experiment, even if its configuration is damaged.

        Args:
            stored: result of `stored_experiments`; that of `listed_experiments` if None.
        """
        newest = self.metrics_file.last()
        view = (listed_experiments() if stored is None else stored).get(self.name)
        phase = self.phase(view)
        labels = Counts(
            int(number_in(newest, "labels_asked")), int(number_in(newest, "labels_answered"))
        )
        if view is not None:
            labels = Counts(view.asked, view.answered)
        return ExperimentSummary(
            name=self.name,
            env_id=env_id_of(self),
            phase=phase,
            step=int(number_in(newest, "step")),
            labels=labels,
            clips=int(number_in(newest, "clips_sorted")),
            changed_at=(view and view.status_at) or self._opened_at,
            note="" if view is None else note_of(phase, view),
        )

    def wipe(self) -> None:
        """Delete everything but the configuration and the lock."""
        with folder_errors(self.folder):
            for path in self.folder.iterdir():
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                elif path not in (self._lock.path, self._config_path):
                    path.unlink()

    @property
    def _config_path(self) -> Path:
        return self.folder / "config.json"

    @property
    def _opened_at(self) -> datetime:
        return datetime.fromtimestamp(self._config_path.stat().st_mtime, UTC)

    def _must_start_over(self, wanted: Mapping[str, Any], stored: Mapping[str, Any] | None) -> bool:
        """Return whether a failed start is discarded; refuse another configuration.

        A start that failed before its first checkpoint does not bind the name to its configuration.
        """
        known = self.config if self._config_path.exists() else stored
        if known is None:
            self.wipe()  # what an interrupted deletion has left
            return False
        try:
            for config in filter(None, (known, stored)):
                check_same_config(self.name, config, wanted)
        except ConfigMismatch:
            if stored is not None or self.has_records:
                raise
            return True
        return False

    def _prepare(self, config: Mapping[str, Any]) -> None:
        """Write the configuration."""
        if self.starts_over:
            self.wipe()
        remove_unfinished(self.folder)
        self.checkpoints.clear_unfinished()
        write_json(self._config_path, as_json(config))


def experiment_names() -> list[str]:
    """Return the names of existing experiments, sorted."""
    names = (path.parent.name for path in experiments_folder().glob("*/config.json"))
    return sorted(name for name in names if is_valid_name(name))


def find_source(
    name_or_path: str,
    is_source: Callable[[Path], bool],
    needed: str,
) -> Path:
    """Return the folder of an experiment, or another path, that a user named.

    Args:
        name_or_path: name of an experiment, which takes precedence, or a path.
        is_source: whether a folder or a file has what is needed.
        needed: what may be named, for the error text.

    Raises:
        BadInput: neither the experiment nor the path has it, or they do not exist.
    """
    name = normalise_experiment_name(name_or_path)
    folders = [experiments_folder() / name] if is_valid_name(name) else []
    for path in (*folders, user_path(name_or_path)):
        with suppress(OSError):  # such as a name that is too long for the file system
            if is_source(path):
                return path
    hint = "" if name in experiment_names() else f" {not_found_message(name)}"
    raise BadInput(f"{name_or_path!r} was given; {needed} is needed.{hint}")


def not_found_message(name: str) -> str:
    """Return an error message for a missing experiment, with the nearest name.

    The store may have experiments of other homes.
    """
    names = sorted({*experiment_names(), *listed_experiments()})
    if not names:
        return f"There is no experiment called {name!r}, nor any other yet, in {home()}."
    return str(UnknownName("experiment", name, names))


def stored_experiments() -> dict[str, ExperimentView]:
    """Return the experiments in the store by name.

    Metrics have only the labels that the trainer has read, and start with training.

    Raises:
        StoreUnavailable: the store cannot be read.
    """
    from rl_teacher.store.database import as_url, file_of  # noqa: PLC0415 - slow

    file = file_of(as_url(database_url()))
    # Opening a store creates its database.
    if file is not None and not file.exists():
        return {}
    with open_store() as store:
        return {each.name: each for each in store.experiments.all()}


def listed_experiments() -> dict[str, ExperimentView]:
    """Return `stored_experiments`, empty if the store cannot be read: for display only."""
    try:
        return stored_experiments()
    except StoreUnavailable:
        return {}


def is_of_wrapper(view: ExperimentView) -> bool:
    """Return whether a wrapper trains the experiment: only wrappers store the spaces."""
    return "spaces" in view.config


def note_of(phase: Phase, view: ExperimentView) -> str:
    """Return what the run waits for, or why it does not continue; empty if it goes on."""
    status = view.status or {}
    if phase is Phase.FAILED:
        return str(status.get("message") or "")
    if phase is Phase.LOST:
        # The command of a wrapper's program may give no name, and then starts another experiment.
        what = "a wrapper with its name" if is_of_wrapper(view) else "its command"
        return f"killed: {what} continues from the last checkpoint"
    since = status.get("waiting_since")
    if phase is Phase.WAITING and isinstance(since, str):
        moment = datetime.fromisoformat(since).astimezone()
        return f"waits for labels since {moment:%H:%M:%S}: {status.get('message')}"
    return ""


def env_id_of(experiment: Experiment) -> str:
    """Return the environment id in the configuration, `?` if it cannot be read."""
    try:
        config = experiment.config
    except CorruptCheckpoint:
        return "?"
    return str(config.get("env_id", "?"))


def as_json(config: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a configuration to JSON types: tuples to lists, paths and enums to text."""
    return json.loads(json.dumps(config, default=str))


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file of a run folder, which survives a power failure."""
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    write_atomically(path, text.encode(), is_synced=True)
