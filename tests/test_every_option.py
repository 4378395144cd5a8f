"""Every option of `rl-teacher teach` changes a run.

`CHANGES` has a line for each option: a run without it, the option, and what the run with it does
otherwise. An option without a line fails. Cases in which an option has no effect, and is refused,
are in tests/config/test_fields.py.
"""

import contextlib
import functools
import io
import itertools
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rl_teacher import cli
from rl_teacher.agents.registry import make_agent
from rl_teacher.cluster.pool import WorkerPool
from rl_teacher.config.experiment import RunOptions, TeachConfig
from rl_teacher.config.fields import help_of, long_options
from rl_teacher.config.presets import PresetChoice
from rl_teacher.envs.mujoco import physics, vector
from rl_teacher.envs.registry import make_vector
from rl_teacher.predictor.ensemble import RewardPredictor
from rl_teacher.predictor.inputs import InputSpace
from rl_teacher.rewards import trainer
from rl_teacher.runs.folder import Experiment, home, open_store
from rl_teacher.runs.warm_start import hash_arrays
from rl_teacher.session import PreferenceSession
from rl_teacher.teach import Outcome, TrainingLoop
from tests.cluster import clusters
from tests.conftest import NoPage
from tests.test_person_teaches import Labeler

pytestmark = pytest.mark.usefixtures("_shapes_unchecked", "_no_page")

NAMES = (f"run-{number}" for number in itertools.count())
SAVED = "saved"
"""Name of an experiment with an agent, a predictor and labels."""

TINY = "-e ShortReacher-v1 --ppo.num-envs 4 --ppo.rollout-steps 16 --ppo.hidden 4 -t 128"
RL = f"-p rl --ppo.num-epochs 1 --ppo.minibatch-size 32 --no-tensorboard {TINY}"
TRPO = (
    "-p rl -e ShortReacher-v1 -t 64 --no-tensorboard -a trpo --trpo.num-envs 4 --trpo.hidden 4 "
    "--trpo.rollout-steps 16 --trpo.num-epochs 1 --trpo.minibatch-size 32"
)
TRPO_FAR = f"{TRPO} --trpo.cg-damping 0 --trpo.target-kl 9"
A2C = "-p rl -e ShortReacher-v1 -t 40 --no-tensorboard -a a2c --a2c.num-envs 4 --a2c.hidden 4"
GA3C = (
    "-p rl -e ShortReacher-v1 -t 80 --no-tensorboard -a ga3c --ga3c.num-envs 4 --ga3c.hidden 4 "
    "--ga3c.batch-envs 2"
)
SAC = (
    "-e ShortReacher-v1 -t 64 --no-tensorboard -a sac --sac.num-envs 4 --sac.rollout-steps 4 "
    "--sac.hidden 4 --sac.minibatch-size 8 --sac.learning-starts 16 --sac.buffer-steps 100"
)
SAC_RL = f"{SAC} -p rl"
FIT = "-i 20 -c 0.5 -l 8"
SMALL = "--reward.ensemble-size 1 --reward.hidden 4"
SYNTH = f"{RL} {FIT} {SMALL} --predictor synth"
HYPERBOLIC = f"{SYNTH} -l 12 -t 512 --schedule hyperbolic"
SAC_SYNTH = f"{SAC} {FIT} {SMALL} -p synth -L 4"
HUMAN = f"{RL} {FIT} {SMALL} -l 4 -L 2 -p human"
FROZEN = f"{TINY} --no-tensorboard --predictor-path saved -t 2112"
LOGGED = f"-p rl {TINY}"
UNTUNED = "-p rl -e ShortReacher-v1 -t 64 --no-tensorboard"
CARTPOLE = f"{RL} -e CartPole-v1 -t 256"
CUSTOM = f"{UNTUNED} -t 160 -a tests.agents.test_custom:Constant"
IMAGES = "-p rl -e MovingDot-v0 -n x"
IMAGES_SYNTH = f"{IMAGES} -p synth"
IMAGES_A2C = f"{IMAGES} -a a2c"
IMAGES_GA3C = f"{IMAGES} -a ga3c"


class Change(NamedTuple):
    """Effect of an option.

    Attributes:
        base: options of a run without it.
        changed: options of a run with it.
        observe: runs with options, and returns what the option changes.
    """

    base: str
    changed: str
    observe: Callable[[str], Any]


def adds(base, given, observe):
    """Return the effect of options that are added to others."""
    return Change(base, f"{base} {given}", observe)


# --- observations ---


def execute(options, name=None):
    """Run `rl-teacher teach` and return the experiment."""
    name = name or next(NAMES)
    with contextlib.redirect_stdout(io.StringIO()):
        assert cli.main(["teach", *options.split(), "-n", name]) == 0
    return Experiment.find(name)


def arrays(options, *prefixes):
    """Return a hash of parts of the last checkpoint."""
    checkpoint = execute(options).load_checkpoint()
    assert checkpoint is not None
    found = {name: each for name, each in checkpoint.arrays.items() if name.startswith(prefixes)}
    assert found
    return hash_arrays(found)


def agent(options):
    """Return a hash of the trained networks of the agent."""
    return arrays(options, "agent/networks/")


def replay(options):
    """Return a hash of the agent's replay buffer."""
    return arrays(options, "agent/buffer/")


def predictor(options):
    """Return a hash of the fitted networks of the reward predictor."""
    return arrays(options, "rewards/predictor/networks/")


def last(name):
    """Return a function that observes a metric at the end of a run."""
    return lambda options: execute(options).metrics()[-1].get(name)


def videos(options):
    """Return whether the run has written videos."""
    return len(execute(options).videos.steps) > 0


def steps(options):
    return execute(options).summary().step


def comparisons(options):
    """Return the pairs of clips that were asked, with the steps of training before."""
    experiment = execute(options)
    with open_store() as store:
        experiment_id = store.experiments.get(experiment.name).id
        page = store.comparisons.page(experiment_id)
        return [(each.left.content_hash, each.right.content_hash) for each in page.rows], [
            each.asked_at_step for each in page.rows
        ]


def answers(options):
    experiment = execute(options)
    with open_store() as store:
        rows = store.labels.since(store.experiments.get(experiment.name).id, 0)
    return [each.answer for each in rows]


def opened(options):
    """Open the experiment of a person, without running it; return its row in the store."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrainingLoop, "run", lambda *_: Outcome(False, 0, Path()))
        experiment = execute(options)
    with open_store() as store:
        view = store.experiments.get(experiment.name)
        return view.instructions, store.experiments.assignment(view.id)


def calls(owner, method):
    """Return a function that counts the calls of a method during a run with a person."""

    def observe(options):
        num_calls, original = 0, getattr(owner, method)

        def counted(*arguments, **keywords):
            nonlocal num_calls
            num_calls += 1
            return original(*arguments, **keywords)

        name = next(NAMES)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(PreferenceSession, "wait_for_extension", lambda _: False)
            original = getattr(owner, method)
            patch.setattr(owner, method, counted)
            with Labeler(name=name) if "-p human" in options else contextlib.nullcontext():
                execute(options, name)
        return num_calls > 0 if owner is not PreferenceSession else num_calls

    return observe


def fitting_threads(options):
    """Return the names of the threads that fit the predictor."""
    names, fit = set(), trainer.fit

    def spied(*arguments, **keywords):
        names.add(threading.current_thread().name)
        return fit(*arguments, **keywords)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer, "fit", spied)
        execute(options)
    return names


def simulation_threads(options):
    """Return the numbers of threads that batches of simulations are created with."""
    found, batch = [], physics.Batch

    def spied(model, num_envs, num_threads, **keywords):
        found.append(num_threads)
        return batch(model, num_envs, num_threads, **keywords)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(physics, "Batch", spied)
        execute(options)
    return found


def simulation_physics(options):
    """Return the physics that simulations are created with, and step with MuJoCo."""
    found = []

    def spied(task, num_envs, num_threads, chosen):
        found.append(chosen)
        return physics.Simulations(task, num_envs, num_threads)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vector, "make_simulations", spied)
        execute(options)
    return found


def uses_cluster(options):
    """Return whether rollouts come from a cluster."""
    used, execute_tasks = [], WorkerPool.run

    def spied(*arguments):
        used.append(True)
        return execute_tasks(*arguments)

    with pytest.MonkeyPatch.context() as patch, clusters.environment():
        patch.setattr(WorkerPool, "run", spied)
        execute(options)
    return bool(used)


def page(options):
    """Return the addresses of pages that were served, and the links that were opened."""
    seen = []

    class Page(NoPage):
        def __init__(self, options):
            seen.append((options.host, options.port))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rl_teacher.preparation.PageService", Page)
        # Without the one-time code, which differs in each run.
        patch.setattr(
            "rl_teacher.preparation.open_in_browser",
            lambda link: seen.append(link.partition("?")[0]),
        )
        execute(options, "page")
    return seen


def folders(options):
    """Return the folders outside of the home that a run writes to, and its TensorBoard logs."""
    name = next(NAMES)
    written = [Path("written"), home() / "tensorboard" / name]
    execute(options, name)
    return [folder.exists() and any(folder.iterdir()) for folder in written]


def parsed(options):
    """Return the settings that a run is given."""
    found: list[TeachConfig] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cli, "run_teach", lambda config, *_: found.append(config) or 0)
        assert cli.main(["teach", *options.split()]) == 0
    return found[0]


def new_networks(options):
    """Return a hash of the networks that a run with images begins with: agent or predictor."""
    config = parsed(options)
    with contextlib.closing(make_vector(config.env_id, 1, frames=config.frames)) as venv:
        spaces = venv.single_observation_space, venv.single_action_space
        if config.learns:
            networks = RewardPredictor(InputSpace.from_spaces(*spaces), config.reward)
        else:
            networks = make_agent(config, venv)
        return spaces[0].shape, hash_arrays(networks.state())


def is_named(options):
    """Return whether a run has the name that is given."""
    name = "chosen" if "--name chosen" in options else next(NAMES)
    with contextlib.redirect_stdout(io.StringIO()):
        assert cli.main(["teach", *options.replace("--name chosen", "").split(), "-n", name]) == 0
    return "chosen" in {each.name for each in Experiment.all()}


def repeated(options):
    """Run twice, the second time with `options` after the first ones; return what is left.

    Returns:
        Exit code, whether the experiment was deleted and begun again, whether it was archived, and
        which parts a new one of its name begins with.
    """
    first, _, given = options.partition("AGAIN")
    experiment = execute(first)
    with open_store() as store:
        before = store.experiments.get(experiment.name).id
    arguments = ["teach", *first.split(), *given.split(), "-n", experiment.name]
    printed = io.StringIO()
    with (
        contextlib.redirect_stdout(printed),
        Path(os.devnull).open() as no_terminal,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr("sys.stdin", no_terminal)
        code = cli.main(arguments)
    kept = " ".join(printed.getvalue().split()).partition("keeps of it: ")[2].partition(".")[0]
    with open_store() as store:
        after = store.experiments.get(experiment.name).id
    config = Experiment.find(experiment.name).config
    return code, before == after, kept, config["agent_path"], config["predictor_path"]


# --- one line for each option ---


def adds_each(base, observe, section, **values):
    """Return the effects of the settings of a section on one observation of one run."""
    options = {f"--{section}.{name.replace('_', '-')}": value for name, value in values.items()}
    return {option: adds(base, f"{option} {value}", observe) for option, value in options.items()}


CHANGES: dict[str, Change] = {
    # Environment, agent and source of rewards.
    "--env-id": adds(RL, "--env-id ShortHopper-v1", agent),
    "--predictor": adds(RL, "--predictor synth", agent),
    "--agent": Change(RL, A2C.replace("-a ", "--agent "), agent),
    "--agent-path": adds(RL, f"--agent-path {SAVED}", agent),
    "--predictor-path": Change(SYNTH, f"{FROZEN} -t 128", agent),
    "--preset": adds(RL, "--preset images", agent),
    "--seed": adds(RL, "--seed 2", agent),
    "--num-timesteps": adds(RL, "--num-timesteps 256", steps),
    "--clip-reward": adds(RL, "--clip-reward 0.01", agent),
    "--hide-episode-ends": adds(CARTPOLE, "--hide-episode-ends", agent),
    "--stacked-frames": adds(IMAGES, "--stacked-frames 2", new_networks),
    "--frame-size": adds(IMAGES, "--frame-size 42", new_networks),
    "--colour": adds(IMAGES, "--colour", new_networks),
    "--agent-reset": adds(SYNTH, "--agent-reset 0.5", agent),
    # Labels.
    "--teacher": adds(SYNTH, "--teacher noisy", answers),
    "--teacher-strength": adds(f"{SYNTH} --teacher mistake", "--teacher-strength 1", answers),
    "--clip-length": adds(SYNTH, "--clip-length 1", comparisons),
    "--selector": adds(SYNTH, "--selector uniform", comparisons),
    "--candidates": adds(SYNTH, "--candidates 2", comparisons),
    "--queries": adds(SYNTH, "--queries sort", comparisons),
    "--n-clips": adds(f"{SYNTH} -l 6 --queries sort", "--n-clips 6", comparisons),
    "--null-action-clip": adds(f"{SYNTH} --queries sort", "--null-action-clip", comparisons),
    "--reuse-clips": adds(SYNTH, "--reuse-clips", comparisons),
    "--n-labels": adds(SYNTH, "--n-labels 12", answers),
    "--pretrain-labels": adds(SYNTH, "--pretrain-labels 6", comparisons),
    "--schedule": adds(SYNTH, "--schedule upfront", comparisons),
    "--hyperbolic-steps": adds(HYPERBOLIC, "--hyperbolic-steps 1", comparisons),
    "--schedule-fraction": adds(f"{SYNTH} -l 12 -t 512", "--schedule-fraction 0.1", comparisons),
    "--labels": adds(SYNTH, f"--labels {SAVED}", predictor),
    "--held-out": adds(SYNTH, f"--held-out {SAVED}", last("held_out_loss")),
    "--keep-asking": adds(FROZEN, "--keep-asking -p synth", comparisons),
    "--collect-only": Change(
        SYNTH, "-p synth -e ShortReacher-v1 -l 8 -c 0.5 --no-tensorboard --collect-only", steps
    ),
    # Fits of the reward predictor.
    "--fit": adds(SYNTH, "--fit async", fitting_threads),
    "--pretrain-iters": adds(SYNTH, "--pretrain-iters 1", last("fit_steps")),
    "--objective": adds(SYNTH, "--objective rank", predictor),
    **adds_each(
        SYNTH,
        predictor,
        "reward",
        objective="rank",
        hidden=5,
        dropout=0.5,
        learning_rate=0.1,
        batch_size=4,
        error_rate=0.3,
        segment_discount=0.5,
        l2=0.9,
        label_buffer=3,
    ),
    "--reward.ensemble-size": adds(SYNTH, "--reward.ensemble-size 2", predictor),
    "--reward.ignore-actions": adds(SYNTH, "--reward.ignore-actions", predictor),
    "--reward.reward-std": adds(SYNTH, "--reward.reward-std 9", last("predicted_return")),
    "--reward.window-steps": adds(SYNTH, "--reward.window-steps 8", agent),
    "--reward.image-encoder": adds(IMAGES_SYNTH, "--reward.image-encoder small", new_networks),
    "--reward.batch-norm": adds(
        f"{IMAGES_SYNTH} --reward.image-encoder small", "--reward.batch-norm", new_networks
    ),
    # Agents.
    **adds_each(
        RL,
        agent,
        "ppo",
        num_envs=2,
        rollout_steps=8,
        gamma=0.5,
        hidden=5,
        observation_clip=0.1,
        final_learning_rate=0.1,
        entropy_coef=0.5,
        max_grad_norm=0.01,
        minibatch_size=8,
        num_epochs=2,
        learning_rate=0.1,
        gae_lambda=0.5,
        clip_range=0.001,
    ),
    "--ppo.image-encoder": adds(IMAGES, "--ppo.image-encoder paper", new_networks),
    **adds_each(
        TRPO,
        agent,
        "trpo",
        num_envs=2,
        rollout_steps=8,
        gamma=0.5,
        hidden=5,
        observation_clip=0.1,
        target_kl=0.1,
        cg_steps=1,
        cg_damping=9,
        minibatch_size=8,
        num_epochs=2,
        learning_rate=0.1,
        gae_lambda=0.5,
    ),
    **adds_each(TRPO_FAR, agent, "trpo", line_search_steps=1, line_search_shrinkage=0.3),
    **adds_each(
        A2C,
        agent,
        "a2c",
        num_envs=2,
        rollout_steps=8,
        gamma=0.5,
        hidden=5,
        observation_clip=0.1,
        final_learning_rate=0.1,
        entropy_coef=0.5,
        max_grad_norm=0.01,
        learning_rate=0.1,
        rms_alpha=0.5,
        rms_epsilon=0.1,
        gae_lambda=0.5,
    ),
    "--a2c.image-encoder": adds(IMAGES_A2C, "--a2c.image-encoder paper", new_networks),
    **adds_each(
        GA3C,
        agent,
        "ga3c",
        num_envs=2,
        rollout_steps=8,
        gamma=0.5,
        hidden=5,
        observation_clip=0.1,
        final_learning_rate=0.1,
        entropy_coef=0.5,
        max_grad_norm=0.01,
        learning_rate=0.1,
        rms_alpha=0.5,
        rms_epsilon=0.1,
        batch_envs=4,
        rho_bar=0.5,
        c_bar=0.1,
    ),
    "--ga3c.image-encoder": adds(IMAGES_GA3C, "--ga3c.image-encoder paper", new_networks),
    **adds_each(
        SAC_RL,
        agent,
        "sac",
        num_envs=2,
        rollout_steps=8,
        learning_starts=32,
        buffer_steps=20,
        minibatch_size=4,
        updates_per_step=0.5,
        policy_delay=2,
        learning_rate=0.1,
        gamma=0.5,
        tau=0.5,
        initial_temperature=0.1,
        hidden=5,
        observation_clip=0.1,
    ),
    "--sac.no-relabel": adds(SAC_SYNTH, "--sac.no-relabel", replay),
    "--sac.no-explore": adds(SAC_SYNTH, "--sac.no-explore", agent),
    "--sac.compared-states": adds(SAC_SYNTH, "--sac.compared-states 6", agent),
    "--other.num-envs": adds(CUSTOM, "--other.num-envs 4", last("agent/place")),
    "--other.arguments": adds(CUSTOM, "--other.arguments pace=0.5", last("agent/place")),
    # The run.
    "--name": adds(RL, "--name chosen", is_named),
    "--cluster": adds(RL, "--cluster local", uses_cluster),
    "--physics": adds(RL, "--physics warp", simulation_physics),
    "--workers": adds(RL, "--workers 1", simulation_threads),
    "--videos": adds(f"{RL} -t 512", "--videos", videos),
    "--no-tensorboard": adds(LOGGED, "--no-tensorboard", folders),
    "--tensorboard-dir": adds(LOGGED, "--tensorboard-dir written", folders),
    "--media": adds(f"{RL} -t 256", "--media written", folders),
    "--checkpoint-seconds": adds(
        f"{RL} -t 256", "--checkpoint-seconds 0", calls(PreferenceSession, "save")
    ),
    "--serve": adds(RL, "--serve", page),
    "--host": adds(f"{RL} --serve", "--host 0.0.0.0", page),
    "--port": adds(f"{RL} --serve", "--port 9000", page),
    "--no-browser": adds(f"{RL} --serve", "--no-browser", page),
    "--instructions": adds(HUMAN, "--instructions Run.", opened),
    "--overlap": adds(HUMAN, "--overlap 0.5", opened),
    "--overlap-labelers": adds(f"{HUMAN} --overlap 0.5", "--overlap-labelers 3", opened),
    "--repeats": adds(HUMAN, "--repeats 0.5", opened),
    "--gold": adds(HUMAN, "--gold 0.5", opened),
    "--pace": adds(HUMAN, "--pace steps", calls(PreferenceSession, "wait_for_due_labels")),
    "--exit-when-finished": adds(
        HUMAN, "--exit-when-finished", calls(PreferenceSession, "wait_for_extension")
    ),
    "--force-new": adds(f"{RL} AGAIN", "--force-new --yes", repeated),
    "--yes": adds(f"{RL} AGAIN --force-new-agent-model", "--yes", repeated),
    **{
        option: adds(f"{SYNTH} AGAIN", f"{option} --yes", repeated)
        for option in (
            "--force-new-environment-clips",
            "--force-new-training-labels",
            "--force-new-reward-model",
            "--force-new-agent-model",
        )
    },
}
WITHOUT_EFFECT = {"--no-videos"}
"""Options whose help says that they are the default."""
OPTIONS = [
    option for owner in (TeachConfig, RunOptions, PresetChoice) for option in long_options(owner)
]
SLOW_PREFIXES = (
    *("--ppo.", "--trpo.", "--a2c.", "--ga3c.", "--sac.", "--reward."),
    *("--cluster", "--physics", "--stacked-"),
)
"""Options whose tests take three minutes together, most of it for compilation. Clusters, MuJoCo
Warp and stacked frames have tests of their own."""
REPEATABLE = (agent, replay, predictor, comparisons, answers)


@pytest.fixture(scope="module")
def _home(tmp_path_factory):
    """Home folder of all tests, with an experiment to begin with."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RL_TEACHER_HOME", str(folder))
        execute(SYNTH, SAVED)
    return folder


@pytest.fixture(autouse=True)
def _in_home(_own_home, _home, monkeypatch, tmp_path):
    monkeypatch.setenv("RL_TEACHER_HOME", str(_home))
    monkeypatch.chdir(tmp_path)


@functools.cache
def observed_without(base, observe):
    return observe(base)


@pytest.mark.parametrize(
    "option",
    [
        pytest.param(option, marks=[pytest.mark.slow] if option.startswith(SLOW_PREFIXES) else [])
        for option in OPTIONS
    ],
)
def test_option_changes_a_run(option):
    if option in WITHOUT_EFFECT:
        assert "the default" in help_of(RunOptions)["no_videos"]
        return
    change = CHANGES[option]
    assert change.changed.split().count(option) > change.base.split().count(option)
    assert observed_without(change.base, change.observe) != change.observe(change.changed)


def test_every_line_is_an_option():
    assert {*CHANGES} | WITHOUT_EFFECT == {*OPTIONS}


@pytest.mark.parametrize(
    ("base", "observe"),
    [
        pytest.param(*each, marks=[pytest.mark.slow] if " -a " in each[0] else [])
        for each in sorted(
            {(each.base, each.observe) for each in CHANGES.values() if each.observe in REPEATABLE},
            key=str,
        )
    ],
)
def test_run_without_a_change_repeats(base, observe):
    assert observed_without(base, observe) == observe(base)
