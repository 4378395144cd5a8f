import numpy as np
import pytest

from rl_teacher.cli import main
from rl_teacher.common.errors import BadInput, CorruptCheckpoint
from rl_teacher.play.actors import load_actor, select_agent
from rl_teacher.runs.folder import Experiment
from tests.play.conftest import COMMON, SYNTH


def select(checkpoints, wanted):
    return select_agent(Experiment("synth", checkpoints[0].parent.parent), wanted)


def chosen(checkpoints, wanted):
    found = select(checkpoints, wanted)
    return found.step, found.place


def damage(path):
    path.write_bytes(path.read_bytes()[:-10])


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("latest", (1024, "latest checkpoint")),
        ("1024", (1024, "latest checkpoint")),
        ("1_024", (1024, "latest checkpoint")),
        ("1,024", (1024, "latest checkpoint")),
        ("1.024e3", (1024, "latest checkpoint")),
    ],
)
def test_latest_checkpoint_is_selected_by_name_or_step(checkpoints, wanted, expected):
    assert chosen(checkpoints, wanted) == expected


@pytest.mark.parametrize(
    ("wanted", "step"), [("0", 256), ("256", 256), ("300", 256), ("390", 512), ("600", 512)]
)
def test_nearest_agent_of_history_is_selected(checkpoints, wanted, step):
    assert chosen(checkpoints, wanted) == (step, "from the history")


def test_nearest_agent_may_be_that_of_latest_checkpoint(checkpoints):
    found = select(checkpoints, "1e6")
    assert (found.step, found.place) == (1024, "latest checkpoint")
    assert found.note is not None
    assert "1,000,000" in found.note
    assert select(checkpoints, "1024").note is None


@pytest.mark.parametrize("wanted", ["newest", "nan", "inf"])
def test_invalid_step_is_refused(checkpoints, wanted):
    with pytest.raises(BadInput, match=f"--step {wanted}"):
        chosen(checkpoints, wanted)


def test_agent_of_history_acts_as_it_did_at_its_step(home):
    """The experiment `short` ends where the history of `synth` has its second agent."""
    arguments = ["teach", "-e", "ShortReacher-v1", "-n", "short", *SYNTH, *COMMON]
    arguments[arguments.index("1024")] = "512"
    assert main(arguments) == 0
    earlier, short = load_actor("synth", "512"), load_actor("short", "latest")
    for each in (earlier, short):
        each.venv.close()
    size = int(np.prod(earlier.venv.single_observation_space.shape or ()))
    observations = np.linspace(-1, 1, 5 * size, dtype=np.float32).reshape(5, size)
    expected = short.policy(explore=False)(observations)
    actions = earlier.policy(explore=False)(observations)
    np.testing.assert_allclose(actions, expected, rtol=1e-5)
    assert earlier.predictor is not None


def test_damaged_agent_of_history_is_refused(home, checkpoints):
    for each in (home / "experiments/synth/history/step-256").iterdir():
        each.write_bytes(b"{}")
    with pytest.raises(CorruptCheckpoint, match="damaged"):
        chosen(checkpoints, "256")


def test_experiment_without_checkpoint_explains_when_one_is_written(tmp_path):
    with pytest.raises(BadInput, match="no checkpoint"):
        select_agent(Experiment("new", tmp_path / "nowhere"), "latest")


def test_damaged_latest_checkpoint_falls_back_to_the_one_before(checkpoints):
    damage(checkpoints[0])
    assert select(checkpoints, "latest").step == 768


def test_all_checkpoints_damaged_is_refused(checkpoints):
    for each in checkpoints:
        damage(each)
    with pytest.raises(CorruptCheckpoint, match="2 checkpoints"):
        chosen(checkpoints, "latest")
