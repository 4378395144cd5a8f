"""What an owner decides: how a study is run, what the trainer shall do, which answers are known."""

import math
from collections.abc import Collection, Mapping
from dataclasses import asdict
from typing import Any, Literal

from sqlalchemy import Connection, bindparam, select, update

from rl_teacher.clips.answer import Answer
from rl_teacher.common.errors import BadConfig, ComparisonNotFound, ExperimentNotFound
from rl_teacher.store.jsonable import plain
from rl_teacher.store.label_queries import MAX_ID
from rl_teacher.store.records import Control, Study
from rl_teacher.store.tables import Comparison, Experiment
from rl_teacher.store.writer import OWNER, StoreWriter

Emptiable = Literal["seconds_between", "target_labels"]

STATES = ("run", "pause", "stop")

LONGEST_INSTRUCTIONS = 20_000

MOST_LABELERS = 100

STUDY_OF = select(Experiment.study).where(Experiment.id == bindparam("experiment_id"))

CONTROL_OF = select(Experiment.control).where(Experiment.id == bindparam("experiment_id"))

FINDINGS_OF = select(Experiment.diagnostics).where(Experiment.id == bindparam("experiment_id"))


class StudyStore(StoreWriter):
    """What an owner decides about an experiment."""

    def set_study(self, experiment_id: int, study: Study, *, by: str = OWNER) -> None:
        """Say who answers what how often, from now on.

        Raises:
            BadConfig: a share that is none, or too few labelers.
            ExperimentNotFound: the experiment was deleted.
        """
        check_study(study)
        by_id = self._id_of_labeler(by)
        with self._database.writing() as connection:
            if study_of(connection, experiment_id) == study:
                self._change(connection, experiment_id, study=asdict(study))
                return
            self._change(connection, experiment_id, study=asdict(study))
            self._write_down(connection, "study", asdict(study), by_id, experiment_id)

    def study(self, experiment_id: int) -> Study:
        """Who answers what how often."""
        with self._database.reading() as connection:
            return study_of(connection, experiment_id)

    def set_control(
        self,
        experiment_id: int,
        control: Control,
        *,
        emptied: Collection[Emptiable] = (),
        by: str = OWNER,
    ) -> None:
        """Say what the trainer shall do; None leaves as it is.

        Args:
            experiment_id: whose trainer.
            control: what is wanted.
            emptied: what shall be as if the owner had never said it: a trainer that runs leaves it
                as it is, and one that is started goes by its own settings.
            by: who says so.

        Raises:
            BadConfig: a value out of range.
            ExperimentNotFound: the experiment was deleted.
        """
        check_control(control)
        by_id = self._id_of_labeler(by)
        wanted: dict[str, Any] = dict.fromkeys(emptied)
        wanted |= {name: value for name, value in vars(control).items() if value is not None}
        instructions = wanted.pop("instructions", None)
        with self._database.writing() as connection:
            before = said_of(connection, CONTROL_OF, experiment_id)
            after = {
                name: value for name, value in {**before, **wanted}.items() if value is not None
            }
            columns: dict[str, Any] = {"control": after}
            if "target_labels" in wanted:
                columns["target_labels"] = wanted["target_labels"]
            if instructions is not None:
                columns["instructions"] = instructions
            self._change(connection, experiment_id, **columns)
            if wanted:
                self._write_down(connection, "control", wanted, by_id, experiment_id)
            if instructions is not None:
                told = {"instructions": instructions}
                self._write_down(connection, "instructions", told, by_id, experiment_id)

    def control(self, experiment_id: int) -> Control:
        """What the owner wants of the trainer; what they never said is None, but for the state."""
        with self._database.reading() as connection:
            said = said_of(connection, CONTROL_OF, experiment_id)
        return Control(**{"state": "run", **said})

    def set_diagnostics(self, experiment_id: int, diagnostics: Mapping[str, Any]) -> None:
        """Say what was found out about the predictor.

        Raises:
            ExperimentNotFound: the experiment was deleted.
        """
        with self._database.writing() as connection:
            self._change(connection, experiment_id, diagnostics=plain(diagnostics))

    def diagnostics(self, experiment_id: int) -> Mapping[str, Any] | None:
        """What the trainer said last about its predictor, if it ever did."""
        with self._database.reading() as connection:
            found = connection.execute(FINDINGS_OF, {"experiment_id": experiment_id})
            return found.scalar()

    def set_gold(self, comparison_id: int, answer: Answer | None, *, by: str = OWNER) -> None:
        """Say what the answer to a comparison is, so that every labeler can be measured by it.

        Raises:
            ComparisonNotFound: it was never asked, or was deleted.
        """
        by_id = self._id_of_labeler(by)
        gold = None if answer is None else Answer(answer).value
        with self._database.writing() as connection:
            experiment_id = experiment_of(connection, comparison_id)
            change = update(Comparison).where(Comparison.id == comparison_id)
            connection.execute(change.values(gold=gold))
            told = {"comparison": comparison_id, "answer": gold}
            self._write_down(connection, "gold", told, by_id, experiment_id)

    def _change(self, connection: Connection, experiment_id: int, **columns: Any) -> None:
        change = update(Experiment).where(Experiment.id == experiment_id).values(columns)
        if not connection.execute(change).rowcount:
            raise ExperimentNotFound(deletion_in_words(experiment_id))


def study_of(connection: Connection, experiment_id: int) -> Study:
    """An experiment's study; what was never said is as it would be with one labeler."""
    return Study(**said_of(connection, STUDY_OF, experiment_id))


def said_of(connection: Connection, question: Any, experiment_id: int) -> dict[str, Any]:
    """A JSON column of an experiment; empty where it was never written."""
    return dict(connection.execute(question, {"experiment_id": experiment_id}).scalar() or {})


def experiment_of(connection: Connection, comparison_id: int) -> int:
    """Whose comparison it is.

    Raises:
        ComparisonNotFound: it was never asked, or was deleted.
    """
    found = None
    if 0 < comparison_id <= MAX_ID:
        sought = select(Comparison.experiment_id).where(Comparison.id == comparison_id)
        found = connection.execute(sought).scalar()
    if found is None:
        raise ComparisonNotFound([comparison_id])
    return found


def check_study(study: Study) -> None:
    """Refuse what is no study.

    Raises:
        BadConfig: a share that is none, or too few or too many labelers.
    """
    for name in ("overlap", "repeats", "gold"):
        share = getattr(study, name)
        if not 0 <= share <= 1:
            raise BadConfig(f"{name} must be a share between 0 and 1, not {share}.")
    if study.repeats + study.gold > 1:
        raise BadConfig(
            f"repeats {study.repeats} and gold {study.gold} are more than 1 together. Lower one."
        )
    if not 1 <= study.overlap_labelers <= MOST_LABELERS:
        raise BadConfig(
            f"overlap_labelers must be between 1 and {MOST_LABELERS}, not {study.overlap_labelers}."
        )


def check_control(control: Control) -> None:
    """Refuse what no trainer can do.

    Raises:
        BadConfig: a value out of range.
    """
    if control.state not in (None, *STATES):
        raise BadConfig(
            f"state must be one of {', '.join(STATES)}, not {str(control.state)[:80]!r}."
        )
    seconds = control.seconds_between
    if seconds is not None and not 0 < seconds < math.inf:
        raise BadConfig(f"seconds_between must be more than 0, not {seconds}.")
    if control.target_labels is not None and not 0 < control.target_labels <= MAX_ID:
        raise BadConfig(
            f"target_labels must be between 1 and {MAX_ID}, not {control.target_labels}."
        )
    if control.instructions is not None and len(control.instructions) > LONGEST_INSTRUCTIONS:
        raise BadConfig(
            f"instructions may have {LONGEST_INSTRUCTIONS} characters; these have "
            f"{len(control.instructions)}. Shorten them."
        )


def deletion_in_words(experiment_id: int) -> str:
    """What became of an experiment, and what to do."""
    return (
        f"Experiment {experiment_id} is no longer in the store: it was deleted, perhaps "
        "by --force-new in another terminal. Start this one again."
    )
