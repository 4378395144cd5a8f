"""Preparation of a run: everything that can be refused before anything is created.

`prepare` checks a configuration against the environment, this machine and earlier experiments, and
loads what the run starts from. The functions after it create what is needed before the loop.
"""

import contextlib
from dataclasses import dataclass, replace

from rl_teacher.agents.agent import Agent
from rl_teacher.agents.registry import check_agent, make_agent
from rl_teacher.clips.renderer import check_renderable, check_videos
from rl_teacher.common import runtime
from rl_teacher.common.errors import BadConfig, ExperimentNotFound
from rl_teacher.config.experiment import RunOptions, TeachConfig
from rl_teacher.datasets.given_labels import GivenLabels, given_labels
from rl_teacher.envs.check import check_environment
from rl_teacher.envs.registry import get_env_info, make_vector
from rl_teacher.plan import RunPlan, resolve
from rl_teacher.report.progress import Progress as Display
from rl_teacher.rewards.factory import named_teacher
from rl_teacher.rewards.memory import check_memory
from rl_teacher.runs.folder import Experiment, home, open_store, validate_name
from rl_teacher.runs.opening import ExperimentSpec
from rl_teacher.runs.warm_start import WarmStart, load_warm_start
from rl_teacher.store.records import Control
from rl_teacher.web.address import one_time_link
from rl_teacher.web.service_process import PageService, check_page, open_in_browser


@dataclass(frozen=True)
class PreparedRun:
    """A run whose input has been checked.

    Attributes:
        config: settings that the experiment is saved with.
        plan: plan of the run.
        warm_start: what agent and predictor start from.
        given_labels: labels that the predictor is fitted to first; None if there are none.
        length: steps and labels other than those that the experiment began with; None without any.
    """

    config: TeachConfig
    plan: RunPlan
    warm_start: WarmStart
    given_labels: GivenLabels | None
    length: Control | None


def prepare(
    config: TeachConfig, options: RunOptions, defaults: TeachConfig | None = None
) -> PreparedRun:
    """Check the input of a run, and load what it starts from; create nothing.

    Args:
        config: settings of the experiment.
        options: options of the run.
        defaults: settings before the user changed them.

    Raises:
        RlTeacherError: the input cannot be used; the text states why and what to do.
    """
    # Before the first import of JAX, which reads its settings then.
    runtime.prepare(home() / "cache" / "xla", options.workers)
    config = config.with_label_budget()
    plan = check(config, options, defaults)
    env_info = plan.env_info
    if plan.physics == "cpu" and not env_info.has_image_observations:
        runtime.prefer_cpu()
    check_machine(plan)
    config = replace(config, env_id=env_info.id, name=validate_name(config.name))
    warm_start = load_warm_start(config)
    given = given_labels(config, env_info, plan.segment_steps, force_new=options.force_new)
    if given is not None:
        check_memory(plan, len(given.dataset))
    config, length = warm_start.with_hashes(config), None
    to_plan = config
    if not options.force_new:
        # The saved configuration keeps the original numbers, and must equal the given one to
        # resume.
        config, length = split_length(config)
        to_plan = with_labels_to_collect(config, length)
    plan = replace(resolve(to_plan, options, env_info), warnings=plan.warnings)
    return PreparedRun(config, plan, warm_start, given, length)


def check(config: TeachConfig, options: RunOptions, defaults: TeachConfig | None = None) -> RunPlan:
    """Check the settings of a run before anything is created, and return its plan.

    Raises:
        BadInput: a setting is wrong; the text states what is needed.
    """
    check_agent(config)
    env_info = get_env_info(config.env_id)
    check_environment(env_info, is_shown=config.asks_a_person)
    plan = resolve(config, options, env_info, defaults)
    check_memory(plan)
    if plan.asks_a_person:
        check_renderable(env_info.id)
    if plan.learning is not None:
        named_teacher(plan.learning, env_info.id)
    return plan


def check_machine(plan: RunPlan) -> None:
    """Check what a run needs of this machine before anything is created.

    Raises:
        BadInput: videos cannot be rendered, there is no GPU for the physics, or the page cannot be
            served at its address.
    """
    if plan.page is not None:
        check_page(plan.page)
    if plan.has_videos:
        check_videos(plan.env_info.id)
    if plan.physics != "cpu":
        from rl_teacher.envs.mujoco.warp import find_gpu  # noqa: PLC0415 - optional

        find_gpu()


def stored_control(name: str) -> Control:
    """Return the owner's commands to an experiment; empty if the database does not have it."""
    with open_store() as store, contextlib.suppress(ExperimentNotFound):
        return store.experiments.control(store.experiments.get(name).id)
    return Control()


def split_length(config: TeachConfig) -> tuple[TeachConfig, Control | None]:
    """Separate an existing experiment's own settings from the length that a command gives it.

    A start that failed before its first checkpoint is not changed: it starts over.

    Returns:
        The configuration with the numbers of steps and labels that the experiment began with, and
        the given ones as a command of the owner. None if they are the same: then the numbers that
        the owner has set since, also on the page, stay.

    Raises:
        BadConfig: there are more labels but no steps left to learn from them.
    """
    experiment = Experiment.find_or_none(config.name)
    if experiment is None or not experiment.has_records:
        return config, None
    saved, done = experiment.config, experiment.summary()
    own = replace(config, num_timesteps=saved.get("num_timesteps"), n_labels=saved.get("n_labels"))
    steps, labels = config.schedule_steps, config.n_labels
    if labels is None and own.n_labels is not None:
        return config, None  # refused with the differences of the configurations
    if (steps, labels) == (own.schedule_steps, own.n_labels):
        return own, None
    if config.collect_only:
        return own, Control(target_labels=labels)
    target = stored_control(config.name).target_labels or own.n_labels or 0
    if labels is not None and config.follows_labeler:
        answered = done.labels.answered
        if answered < min(labels, target or labels):
            return own, Control(target_labels=labels)  # the last label determines the steps
        # As on the page, further labels come with as many steps as these took.
        steps = labels * done.step // max(answered, 1)
    if labels is not None and steps <= done.step:
        if labels > target:
            raise BadConfig(
                f"Experiment {config.name!r} has done all {done.step:,} steps, so that it cannot "
                "learn from more labels. Give it more steps as well, for example "
                f"-t {2 * done.step}."
            )
        # It finishes with the labels that it has.
        labels = max(min(labels, done.labels.answered), 1)
    return own, Control(target_steps=steps, target_labels=labels)


def initial_agent(config: TeachConfig, warm_start: WarmStart) -> Agent:
    """Create the agent of a run, with the state that it starts from.

    Raises:
        BadInput: it cannot be created for the environment, or the state does not fit it.
    """
    with contextlib.closing(make_vector(config.env_id, 1, frames=config.frames)) as venv:
        agent = make_agent(config, venv)
    if warm_start.agent is not None:
        agent.warm_start_from(warm_start.agent)
    return agent


def experiment_spec(config: TeachConfig, plan: RunPlan, *, force_new: bool) -> ExperimentSpec:
    """Return the identity of an experiment, and what its page shows."""
    return ExperimentSpec(
        name=config.name,
        env_info=plan.env_info,
        config=config.saved(),
        asks_a_person=plan.asks_a_person,
        max_labels=config.n_labels,
        instructions=plan.instructions,
        force_new=force_new,
    )


def with_labels_to_collect(config: TeachConfig, length: Control | None) -> TeachConfig:
    """Return the configuration with the labels that are wanted now, for a run that only collects.

    Other runs ask for these labels during training, which this one does not have.
    """
    if not config.collect_only:
        return config
    wanted = length or stored_control(config.name)
    return replace(config, n_labels=wanted.target_labels or config.n_labels)


def show_page(page: PageService, plan: RunPlan, display: Display) -> None:
    """Wait until the service listens; print the link to the page and open it."""
    link = page.link(plan.name, plan.asks_a_person)
    display.page(link)
    if plan.page is not None and not plan.page.no_browser:
        open_in_browser(one_time_link(page.address(), link))
