"""The run folder: what an experiment is, how far it came, and how it goes on.

<home>/experiments/<name>/
    config.json      what was asked for; the same name never means anything else
    checkpoints/     the last two, each whole or not there
    metrics.jsonl    one row of figures per line
    state.json       running, stopped, finished, failed
    lock             held by the process that runs it
    plot.png
"""

import json
import os
import shutil
import unicodedata
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from rl_teacher.common.errors import (
    BadExperimentName,
    ConfigMismatch,
    CorruptCheckpoint,
    ExperimentInUse,
    ExperimentNotFound,
    StoreUnavailable,
    UnknownName,
)
from rl_teacher.store.checkpoints import Checkpoint, CheckpointFiles
from rl_teacher.store.files import folder_errors, remove_unfinished, write_atomically
from rl_teacher.store.lock import FolderLock, is_locked
from rl_teacher.store.metrics_file import MetricsFile, Row

MAX_CHARACTERS = 100
MAX_BYTES = 255
FORBIDDEN_CATEGORIES = {"Cc", "Cs", "Zl", "Zp"}
"""Control characters, half characters, and what ends a line."""

ABSENT = "absent"


class State(StrEnum):
    """How an experiment stands."""

    RUNNING = "running"
    STOPPED = "stopped"
    FINISHED = "finished"
    FAILED = "failed"


@dataclass(frozen=True)
class ExperimentSummary:
    """One line of `rl-teacher runs`."""

    name: str
    env_id: str
    state: State
    step: int
    labels: int
    changed_at: datetime


def home() -> Path:
    """Where everything is kept: RL_TEACHER_HOME, or `~/.rl-teacher`."""
    return Path(os.environ.get("RL_TEACHER_HOME") or "~/.rl-teacher").expanduser()


def experiments_folder() -> Path:
    """Where the experiments are, one folder each."""
    return home() / "experiments"


def validate_name(name: str) -> str:
    """The name in Unicode's composed form, if it can be a folder's anywhere.

    Raises:
        BadExperimentName: and says which rule it breaks.
    """
    composed = unicodedata.normalize("NFC", name)
    fault = fault_of_name(composed)
    if fault:
        shown = composed if len(composed) <= 60 else composed[:60] + "..."
        raise BadExperimentName(
            f"{shown!r} cannot be the name of an experiment: {fault}. Use -n with up to "
            f"{MAX_CHARACTERS} letters, digits, spaces, dashes, dots or underscores."
        )
    return composed


def fault_of_name(name: str) -> str | None:
    """The first rule that a name breaks."""
    rules = {
        "it is empty": not name.strip(),
        "it has a slash or a backslash in it": bool({"/", "\\"} & set(name)),
        "it begins with a dot": name.startswith("."),
        "it begins or ends with a space": name != name.strip(),
        "it has control characters in it": any(
            unicodedata.category(character) in FORBIDDEN_CATEGORIES for character in name
        ),
        f"it is {len(name)} characters long": len(name) > MAX_CHARACTERS,
        f"it is more than {MAX_BYTES} bytes long": len(name.encode(errors="replace")) > MAX_BYTES,
    }
    return next((fault for fault, is_broken in rules.items() if is_broken), None)


class Experiment:
    """One named teaching effort on disk.

    `open` gives one that may be written, since it holds the lock; `find` one to read.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder
        self._lock = FolderLock(folder / "lock")
        self._checkpoints = CheckpointFiles(folder / "checkpoints")
        self._metrics = MetricsFile(folder / "metrics.jsonl")

    @classmethod
    def open(
        cls,
        name: str,
        config: Mapping[str, Any],
        force_new: bool = False,
        defaults: Mapping[str, Any] | None = None,
    ) -> "Experiment":
        """Make an experiment, or go on with the one of this name.

        Args:
            name: see `validate_name`.
            config: JSON; the same name with another one is refused.
            force_new: forget what is there. Asking whether that is meant is the caller's part.
            defaults: values of settings that an older experiment's config does not have.

        Raises:
            BadExperimentName, ConfigMismatch, ExperimentInUse, RunFolderUnusable.
        """
        name = validate_name(name)
        experiment = cls(name, experiments_folder() / name)
        with folder_errors(experiment.folder):
            experiment.folder.mkdir(parents=True, exist_ok=True)
            experiment._acquire()
            try:
                experiment._prepare(config, defaults or {}, force_new=force_new)
            except BaseException:
                experiment._lock.release()
                raise
        return experiment

    @classmethod
    def find(cls, name: str) -> "Experiment":
        """An experiment that is there, to read.

        Raises:
            ExperimentNotFound: and offers the nearest names.
        """
        name = validate_name(name)
        folder = experiments_folder() / name
        if not (folder / "config.json").exists():
            raise ExperimentNotFound(not_found_in_words(name))
        return cls(name, folder)

    @staticmethod
    def all() -> list[ExperimentSummary]:
        """Every experiment, the one that changed last first."""
        names = existing_names()
        answered = answered_in_store() if names else {}
        summaries = [Experiment.find(name).summary(answered) for name in names]
        return sorted(summaries, key=lambda summary: summary.changed_at, reverse=True)

    @property
    def config(self) -> dict[str, Any]:
        """What it was made with.

        Raises:
            CorruptCheckpoint: config.json cannot be read.
        """
        try:
            return json.loads(self._config_path.read_bytes())
        except (OSError, ValueError) as error:
            raise CorruptCheckpoint(
                f"{self._config_path} cannot be read: {error}. Put it back from a backup, or "
                "start over with --force-new."
            ) from error

    @property
    def plot_path(self) -> Path:
        """Where the picture of its curves belongs."""
        return self.folder / "plot.png"

    @property
    def state(self) -> State:
        """How it stands; one that says `running` and is held by nobody was killed."""
        if is_locked(self._lock.path):
            return State.RUNNING
        state = self._marked_state()
        return State.STOPPED if state is State.RUNNING else state

    def finish(self) -> None:
        """Note that everything was done."""
        self._mark(State.FINISHED)

    def fail(self) -> None:
        """Note that it broke off by an error."""
        self._mark(State.FAILED)

    def close(self) -> None:
        """Let others have it; without `finish` or `fail` before, it counts as stopped."""
        try:
            if self._lock.is_held and self._marked_state() is State.RUNNING:
                self._mark(State.STOPPED)
        finally:
            self._metrics.close()
            self._lock.release()

    def __enter__(self) -> "Experiment":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if isinstance(error, Exception):
                self.fail()
        finally:
            self.close()

    def save_checkpoint(
        self, step: int, arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any]
    ) -> None:
        """Keep all that the run needs to go on; the last two are kept.

        Args:
            step: environment steps taken.
            arrays: by slash path, such as `agent/policy/0`.
            meta: JSON.

        Raises:
            RunFolderUnusable: the folder is read-only or full; earlier checkpoints are untouched.
        """
        with self._writing():
            self._checkpoints.save(Checkpoint(step, dict(arrays), dict(meta)))

    def load_checkpoint(self) -> Checkpoint | None:
        """The newest checkpoint that is whole, or None before the first.

        Raises:
            CorruptCheckpoint: there are some, and each is damaged.
        """
        return self._checkpoints.load()

    def append_metrics(self, row: Mapping[str, Any]) -> None:
        """Keep one row of figures; NaN is kept as null."""
        with self._writing():
            self._metrics.append(row)

    def metrics(self) -> list[Row]:
        """Every row of figures, oldest first."""
        return self._metrics.rows()

    def truncate_metrics(self, step: int) -> None:
        """Drop the rows after `step`, so that a resumed run's curves do not double."""
        with self._writing():
            self._metrics.drop_after(step)

    def summary(self, answered: Mapping[str, int] | None = None) -> ExperimentSummary:
        """One line about it; one whose config is damaged is still listed.

        Args:
            answered: comparisons with an answer by experiment, if they have been counted already.
        """
        newest = self._metrics.last()
        answered = answered_in_store() if answered is None else answered
        return ExperimentSummary(
            name=self.name,
            env_id=env_id_of(self),
            state=self.state,
            step=newest.get("step") or 0,
            labels=answered.get(self.name, newest.get("labels_answered") or 0),
            changed_at=changed_at(self.folder),
        )

    def wipe(self) -> None:
        """Forget everything but the configuration."""
        with self._writing():
            self._metrics.close()
            for path in self.folder.iterdir():
                if path not in (self._lock.path, self._config_path):
                    remove(path)

    @property
    def _config_path(self) -> Path:
        return self.folder / "config.json"

    @property
    def _state_path(self) -> Path:
        return self.folder / "state.json"

    def _acquire(self) -> None:
        if not self._lock.acquire():
            raise ExperimentInUse(
                f"Experiment {self.name!r} is being run by {self._lock.holder}. Wait for it, end "
                "it (it saves first), or choose another name with -n."
            )
        self._lock.sign()

    def _prepare(
        self, config: Mapping[str, Any], defaults: Mapping[str, Any], *, force_new: bool
    ) -> None:
        """Make the folder what `config` asks for, or refuse before anything is touched."""
        wanted = as_json(config)
        if force_new:
            self.wipe()
        elif self._config_path.exists():
            refuse_difference(self.name, self.config, wanted, as_json(defaults))
        remove_unfinished(self.folder)
        self._checkpoints.clear_unfinished()
        self._write_json(self._config_path, wanted)
        self._mark(State.RUNNING)

    def _mark(self, state: State) -> None:
        with self._writing():
            self._write_json(self._state_path, {"state": state})

    def _marked_state(self) -> State:
        try:
            return State(json.loads(self._state_path.read_bytes())["state"])
        except (OSError, ValueError, KeyError, TypeError):
            return State.STOPPED

    def _write_json(self, path: Path, content: Mapping[str, Any]) -> None:
        text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
        write_atomically(path, text.encode(), is_synced=True)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Only whoever holds the lock writes; failures come out in words."""
        if not self._lock.is_held:
            raise RuntimeError(f"{self.name!r} was found, not opened: it can only be read")
        with folder_errors(self.folder):
            yield


def existing_names() -> list[str]:
    """The experiments that are there, in order of their names."""
    names = (path.parent.name for path in experiments_folder().glob("*/config.json"))
    return sorted(name for name in names if fault_of_name(name) is None)


def not_found_in_words(name: str) -> str:
    """What is not there, and what is like it."""
    names = existing_names()
    if not names:
        return f"There is no experiment called {name!r}, nor any other yet, in {home()}."
    return str(UnknownName("experiment", name, names))


def answered_in_store() -> dict[str, int]:
    """How many comparisons have an answer now, by experiment; none where no store can be read.

    Note: the figures of a run begin with training, its labels before that.
    """
    from rl_teacher.store.database import as_url, default_url, file_of  # noqa: PLC0415 - slow
    from rl_teacher.store.store import Store  # noqa: PLC0415 - slow

    url = default_url(home())
    try:
        file = file_of(as_url(url))
        if file is not None and not file.exists():
            return {}
        with Store.open(url) as store:
            return {each.name: each.answered for each in store.experiments.all()}
    except StoreUnavailable:
        return {}


def env_id_of(experiment: Experiment) -> str:
    """The environment, as its config names it."""
    try:
        config = experiment.config
    except CorruptCheckpoint:
        return "?"
    return str(config.get("env_id", config.get("env", "?")))


def changed_at(folder: Path) -> datetime:
    """When something in the folder was last written."""
    written = [path.stat().st_mtime for path in folder.glob("*.json*")]
    return datetime.fromtimestamp(max(written), UTC)


def as_json(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config as it comes back from its file: tuples are lists, paths and enums are text."""
    return json.loads(json.dumps(config, default=str))


def refuse_difference(
    name: str, was: Mapping[str, Any], now: Mapping[str, Any], defaults: Mapping[str, Any]
) -> None:
    """Raise ConfigMismatch with every field that differs, if any does.

    Settings that the saved config lacks count as defaults: they are newer than the experiment.
    """
    wanted = flatten(now)
    newer = {field: value for field, value in flatten(defaults).items() if field in wanted}
    lines = differences(newer | flatten(was), wanted)
    if lines:
        raise ConfigMismatch(
            f"Experiment {name!r} exists with another configuration:\n"
            + "\n".join(f"  {line}" for line in lines)
            + "\nGive the values it had to continue it, choose another name with -n, or start "
            "over with --force-new."
        )


def differences(was: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """`field: was X, now Y` for each that differs, in the order in which fields are known."""
    return [
        f"{field}: was {was.get(field, ABSENT)}, now {now.get(field, ABSENT)}"
        for field in {**was, **now}
        if was.get(field, ABSENT) != now.get(field, ABSENT)
    ]


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Every value as JSON text, by its dotted path."""
    flat: dict[str, str] = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = json.dumps(value, ensure_ascii=False)
    return flat


def remove(path: Path) -> None:
    """Delete a file, a link or a folder."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
