import sys
import types

import numpy as np
import pytest

from rl_teacher.clips.answer import Answer
from rl_teacher.common.errors import BadConfig, BadInput, TeacherFailed, UnknownName
from rl_teacher.teachers.registry import teacher_named
from rl_teacher.teachers.synthetic import SyntheticTeacher
from rl_teacher.teachers.teacher import TeacherContext
from tests.teachers.test_synthetic import segment

CONTEXT = TeacherContext(0.0, 1.0, np.random.default_rng(0))
GOOD, BAD = segment(2.0), segment(1.0)


@pytest.fixture
def own(monkeypatch):
    """Return a function that creates a module `own` with a given function `teacher`."""

    def make(function):
        module = types.ModuleType("own")
        setattr(module, "teacher", function)  # noqa: B010 - a module is no namespace of ours
        monkeypatch.setitem(sys.modules, "own", module)
        return teacher_named("own:teacher")

    return make


@pytest.mark.parametrize("said", [1.5, np.float32(1), "left", Answer.LEFT, 1])
def test_custom_function_may_return_answers_or_numbers(own, said):
    assert own(lambda left, right: said)(GOOD, BAD, CONTEXT) is Answer.LEFT


def test_failing_custom_function_is_named_with_error(own):
    teacher = own(lambda left, right: 1 / 0)
    with pytest.raises(TeacherFailed, match="own:teacher raised ZeroDivisionError"):
        teacher(GOOD, BAD, CONTEXT)


@pytest.mark.parametrize(
    "said", [None, "better", float("nan"), [1, 2], False, np.True_, np.array(False)]
)
def test_invalid_answer_of_custom_teacher_is_refused(own, said):
    with pytest.raises(TeacherFailed, match="It must return left, right"):
        own(lambda left, right: said)(GOOD, BAD, CONTEXT)


def test_object_that_is_no_function_is_refused(own):
    with pytest.raises(BadInput, match="own:teacher"):
        own(1.5)


def test_function_of_other_arguments_is_named_with_the_error(own):
    with pytest.raises(TeacherFailed, match="own:teacher raised TypeError"):
        own(lambda left: 0)(GOOD, BAD, CONTEXT)


@pytest.mark.parametrize("module", ["./teacher.py", "broken"])
def test_module_that_cannot_be_imported_is_refused(module, tmp_path, monkeypatch):
    (tmp_path / "broken.py").write_text("def teacher(left,")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(BadInput, match=r"cannot be imported: (TypeError|SyntaxError).*PYTHONPATH"):
        teacher_named(f"{module}:teacher")


def test_unknown_teacher_suggests_nearest_name():
    with pytest.raises(UnknownName, match="oracle"):
        teacher_named("oracel")


def test_strength_replaces_default_parameter():
    assert teacher_named("mistake", 0.3) == SyntheticTeacher(mistake=0.3)


@pytest.mark.parametrize(
    ("name", "strength"),
    [("oracle", 0.5), ("backflip", 2.0), ("mistake", 2.0), ("module:function", 0.5)],
)
def test_invalid_strength_is_refused(name, strength):
    with pytest.raises(BadConfig):
        teacher_named(name, strength)
