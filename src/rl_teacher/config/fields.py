"""Annotations of settings: short flags, bounds, and the runs that a setting applies to."""

import ast
import inspect
import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from numbers import Integral, Real
from textwrap import dedent
from types import MappingProxyType, NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import tyro

from rl_teacher.common.errors import BadConfig

if TYPE_CHECKING:
    from rl_teacher.config.experiment import RunOptions, TeachConfig

MAX_SEED = 2**31 - 1
MAX_PORT = 65_535


def short_flag(letter: str) -> Any:
    """Give a setting a short flag beside its long one."""
    return alias(f"-{letter}")


def alias(flag: str) -> Any:
    """Give a setting another flag."""
    return tyro.conf.arg(aliases=[flag])


def _parse_whole(texts: list[str]) -> int:
    try:
        number = float(texts[0].replace("_", ""))
    except ValueError:
        number = math.nan
    if not number.is_integer():
        raise ValueError(f"{texts[0]} is not a whole number")
    return int(number)


WholeNumber = Annotated[
    int,
    tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar="INT",
        instance_from_str=_parse_whole,
        is_instance=lambda value: isinstance(value, int),
        str_from_instance=lambda value: [str(value)],
    ),
]
"""An integer that may also be written as 5e6 or 5_000_000."""

OPTIONAL_VALUES = tyro.constructors.ConstructorRegistry()


@OPTIONAL_VALUES.primitive_rule
def _optional_value(info: tyro.constructors.PrimitiveTypeInfo) -> Any:
    """Parse the type `X | None` like X, or as None.

    tyro's own rule lists None among the choices of a Literal, and its errors show Python's types.
    """
    kinds = get_args(info.type)
    if info.type_origin not in (Union, UnionType) or len(kinds) != 2 or NoneType not in kinds:
        return None
    kind = kinds[kinds[0] is NoneType]
    spec = tyro.constructors.ConstructorRegistry.get_primitive_spec(
        tyro.constructors.PrimitiveTypeInfo.make(kind, info.markers)
    )
    if isinstance(spec, tyro.constructors.UnsupportedTypeAnnotationError):
        return spec
    return replace(
        spec,
        metavar=spec.metavar if spec.choices else f"{{None}}|{spec.metavar}",
        instance_from_str=lambda texts: (
            None if texts == ["None"] else spec.instance_from_str(texts)
        ),
        is_instance=lambda value: value is None or spec.is_instance(value),
        str_from_instance=lambda value: (
            ["None"] if value is None else spec.str_from_instance(value)
        ),
    )


@dataclass(frozen=True)
class AtLeast:
    """Bound: the lowest value allowed."""

    low: float

    def allows(self, value: float) -> bool:
        """Return whether a value is within the bound; NaN never is."""
        return value >= self.low

    def __str__(self) -> str:
        return f"at least {self.low:g}"


@dataclass(frozen=True)
class Above:
    """Bound: finite numbers greater than this one."""

    low: float

    def allows(self, value: float) -> bool:
        """Return whether a value is within the bound; NaN never is."""
        return self.low < value < math.inf

    def __str__(self) -> str:
        return f"a number above {self.low:g}"


@dataclass(frozen=True)
class Between:
    """Bounds: the lowest and the highest value allowed."""

    low: float
    high: float

    def allows(self, value: float) -> bool:
        """Return whether a value is within the bounds; NaN never is."""
        return self.low <= value <= self.high

    def __str__(self) -> str:
        return f"a number from {self.low:.12g} to {self.high:.12g}"


@dataclass(frozen=True)
class RunSetup:
    """A run as far as its settings and its environment determine it.

    Attributes:
        config: the experiment, as `TeachConfig` or as `WrapperSettings`.
        options: how it is carried out, as `RunOptions`; None in a wrapper.
        env_info: properties of the environment, as `EnvInfo`.
    """

    config: Any
    options: Any
    env_info: Any

    @property
    def has_image_observations(self) -> bool:
        """True if the environment's observations are images."""
        return self.env_info.has_image_observations

    @property
    def predictor_is_convolutional(self) -> bool:
        """True if the reward predictor is a CNN."""
        return self.has_image_observations and self.config.reward.image_encoder in (
            "small",
            "paper",
        )


@dataclass(frozen=True)
class OnlyWith:
    """Condition under which a setting has an effect.

    Attributes:
        requirement: the condition in words, after "only with", for the command line.
        holds: whether a run meets it.
        in_python: the condition in words for the wrappers; empty for those that they do not have.
    """

    requirement: str
    holds: Callable[[RunSetup], bool]
    in_python: str = ""


def only_with_agent(section: str) -> OnlyWith:
    """Restrict a section of settings to the agent that reads it."""
    return OnlyWith(f"-a {section}", lambda run: run.config.agent_section == section)


IMAGES = OnlyWith(
    "image observations", lambda run: run.has_image_observations, "image observations"
)
VECTORS = OnlyWith(
    "observations that are not images",
    lambda run: not run.has_image_observations,
    "observations that are not images",
)
EARLY_ENDS = OnlyWith(
    "an environment whose episodes can end early (`rl-teacher envs` lists them)",
    lambda run: run.env_info.can_terminate,
    "an environment whose episodes can end early",
)
THREADS = OnlyWith(
    "MuJoCo tasks and Atari games, which step in threads",
    lambda run: run.env_info.backend in ("batch", "atari"),
)
WARP = OnlyWith(
    "a MuJoCo task of `rl-teacher envs` (not Gymnasium's own environments), and without --cluster",
    lambda run: run.env_info.backend == "batch" and run.options.cluster is None,
)
CLUSTER = OnlyWith(
    "-a ppo, trpo, a2c or ga3c",
    lambda run: run.config.agent in ("ppo", "trpo", "a2c", "ga3c"),
)
CONVOLUTIONS = OnlyWith(
    "image observations and --reward.image-encoder small or paper",
    lambda run: run.predictor_is_convolutional,
    "image observations and reward.image_encoder='small' or 'paper'",
)
FEATURES = OnlyWith(
    "a reward predictor that is no CNN (not --reward.image-encoder small or paper)",
    lambda run: not run.predictor_is_convolutional,
    "a predictor that is no CNN (not reward.image_encoder='small' or 'paper')",
)
ACTIONS = OnlyWith(
    "a reward predictor that can use actions (not --reward.image-encoder profiles)",
    lambda run: not (run.has_image_observations and run.config.reward.image_encoder == "profiles"),
    "a predictor that can use actions (not reward.image_encoder='profiles')",
)
MEDIA = OnlyWith(
    "clips to store: -p human, --serve, or a MuJoCo task",
    lambda run: run.options.serve or run.config.asks_a_person or run.env_info.backend == "batch",
)
NEW_AGENT = OnlyWith("a new agent (no --agent-path)", lambda run: run.config.agent_path is None)
NEW_PREDICTOR = OnlyWith(
    "a new reward predictor; the one of --predictor-path keeps its networks",
    lambda run: run.config.predictor_path is None,
    "a new predictor (no predictor_path)",
)
TRUE_REWARD = OnlyWith("-p rl", lambda run: run.config.predictor == "rl")
LABELS = OnlyWith(
    "labels to ask for (-p synth or -p human)",
    lambda run: run.config.asks,
    "labels to ask for (not with train_only or a frozen predictor)",
)
LEARNING = OnlyWith(
    "labels to ask for (-p synth or -p human) or --labels",
    lambda run: run.config.learns,
    "a predictor that learns (not with a frozen one; keep_asking=True fine-tunes it)",
)
FITS = OnlyWith(
    "fits (not --collect-only)",
    lambda run: not run.config.collect_only,
    "fits of the predictor (no collect_only)",
)
SYNTHETIC_LABELS = OnlyWith(
    "-p synth",
    lambda run: run.config.asks_synthetic_teacher,
    "labels to ask for and a synthetic teacher, by its name",
)
HUMAN_LABELS = OnlyWith("-p human", lambda run: run.config.asks_a_person, "teacher='human'")
LATER_LABELS = OnlyWith(
    "labels to ask for after the first fit (not --schedule upfront or --collect-only)",
    lambda run: run.config.asks_in_two_parts,
)
LATER_FITS = OnlyWith(
    "fits after the first one: with -p human, or labels to ask for after it (not with --schedule "
    "upfront, or --labels alone)",
    lambda run: run.config.asks_in_two_parts or run.config.asks_a_person,
)
FIRST_LABELS = OnlyWith(
    "labels to ask for during training as well (not --schedule upfront or --collect-only)",
    lambda run: run.config.asks_in_two_parts,
    "labels to ask for later as well (not with schedule='upfront', or collect_only and n_labels)",
)
PAIR_SCORES = OnlyWith(
    "--queries pairs and a fitted reward predictor (collect and --schedule upfront need "
    "--predictor-path)",
    lambda run: run.config.asks_after_fit and run.config.queries == "pairs",
    "labels to ask for, queries='pairs' and a fitted predictor (collect_only needs "
    "predictor_path; not with schedule='upfront')",
)
CANDIDATES = OnlyWith(
    "a --selector that scores pairs (not uniform)",
    lambda run: run.config.selector != "uniform",
    "a selector that scores pairs (not 'uniform')",
)
OTHER_CLIPS = OnlyWith(
    "labels to ask for before the first fit (no --predictor-path), or --queries tree or sort",
    lambda run: run.config.asks_before_fit or run.config.queries != "pairs",
    "labels to ask for before the first fit (no predictor_path), or queries='tree' or 'sort'",
)
RESETS = OnlyWith(
    "a new agent (no --agent-path), a number of labels (-l), of which fewer (-L) are asked for "
    "before training, and episodes whose early end, if any, is hidden (--hide-episode-ends)",
    lambda run: (
        not (run.config.shows_ends(run.env_info) or math.isinf(run.config.labels_before_reset))
    ),
)
EXPLORATION = OnlyWith(
    "labels to ask for before training and a new agent (no --agent-path)",
    lambda run: run.config.asks_before_training and run.config.agent_path is None,
)
NEIGHBOURS = OnlyWith(
    "exploration before the first labels (no --sac.no-explore)",
    lambda run: not run.config.sac.no_explore,
)
OVERLAP = OnlyWith("--overlap", lambda run: run.options.overlap is not None)
SORTING = OnlyWith(
    "--queries tree or sort",
    lambda run: run.config.asks and run.config.queries != "pairs",
    "queries='tree' or 'sort'",
)
HYPERBOLIC_SCHEDULE = OnlyWith(
    "--schedule hyperbolic", lambda run: run.config.asks and run.config.schedule == "hyperbolic"
)
FALLING_SCHEDULE = OnlyWith(
    "--schedule annealed or hyperbolic, and labels to ask for after the first fit",
    lambda run: (
        run.config.asks_in_two_parts and run.config.schedule_name in ("annealed", "hyperbolic")
    ),
)
TENSORBOARD = OnlyWith("TensorBoard logs", lambda run: not run.options.no_tensorboard)
VIDEOS = OnlyWith(
    "training (not --collect-only), and without --no-videos",
    lambda run: not run.config.collect_only and not run.options.no_videos,
)
NEW_CLIPS = OnlyWith("no --reuse-clips", lambda run: not run.config.reuse_clips)
REPLACES = OnlyWith(
    "--force-new, or one of the --force-new-... options",
    lambda run: run.options.force_new or run.options.archives,
)
PAGE = OnlyWith("--serve or -p human", lambda run: run.options.serve or run.config.asks_a_person)


def settings_in(owner: Any) -> Iterator[tuple[str, Any, tuple[Any, ...]]]:
    """Iterate over the fields of a dataclass, or the parameters of a function.

    Yields:
        Name, type and annotations of each.
    """
    hints = get_type_hints(owner, include_extras=True)
    hints.pop("return", None)
    for name, hint in hints.items():
        kind, *notes = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        yield name, kind, tuple(notes)


def long_options(owner: Any, prefix: str = "") -> Iterator[str]:
    """Yield the long options that a dataclass or the parameters of a function become.

    Other forms of an option count as well.
    """
    for name, kind, notes in settings_in(owner):
        if is_dataclass(kind):
            has_no_prefix = any(getattr(note, "name", None) == "" for note in notes)
            yield from long_options(kind, prefix if has_no_prefix else f"{prefix}{name}.")
        else:
            yield as_flag(prefix + name)
            aliases = (each for note in notes for each in getattr(note, "aliases", None) or ())
            yield from (each for each in aliases if each.startswith("--"))


def help_of(config: type) -> dict[str, str]:
    """Return the text below each field of a dataclass and its bases, in one line each."""
    texts: dict[str, str] = {}
    # Python does not keep these strings, so they are read from the source. Base classes come first:
    # a subclass overrides the text of a field.
    for base in reversed(config.__mro__[:-1]):
        [definition] = ast.parse(dedent(inspect.getsource(base))).body
        field_name = ""
        for statement in getattr(definition, "body", ()):
            match statement:
                case ast.AnnAssign(target=ast.Name(id=field_name)):
                    pass
                case ast.Expr(value=ast.Constant(value=str(text))) if field_name:
                    texts[field_name] = " ".join(text.split())
    return texts


def join_help_lines(owner: Any) -> None:
    """Give each field and parameter its help in one line; tyro keeps the line breaks otherwise."""
    if not is_dataclass(owner) and owner.__doc__:
        owner.__doc__ = re.sub(r"\n {8}(?=\S)", " ", inspect.cleandoc(owner.__doc__))
    for _, kind, _ in settings_in(owner):
        if is_dataclass(kind) and isinstance(kind, type):
            texts = help_of(kind)
            for each in fields(kind):
                # tyro prefers the help in the metadata of a field to the text in the source.
                each.metadata = MappingProxyType({"help": texts.get(each.name)})
            join_help_lines(kind)


def as_flag(setting: str, value: Any = None) -> str:
    """Write a setting as on the command line, with its value where one is given."""
    flag = "--" + setting.replace("_", "-")
    return flag if value is None or value is True else f"{flag} {value}"


def as_keyword(setting: str, value: Any) -> str:
    """Write a setting as in Python."""
    return f"{setting}={value!r}"


def check_bounds(
    settings: Any, prefix: str = "", spell: Callable[[str, Any], str] = as_flag
) -> None:
    """Check the fields of a dataclass against their types and bounds, but not nested ones.

    Args:
        settings: a dataclass; a tuple is checked element by element.
        prefix: name of the section in messages.
        spell: how messages write a setting with its value.

    Raises:
        BadConfig: a value has another type, is out of bounds, or is not among the choices.
    """
    for name, kind, notes in settings_in(type(settings)):
        given = getattr(settings, name)
        if not has_type(given, kind):
            spelt = spell(prefix + name, given)
            raise BadConfig(f"{spelt} was given; {type_in_words(kind)} is needed.")
        bounds = [note for note in notes if isinstance(note, AtLeast | Above | Between)]
        for value in given if isinstance(given, tuple) else (given,):
            for bound in bounds:
                if value is not None and not bound.allows(value):
                    spelt = spell(prefix + name, value)
                    raise BadConfig(f"{spelt} was given; {bound} is needed.")


def has_type(value: Any, kind: Any) -> bool:
    """Return whether a value has the annotated type of a setting; NumPy's numbers are numbers."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return has_type(value, parts[0])
    if origin in (Union, UnionType):
        return any(has_type(value, part) for part in parts)
    if origin is Literal:
        return value in parts
    if origin is tuple:
        return isinstance(value, tuple) and all(has_type(each, parts[0]) for each in value)
    if kind in (int, float):
        # bool is a subclass of int.
        number = Integral if kind is int else Real
        return isinstance(value, number) and not isinstance(value, bool)
    return kind is Any or isinstance(value, origin or kind)


IN_WORDS = {
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    str: "text",
    Callable: "a function",
    Iterable: "a sequence",
}


def type_in_words(kind: Any) -> str:
    """Describe the annotated type of a setting for messages."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return type_in_words(parts[0])
    if origin in (Union, UnionType):
        return " or ".join(type_in_words(part) for part in parts if part is not NoneType)
    if origin is Literal:
        return " or ".join(map(repr, parts))
    if origin is tuple:
        return f"a tuple, each element {type_in_words(parts[0])},"
    return IN_WORDS.get(origin or kind) or f"a {(origin or kind).__name__}"


def check_effects(
    run: RunSetup, default_config: "TeachConfig", default_options: "RunOptions"
) -> None:
    """Refuse settings that differ from their defaults and have no effect on the run.

    Args:
        run: the run, with its settings.
        default_config: settings before the command line was read, for example those of a preset.
        default_options: the same for the options of a run.

    Raises:
        BadConfig: names the setting and what it applies to.
    """
    refuse_ineffective(run.config, default_config, run)
    refuse_ineffective(run.options, default_options, run)


def refuse_ineffective(
    settings: Any,
    defaults: Any,
    run: RunSetup,
    spell: Callable[[str, Any], str] = as_flag,
    prefix: str = "",
    inherited: tuple[OnlyWith, ...] = (),
) -> None:
    """Refuse settings of one dataclass, and of its sections, that have no effect on the run.

    Args:
        settings: the dataclass.
        defaults: the same before the user changed it; settings that are equal are not checked.
        run: the run.
        spell: how messages write a setting with its value.
        prefix: name of the section in messages.
        inherited: conditions of the section, which hold for all of its fields.

    Raises:
        BadConfig: names the setting and what it applies to.
    """
    for name, _, notes in settings_in(type(settings)):
        value, default = getattr(settings, name), getattr(defaults, name)
        conditions = inherited + tuple(note for note in notes if isinstance(note, OnlyWith))
        # By the default: the value of a single setting may be a dataclass too, such as a data set.
        if is_dataclass(default):
            refuse_ineffective(value, default, run, spell, f"{prefix}{name}.", conditions)
        elif value != default:
            for condition in conditions:
                if not condition.holds(run):
                    is_flag = spell is as_flag
                    requirement = condition.requirement if is_flag else condition.in_python
                    raise BadConfig(
                        f"{spell(prefix + name, value)} was given, but it has an effect only with "
                        f"{requirement}. Leave it out."
                    )
