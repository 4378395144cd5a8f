"""Building blocks of settings: types with bounds, short flags, and sections of the help.

A setting is a field of a frozen pydantic dataclass. The text below it is its help, on the command
line and in docs/settings.md. `--help` shows the fields that have a section, `--help-all` all.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar

from cyclopts import Group, Parameter
from pydantic import ConfigDict, Field, ValidationError

from rl_teacher.common.errors import BadConfig

MAX_SEED = 2**31 - 1
MAX_PORT = 65_535

STRICT = ConfigDict(
    strict=True,
    extra="forbid",
    use_attribute_docstrings=True,
    allow_inf_nan=False,
    arbitrary_types_allowed=True,
)
"""Configuration of settings: no conversions but from a whole number to a float."""

Count = Annotated[int, Field(ge=1)]
Natural = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Seed = Annotated[int, Field(ge=0, le=MAX_SEED)]
Port = Annotated[int, Field(ge=0, le=MAX_PORT)]

WHAT = Parameter(group=Group("What", sort_key=1))
TEACHER = Parameter(group=Group("Who teaches", sort_key=2))
LABELS = Parameter(group=Group("Labels", sort_key=3))
TRAINING = Parameter(group=Group("Training", sort_key=4))
PAGE = Parameter(group=Group("Page", sort_key=5))

NEGATABLE = Parameter(negative_bool="no-")
"""Mark of a flag that a preset may switch on, so that `--no-FLAG` switches it off."""

NO_FLAG = Parameter(parse=False)
"""Mark of a setting that a command of its own sets, or a keyword in Python."""

Model = TypeVar("Model")


def short(flag: str) -> Parameter:
    """Give a setting a short flag beside its long one."""
    return Parameter(alias=flag)


def as_flag(setting: str, value: Any = None) -> str:
    """Write a setting as on the command line, with its value where one is given."""
    flag = "--" + setting.replace("_", "-")
    return flag if value is None or value is True else f"{flag} {value}"


def as_keyword(setting: str, value: Any) -> str:
    """Write a setting as in Python."""
    return f"{setting}={value!r}"


def fields_of(model: type) -> dict[str, Any]:
    """Return the fields of a settings class by name, as pydantic's `FieldInfo`."""
    return getattr(model, "__pydantic_fields__")  # noqa: B009 - unknown to the type checker


def help_of(model: type, name: str) -> str:
    """Return the text below a field; one that repeats an inherited field may have none itself."""
    texts = (
        owner.__pydantic_fields__[name].description
        for owner in model.__mro__
        if name in getattr(owner, "__pydantic_fields__", ())
    )
    return " ".join(next(filter(None, texts), "").split())


def restored(model: type[Model], saved: Mapping[str, Any]) -> Model:
    """Restore settings from JSON values: missing ones have their defaults, others are left out.

    Raises:
        BadConfig: a value has another type, or is out of bounds.
    """
    values: dict[str, Any] = {}
    for name, field in fields_of(model).items():
        if name in saved:
            value = saved[name]
            if isinstance(value, Mapping):
                value = restored(field.annotation, value)
            values[name] = tuple(value) if isinstance(value, list) else value
    return build(model, values, as_keyword)


def build(
    model: type[Model],
    given: Mapping[str, Any],
    spell: Callable[[str, Any], str] = as_flag,
    prefix: str = "",
) -> Model:
    """Create settings from those that are given, with sections as mappings.

    Args:
        model: class of the settings.
        given: values by name.
        spell: how messages write a setting with its value.
        prefix: name of the section in messages.

    Raises:
        BadConfig: a value has another type, is out of bounds, or is not among the choices.
    """
    values = {
        name: build(fields_of(model)[name].annotation, value, spell, f"{prefix}{name}.")
        if isinstance(value, Mapping)
        else value
        for name, value in given.items()
    }
    try:
        return model(**values)
    except ValidationError as error:
        wrong = error.errors()[0]
        spelt = spell(prefix + str(wrong["loc"][0]), wrong["input"])
        raise BadConfig(f"{spelt} was given. {wrong['msg']}.") from error
