"""Environment checks before training."""

import pytest

from rl_teacher.cli import main
from rl_teacher.common.errors import BadInput
from rl_teacher.envs import check
from rl_teacher.envs.check import check_environment, inspect_environment
from rl_teacher.envs.registry import get_env_info
from tests.envs.custom_environments import MODULE


def own(name):
    return f"{MODULE}:{name}"


def faults(name, *, is_shown=True):
    return inspect_environment(own(name), is_shown=is_shown)[1]


@pytest.mark.parametrize("name", ["point", "one_way", "booleans"])
def test_correct_environment_has_no_faults(name):
    assert faults(name) == []


def test_wrapper_with_other_actions_than_its_environment_is_no_fault():
    assert faults("three_torques") == []


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", "ShortReacher-v1", "Pusher-v5"])
def test_known_environments_have_no_fatal_faults(env_id):
    assert not any(each.is_fatal for each in inspect_environment(env_id, is_shown=False)[1])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("OldReset", "`def reset(self, *, seed=None, options=None)`"),
        ("OldResetValue", "reset() returned numpy.ndarray: an observation and a dict"),
        ("OldStep", "step() returned 4 values"),
        ("Raises", "step() raised KeyError: 'wheel'"),
        ("WrongShape", "observation of shape (2,): observation_space declares (1,)"),
        ("IsAList", "returned builtins.list as the observation: a NumPy array is needed"),
        ("IsNaN", "not finite: nan at (0,)"),
        (
            "IsHuge",
            "is beyond 1e+15 or not finite: 1.2676506002282294e+30 at (0,)",
        ),
        (
            "IsAHugeInteger",
            "is beyond 1e+15 or not finite: 4000000000000000000 at (0,)",
        ),
        ("RewardIsHuge", "a reward that is beyond 1e+15 or not finite: 1e+200"),
        ("Random", "clips are videos of replayed episodes"),
        ("Remembers", "A later reset() without a seed and equal actions gave different"),
        ("Silent", "step() raised AssertionError in step (custom_environments.py, line"),
        ("FloatForInteger", "of float32: observation_space declares int64. Use `.astype`"),
        ("LongMask", "action_mask of shape (3,): one value for each of the 2 actions is needed"),
        ("RewardIsAnArray", "returned numpy.ndarray as the reward: a number is needed"),
        ("RewardIsNaN", "a reward that is beyond 1e+15 or not finite: nan"),
        ("TruncatedIsANumber", "for truncated: True or False is needed"),
        ("NoPictures", "render mode rgb_array"),
        (
            "GrowingLamp",
            "an image of uint8 (24, 21, 3): observation_space declares uint8",
        ),
        ("LampOfInts", "an image of int64 (24, 20, 3)"),
        ("GlaringLamp", "an image with values from 0.0 to 3.0"),
        ("ManyColours", "render mode rgb_array"),
        ("RendersNothing", "render() returned None: uint8 [height, width, 3]"),
        ("the_same_point", "returned the same object twice"),
        ("OtherGenerator", "np_random is random.Random: a numpy.random.Generator is needed"),
        ("WrongPicture", "render() returned float64 (4, 4): uint8 [height, width, 3]"),
    ],
)
def test_fatal_fault_is_described(name, message):
    fatal = [each.text for each in faults(name) if each.is_fatal]
    assert any(message in each for each in fatal), fatal


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("OtherType", "observation of float64: observation_space declares float32"),
        ("Random", "clips are videos of replayed episodes"),
        ("Remembers", "A later reset() without a seed and equal actions gave different"),
        ("Endless", "It declares no time limit"),
    ],
)
def test_minor_fault_is_not_fatal(name, message):
    found = faults(name, is_shown=False)
    assert not any(each.is_fatal for each in found)
    assert any(message in each.text for each in found), found


def test_rendering_fault_is_fatal_only_for_people():
    assert not any(each.is_fatal for each in faults("NoPictures", is_shown=False))


def test_faulty_environment_is_refused_before_training(caplog):
    with pytest.raises(BadInput, match=r"cannot be used as it is. step.. returned 4 values"):
        check_environment(get_env_info(own("OldStep")), is_shown=False)
    check_environment(get_env_info(own("Random")), is_shown=False)
    assert "Draw all randomness from self.np_random" in caplog.text


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Words", "cannot be flattened to vectors of one size"),
        ("Mission", r"its part \['mission'\] cannot be .*such as observation\['place'\]"),
        ("Cameras", r"its parts \['front'\] and \['rear'\] are images, of which one can be used"),
        ("Blank", "it has no numbers"),
        ("ManyStates", r"Discrete\(2147483648\).* one-hot vectors of 2,147,483,648 numbers"),
        ("ManyMoves", r"actions of Discrete\(2147483648\).* at most 100,000"),
    ],
)
def test_unsupported_spaces_are_refused(name, message):
    with pytest.raises(BadInput, match=message):
        inspect_environment(own(name), is_shown=False)


def test_error_without_text_is_located():
    with pytest.raises(BadInput, match=r"raised AssertionError in asserts \(.*, line \d+"):
        inspect_environment(own("asserts"), is_shown=False)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("NoMetadata", "NoMetadata has the metadata None: a dict is needed"),
        ("WordyFrameRate", "\"render_fps\": 'fast'; a positive number is needed"),
        ("BackwardFrameRate", '"render_fps": -5; a positive number is needed'),
    ],
)
def test_command_reports_what_prevents_the_check(name, message, capsys):
    assert main(["check", own(name)]) == 2
    assert message in capsys.readouterr().err


def test_command_reports_fault_with_exit_code_2(capsys):
    assert main(["check", own("point"), "-p", "human"]) == 0
    assert (
        "can be used: episodes of 40 steps, clips of 20 steps a second" in capsys.readouterr().out
    )
    assert main(["check", own("OldStep")]) == 2
    printed = capsys.readouterr()
    assert "error: step() returned 4 values" in printed.out
    assert "cannot be used as it is" in printed.err
    assert main(["check", "Hoper-v5"]) == 2
    assert "Hopper-v5" in capsys.readouterr().err


def test_observation_that_changes_shape_during_training_is_refused(capsys):
    arguments = ["-e", own("GrowsAfterThirtySteps"), "-p", "rl", "-n", "x", "-t", "100000"]
    assert main(["teach", *arguments, "--no-tensorboard"]) == 2
    assert "GrowsAfterThirtySteps returned an observation of shape (2,)" in capsys.readouterr().err


def test_command_describes_image_preprocessing(capsys):
    assert main(["check", own("Lamp"), "-f", "2", "--frame-size", "12"]) == 0
    assert (
        "images of 24 x 20 pixels, 3 channels; preprocessed to 12 x 12, grey, 2 stacked"
        in capsys.readouterr().out
    )
    assert main(["check", own("Lamp"), "-f", "0", "--colour"]) == 0
    assert "preprocessed to 24 x 20, 3 channels, not stacked" in capsys.readouterr().out


def test_command_checks_atari_game(capsys, monkeypatch):
    monkeypatch.setattr(check, "LONG_CHECK_STEPS", 10)
    assert main(["check", "Pong-v0", "-p", "human"]) == 0
    assert capsys.readouterr().out == (
        "PongNoFrameskip-v4 can be used: episodes of 27,000 steps, clips of 15 steps a second\n"
        "images of 210 x 160 pixels, 3 channels; preprocessed to 42 x 42, grey, 4 stacked\n"
    )
