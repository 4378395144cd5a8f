"""The --force-new-... options: an archived experiment, and a new one with parts of it."""

import os
import pty
import shutil

import numpy as np
import pytest

from rl_teacher.cli import main
from rl_teacher.clips.answer import Answer
from rl_teacher.predictor.ensemble import RewardPredictor
from rl_teacher.runs.folder import Experiment, home, open_store
from tests.test_workflows import rows

pytestmark = pytest.mark.usefixtures("_shapes_unchecked", "trained")

TEACH = (
    *("teach", "-p", "synth", "-e", "ShortReacher-v1", "-n", "agent", "-t", "1024", "-l", "8"),
    *("-c", "1", "-i", "100", "--no-tensorboard", "-w", "1"),
    *("--ppo.num-envs", "8", "--ppo.rollout-steps", "64", "--ppo.minibatch-size", "256"),
    *("--ppo.num-epochs", "1", "--reward.ensemble-size", "1", "--reward.hidden", "16"),
)
ARCHIVED = "agent.archived-1"
END_OF_INPUT = b"\x04"


@pytest.fixture(scope="module")
def _trained_home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained-home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RL_TEACHER_HOME", str(folder))
        assert main(TEACH) == 0
    return folder


@pytest.fixture
def trained(_trained_home):
    """Give the test its own copy of a home folder with a finished experiment."""
    shutil.copytree(_trained_home, home())


@pytest.mark.parametrize(
    ("option", "kept", "num_comparisons"),
    [
        ("--force-new-agent-model", "predictor and labels", 16),
        ("--force_new_reward_model", "agent and labels", 16),
        ("--force-new-training-labels", "agent and predictor", 8),
        ("--force-new-environment-clips", "agent and predictor", 8),
    ],
)
def test_option_archives_experiment_and_keeps_the_other_parts(
    option, kept, num_comparisons, capsys
):
    before = RewardPredictor.load(Experiment.find("agent").folder / "predictor").state()
    assert main([*TEACH, option, "--yes"]) == 0
    output = " ".join(capsys.readouterr().out.split())
    assert f"archived as {ARCHIVED}. The new one keeps of it: {kept}." in output
    archived = RewardPredictor.load(Experiment.find(ARCHIVED).folder / "predictor").state()
    assert all(np.array_equal(archived[name], array) for name, array in before.items())
    new = Experiment.find("agent").config
    assert (new["agent_path"] is not None) == ("agent" in kept)
    assert (new["predictor_path"] is not None) == ("predictor" in kept)
    last = rows("agent")[-1]
    assert (last["labels_answered"], last["comparisons"]) == (8, num_comparisons)
    with open_store() as store:
        archived_id = store.experiments.get(ARCHIVED).id
        assert store.experiments.get(ARCHIVED).archived_at is not None
        kinds = [each.kind for each in store.events.page(archived_id).rows]
    assert kinds == ["archive", "rename"]


def test_printed_options_continue_the_new_experiment(capsys):
    assert main([*TEACH, "--force-new-reward-model", "--yes"]) == 0
    output = " ".join(capsys.readouterr().out.split())
    options = output.partition("replace the --force-new-... options by: ")[2].split()[:5]
    assert options == ["--agent-path", ARCHIVED, "--labels", ARCHIVED, "--keep-asking"]
    steps = Experiment.find("agent").summary().step
    assert main([*TEACH, *options]) == 0
    assert Experiment.find("agent").summary().step == steps


def test_archived_experiment_is_listed_and_restored(capsys):
    everything = ("--force-new-agent-model", "--force-new-reward-model")
    assert main([*TEACH, *everything, "--force-new-training-labels", "--yes"]) == 0
    assert "keeps of it: nothing." in " ".join(capsys.readouterr().out.split())
    assert main(["archive", "list"]) == 0
    assert ARCHIVED in capsys.readouterr().out
    assert main(["archive", "restore", ARCHIVED]) == 0
    assert main(["archive", "list"]) == 0
    assert "No experiment is archived." in capsys.readouterr().out
    assert main([*TEACH, "--force-new-agent-model", "--yes"]) == 0
    assert Experiment.find("agent.archived-2").summary().step >= 1_024


@pytest.fixture
def terminal(monkeypatch):
    """Function that types at a pseudo-terminal, which is the standard input."""
    controller, replica = pty.openpty()
    with os.fdopen(replica) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        yield lambda text: os.write(controller, text)
    os.close(controller)


@pytest.mark.parametrize("typed", [b"y\n", b"n\n", b"yess\n", END_OF_INPUT])
def test_nothing_is_archived_unless_the_answer_at_the_terminal_is_yes(typed, terminal):
    terminal(typed)
    is_yes = typed == b"y\n"
    assert (main([*TEACH, "--force-new-agent-model"]) == 0) == is_yes
    archived = {ARCHIVED} if is_yes else set()
    assert {each.name for each in Experiment.all()} == {"agent"} | archived


@pytest.mark.parametrize("command", [["delete", "agent"], [*TEACH, "--force-new"]])
def test_nothing_is_deleted_unless_the_answer_at_the_terminal_is_yes(command, terminal):
    terminal(b"n\n")
    assert main(command) == 2
    assert Experiment.find("agent").summary().labels.answered == 8


@pytest.fixture
def _labelled_by_ann(trained):
    """Give the experiment a label of a person."""
    with open_store() as store:
        comparison = store.comparisons.page(store.experiments.get("agent").id).rows[0]
        store.labels.add(comparison.id, Answer.LEFT, "ann")


@pytest.mark.parametrize(("typed", "is_deleted"), [(b"y\n", False), (b"agent\n", True)])
@pytest.mark.parametrize("command", [["delete", "agent"], [*TEACH, "--force-new"]])
@pytest.mark.usefixtures("_labelled_by_ann")
def test_labels_of_people_are_deleted_only_if_the_name_is_typed(
    command, typed, is_deleted, terminal
):
    terminal(typed)
    assert (main(command) == 0) == is_deleted
    with open_store() as store:
        kinds = [each.kind for each in store.events.page().rows]
    assert ("delete" in kinds) == is_deleted


@pytest.mark.parametrize("options", [["--port", "99999"], ["--media", f"{__file__}/media"]])
@pytest.mark.parametrize("option", ["--force-new", "--force-new-agent-model"])
def test_force_new_with_unusable_options_changes_nothing(option, options, capsys):
    assert main([*TEACH, "-p", "human", "--no-browser", option, "--yes", *options]) == 2
    assert options[0] in capsys.readouterr().err
    assert_unchanged()


def assert_unchanged():
    assert [each.name for each in Experiment.all()] == ["agent"]
    with open_store() as store:
        assert store.experiments.get("agent").answered == 8


@pytest.mark.parametrize("options", [[], ["--force-new", "--yes"]])
def test_experiment_that_another_trainer_runs_is_refused_with_exit_code_2(options, capsys):
    with open_store() as store, store.locks.hold("agent"):
        assert main([*TEACH, *options]) == 2
    assert str(os.getpid()) in capsys.readouterr().err
    assert Experiment.find("agent").summary().labels.answered == 8


def test_nothing_is_archived_if_the_new_experiment_cannot_start(capsys):
    other = ["ShortHopper-v1" if each == "ShortReacher-v1" else each for each in TEACH]
    assert main([*other, "--force-new-agent-model", "--yes"]) == 2
    assert "predictor" in capsys.readouterr().err
    assert main([*TEACH, "--force-new-agent-model"]) == 2
    assert "--yes" in capsys.readouterr().err
    assert main([*TEACH, "--force-new-agent-model", "--force-new", "--yes"]) == 2
    assert main([*TEACH, "--force-new-environment-clips", "--reuse-clips", "--yes"]) == 2
    assert [each.name for each in Experiment.all()] == ["agent"]
