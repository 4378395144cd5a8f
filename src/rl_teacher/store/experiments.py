"""Experiments: configuration, status, assignment policy and the owner's commands."""

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import asdict
from typing import Any, Literal

from sqlalchemy import Connection, bindparam, delete, insert, select, update
from sqlalchemy.orm import InstrumentedAttribute

from rl_teacher.common.errors import BadConfig, ConfigMismatch, ExperimentExists
from rl_teacher.common.files import jsonable
from rl_teacher.store import sql
from rl_teacher.store.database import Database
from rl_teacher.store.events import EventLog
from rl_teacher.store.labelers import OWNER, Labelers
from rl_teacher.store.records import AssignmentPolicy, Control, ExperimentView
from rl_teacher.store.tables import Credential, Experiment, ExperimentLock, Invite

ClearableSetting = Literal["seconds_between", "target_labels", "target_steps"]

MAX_OVERLAP_LABELERS = 100

EXPERIMENTS = select(
    *sql.columns_of(
        ExperimentView,
        Experiment,
        asked=Experiment.num_asked,
        answered=Experiment.num_answered,
        waiting=Experiment.num_open,
        heartbeat_at=ExperimentLock.heartbeat_at,
    )
).outerjoin(ExperimentLock, ExperimentLock.name == Experiment.name)

NEWEST_EXPERIMENTS_FIRST = EXPERIMENTS.order_by(Experiment.id.desc())

EXPERIMENT_BY_NAME = EXPERIMENTS.where(Experiment.name == bindparam("name"))

EXPERIMENT_KEY = select(
    Experiment.id, Experiment.env_id, Experiment.num_asked, Experiment.archived_at
).where(Experiment.name == bindparam("name"))


class Experiments:
    """The experiments of a store."""

    def __init__(self, database: Database, labelers: Labelers, events: EventLog) -> None:
        self._database = database
        self._labelers = labelers
        self._events = events

    def ensure(self, name: str, env_id: str, config: Mapping[str, Any]) -> int:
        """Return the id of an experiment, which is created if it does not exist.

        Environment and configuration of an experiment without comparisons are replaced; an
        archived one is restored.

        Raises:
            ConfigMismatch: The experiment has comparisons of another environment.
        """
        row = {
            "name": name,
            "env_id": env_id,
            "config": dict(config),
            "created_at": self._database.now(),
        }
        with self._database.writing() as connection:
            found = connection.execute(EXPERIMENT_KEY, {"name": name}).one_or_none()
            if found is None:
                added = insert(Experiment).returning(Experiment.id)
                return connection.execute(added, row).scalar_one()
            if found.num_asked and found.env_id != env_id:
                raise ConfigMismatch(
                    f"The store knows experiment {name!r} with environment {found.env_id}, not "
                    f"{env_id}.",
                    "Choose another name, or delete it with `rl-teacher delete`.",
                )
            if found.archived_at is not None:
                update_experiment(connection, found.id, archived_at=None)
            if not found.num_asked:
                update_experiment(connection, found.id, env_id=env_id, config=dict(config))
        return found.id

    def delete(self, name: str, *, by: str = OWNER) -> bool:
        """Delete an experiment with its comparisons and labels; clips are shared and stay.

        Returns:
            False if there is no such experiment.
        """
        by_id = self._labelers.id_of(by)
        gone = delete(Experiment).where(Experiment.name == name)
        counted = gone.returning(Experiment.num_asked, Experiment.num_answered)
        with self._database.writing() as connection:
            counts = connection.execute(counted).one_or_none()
            if counts is not None:
                details = {
                    "experiment": name,
                    "comparisons": counts.num_asked,
                    "labels": counts.num_answered,
                }
                self._events.append(connection, "delete", details, by_id)
        return counts is not None

    def rename(self, name: str, new_name: str, *, by: str = OWNER) -> None:
        """Rename an experiment; credentials and invites that are limited to it follow.

        Args:
            name: Name of the experiment.
            new_name: Its new name.
            by: Name of the owner.

        Raises:
            ExperimentExists: The new name is taken.
            ExperimentNotFound: There is no such experiment.
        """
        by_id = self._labelers.id_of(by)
        with self._database.writing() as connection:
            if connection.execute(EXPERIMENT_KEY, {"name": new_name}).one_or_none() is not None:
                raise ExperimentExists(new_name)
            experiment_id = sql.find_experiment(connection, name)
            config = connection.execute(column(Experiment.config, experiment_id)).scalar_one()
            # Configurations of wrappers contain no name.
            renamed = config | ({"name": new_name} if "name" in config else {})
            update_experiment(connection, experiment_id, name=new_name, config=renamed)
            for table in (Credential, Invite):
                of_experiment = update(table).where(table.experiment == name)
                connection.execute(of_experiment.values(experiment=new_name))
            details = {"from": name, "to": new_name}
            self._events.append(connection, "rename", details, by_id, experiment_id)

    def set_archived(self, name: str, *, is_archived: bool, by: str = OWNER) -> bool:
        """Hide an experiment from labelers, or show it again.

        Returns:
            False if it was so already.

        Raises:
            ExperimentNotFound: There is no such experiment.
        """
        by_id = self._labelers.id_of(by)
        with self._database.writing() as connection:
            experiment_id = sql.find_experiment(connection, name)
            now_archived = connection.execute(
                column(Experiment.archived_at, experiment_id)
            ).scalar_one()
            if (now_archived is not None) == is_archived:
                return False
            archived_at = self._database.now() if is_archived else None
            update_experiment(connection, experiment_id, archived_at=archived_at)
            kind = "archive" if is_archived else "restore"
            self._events.append(connection, kind, {}, by_id, experiment_id)
            return True

    def all(self) -> list[ExperimentView]:
        """Return every experiment, newest first."""
        return [ExperimentView(**row) for row in self._database.rows(NEWEST_EXPERIMENTS_FIRST)]

    def get(self, name: str) -> ExperimentView:
        """Return one experiment.

        Raises:
            ExperimentNotFound: There is no such experiment.
        """
        for row in self._database.rows(EXPERIMENT_BY_NAME, name=name):
            return ExperimentView(**row)
        raise sql.experiment_not_found(name)

    def describe(self, experiment_id: int, instructions: str, target_labels: int | None) -> None:
        """Set the instructions for labelers and the label budget.

        Raises:
            ExperimentNotFound: The experiment was deleted.
        """
        self._update(experiment_id, instructions=instructions, target_labels=target_labels)

    def set_status(self, experiment_id: int, status: Mapping[str, Any]) -> None:
        """Set the status of the trainer.

        Raises:
            ExperimentNotFound: The experiment was deleted.
        """
        self._update(experiment_id, status=jsonable(status), status_at=self._database.now())

    def set_latest_episode(self, experiment_id: int, episode: Mapping[str, Any]) -> None:
        """Set the latest episode of the agent that can be watched; the first one is kept too.

        Raises:
            ExperimentNotFound: The experiment was deleted.
        """
        shown = jsonable(episode)
        with self._database.writing() as connection:
            first = connection.execute(column(Experiment.first_episode, experiment_id)).scalar()
            columns = {"first_episode": shown} if first is None else {}
            update_experiment(connection, experiment_id, latest_episode=shown, **columns)

    def set_diagnostics(self, experiment_id: int, diagnostics: Mapping[str, Any]) -> None:
        """Set the diagnostics of the reward predictor.

        Raises:
            ExperimentNotFound: The experiment was deleted.
        """
        self._update(experiment_id, diagnostics=jsonable(diagnostics))

    def diagnostics(self, experiment_id: int) -> Mapping[str, Any] | None:
        """Return the latest diagnostics of the reward predictor; None before the first."""
        return self._database.scalar(column(Experiment.diagnostics, experiment_id))

    # --- assignment of comparisons to labelers ---

    def set_assignment(
        self, experiment_id: int, policy: AssignmentPolicy, *, by: str = OWNER
    ) -> None:
        """Set the assignment policy of future comparisons.

        Raises:
            BadConfig: See `check_assignment`.
            ExperimentNotFound: The experiment was deleted.
        """
        check_assignment(policy)
        by_id = self._labelers.id_of(by)
        with self._database.writing() as connection:
            details = changed(asdict(read_assignment(connection, experiment_id)), asdict(policy))
            update_experiment(connection, experiment_id, assignment=asdict(policy))
            if details:
                self._events.append(connection, "assignment", details, by_id, experiment_id)

    def assignment(self, experiment_id: int) -> AssignmentPolicy:
        """Return the assignment policy."""
        with self._database.reading() as connection:
            return read_assignment(connection, experiment_id)

    # --- changes by the owner ---

    def set_description(
        self, experiment_id: int, kind: Literal["instructions", "tags"], value: Any, *, by: str
    ) -> None:
        """Set the instructions for labelers, or the list of tags.

        Raises:
            ExperimentNotFound: The experiment was deleted.
        """
        by_id = self._labelers.id_of(by)
        with self._database.writing() as connection:
            attribute = getattr(Experiment, kind)
            before = {kind: connection.execute(column(attribute, experiment_id)).scalar()}
            update_experiment(connection, experiment_id, **{kind: value})
            if details := changed(before, {kind: value}):
                self._events.append(connection, kind, details, by_id, experiment_id)

    def set_control(
        self,
        experiment_id: int,
        control: Control,
        *,
        cleared: Collection[ClearableSetting] = (),
        by: str = OWNER,
    ) -> None:
        """Change the owner's commands to the trainer.

        Args:
            experiment_id: Experiment.
            control: New values; None leaves a setting unchanged.
            cleared: Settings that return to the trainer's own value. A running trainer keeps the
                value that it has.
            by: Name of the owner.

        Raises:
            ExperimentNotFound: The experiment was deleted.
        """
        by_id = self._labelers.id_of(by)
        # Cleared settings are None, and left out of the stored JSON below.
        changes: dict[str, Any] = dict.fromkeys(cleared)
        changes |= {name: value for name, value in vars(control).items() if value is not None}
        with self._database.writing() as connection:
            before = read_control(connection, experiment_id)
            kept = {name: value for name, value in (before | changes).items() if value is not None}
            columns: dict[str, Any] = {"control": kept}
            if "target_labels" in changes:
                columns["target_labels"] = changes["target_labels"]
            update_experiment(connection, experiment_id, **columns)
            # Unless it is repeated after a lost connection.
            if details := changed(before, changes):
                self._events.append(connection, "control", details, by_id, experiment_id)

    def control(self, experiment_id: int) -> Control:
        """Return the owner's commands; the state is `run` unless set."""
        with self._database.reading() as connection:
            return Control(**{"state": "run", **read_control(connection, experiment_id)})

    def _update(self, experiment_id: int, **columns: Any) -> None:
        with self._database.writing() as connection:
            update_experiment(connection, experiment_id, **columns)


def column(attribute: InstrumentedAttribute[Any], experiment_id: int) -> Any:
    """Return a query for one column of an experiment."""
    return select(attribute).where(Experiment.id == experiment_id)


def update_experiment(connection: Connection, experiment_id: int, **columns: Any) -> None:
    """Update columns of an experiment.

    Raises:
        ExperimentNotFound: The experiment was deleted.
    """
    change = update(Experiment).where(Experiment.id == experiment_id).values(columns)
    if not connection.execute(change).rowcount:
        raise sql.experiment_deleted(experiment_id)


def read_assignment(connection: Connection, experiment_id: int) -> AssignmentPolicy:
    """Return the assignment policy; the default if none was set."""
    stored = connection.execute(column(Experiment.assignment, experiment_id)).scalar()
    return AssignmentPolicy(**(stored or {}))


def read_control(connection: Connection, experiment_id: int) -> dict[str, Any]:
    """Return the settings that the owner has given."""
    return dict(connection.execute(column(Experiment.control, experiment_id)).scalar() or {})


def changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return what differs, as {name: {"from": old, "to": new}}."""
    return {
        name: {"from": before.get(name), "to": value}
        for name, value in after.items()
        if before.get(name) != value
    }


def hash_uniform(*key: object) -> float:
    """Return a number in [0, 1) that is pseudo-random and depends on the key alone.

    The same choice then results in every process and after every restart, without a shared
    generator.
    """
    text = "/".join(map(str, key))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) / 2**64


def check_assignment(policy: AssignmentPolicy) -> None:
    """Check that repeats and gold questions fit together; the settings check each range.

    Raises:
        BadConfig: They do not.
    """
    if policy.repeats + policy.gold > 1:
        raise BadConfig(
            f"repeats {policy.repeats} and gold {policy.gold} are more than 1 together. Lower one."
        )
