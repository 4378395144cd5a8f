"""Export of agents and reward predictors for programs that have neither JAX nor this package."""

import contextlib
import math
import tomllib
from dataclasses import replace
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

import gymnasium as gym
import numpy as np

from rl_teacher.agents.numpy_policy import ARRAYS, DESCRIPTION, NumpyPolicy, export_policy
from rl_teacher.common import runtime
from rl_teacher.common.errors import BadInput, MissingExtra
from rl_teacher.common.files import check_no_other_files, write_errors
from rl_teacher.common.paths import user_path
from rl_teacher.envs.preprocessing import LUMA, converts_to_grey, is_image_space, layout_of
from rl_teacher.envs.registry import atari_game, make_single_env
from rl_teacher.nn.numpy_networks import NumpyImageEncoder
from rl_teacher.nn.random_features import NUM_BANDS, random_features_for
from rl_teacher.play.actors import Actor, load_actor
from rl_teacher.runs.folder import home

FILES = {
    *(ARRAYS, DESCRIPTION, "agent.npz", "agent.onnx", "agent.zip"),
    *("play.py", "reward.onnx", "reward.py"),
}
TEXTS = tomllib.loads(files("rl_teacher.play").joinpath("scripts.toml").read_text("utf-8"))


def export_agent(name: str, out: Path, step: str, form: str) -> Path:
    """Export an experiment's policy and return its folder.

    Args:
        name: name of the experiment.
        out: folder to write into.
        step: `latest`, or a step.
        form: `safetensors`, `numpy`, `onnx` or `sb3`.

    Raises:
        BadInput: there is no agent, it cannot be exported, or the folder has other files.
        CorruptCheckpoint: the checkpoint is damaged.
        RunFolderUnusable: the folder cannot be written.
    """
    runtime.prepare(home() / "cache" / "xla")
    out = user_path(out)
    failure, remedy = f"The agent cannot be written into {out}", "Name another folder with --out."
    with write_errors(failure, remedy):
        if out.exists() and not out.is_dir():
            raise BadInput(f"--out {out} is a file. Name a new folder.")
        check_no_other_files(out, FILES, "Name a new folder with --out.")
    actor = load_actor(name, step)
    with contextlib.closing(actor.venv), write_errors(failure, remedy):
        agent = actor.agent
        policy = agent if isinstance(agent, NumpyPolicy) else export_policy(agent)
        if form == "safetensors":
            made_from = {
                "experiment": actor.name,
                "env_id": actor.env_info.id,
                "agent": actor.kind,
                "step": actor.step,
                "rl_teacher": version("rl-teacher"),
            }
            replace(policy, made_from=made_from).save(out)
        else:
            out.mkdir(parents=True, exist_ok=True)
            write(actor, policy, form, out)
    return out


def write(actor: Actor, policy: NumpyPolicy, form: str, out: Path) -> None:
    """Write the files of a format and `play.py`.

    Raises:
        BadInput: the format cannot represent the policy.
    """
    encoder, network, head = policy.encoder, policy.network, policy.head
    layout = encoder.layout
    if layout is not None and layout.vector_size:
        raise BadInput(
            f"--format {form} cannot represent an agent that observes images with vectors. "
            "Use --format safetensors."
        )
    fields = {
        "noise": "gumbel" if head.kind == "categorical" else "standard_normal",
        "size": noise_size(policy),
        "dtype": "float32" if layout is None else "uint8",
    }
    try:
        if form == "numpy":
            arrays = numpy_arrays(policy)
            parts = {"last": len(network.weights) - 1, "activation": TEXTS[network.activation]}
            if layout is None:
                parts["features"] = TEXTS["vector"]
            elif isinstance(encoder, NumpyImageEncoder):
                parts["features"] = TEXTS["image"].format(strides=encoder.strides)
            else:
                fixed = random_features_for(layout)
                arrays["filters"] = fixed.filters
                bands = TEXTS["bands"].format(stride=fixed.stride, num=NUM_BANDS)
                parts["features"] = bands + TEXTS["vector"]
            parts["action"] = TEXTS[head.kind].format(shape=head.shape, first=head.scale.first)
            np.savez(out / "agent.npz", allow_pickle=False, **arrays)
            fields |= parts
        elif form == "onnx":
            from rl_teacher.play import onnx_graphs  # noqa: PLC0415 - optional

            onnx_graphs.save_policy(policy, numpy_arrays(policy), out / "agent.onnx")
            if actor.predictor is not None:
                types = onnx_graphs.save_predictor(actor.predictor, out / "reward.onnx")
                text = TEXTS["reward"].format(name=actor.name, **types)
                (out / "reward.py").write_text(text, "utf-8")
        else:
            from rl_teacher.agents.sb3.conversion import to_sb3  # noqa: PLC0415 - brings torch

            model = to_sb3(policy, numpy_arrays(policy), actor.kind, actor.venv)
            model.save(out / "agent.zip")
            library, algorithm = type(model).__module__.partition(".")[0], type(model).__name__
            fields |= {"library": library, "algorithm": algorithm}
    except ImportError as error:
        raise MissingExtra(f"--format {form} needs another package", form, error) from error
    act = TEXTS[form].format(**fields)
    (out / "play.py").write_text(play_script(actor, act), "utf-8")


def numpy_arrays(policy: NumpyPolicy) -> dict[str, np.ndarray]:
    """Return the parameters of a policy by name; those that it does not have do nothing."""
    network, head, scale = policy.network, policy.head, policy.head.scale
    is_scaled = scale.middle is not None
    arrays = {
        **{name.replace("/", "_"): array for name, array in policy.encoder.arrays().items()},
        **{f"weights_{number}": each for number, each in enumerate(network.weights)},
        **{f"bias_{number}": each for number, each in enumerate(network.biases)},
        "clip": getattr(policy.encoder, "clip", math.inf),
        "log_std": 0.0 if head.log_std is None else head.log_std,
        "limit": 1.0 if is_scaled else math.inf,
        "middle": scale.middle if is_scaled else 0.0,
        "half_range": scale.half_range if is_scaled else 1.0,
        "low": -math.inf if scale.low is None else scale.low,
        "high": math.inf if scale.high is None else scale.high,
    }
    return {name: np.asarray(each, np.float32) for name, each in arrays.items()}


def noise_size(policy: NumpyPolicy) -> int:
    """Return A, the numbers of noise from which an action is sampled."""
    is_squashed = policy.head.kind == "squashed_gaussian"  # mean and log std of each number
    return policy.network.biases[-1].size // (2 if is_squashed else 1)


def play_script(actor: Actor, act: str) -> str:
    """Return the text of `play.py`, with the preprocessing of images."""
    env_id, frames = actor.env_info.id, ""
    spec = gym.registry.get(env_id)
    is_own = spec is not None and str(spec.entry_point).startswith("rl_teacher.")
    env = f"gym.make({'rl_teacher.envs:' * is_own + env_id!r})"
    if atari_game(env_id) is not None:
        env = f"gym.wrappers.MaxAndSkipObservation({env[:-1]}, frameskip=1))"
    with contextlib.closing(make_single_env(env_id)) as single:
        space = single.observation_space
        if isinstance(single, gym.wrappers.FlattenObservation):
            env = f"gym.wrappers.FlattenObservation({env})"
    if is_image_space(space):
        layout, env = layout_of(space), f"Frames({env})"
        axes = {None: "frame[None]", 0: "frame", 2: "frame.transpose(2, 0, 1)"}
        frame = ("" if space.dtype == np.uint8 else "255 * ") + axes[layout.channel_axis]
        if converts_to_grey(layout, actor.frames):
            frame = f"np.tensordot({LUMA}, {frame}, 1)[None]"
        shape = actor.venv.single_observation_space.shape
        frames = TEXTS["frames"].format(shape=shape, frame=frame)
    note = "  # is part of rl-teacher; act() does not need it" if is_own else ""
    facts = {"name": actor.name, "kind": actor.kind, "step": f"{actor.step:,}", "env_id": env_id}
    return TEXTS["play"].format(act=act, frames=frames, env=env, note=note, **facts)
