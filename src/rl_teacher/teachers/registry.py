"""Teachers by name, and custom teachers."""

import importlib
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from rl_teacher.clips.answer import Answer
from rl_teacher.clips.segment import Segment
from rl_teacher.common.errors import BadConfig, BadInput, TeacherFailed, UnknownName
from rl_teacher.teachers.synthetic import SYNTHETIC, SyntheticTeacher
from rl_teacher.teachers.tasks import TASKS, TaskTeacher
from rl_teacher.teachers.teacher import Teacher, TeacherContext

NAMED: dict[str, SyntheticTeacher | TaskTeacher] = {**SYNTHETIC, **TASKS}
STRENGTH_FIELDS = {
    **dict.fromkeys(("mistake", *TASKS), "mistake"),
    "noisy": "rationality",
    "skip": "skip",
    "equal": "equal",
    "myopic": "myopia",
}
"""Field that `--teacher-strength` sets, by the teacher's name."""


def teacher_named(name: str, strength: float | None = None) -> Teacher:
    """Return a synthetic teacher, a task teacher or a custom one.

    Args:
        name: `oracle`, `mistake`, ..., `backflip`, ..., or `module:function`.
        strength: parameter of the teacher; None for its default.

    Raises:
        UnknownName: there is no such teacher.
        BadInput: a custom teacher cannot be imported, or is no function.
        BadConfig: the teacher has no such parameter, or the value is out of range.
    """
    if ":" not in name and name not in NAMED:
        raise UnknownName("teacher", name, [*NAMED, "module:function"])
    if strength is None:
        return _import(name) if ":" in name else NAMED[name]
    if name not in STRENGTH_FIELDS:
        raise BadConfig(
            f"--teacher-strength {strength} was given, but the teacher {name!r} has no such "
            f"parameter. Leave it out, or choose one of {', '.join(STRENGTH_FIELDS)}."
        )
    highest = math.inf if name == "noisy" else 1.0
    if not 0 <= strength <= highest:
        raise BadConfig(
            f"--teacher-strength {strength} was given; the teacher {name!r} takes 0 to {highest}."
        )
    return replace(NAMED[name], **{STRENGTH_FIELDS[name]: strength})


def _import(path: str) -> Teacher:
    module_name, _, function_name = path.partition(":")
    try:
        function = getattr(importlib.import_module(module_name), function_name)
    except Exception as error:
        raise BadInput(
            f"The teacher {path} cannot be imported: {type(error).__name__}: {error}. It must be "
            "module:function, and the module must be on Python's path (PYTHONPATH=. for the "
            "current folder)."
        ) from error
    if not callable(function):
        raise BadInput(
            f"The teacher {path} is {function!r:.200}. It must be a function of two "
            "segments, left and right."
        )
    return custom_teacher(function, path)


def custom_teacher(function: Callable[[Segment, Segment], Any], path: str) -> Teacher:
    """Create a teacher from a function of two segments.

    Args:
        function: function of the left and the right segment. It returns an Answer or its value
            (`left`, `right`, `equal`, `cannot_tell`), or a number: positive if the left segment is
            better, negative if the right one is, 0 if neither.
        path: name for messages.
    """

    def answer(left: Segment, right: Segment, context: TeacherContext) -> Answer:  # noqa: ARG001
        try:
            result = function(left, right)
        except Exception as error:
            raise TeacherFailed(
                f"The teacher {path} raised {type(error).__name__}: {error}. All labels so far "
                "are kept. Correct the function and run the same command again."
            ) from error
        return _as_answer(path, result)

    return answer


def _as_answer(path: str, result: Any) -> Answer:
    try:
        if isinstance(result, str):
            return Answer(result)
        number = float(result)
        # False, the result of `left > right`, would count as equal; JAX and PyTorch return arrays.
        is_bool = isinstance(result, bool) or "bool" in str(getattr(result, "dtype", ""))
        if not is_bool and not math.isnan(number):
            return Answer.EQUAL if number == 0 else Answer.LEFT if number > 0 else Answer.RIGHT
    except (TypeError, ValueError):
        pass
    raise TeacherFailed(
        f"The teacher {path} answered {result!r}. It must return left, right, equal or "
        "cannot_tell, or a number: positive if the left segment is better, negative if the right "
        "one is."
    )
