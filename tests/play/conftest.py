"""Three small trained experiments, shared by all tests of play."""

import os
import shutil
from pathlib import Path

import pytest

from rl_teacher.cli import main

TINY = ["--ppo.num-envs", "8", "--ppo.rollout-steps", "32", "-t", "1024"]
COMMON = [*TINY, "--no-tensorboard", "--checkpoint-seconds", "0"]
SYNTH = ["-p", "synth", "-l", "12", "-L", "8", "-i", "40"]


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """Return a home with `synth` and `rl` of ShortReacher-v1 and `cart` of CartPole-v1."""
    home = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RL_TEACHER_HOME", str(home))
        for name, env_id, how in (
            ("synth", "ShortReacher-v1", SYNTH),
            ("rl", "ShortReacher-v1", ["-p", "rl"]),
            ("cart", "CartPole-v1", ["-p", "rl"]),
        ):
            assert main(["teach", "-e", env_id, "-n", name, *how, *COMMON]) == 0
    return home


@pytest.fixture
def home(trained):
    """Return the home folder of the test with copies of the experiments."""
    own = Path(os.environ["RL_TEACHER_HOME"])
    shutil.copytree(trained, own)
    return own


@pytest.fixture
def checkpoints(home):
    """Return the two checkpoints of `synth`, newest first."""
    found = sorted((home / "experiments" / "synth" / "checkpoints").glob("*"), reverse=True)
    assert len(found) == 2
    return found
