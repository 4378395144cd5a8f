from dataclasses import dataclass, fields, replace
from typing import Annotated

import pytest
import tyro

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

VECTORS = ["teach", "-e", "ShortHopper-v1", "-n", "x"]
IMAGES = ["teach", "-e", "MovingDot-v0", "-n", "x"]
COLLECT = ["collect", "-e", "ShortHopper-v1", "-n", "x", "-l", "5"]
CONVOLUTIONS_WITH_BATCH_NORM = PredictorConfig(image_encoder="paper", batch_norm=True)
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
        ([*VECTORS, "-p", "rl", "--agent-reset", "0"], "--agent-reset 0.0", "-p synth or -p human"),
        ([*VECTORS, "-p", "rl", "--reward.l2", "0"], "--reward.l2 0.0", "-p synth or -p human"),
        ([*VECTORS, "-p", "rl", "--gold", "0.1"], "--gold 0.1", "-p synth or -p human"),
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
def test_option_without_effect_is_refused_with_exit_code_2(arguments, flag, requirement, capsys):
    assert main(arguments) == 2
    printed = " ".join(capsys.readouterr().err.split())
    assert f"{flag} was given, but it has an effect only with" in printed
    assert requirement in printed


@pytest.mark.parametrize(
    ("config", "options", "has_image_observations"),
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
def test_option_with_effect_is_accepted(config, options, has_image_observations):
    run = RunSetup(config, options, has_image_observations)
    check_effects(run, SYNTH, RunOptions())


@pytest.mark.parametrize("predictor", ["rl", "synth"])
@pytest.mark.parametrize("name", ["vectors", "images", "paper-atari"])
def test_settings_of_a_preset_are_never_refused(name, predictor):
    config = TeachConfig(
        "Pong-v0", predictor, name="x", **preset(name, has_labels=predictor != "rl")
    )
    check_effects(RunSetup(config, RunOptions(), True), config, RunOptions())


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
