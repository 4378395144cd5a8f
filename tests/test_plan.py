"""Plans of runs: what is refused, what is ignored, and that every setting has an effect."""

import ast
import dataclasses
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import get_args

import pytest

import rl_teacher
from rl_teacher.common.errors import BadConfig, SegmentTooLong
from rl_teacher.config.agents import PPOConfig, SACConfig
from rl_teacher.config.experiment import (
    AGENT_SECTIONS,
    DEFAULT_STEPS,
    UNLIMITED_STEPS,
    PageOptions,
    PredictorConfig,
    RunOptions,
    TeachConfig,
    last_step,
)
from rl_teacher.config.fields import fields_of
from rl_teacher.envs.registry import get_env_info
from rl_teacher.plan import (
    AgentPlan,
    LabelPlan,
    LearningPlan,
    RunPlan,
    limited_segment_steps,
    resolve,
)
from rl_teacher.wrappers.settings import WrapperPlan, resolve_wrapper, settings_of

SYNTH = TeachConfig("ShortHopper-v1", "synth", name="test", n_labels=40)
RL = TeachConfig("ShortHopper-v1", "rl", name="test")
HUMAN = replace(SYNTH, predictor="human")
IMAGES = replace(SYNTH, env_id="MovingDot-v0")
SORT = replace(SYNTH, queries="sort", n_labels=None, n_clips=10).with_label_budget()
HYPERBOLIC = replace(SYNTH, schedule="hyperbolic")
SAC = replace(SYNTH, agent="sac")
FROZEN = replace(RL, predictor=None, predictor_path="saved")
CARTPOLE = replace(SYNTH, env_id="CartPole-v1")
CNN = replace(IMAGES, reward=PredictorConfig(image_encoder="small"))
AGENTS = [replace(RL, agent=name) for name in ("trpo", "a2c", "ga3c", "sac", "sb3:TD3")]
BASES = [SYNTH, RL, HUMAN, IMAGES, SORT, HYPERBOLIC, SAC, FROZEN, CARTPOLE, CNN, *AGENTS]
IMAGE_AGENTS = [replace(IMAGES, agent=name) for name in ("ppo", "a2c", "ga3c")]


@cache
def info(env_id):
    return get_env_info(env_id)


def plan_of(config, defaults=None, **options):
    return resolve(config, RunOptions(**options), info(config.env_id), defaults)


def ignored(config, **options):
    lines = [text for text in plan_of(config, **options).warnings if text.startswith("ignored")]
    return lines[0] if lines else ""


@pytest.mark.parametrize(
    ("config", "named"),
    [
        (replace(RL, n_labels=3), "-p rl"),
        (replace(RL, collect_only=True), "-p rl"),
        (replace(RL, labels="saved"), "-p rl"),
        (replace(RL, predictor=None), "source of rewards"),
        (replace(SYNTH, predictor=None, labels="saved"), "source"),
        (replace(SYNTH, pretrain_labels=41), "--pretrain-labels 41"),
        (replace(SYNTH, n_labels=None, schedule="annealed"), "--schedule annealed"),
        (replace(SYNTH, n_labels=None, collect_only=True), "-l"),
        (replace(SORT, n_labels=46), "--n-clips 10"),
        (replace(HUMAN, teacher="backflip"), "--teacher backflip"),
    ],
)
def test_what_would_change_who_teaches_is_refused(config, named):
    with pytest.raises(BadConfig, match=named):
        plan_of(config)


@pytest.mark.parametrize(
    ("config", "options", "flags"),
    [
        (replace(SYNTH, sac=SACConfig(gamma=0.1)), {}, ["--sac.gamma 0.1"]),
        (replace(SYNTH, frame_size=30, colour=True), {}, ["--frame-size 30", "--colour"]),
        (replace(IMAGES, ppo=PPOConfig(image_encoder="small", hidden=(8,))), {}, ["--ppo.hidden"]),
        (replace(RL, fit="async", reward=PredictorConfig(l2=1.0)), {}, ["--fit async", "l2"]),
        (replace(SYNTH, hide_episode_ends=True), {}, ["--hide-episode-ends"]),
        (replace(SYNTH, clip_reward=1.0, hyperbolic_steps=9), {}, ["--clip-reward", "hyperbolic"]),
        (replace(SYNTH, n_clips=4, null_action_clip=True), {}, ["--n-clips 4", "--null-action"]),
        (replace(SYNTH, schedule="upfront", pretrain_labels=9), {}, ["--pretrain-labels 9"]),
        (SYNTH, {"instructions": "Run.", "overlap": 0.1}, ["--instructions Run.", "--overlap"]),
        (SYNTH, {"port": 9, "no_browser": True}, ["--port 9", "--no-browser"]),
        (replace(SYNTH, collect_only=True), {"videos": True}, ["--videos"]),
    ],
)
def test_setting_without_effect_is_named_in_one_warning(config, options, flags):
    line = ignored(config, **options)
    assert line.endswith(")")
    assert all(flag in line for flag in flags)


@pytest.mark.parametrize("config", [*BASES, *IMAGE_AGENTS], ids=str)
def test_defaults_and_presets_are_not_reported_as_ignored(config):
    assert ignored(config) == ""
    changed = replace(config, ppo=PPOConfig(gamma=0.9), frame_size=9)
    assert "ignored" not in " ".join(plan_of(changed, defaults=changed).warnings)


def test_default_clip_longer_than_the_episode_is_shortened_with_a_warning():
    reacher = info("ShortReacher-v1")
    warnings: list[str] = []
    assert limited_segment_steps(99, reacher, None, warnings) == reacher.max_episode_steps
    assert len(warnings) == 1
    with pytest.raises(SegmentTooLong, match="--clip-length 9"):
        plan_of(replace(SYNTH, env_id="ShortReacher-v1", clip_length=9.0))


@pytest.mark.parametrize(
    ("changes", "fraction"),
    [({}, 1.0), ({"agent": "sac"}, 0.5), ({"agent": "sac", "schedule_fraction": 0.8}, 0.8)],
)
def test_sac_has_its_labels_after_half_of_the_steps_by_default(changes, fraction):
    labels = plan_of(replace(SYNTH, **changes)).labels
    assert labels is not None
    assert labels.fraction == fraction


@pytest.mark.parametrize(
    ("config", "rewards", "asks"),
    [(RL, "true", False), (FROZEN, "frozen", False), (SYNTH, "learned", True)],
)
def test_source_of_rewards_follows_from_predictor_and_labels(config, rewards, asks):
    plan = plan_of(config)
    assert (plan.rewards, plan.labels is not None) == (rewards, asks)


def test_wrapper_fits_given_labels_once_and_asks_only_if_wanted():
    env_info = info("CartPole-v1")
    for keywords, total in (({}, 0), ({"n_labels": 8}, 8), ({"teacher": "oracle"}, None)):
        plan = resolve_wrapper(settings_of({"labels": [], **keywords}), env_info)
        assert plan.learning is not None
        assert plan.learning.labels.total == total


def test_wrapper_warns_of_keywords_without_effect(caplog):
    resolve_wrapper(settings_of({"agent": "sac", "frame_size": 3}), info("CartPole-v1"))
    assert "ignored: agent='sac', frame_size=3" in caplog.text


# --- every setting ---

OTHER_VALUES = {
    "env_id": "ShortReacher-v1",
    "agent": "trpo",
    "teacher": "noisy",
    "teacher_strength": 0.5,
    "labels": "other",
    "predictor_path": "other",
    "agent_path": "other",
    "held_out": "other",
    "physics": "warp",
    "clip_length": 1.0,
    "agent_reset": 0.6,
    "pretrain_labels": 13,
    "n_labels": 24,
    "num_timesteps": 4_000_000,
    "schedule_fraction": 0.3,
    "cluster": "local",
    "arguments": ("a=1",),
    "n_clips": 12,
    "workers": 2,
}
WITH = {
    "n_clips": {},
    "port": {"serve": True},
    "host": {"serve": True},
    "no_browser": {"serve": True},
}


def other(name, field):
    """Return a value of a setting that is not its default."""
    default = field.get_default(call_default_factory=True)
    if name in OTHER_VALUES:
        return OTHER_VALUES[name]
    choices = [
        value
        for part in (field.annotation, *get_args(field.annotation))
        for value in get_args(part)
    ]
    words = [value for value in choices if isinstance(value, str) and value != default]
    if words:
        return words[-1]
    if isinstance(default, bool):
        return not default
    if isinstance(default, tuple):
        return (7,)
    if isinstance(default, int):
        return default + 1
    return 0.5 if not isinstance(default, str) else "other"


def effects(change, bases, **options):
    """Return whether a change of settings changes the plan of each base."""
    found = []
    for config in bases:
        try:
            after = change(config)
            before_plan, after_plan = plan_of(config, **options), plan_of(after, **options)
        except BadConfig:
            continue
        found.append(replace(before_plan, warnings=()) != replace(after_plan, warnings=()))
    return found


OF_THEIR_OWN = (*AGENT_SECTIONS, "reward")
SETTINGS = [name for name in fields_of(TeachConfig) if name not in OF_THEIR_OWN]
SECTIONS = {name: fields_of(TeachConfig)[name].annotation for name in (*AGENT_SECTIONS, "reward")}
IN_SECTIONS = [(section, name) for section, model in SECTIONS.items() for name in fields_of(model)]


@pytest.mark.parametrize("name", SETTINGS)
def test_setting_changes_a_plan(name):
    value = other(name, fields_of(TeachConfig)[name])
    started = [replace(SYNTH, predictor_path="saved"), replace(SYNTH, labels="saved")]
    assert any(effects(lambda config: replace(config, **{name: value}), [*BASES, *started]))


@pytest.mark.parametrize(("section", "name"), IN_SECTIONS)
def test_setting_of_a_section_changes_a_plan(section, name):
    value = other(name, fields_of(SECTIONS[section])[name])

    def change(config):
        return replace(config, **{section: replace(getattr(config, section), **{name: value})})

    assert any(effects(change, [*BASES, *IMAGE_AGENTS]))


@pytest.mark.parametrize("name", [n for n in fields_of(RunOptions) if n != "force_new"])
def test_option_of_a_run_changes_a_plan(name):
    value = other(name, fields_of(RunOptions)[name])
    with_others = {"serve": True} if name in ("port", "host", "no_browser") else {}
    assert any(
        plan_of(config, **with_others) != plan_of(config, **with_others | {name: value})
        for config in BASES
    )


def attributes(*paths):
    """Return the names of all attributes that modules read."""
    return {
        node.attr
        for path in paths
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    }


def test_every_value_of_a_plan_is_used():
    package = Path(rl_teacher.__file__).parent
    modules = [
        path for path in package.rglob("*.py") if path.name not in ("plan.py", "experiment.py")
    ]
    used = attributes(*modules)
    for plan in (RunPlan, AgentPlan, LearningPlan, LabelPlan, PageOptions, WrapperPlan):
        assert {field.name for field in dataclasses.fields(plan)} <= used | {"null_action_clip"}
    for model in SECTIONS.values():
        assert {*fields_of(model)} <= used


@pytest.mark.parametrize(
    ("settings", "num_steps"),
    [
        (RL, DEFAULT_STEPS),
        (SYNTH, DEFAULT_STEPS),
        (HUMAN, UNLIMITED_STEPS),
        (replace(HUMAN, schedule="upfront"), 832_000),
        (replace(HUMAN, n_labels=None), UNLIMITED_STEPS),
        (replace(HUMAN, num_timesteps=70_000), 70_000),
    ],
)
def test_steps_of_a_person_follow_from_their_labels(settings, num_steps):
    assert plan_of(settings).num_steps == num_steps


@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        (HUMAN, 20_000),
        (replace(HUMAN, env_id="MovingDot-v0"), 2_000),
        (replace(HUMAN, env_id="Pong-v4", n_labels=None), 2_000),
    ],
)
def test_agent_with_images_trains_less_far_ahead_of_a_person(settings, steps):
    learning = plan_of(settings).learning
    assert learning is not None
    assert learning.labels.follows_labeler
    assert learning.labels.steps_between == steps


@pytest.mark.parametrize(
    ("step", "last"), [(10_000, 112_000), (300_000, 600_000), (500_000, 832_000)]
)
def test_run_ends_after_as_many_steps_as_its_40_labels_took_within_limits(step, last):
    assert last_step(step, 40) == last
