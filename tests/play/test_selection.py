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
        ("previous", (768, "previous checkpoint")),
        ("1024", (1024, "latest checkpoint")),
        ("1_024", (1024, "latest checkpoint")),
        ("1,024", (1024, "latest checkpoint")),
        ("1.024e3", (1024, "latest checkpoint")),
    ],
)
def test_checkpoint_is_selected_by_place_or_step(checkpoints, wanted, expected):
    assert chosen(checkpoints, wanted) == expected


@pytest.mark.parametrize(
    ("wanted", "step"), [("0", 0), ("256", 256), ("300", 256), ("390", 512), ("600", 512)]
)
def test_nearest_agent_of_history_is_selected(checkpoints, wanted, step):
    assert chosen(checkpoints, wanted) == (step, "from the history")


def test_nearest_agent_may_be_that_of_latest_checkpoint(checkpoints):
    found = select(checkpoints, "1e6")
    assert (found.step, found.place) == (1024, "latest checkpoint")
    assert found.note is not None
    assert "No agent of step 1,000,000 is kept" in found.note
    assert select(checkpoints, "1024").note is None


@pytest.mark.parametrize("wanted", ["newest", "-1", "nan", "inf"])
def test_invalid_step_lists_agents(checkpoints, wanted):
    with pytest.raises(BadInput) as error:
        chosen(checkpoints, wanted)
    assert "latest, previous or a step is needed" in str(error.value)
    assert "step 0, 256, 512, 768, 768 (previous checkpoint), 1,024 (latest checkpoint)" in str(
        error.value
    )


def test_agent_of_history_acts_as_it_did_at_its_step(home):
    """The experiment `short` ends where the history of `synth` has its second agent."""
    arguments = ["teach", "-e", "ShortReacher-v1", "-n", "short", *SYNTH, *COMMON]
    arguments[arguments.index("1024")] = "256"
    assert main(arguments) == 0
    earlier, short = load_actor("synth", "256"), load_actor("short", "latest")
    for each in (earlier, short):
        each.venv.close()
    size = int(np.prod(earlier.venv.single_observation_space.shape or ()))
    observations = np.linspace(-1, 1, 5 * size, dtype=np.float32).reshape(5, size)
    expected = short.agent.predict(observations, deterministic=True)
    actions = earlier.agent.predict(observations, deterministic=True)
    np.testing.assert_allclose(actions, expected, rtol=1e-5)
    assert earlier.predictor is not None


def test_damaged_agent_of_history_is_refused(home, checkpoints):
    for each in (home / "experiments/synth/history/step-256").iterdir():
        each.write_bytes(b"{}")
    with pytest.raises(CorruptCheckpoint, match="damaged"):
        chosen(checkpoints, "256")


def test_experiment_without_checkpoint_explains_when_one_is_written(tmp_path):
    with pytest.raises(BadInput, match="has no checkpoint yet"):
        select_agent(Experiment("new", tmp_path / "nowhere"), "latest")


def test_previous_needs_two_checkpoints(checkpoints):
    checkpoints[1].unlink()
    with pytest.raises(BadInput, match="no previous checkpoint"):
        chosen(checkpoints, "previous")


def test_damaged_latest_checkpoint_falls_back_with_note(checkpoints):
    damage(checkpoints[0])
    found = select(checkpoints, "latest")
    assert found.place == "previous checkpoint"
    assert found.note is not None
    assert "step 1,024 is damaged" in found.note


def test_damaged_named_checkpoint_is_refused(checkpoints):
    damage(checkpoints[1])
    with pytest.raises(CorruptCheckpoint, match="is damaged"):
        chosen(checkpoints, "previous")


def test_all_checkpoints_damaged_is_refused(checkpoints):
    for each in checkpoints:
        damage(each)
    with pytest.raises(CorruptCheckpoint, match="None of the 2 checkpoints"):
        chosen(checkpoints, "latest")


def test_checkpoint_deleted_during_selection_is_listed_again(checkpoints, monkeypatch):
    from rl_teacher.play import actors as module

    reads = []

    def read_slowly(file):
        reads.append(file.path)
        if len(reads) == 1:
            file.path.unlink()
        return original(file)

    original = module.read_checkpoint
    monkeypatch.setattr(module, "read_checkpoint", read_slowly)
    assert chosen(checkpoints, "latest") == (768, "latest checkpoint")
    assert reads == checkpoints
