"""One benchmark job in its own process: `python -m benchmarks._ours JOB SETTINGS` (JSON).

The result is printed as one line of JSON. Other modules start it with `children.run_ours`.
"""
# MuJoCo's compiled modules come without type stubs.
# pyright: reportAttributeAccessIssue=false

import json
import os
import resource
import runpy
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks import fixed_hopper
from benchmarks.machine import cpu_model, resident_mb
from benchmarks.settings import saved_to_config
from rl_teacher.config.experiment import PhysicsBackend, PredictorConfig, RunOptions, TeachConfig

if TYPE_CHECKING:
    from rl_teacher.agents.agent import Agent
    from rl_teacher.envs.interface import StatefulVectorEnv
    from rl_teacher.predictor.inputs import InputSpace
    from rl_teacher.predictor.labels import LabelledPair
    from rl_teacher.rewards.learner import RewardLearner
    from rl_teacher.runs.folder import Experiment

Metrics = dict[str, Any]

EVALUATION_SEEDS = 10_000
"""Added to the seed of a run for its evaluation, which then shares no stream with any training."""


NODE_BYTES = 200_000_000
"""Object store of a node."""


# --- teach: one experiment ---


def teach(
    saved: Mapping[str, Any],
    workers: int | None = None,
    evaluated: int = 0,
    latest: int = 0,
    bar: float | None = None,
    cluster: str | None = None,
) -> Metrics:
    """Run a whole experiment and return its metrics.

    Args:
        saved: configuration, as returned by `TeachConfig.saved`.
        workers: threads of the physics.
        evaluated: episodes to evaluate the final deterministic policy on; only for environments
            whose episodes all have the same length.
        latest: number of the latest training episodes whose mean return is `latest_return`.
        bar: true return to reach; the result then also has the time and step of reaching it.
        cluster: Ray cluster that collects the rollouts.
    """
    import rl_teacher.envs.mujoco.vector  # noqa: F401 - imported now, so that it is not timed
    from rl_teacher.runs.folder import Experiment
    from rl_teacher.teach import teach as run

    fixed_hopper.register()
    config = saved_to_config(saved)
    start_s, start_cpu_s = time.perf_counter(), time.process_time()
    options = RunOptions(workers=workers, no_tensorboard=True, cluster=cluster)
    with processor_times() as times:
        outcome = run(config, options)
    ended_s, work_cpu_s = time.perf_counter(), time.process_time() - start_cpu_s
    if not outcome.is_finished:
        raise SystemExit(f"stopped after {outcome.step:,} of {config.num_timesteps:,} steps")
    experiment = Experiment.find(config.name)
    rows = experiment.metrics()
    work_s = ended_s - start_s
    metrics = curve_figures(rows) | {"work_s": work_s, "work_cpu_s": work_cpu_s}
    if bar is not None:
        metrics |= reached(bar, rows, work_s)
    metrics["steps_per_second_with_pretraining"] = metrics["steps"] / metrics["work_s"]
    metrics |= warm_pace((config.num_timesteps or 0) // 10, rows, times)
    if latest:
        metrics["latest_return"] = latest_return(experiment, latest)
    if evaluated:
        rewards, _ = play(config, evaluated, is_exploring=False)
        metrics["return"] = float(rewards.sum(0).mean())
        metrics["return_std"] = float(rewards.sum(0).std())
        metrics["evaluation_s"] = time.perf_counter() - ended_s
    return metrics


@contextmanager
def processor_times(
    is_enough: Callable[[Mapping[str, Any], float], bool] | None = None,
) -> Iterator[list[float]]:
    """Collect the processor time of this process at each row of metrics.

    Args:
        is_enough: True for the row and the time at which the run is to be interrupted, once.
    """
    from rl_teacher.runs.metrics_file import MetricsFile

    times: list[float] = []
    append = MetricsFile.append
    is_interrupted = False

    def timed(self: MetricsFile, row: Mapping[str, Any]) -> None:
        nonlocal is_interrupted
        times.append(time.process_time())
        append(self, row)
        if is_enough is not None and not is_interrupted and is_enough(row, times[-1]):
            is_interrupted = True
            os.kill(os.getpid(), signal.SIGINT)

    MetricsFile.append = timed
    try:
        yield times
    finally:
        MetricsFile.append = append


def learn(
    saved: Mapping[str, Any], minutes: float, goal: float | None, workers: int | None = None
) -> Metrics:
    """Train until a return or a time is reached, and return the curve.

    Args:
        saved: configuration, as returned by `TeachConfig.saved`.
        minutes: processor time, from the start of the process, after which the run ends.
        goal: mean true return of the latest 100 episodes at which it ends; None for no goal.
        workers: threads of the environments.
    """
    from rl_teacher.runs.folder import Experiment
    from rl_teacher.teach import teach as run

    config = saved_to_config(saved)

    def is_goal(row: Mapping[str, Any]) -> bool:
        known = row["true_return"]
        return goal is not None and known is not None and known >= goal

    def is_enough(row: Mapping[str, Any], seconds: float) -> bool:
        return is_goal(row) or seconds >= 60 * minutes

    with processor_times(is_enough) as times:
        run(config, RunOptions(workers=workers, no_tensorboard=True))
    rows = Experiment.find(config.name).metrics()
    timed = list(zip(rows, times, strict=True))
    points = [
        (row["step"], round(seconds), row.get("labels_answered"), row["true_return"])
        for row, seconds in timed
    ]
    return curve_figures(rows) | {
        "goal_minutes": next((seconds / 60 for row, seconds in timed if is_goal(row)), None),
        "curve": points[:: len(points) // 50 + 1] + points[-1:],
    }


def warm_pace(num_steps: int, rows: list[dict[str, Any]], times: Sequence[float]) -> Metrics:
    """Return the pace after some steps, without compilation, in wall time and processor time."""
    first = next(number for number, row in enumerate(rows) if row["step"] >= num_steps)
    steps = rows[-1]["step"] - rows[first]["step"]
    if not steps:
        return {}
    return {
        "warm_steps_per_second": steps / (rows[-1]["wall_s"] - rows[first]["wall_s"]),
        "steps_per_cpu_second": steps / (times[-1] - times[first]),
    }


def pinned(saved: Mapping[str, Any], num_nodes: int) -> Metrics:
    """Run an experiment on the first core, and on a Ray cluster of one core per node.

    Args:
        saved: configuration, as returned by `TeachConfig.saved`.
        num_nodes: nodes of the cluster, the first of which shares its core with the learner; 0:
            no cluster.
    """
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < max(num_nodes, 1):
        raise SystemExit(f"{num_nodes} cores are needed; there are {len(cores)}")
    if num_nodes == 0:
        os.sched_setaffinity(0, cores[:1])
        return teach(saved, workers=1)
    with pinned_nodes(cores[:num_nodes]) as address:
        return teach(saved, cluster=address)


@contextmanager
def pinned_nodes(cores: Sequence[int]) -> Iterator[str]:
    """Start a Ray node on each of the cores, and pin this process to the first one.

    Returns:
        The address of the cluster.
    """
    from ray.cluster_utils import Cluster

    node: dict[str, Any] = {"num_cpus": 1, "object_store_memory": NODE_BYTES}
    os.sched_setaffinity(0, cores[:1])
    cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    try:
        for core in cores[1:]:
            # The processes of a node inherit the cores of this one.
            os.sched_setaffinity(0, [core])
            cluster.add_node(**node)
        os.sched_setaffinity(0, cores[:1])
        yield str(cluster.address)
    finally:
        cluster.shutdown()


def latest_return(experiment: "Experiment", num_episodes: int) -> float | None:
    """Return the mean true return of the latest training episodes; None if there are fewer."""
    from rl_teacher.common.state_dict import part_of

    checkpoint = experiment.checkpoints.load()
    assert checkpoint is not None  # noqa: S101 - a run ends with one
    returns = part_of(checkpoint.arrays, "true")["returns"]
    return float(returns[-num_episodes:].mean()) if len(returns) >= num_episodes else None


def reached(bar: float, rows: list[dict[str, Any]], work_s: float) -> Metrics:
    """Return seconds and steps until a true return was first reached; None if it never was."""
    known = [row for row in rows if row["true_return"] is not None and row["true_return"] >= bar]
    if not known:
        return {"reached_s": None, "reached_step": None}
    # Times of rows start with training. The time before that is known only from the whole run, and
    # is unknown for a continued run.
    before_s = work_s - rows[-1]["wall_s"]
    return {"reached_s": before_s + known[0]["wall_s"], "reached_step": known[0]["step"]}


def curve_figures(rows: list[dict[str, Any]]) -> Metrics:
    """Compute the metrics of a run from its rows.

    `steady_steps_per_second` and the microseconds per step exclude the first rollout, which
    includes compilation; `final_return` is the mean of the last 100 episodes; `auc` is the mean
    over the whole training.
    """
    from rl_teacher.report.summary import area_under_curve

    first, last = rows[0], rows[-1]
    seconds = last["wall_s"] - first["wall_s"]
    return {
        "steps": last["step"],
        "train_s": last["wall_s"],
        "steps_per_second": last["step"] / last["training_s"],
        "steady_steps_per_second": (last["step"] - first["step"]) / seconds if seconds else None,
        "rollout_us_per_step": _us_per_step(first, last, "rollout_s"),
        "update_us_per_step": _us_per_step(first, last, "update_s"),
        "final_return": last["true_return"],
        "auc": area_under_curve(rows),
        "episodes": last["episodes"],
        "labels_answered": last.get("labels_answered", 0),
        "fits": last.get("fits", 0),
        "held_out_accuracy": last.get("held_out_accuracy"),
    }


def _us_per_step(first: dict[str, Any], last: dict[str, Any], field: str) -> float | None:
    steps = last["step"] - first["step"]
    return 1e6 * (last[field] - first[field]) / steps if steps else None


def play(
    config: TeachConfig, num_episodes: int, *, is_exploring: bool, seconds: float | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Run episodes of the same length with the trained agent.

    Args:
        config: of an existing experiment.
        num_episodes: N, run in parallel.
        is_exploring: whether actions are sampled; otherwise they are the most likely ones.
        seconds: time played of each episode, at the speed of clips; None for all of it.

    Returns:
        [T, N] rewards and [T, N, K] scene states of the clips (MuJoCo: qpos).
    """
    from rl_teacher.agents.collector import Collector
    from rl_teacher.envs.registry import get_env_info, make_vector

    venv = make_vector(config.env_id, num_episodes)
    agent = trained_agent(config, venv)
    info = get_env_info(config.env_id)
    horizon = info.max_episode_steps if seconds is None else round(seconds * info.fps)
    assert horizon is not None  # noqa: S101 - all environments of the suite have one
    collector = Collector(venv, seed=config.seed + EVALUATION_SEEDS)
    act = agent.act if is_exploring else partial(agent.predict, deterministic=True)
    rollout = collector.collect(act, horizon)
    venv.close()
    return rollout.rewards, rollout.scene_states


def trained_agent(config: TeachConfig, venv: "StatefulVectorEnv") -> "Agent":
    """Load the agent of the newest checkpoint."""
    from rl_teacher.agents.registry import make_agent
    from rl_teacher.common.state_dict import part_of
    from rl_teacher.runs.folder import Experiment

    checkpoint = Experiment.find(config.name).checkpoints.load()
    agent = make_agent(config, venv)
    assert checkpoint is not None  # noqa: S101 - a run ends with one
    agent.load_state(part_of(checkpoint.arrays, "agent"))
    return agent


# --- flips: backward turns of a trained Hopper ---


def flips(saved: Mapping[str, Any], num_episodes: int, seconds: float) -> Metrics:
    """Count the full turns of the agent of an existing experiment, with and without exploration.

    Args:
        saved: configuration of the experiment.
        num_episodes: episodes of each.
        seconds: time in which turns are counted, at the speed of clips.
    """
    # The episodes of ShortHopper-v1 are shorter, and otherwise the same.
    config = replace(saved_to_config(saved), env_id="Hopper-v1")
    metrics: Metrics = {}
    for name, is_exploring in (("deterministic", False), ("exploring", True)):
        _, qpos = play(config, num_episodes, is_exploring=is_exploring, seconds=seconds)
        metrics[name] = {
            "backward_turns": backward_turns(qpos[..., 2]).tolist(),
            "forward_turns": backward_turns(-qpos[..., 2]).tolist(),
            "mean_height": [float(height) for height in qpos[..., 1].mean(0)],
        }
    return metrics


def backward_turns(pitch: np.ndarray) -> np.ndarray:
    """Count the full backward turns per episode, net of forward turns.

    Args:
        pitch: [T, N] Hopper's `rooty` in radians, unwrapped. It turns about +y: forwards, towards
            +x, is positive.

    Returns:
        [N] number of turns.
    """
    furthest = (pitch[0] - pitch).max(0)
    return np.floor(furthest / (2 * np.pi) + 1e-9).astype(int)


def task_measure(saved: Mapping[str, Any], num_episodes: int) -> Metrics:
    """Measure how well an existing experiment's agent does the task of its teacher, per episode."""
    from rl_teacher.play.commands import open_actors
    from rl_teacher.play.episodes import record_episode
    from rl_teacher.play.options import PlayOptions
    from rl_teacher.teachers.tasks import TASKS

    config = saved_to_config(saved)
    first = config.seed + EVALUATION_SEEDS
    with open_actors(PlayOptions(config.name, episodes=1, seed=first)) as (actor,):
        episodes = [
            record_episode(actor, first + number, explore=False) for number in range(num_episodes)
        ]
    measure = TASKS[str(config.teacher)].measure
    return {"measure": [measure(episode.segment) for episode in episodes]}


# --- core_loop: the example ---


def core_loop(num_steps: int, num_labels: int, seed: int) -> Metrics:
    """Run examples/core_loop.py and return its mean true return of the last 100 episodes."""
    example = runpy.run_path(str(Path(__file__).parents[1] / "examples" / "core_loop.py"))
    return {"final_return": example["train"](num_steps, num_labels, seed)}


# --- controls: policies and predictors that know nothing of the task ---


def fixed_policy(env_id: str, policy: str, num_episodes: int, seed: int) -> Metrics:
    """Compute the mean true return of the policy `random` or `zero` (every action is 0)."""
    from rl_teacher.agents.collector import Collector
    from rl_teacher.agents.episode_stats import EpisodeReturns
    from rl_teacher.envs.registry import make_vector

    fixed_hopper.register()
    venv = make_vector(env_id, 16)
    collector = Collector(venv, seed=seed + EVALUATION_SEEDS)
    zeros = np.zeros((16, *(venv.single_action_space.shape or ())), venv.single_action_space.dtype)
    act = {"random": collector.random_actions, "zero": lambda _observations: zeros}[policy]
    episodes = EpisodeReturns(16, starts_at_reset=True, window=num_episodes)
    while episodes.num_finished < num_episodes:
        rollout = collector.collect(act, 32)
        episodes.observe(rollout, rollout.rewards)
    return {"final_return": episodes.mean_return(num_episodes), "episodes": num_episodes}


def uninformed(saved: Mapping[str, Any], predictor: str, workers: int | None = None) -> Metrics:
    """Train an agent on a frozen predictor: `constant` (0 everywhere) or `unfitted`."""
    import jax

    from rl_teacher.envs.registry import make_vector
    from rl_teacher.predictor.ensemble import RewardPredictor
    from rl_teacher.predictor.inputs import InputSpace

    config = saved_to_config(saved)
    venv = make_vector(config.env_id, 1)
    space = InputSpace.from_spaces(venv.single_observation_space, venv.single_action_space)
    venv.close()
    made = RewardPredictor(space, config.reward, config.seed)
    if predictor == "constant":
        made.set_networks(jax.tree.map(np.zeros_like, made.networks), made.normaliser)
    with tempfile.TemporaryDirectory() as folder:
        made.save(folder)
        return teach(replace(config, predictor_path=folder).saved(), workers)


def offline_fits(
    saved: Mapping[str, Any], variants: Mapping[str, Mapping[str, Any]], labels: list[int]
) -> Metrics:
    """Collect labels in a run, and fit predictors to some of them, as a run does.

    Args:
        saved: configuration of the run that collects the labels.
        variants: settings of the predictors, by name.
        labels: numbers of labels to fit to.

    Returns:
        Quality on the labels of the other half, by number of labels and by variant.
    """
    from rl_teacher.datasets.given_labels import labelled_pairs
    from rl_teacher.datasets.import_export import labels_in_home
    from rl_teacher.teach import teach as run

    config = saved_to_config(saved)
    run(config, RunOptions(workers=1, no_tensorboard=True))
    dataset = labels_in_home(config.name)
    space = dataset.space
    # Which half a label is in does not depend on when it was asked.
    pairs = labelled_pairs(dataset, space)
    order = np.random.default_rng(config.seed).permutation(len(pairs))
    training, test = np.array_split(order, 2)
    fits = {
        num: {
            name: fitted_quality(
                [pairs[each] for each in sorted(training[:num])],
                [pairs[each] for each in test],
                space,
                saved_to_config({**saved, "reward": settings}),
            )
            for name, settings in variants.items()
        }
        for num in labels
    }
    return {"fits": fits}


def fitted_quality(
    training: list["LabelledPair"],
    test: list["LabelledPair"],
    space: "InputSpace",
    config: TeachConfig,
) -> Metrics:
    """Fit a predictor as labels arrive, and compare it with the true reward on other labels.

    The first fit has a quarter of the labels.
    """
    from rl_teacher.plan import LabelPlan, LearningPlan
    from rl_teacher.predictor.ensemble import RewardPredictor
    from rl_teacher.predictor.labels import LabelSet
    from rl_teacher.rewards.trainer import PredictorTrainer

    length = max(len(side) for pair in [*training, *test] for side in (pair.left, pair.right))
    learning = LearningPlan(
        predictor=config.reward,
        seed=config.seed,
        segment_steps=length,
        shows_ends=False,
        first_fit_steps=config.pretrain_iters,
        fits_in_background=False,
        labels=LabelPlan(),
    )
    trainer = PredictorTrainer(learning, space)
    predictor = RewardPredictor(space, config.reward)
    for number, pair in enumerate(training, 1):
        trainer.labels.add(pair)
        is_last = number == len(training)
        if number >= len(training) // 4 and (fitted := trainer.fit_if_due(force=is_last)):
            predictor.set_networks(fitted.networks, fitted.normaliser)
    trainer.close()
    others = LabelSet(length, space, config.reward.ensemble_size, config.seed)
    for pair in test:
        others.add(pair)
    is_step, true = others.weights > 0, others.true_rewards
    members = predictor.member_rewards(others.rows)
    predictor.recent.update(members[:, is_step])
    predicted = predictor.normalised(members)
    returns, true_returns = ((each * is_step).sum(-1) for each in (predicted, true))
    is_decided = others.targets != 0.5
    is_left = returns[:, 0] > returns[:, 1]
    return {
        "step_correlation": float(np.corrcoef(predicted[is_step], true[is_step])[0, 1]),
        "return_correlation": float(np.corrcoef(returns.ravel(), true_returns.ravel())[0, 1]),
        "accuracy": float(np.mean((is_left == (others.targets > 0.5))[is_decided])),
        "fit_steps": trainer.num_fit_steps,
    }


# --- physics: upper limit of the speed ---


def physics(env_id: str, num_envs: int, seconds: float) -> Metrics:
    """Measure the steps/s of MuJoCo's batch alone, with random controls and resets."""
    import os

    from mujoco.batch import Batch

    from rl_teacher.envs.mujoco.physics import load_model, quiet_mujoco
    from rl_teacher.envs.mujoco.suite import TASKS

    task = TASKS[env_id]
    model = load_model(task)
    batch = Batch(model, num_envs, os.cpu_count() or 1)
    qpos, qvel, ctrl = batch.bind("qpos"), batch.bind("qvel"), batch.bind("ctrl")
    start, (low, high) = qpos.copy(), model.actuator_ctrlrange.T
    rng = np.random.default_rng(0)
    num_steps, start_s = 0, time.perf_counter()
    while time.perf_counter() - start_s < seconds:
        ctrl[:] = rng.uniform(low, high, ctrl.shape)
        with quiet_mujoco():
            batch.step(nstep=task.body.frame_skip)
        restarts = rng.random(num_envs) < 0.03
        qpos[restarts], qvel[restarts] = start[restarts], 0.0
        num_steps += num_envs
    return {"steps_per_second": num_steps / (time.perf_counter() - start_s)}


def environments(env_id: str, num_envs: int, seconds: float, backend: PhysicsBackend) -> Metrics:
    """Measure the steps/s of our vector environments, with random actions and resets."""
    from rl_teacher.envs.registry import make_vector

    envs = make_vector(env_id, num_envs, physics=backend)
    envs.reset(seed=0)
    rng, space = np.random.default_rng(0), envs.action_space
    # Drawn before the measurement, and repeated.
    actions = cycle([rng.uniform(space.low, space.high) for _ in range(16)])

    def take_steps() -> int:
        envs.step(next(actions))
        return num_envs

    take_steps()  # compiles kernels
    return {"device": device_name(backend), **paced(take_steps, seconds)}


def device_name(backend: PhysicsBackend) -> str:
    """Return the name of the device that steps the simulations."""
    if backend == "cpu":
        return cpu_model()
    from rl_teacher.envs.mujoco.warp import find_gpu, import_warp

    device = import_warp()[0].get_device(find_gpu())
    return device.name if device.is_cuda else cpu_model()


# --- Atari: our environments and ALE alone ---


def emulators(rom: str, num_envs: int, seconds: float) -> Metrics:
    """Measure the steps/s of ALE's own vector environment with random actions."""
    from ale_py.vector_env import AtariVectorEnv

    envs = AtariVectorEnv(rom, num_envs)
    envs.reset(seed=0)
    rng = np.random.default_rng(0)
    num_actions = len(envs.ale.get_action_set())

    def take_steps() -> int:
        envs.step(rng.integers(0, num_actions, num_envs))
        return num_envs

    return paced(take_steps, seconds)


def atari(env_id: str, num_envs: int, seconds: float, rollout_steps: int) -> Metrics:
    """Measure the steps/s of our Atari environments, with rollouts and clip recording."""
    from rl_teacher.agents.collector import Collector
    from rl_teacher.clips.recorder import Recorder
    from rl_teacher.envs.registry import make_vector

    envs = make_vector(env_id, num_envs)
    collector = Collector(envs, seed=0)
    # The capacity is minimal, so that first writes to memory do not dominate the measurement.
    recorder = Recorder(env_id, segment_steps=25, capacity=2 * rollout_steps)

    def take_steps() -> int:
        recorder.observe(collector.collect(collector.random_actions, rollout_steps))
        return num_envs * rollout_steps

    for _ in range(3):
        take_steps()
    return paced(take_steps, seconds)


def paced(take_steps: Callable[[], int], seconds: float) -> Metrics:
    """Measure the steps/s of a function that returns the number of steps it took."""
    num_steps, start_s = 0, time.perf_counter()
    while time.perf_counter() - start_s < seconds:
        num_steps += take_steps()
    return {"steps": num_steps, "steps_per_second": num_steps / (time.perf_counter() - start_s)}


# --- labels: cost of fits, queries and memory ---


def labels(env_id: str, num_labels: int, num_rounds: int) -> Metrics:
    """Measure warm fits, queries and memory of the reward learner with many labels.

    Args:
        env_id: environment of the random segments.
        num_labels: labels before the measurement starts.
        num_rounds: number of warm fits to measure.
    """
    from rl_teacher.common import runtime

    runtime.prepare()
    with tempfile.TemporaryDirectory() as folder:
        world = LabelledWorld(env_id, Path(folder))
        empty_mb = resident_mb()
        while world.num_asked < num_labels:
            world.collect(2)
            world.ask_up_to(min(world.num_asked + 500, num_labels))
        first_fit_s, _ = timed(world.learner.fit)
        rounds = [world.refit() for _ in range(num_rounds)]
        ask_s, fit_s, fit_steps = (list(column) for column in zip(*rounds, strict=True))
        peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
        metrics = {"labels": world.num_asked, "empty_mb": empty_mb, "resident_mb": resident_mb()}
        world.close()
    return metrics | {
        "peak_rss_mb": peak_mb,
        "first_fit_s": first_fit_s,
        "ask_s": ask_s,
        "fit_s": fit_s,
        "fit_steps": fit_steps,
    }


class LabelledWorld:
    """Reward learner with a store and random rollouts."""

    def __init__(self, env_id: str, folder: Path) -> None:
        from rl_teacher.agents.collector import Collector
        from rl_teacher.envs.registry import get_env_info, make_vector
        from rl_teacher.store.store import Store

        self._venv = make_vector(env_id, 64)
        self._collector = Collector(
            self._venv, seed=0, stagger=get_env_info(env_id).max_episode_steps or 0
        )
        self._store = Store.open(folder / "labels.sqlite", is_synced=False)
        self.learner = self._make_learner(env_id, folder)
        self.num_asked = 0
        self.collect(30)

    def _make_learner(self, env_id: str, folder: Path) -> "RewardLearner":
        from rl_teacher.plan import LabelPlan, LearningPlan
        from rl_teacher.predictor.inputs import InputSpace
        from rl_teacher.queries.queue import NamedTeacher, QueryQueue, QueryStore
        from rl_teacher.queries.schedules import Budget, Progress
        from rl_teacher.rewards.learner import RewardLearner
        from rl_teacher.store.media import SegmentFiles
        from rl_teacher.teachers.registry import teacher_named

        def by_step(budget: Budget, progress: Progress) -> int:
            del budget
            return progress.step

        space = InputSpace.from_spaces(
            self._venv.single_observation_space, self._venv.single_action_space
        )
        experiment_id = self._store.experiments.ensure("bench", env_id, {})
        query_store = QueryStore(self._store, experiment_id, SegmentFiles(folder / "segments"))
        learning = LearningPlan(
            predictor=PredictorConfig(),
            seed=0,
            segment_steps=60,
            shows_ends=False,
            first_fit_steps=200,
            fits_in_background=False,
            labels=LabelPlan(total=None, first=50, num_steps=10**6, schedule=by_step),
        )
        teacher = NamedTeacher(teacher_named("oracle"), "synthetic:oracle", 0)
        queue = QueryQueue(query_store, teacher)
        return RewardLearner(env_id, space, self._venv.num_envs, learning, queue)

    def collect(self, num_rollouts: int) -> None:
        """Collect random rollouts of 32 steps and pass them to the learner."""
        for _ in range(num_rollouts):
            rollout = self._collector.collect(self._collector.random_actions, 32)
            self.learner.observe(rollout)

    def ask_up_to(self, wanted: int) -> None:
        """Ask until there are `wanted` labels, limited to one planning step."""
        from rl_teacher.queries.schedules import Progress

        asked = self.learner.ask(Progress(wanted, 0.0), (100.0, 1000.0))
        self.num_asked += asked

    def refit(self) -> tuple[float, float, int]:
        """Ask 50 comparisons at a time until a warm fit is due.

        Returns:
            Median seconds per 50 comparisons, seconds of the fit, and its gradient steps.
        """
        ask_s = []
        while True:
            self.collect(2)
            seconds, _ = timed(lambda: self.ask_up_to(self.num_asked + 50))
            ask_s.append(seconds)
            num_before = int(self.learner.metrics()["fit_steps"])
            fit_s, is_fitted = timed(self.learner.fit)
            if is_fitted:
                num_steps = int(self.learner.metrics()["fit_steps"]) - num_before
                return float(np.median(ask_s)), fit_s, num_steps

    def close(self) -> None:
        """Close learner, store and environments."""
        self.learner.close()
        self._store.close()
        self._venv.close()


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the duration in seconds and the result of a call."""
    start_s = time.perf_counter()
    outcome = work()
    return time.perf_counter() - start_s, outcome


# --- alarms: warnings of one experiment ---


def alarms(saved: Mapping[str, Any], workers: int | None = None) -> Metrics:
    """Run a whole experiment and return the warnings that a person would have seen.

    Args:
        saved: configuration, as returned by `TeachConfig.saved`.
        workers: threads of the physics.
    """
    from rl_teacher.quality.warnings import label_warnings
    from rl_teacher.runs.folder import Experiment

    metrics = teach(saved, workers)
    rows = [
        {name: value for name, value in row.items() if value is not None}
        for row in Experiment.find(saved["name"]).metrics()
    ]
    first: dict[str, int] = {}
    for row in rows:
        for kind in set(label_warnings(row)) - {"enough"}:
            first.setdefault(kind, row["labels_answered"])
    kept = {name: value for name, value in rows[-1].items() if isinstance(value, int | float)}
    return metrics | {
        "alarms": first,
        "true_return_at_end": rows[-1].get("true_return"),
        "at_end": kept,
    }


JOBS: dict[str, Callable[..., Metrics]] = {
    "teach": teach,
    "alarms": alarms,
    "pinned": pinned,
    "learn": learn,
    "flips": flips,
    "task_measure": task_measure,
    "core_loop": core_loop,
    "fixed_policy": fixed_policy,
    "uninformed": uninformed,
    "physics": physics,
    "environments": environments,
    "emulators": emulators,
    "atari": atari,
    "labels": labels,
    "offline_fits": offline_fits,
}


def main() -> None:
    """Run one job and print its metrics."""
    name, settings = sys.argv[1:]
    metrics = JOBS[name](**json.loads(settings))
    print(json.dumps(metrics))


if __name__ == "__main__":
    main()
