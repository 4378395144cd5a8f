"""Episodes of earlier agents in the database."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import bindparam, delete, func, insert, select
from sqlalchemy.exc import IntegrityError

from rl_teacher.common.files import jsonable
from rl_teacher.store.database import Database
from rl_teacher.store.sql import experiment_deleted
from rl_teacher.store.tables import Episode

OF_EXPERIMENT = Episode.experiment_id == bindparam("experiment_id")
LAST_STEP = select(func.max(Episode.step)).where(OF_EXPERIMENT)
BY_STEP = select(Episode.episode).where(OF_EXPERIMENT).order_by(Episode.step)


class Episodes:
    """The episodes that are kept of each experiment's agent, at steps spread over the run."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, experiment_id: int, episode: Mapping[str, Any]) -> None:
        """Keep an episode; one of the same step is replaced.

        Args:
            experiment_id: Experiment.
            episode: JSON with the `step`, and the content hash of the `clip`.

        Raises:
            ExperimentNotFound: The experiment was deleted.
        """
        step = int(episode["step"])
        row = {
            "experiment_id": experiment_id,
            "step": step,
            "clip_hash": episode["clip"],
            "episode": jsonable(episode),
        }
        same = delete(Episode).where(Episode.experiment_id == experiment_id, Episode.step == step)
        try:
            with self._database.writing() as connection:
                connection.execute(same)
                connection.execute(insert(Episode), row)
        except IntegrityError as error:
            raise experiment_deleted(experiment_id) from error

    def last_step(self, experiment_id: int) -> int | None:
        """Return the step of the last episode that is kept; None if there is none."""
        return self._database.scalar(LAST_STEP, experiment_id=experiment_id)

    def all(self, experiment_id: int) -> list[Mapping[str, Any]]:
        """Return the kept episodes, oldest first."""
        return [row["episode"] for row in self._database.rows(BY_STEP, experiment_id=experiment_id)]

    def drop_after(self, experiment_id: int, step: int) -> list[str]:
        """Delete the episodes of later steps, which a resumed run records again.

        Returns:
            Content hashes of their clips, which stay.
        """
        later = (
            delete(Episode)
            .where(Episode.experiment_id == experiment_id, Episode.step > step)
            .returning(Episode.clip_hash)
        )
        with self._database.writing() as connection:
            return list(connection.execute(later).scalars())
