from dataclasses import dataclass, fields, replace
from typing import Annotated

import pytest
import tyro

from rl_teacher import cli
from rl_teacher.cli import main
from rl_teacher.common.errors import BadConfig
from rl_teacher.config.agents import PPOConfig
from rl_teacher.config.experiment import PredictorConfig, RunOptions, TeachConfig
from rl_teacher.config.fields import (
    Above,
    AtLeast,
    Between,
    RunSetup,
    as_keyword,
    check_bounds,
    check_effects,
    join_help_lines,
    long_options,
)
from rl_teacher.config.presets import preset
from rl_teacher.envs.registry import get_env_info

VECTORS = ["teach", "-e", "ShortHopper-v1", "-n", "x"]
IMAGES = ["teach", "-e", "MovingDot-v0", "-n", "x"]
COLLECT = ["collect", "-e", "ShortHopper-v1", "-n", "x", "-l", "5"]
UPFRONT = [*VECTORS, "-p", "synth", "-l", "9", "--schedule", "upfront"]
FINE_TUNED = [*VECTORS, "-p", "synth", "-l", "9", "--predictor-path", "y"]
COLLECT_ONLY = [*VECTORS, "-p", "synth", "-l", "9", "--collect-only"]
SAC = [*VECTORS, "-a", "sac", "-p", "rl"]
SYNTH = TeachConfig("ShortHopper-v1", "synth", name="x")


@pytest.mark.parametrize(
    ("bound", "allowed", "refused"),
    [
        (AtLeast(1), (1, 7), (0, -1, float("nan"))),
        (Above(0), (1e-9, 5), (0, -1, float("inf"), float("nan"))),
        (Between(0, 1), (0, 0.5, 1), (-0.1, 1.1, float("nan"))),
    ],
)
def test_bound_allows_its_range_and_never_nan(bound, allowed, refused):
    assert all(bound.allows(value) for value in allowed)
    assert not any(bound.allows(value) for value in refused)


def test_keyword_spelling_is_used_in_messages_for_python():
    with pytest.raises(BadConfig, match=r"reward\.batch_size=0 was given; at least 1 is needed"):
        check_bounds(PredictorConfig(batch_size=0), "reward.", spell=as_keyword)


@pytest.mark.parametrize(
    ("arguments", "flag", "requirement"),
    [
        ([*VECTORS, "-p", "rl", "-f", "2"], "--stacked-frames 2", "image observations"),
        ([*VECTORS, "-p", "rl", "--frame-size", "42"], "--frame-size 42", "image observations"),
        ([*VECTORS, "-p", "rl", "--colour"], "--colour", "image observations"),
        ([*VECTORS, "-p", "synth", "--reward.batch-norm"], "--reward.batch-norm", "image"),
        ([*IMAGES, "-p", "synth", "--reward.batch-norm"], "--reward.batch-norm", "small or paper"),
        ([*VECTORS, "-p", "rl", "--ppo.image-encoder", "paper"], "--ppo.image-encoder paper", "im"),
        ([*VECTORS, "-p", "rl", "-a", "trpo", "--ppo.gamma", "0.9"], "--ppo.gamma 0.9", "-a ppo"),
        ([*VECTORS, "-p", "rl", "--other.num-envs", "4"], "--other.num-envs 4", "-a other"),
        ([*VECTORS, "-p", "rl", "-l", "100"], "--n-labels 100", "-p synth or -p human"),
        ([*VECTORS, "-p", "rl", "-L", "25"], "--pretrain-labels 25", "-p synth or -p human"),
        ([*VECTORS, "-p", "rl", "-c", "2"], "--clip-length 2.0", "-p synth or -p human"),
        ([*VECTORS, "-p", "rl", "-i", "50"], "--pretrain-iters 50", "-p synth or -p human"),
        ([*VECTORS, "-p", "rl", "--schedule", "constant"], "--schedule constant", "-p synth"),
        ([*VECTORS, "-p", "rl", "--selector", "uniform"], "--selector uniform", "labels"),
        ([*VECTORS, "-p", "rl", "--fit", "async"], "--fit async", "-p synth or -p human"),
        ([*VECTORS, "-p", "rl", "--agent-reset", "1"], "--agent-reset 1.0", "-p synth or -p human"),
        ([*VECTORS, "-p", "rl", "--reward.l2", "0"], "--reward.l2 0.0", "-p synth or -p human"),
        ([*VECTORS, "-p", "rl", "--gold", "0.1"], "--gold 0.1", "-p human"),
        ([*VECTORS, "-p", "rl", "--teacher", "noisy"], "--teacher noisy", "-p synth"),
        ([*VECTORS, "-p", "human", "--teacher", "noisy"], "--teacher noisy", "-p synth"),
        ([*VECTORS, "-p", "synth", "--clip-reward", "1"], "--clip-reward 1.0", "-p rl"),
        ([*VECTORS, "-p", "synth", "--pace", "steps"], "--pace steps", "-p human"),
        ([*VECTORS, "-p", "synth", "--port", "9000"], "--port 9000", "--serve or -p human"),
        (
            [*VECTORS, "-p", "synth", "--hyperbolic-steps", "5e6"],
            "--hyperbolic-steps 5000000",
            "--schedule hyperbolic",
        ),
        ([*VECTORS, "-p", "human", "--overlap-labelers", "3"], "--overlap-labelers 3", "--overlap"),
        ([*VECTORS, "-p", "synth", "--gold", "0.1"], "--gold 0.1", "-p human"),
        ([*IMAGES, "-p", "rl", "--physics", "warp"], "--physics warp", "a MuJoCo task"),
        (
            [*VECTORS, "-p", "rl", "--physics", "warp", "--cluster", "local"],
            "--physics warp",
            "without --cluster",
        ),
        ([*VECTORS, "-p", "synth", "--overlap", "0.1"], "--overlap 0.1", "-p human"),
        ([*VECTORS, "-p", "synth", "--repeats", "0.1"], "--repeats 0.1", "-p human"),
        ([*VECTORS, "-p", "synth", "--instructions", "Run."], "--instructions Run.", "-p human"),
        (
            [*VECTORS, "-p", "synth", "--candidates", "5", "--selector", "uniform"],
            "--candidates 5",
            "not uniform",
        ),
        (
            [*VECTORS, "-p", "synth", "--candidates", "5", "--queries", "sort"],
            "--candidates 5",
            "--queries pairs",
        ),
        ([*UPFRONT, "-L", "5"], "--pretrain-labels 5", "not --schedule upfront"),
        ([*UPFRONT, "--labels", "x", "-L", "5"], "--pretrain-labels 5", "not --schedule upfront"),
        (
            [*UPFRONT, "-p", "human", "--labels", "x", "--pace", "steps"],
            "--pace steps",
            "not --schedule upfront",
        ),
        (
            [*UPFRONT, "--labels", "x", "--selector", "uniform"],
            "--selector uniform",
            "need --predictor-path",
        ),
        ([*UPFRONT, "--selector", "uniform"], "--selector uniform", "fitted reward predictor"),
        ([*UPFRONT, "--fit", "async"], "--fit async", "not with --schedule upfront"),
        ([*VECTORS, "--labels", "x", "--fit", "async"], "--fit async", "or --labels alone"),
        ([*UPFRONT, "-p", "human", "--pace", "steps"], "--pace steps", "not --schedule upfront"),
        ([*FINE_TUNED, "--reuse-clips"], "--reuse-clips", "before the first fit"),
        ([*FINE_TUNED, "--reward.hidden", "8"], "--reward.hidden (8,)", "keeps its networks"),
        ([*VECTORS, "-p", "synth", "--agent-reset", "0.3"], "--agent-reset 0.3", "(-l)"),
        (
            [*VECTORS, "-p", "synth", "-l", "9", "--agent-reset", "0.3", "--agent-path", "y"],
            "--agent-reset 0.3",
            "no --agent-path",
        ),
        (
            [*VECTORS, "-p", "synth", "-l", "9", "-L", "6", "--agent-reset", "0.6"],
            "--agent-reset 0.6",
            "fewer (-L)",
        ),
        ([*VECTORS, "-p", "rl", "--hide-episode-ends"], "--hide-episode-ends", "can end early"),
        (
            ["teach", "-e", "CartPole-v1", "-n", "x", "-p", "rl", "-w", "2"],
            "--workers 2",
            "threads",
        ),
        ([*IMAGES, "-p", "rl", "--ppo.hidden", "8"], "--ppo.hidden (8,)", "not images"),
        (
            [*IMAGES, "-p", "rl", "--ppo.observation-clip", "5"],
            "--ppo.observation-clip 5.0",
            "not images",
        ),
        (
            [*IMAGES, "-p", "synth", "--reward.image-encoder", "small", "--reward.hidden", "8"],
            "--reward.hidden (8,)",
            "no CNN",
        ),
        (
            [*IMAGES, "-p", "synth", "--reward.image-encoder=profiles", "--reward.ignore-actions"],
            "--reward.ignore-actions",
            "can use actions",
        ),
        ([*SAC, "--sac.no-relabel"], "--sac.no-relabel", "-p synth or -p human"),
        ([*SAC, "--sac.no-explore"], "--sac.no-explore", "before training"),
        ([*SAC, "--sac.compared-states", "9"], "--sac.compared-states 9", "before training"),
        (
            [*SAC, "-p", "synth", "--sac.no-explore", "--sac.compared-states", "9"],
            "--sac.compared-states 9",
            "no --sac.no-explore",
        ),
        (
            [*SAC, "--agent-path", "y", "--sac.learning-starts", "9"],
            "--sac.learning-starts 9",
            "no --agent-path",
        ),
        (
            [*SAC, "--agent-path", "y", "--sac.initial-temperature", "9"],
            "--sac.initial-temperature 9.0",
            "no --agent-path",
        ),
        (
            [*VECTORS, "-p", "synth", "--null-action-clip"],
            "--null-action-clip",
            "--queries tree or sort",
        ),
        ([*COLLECT_ONLY, "-t", "9"], "--num-timesteps 9", "not --collect-only"),
        ([*COLLECT_ONLY, "-i", "9"], "--pretrain-iters 9", "not --collect-only"),
        ([*COLLECT_ONLY, "-L", "2"], "--pretrain-labels 2", "--collect-only"),
        ([*COLLECT_ONLY, "--schedule", "constant"], "--schedule constant", "not --collect-only"),
        ([*COLLECT_ONLY, "--reward.l2", "0"], "--reward.l2 0.0", "not --collect-only"),
        (
            [*COLLECT, "-p", "synth", "--selector", "entropy"],
            "--selector entropy",
            "--predictor-path",
        ),
        (
            [*COLLECT, "-p", "human", "--teacher-strength", "1"],
            "--teacher-strength 1.0",
            "-p synth",
        ),
        ([*COLLECT, "-p", "synth", "--trpo.gamma", "0.9"], "--trpo.gamma 0.9", "-a trpo"),
    ],
)
def test_option_without_effect_is_refused_with_exit_code_2(
    arguments, flag, requirement, capsys, monkeypatch
):
    monkeypatch.setattr(cli, "run_teach", lambda *_: 0)
    assert main(arguments) == 2
    printed = " ".join(capsys.readouterr().err.split())
    assert f"{flag} was given, but it has an effect only with" in printed
    assert requirement in printed


@pytest.mark.parametrize(
    ("config", "options", "has_images"),
    [
        (replace(SYNTH, n_labels=100, clip_length=2.0, teacher="noisy"), RunOptions(), False),
        (replace(SYNTH, schedule="hyperbolic", hyperbolic_steps=9), RunOptions(), False),
        (replace(SYNTH, agent="ppo", ppo=PPOConfig(gamma=0.9)), RunOptions(), False),
        (replace(SYNTH, predictor="rl", clip_reward=1.0), RunOptions(port=9000, serve=True), False),
        (replace(SYNTH, predictor="human"), RunOptions(pace="steps", port=9000), False),
        (
            replace(
                SYNTH, frame_size=42, reward=PredictorConfig(image_encoder="paper", batch_norm=True)
            ),
            RunOptions(),
            True,
        ),
    ],
)
def test_option_with_effect_is_accepted(config, options, has_images):
    run = RunSetup(
        config, options, get_env_info("MovingDot-v0" if has_images else "ShortHopper-v1")
    )
    check_effects(run, SYNTH, RunOptions())


@pytest.mark.parametrize("arguments", [["--labels", "y"], ["--predictor-path", "y"]])
@pytest.mark.parametrize("predictor", ["synth", "human"])
def test_teacher_that_is_not_asked_is_refused(predictor, arguments, capsys, monkeypatch):
    monkeypatch.setattr(cli, "run_teach", lambda *_: 0)
    assert main([*VECTORS, "-p", predictor, *arguments]) == 2
    printed = " ".join(capsys.readouterr().err.split())
    assert f"-p {predictor} was given, but no labels are asked for" in printed
    assert "new labels with -l, or --keep-asking; or omit -p." in printed


@pytest.mark.parametrize("predictor", ["rl", "synth"])
@pytest.mark.parametrize("name", ["vectors", "images", "paper-atari"])
def test_settings_of_a_preset_are_never_refused(name, predictor):
    config = TeachConfig(
        "Pong-v0", predictor, name="x", **preset(name, has_labels=predictor != "rl")
    )
    check_effects(RunSetup(config, RunOptions(), get_env_info("Pong-v0")), config, RunOptions())


def test_help_of_each_field_becomes_one_line():
    @dataclass
    class Section:
        share: float = 0.5
        """a phrase
        of two lines"""

    def command(section: Section, config: TeachConfig, plot: str = ""):
        """Do nothing.

        Args:
            section: a section
            config: settings
            plot: file of the plot;
                without it, none
        """

    join_help_lines(command)
    assert "plot: file of the plot; without it, none" in (command.__doc__ or "")
    assert Section.__dataclass_fields__["share"].metadata["help"] == "a phrase of two lines"
    helps = [each.metadata["help"] for each in fields(TeachConfig) if each.metadata["help"]]
    assert len(helps) > 20
    assert not any("\n" in text for text in helps)


def test_long_options_have_the_prefix_of_their_section():
    def command(config: Annotated[TeachConfig, tyro.conf.arg(name="")], plot: str = ""):
        """Do nothing."""

    options = set(long_options(command))
    assert {"--env-id", "--n-labels", "--ppo.num-envs", "--reward.l2", "--plot"} <= options
    assert {"--reward.objective", "--objective"} <= options
    assert "-e" not in options
