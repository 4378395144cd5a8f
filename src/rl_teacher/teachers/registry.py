"""Every teacher, by name."""

import importlib
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from rl_teacher.clips.answer import Answer
from rl_teacher.clips.segment import Segment
from rl_teacher.common.errors import BadConfig, BadInput, TeacherFailed, UnknownName
from rl_teacher.teachers.synthetic import SYNTHETIC, SyntheticTeacher
from rl_teacher.teachers.tasks import TASKS
from rl_teacher.teachers.teacher import Circumstances, Teacher

STRENGTH_OF = {
    "mistake": "mistake",
    "noisy": "rationality",
    "skip": "skip",
    "equal": "equal",
    "myopic": "myopia",
}


def teacher_named(name: str, strength: float | None = None) -> Teacher:
    """A synthetic teacher, a task, or the user's own function.

    Args:
        name: `oracle`, `mistake`, ..., `backflip`, ..., or `module:function`.
        strength: the one number of a synthetic teacher, if not B-Pref's.

    Raises:
        UnknownName, BadConfig: there is no such teacher, or it has no such number.
    """
    if ":" in name:
        return own_teacher(name)
    if name in TASKS and strength is None:
        return TASKS[name]
    if name in SYNTHETIC:
        return _with_strength(name, strength)
    if name in TASKS:
        raise BadConfig(f"--teacher-strength was given, but the teacher {name!r} has none.")
    raise UnknownName("teacher", name, [*SYNTHETIC, *TASKS, "module:function"])


def _with_strength(name: str, strength: float | None) -> SyntheticTeacher:
    if strength is None:
        return SYNTHETIC[name]
    if name not in STRENGTH_OF:
        raise BadConfig(f"--teacher-strength was given, but the teacher {name!r} has none.")
    highest = math.inf if name == "noisy" else 1.0
    if not 0 <= strength <= highest:
        raise BadConfig(
            f"--teacher-strength {strength} was given; the teacher {name!r} takes 0 to {highest}."
        )
    return replace(SYNTHETIC[name], **{STRENGTH_OF[name]: strength})


def own_teacher(path: str) -> Teacher:
    """A function of two segments, found by `module:function`.

    It returns an Answer or its word (`left`, `right`, `equal`, `cannot_tell`), or a number:
    positive where the left segment is better, negative where the right one is, 0 where neither.
    """
    return from_function(_import(path), path)


def from_function(function: Callable[[Segment, Segment], Any], path: str) -> Teacher:
    """A teacher from a function of two segments; see `own_teacher`.

    Args:
        function: of the left and the right segment.
        path: what it is called in messages.
    """

    def answer(left: Segment, right: Segment, circumstances: Circumstances) -> Answer:  # noqa: ARG001
        try:
            said = function(left, right)
        except Exception as error:
            raise TeacherFailed(
                f"The teacher {path} raised {type(error).__name__}: {error}. All labels so far "
                "are kept. Mend the function and run the same command again."
            ) from error
        return _as_answer(path, said)

    return answer


def _import(path: str) -> Callable[[Segment, Segment], Any]:
    module_name, _, function_name = path.partition(":")
    try:
        return getattr(importlib.import_module(module_name), function_name)
    except (ImportError, AttributeError, ValueError) as error:
        raise BadInput(
            f"The teacher {path} cannot be imported: {error}. It must be module:function, and the "
            "module must be on Python's path (PYTHONPATH=. for the current folder)."
        ) from error


def _as_answer(path: str, said: Any) -> Answer:
    if isinstance(said, str):
        try:
            return Answer(said)
        except ValueError:
            pass
    else:
        try:
            number = float(said)
        except (TypeError, ValueError):
            number = math.nan
        if not math.isnan(number):
            return Answer.EQUAL if number == 0 else Answer.LEFT if number > 0 else Answer.RIGHT
    raise TeacherFailed(
        f"The teacher {path} answered {said!r}. It must return left, right, equal or cannot_tell, "
        "or a number: positive where the left segment is better."
    )
