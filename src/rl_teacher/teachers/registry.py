"""Registry of teachers by name."""

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
    """Return a synthetic teacher, a task teacher or a custom one.

    Args:
        name: `oracle`, `mistake`, ..., `backflip`, ..., or `module:function`.
        strength: Parameter of a synthetic teacher; None for the value of B-Pref.

    Raises:
        UnknownName: There is no such teacher.
        BadConfig: The teacher has no such parameter, or the value is out of range.
    """
    if ":" in name:
        return custom_teacher(name)
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


def custom_teacher(path: str) -> Teacher:
    """Import a function of two segments, given as `module:function`.

    The function returns an Answer or its value (`left`, `right`, `equal`, `cannot_tell`), or a
    number: positive if the left segment is better, negative if the right one is, 0 if neither.
    """
    return from_function(_import(path), path)


def from_function(function: Callable[[Segment, Segment], Any], path: str) -> Teacher:
    """Wrap a function of two segments as a teacher; see `custom_teacher`.

    Args:
        function: Function of the left and the right segment.
        path: Name for messages.
    """

    def answer(left: Segment, right: Segment, circumstances: Circumstances) -> Answer:  # noqa: ARG001
        try:
            result = function(left, right)
        except Exception as error:
            raise TeacherFailed(
                f"The teacher {path} raised {type(error).__name__}: {error}. All labels so far "
                "are kept. Correct the function and run the same command again."
            ) from error
        return _as_answer(path, result)

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


def _as_answer(path: str, result: Any) -> Answer:
    if isinstance(result, str):
        try:
            return Answer(result)
        except ValueError:
            pass
    else:
        try:
            number = float(result)
        except (TypeError, ValueError):
            number = math.nan
        if not math.isnan(number):
            return Answer.EQUAL if number == 0 else Answer.LEFT if number > 0 else Answer.RIGHT
    raise TeacherFailed(
        f"The teacher {path} answered {result!r}. It must return left, right, equal or "
        "cannot_tell, or a number: positive where the left segment is better."
    )
