import pytest

from rl_teacher.common.errors import BadInput, CorruptCheckpoint
from rl_teacher.play.actors import select_checkpoint


def chosen(checkpoints, wanted):
    found = select_checkpoint("synth", checkpoints[0].parent, wanted)
    return found.checkpoint.step, found.place


def damage(path):
    path.write_bytes(path.read_bytes()[:-10])


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("latest", (1024, "latest")),
        ("previous", (1024, "previous")),
        ("1024", (1024, "latest")),
        ("1_024", (1024, "latest")),
        ("1,024", (1024, "latest")),
        ("1.024e3", (1024, "latest")),
    ],
)
def test_checkpoint_is_selected_by_place_or_step(checkpoints, wanted, expected):
    # The last checkpoint is written twice: after the last rollout and at the end.
    assert chosen(checkpoints, wanted) == expected


@pytest.mark.parametrize("wanted", ["7", "1024.5", "-1", "nan", "inf"])
def test_missing_step_lists_kept_checkpoints(checkpoints, wanted):
    with pytest.raises(BadInput) as error:
        chosen(checkpoints, wanted)
    assert "step 1,024 (latest), step 1,024 (previous)" in str(error.value)


def test_invalid_name_lists_kept_checkpoints(checkpoints):
    with pytest.raises(BadInput, match=r"latest, previous or a step is needed.*1,024"):
        chosen(checkpoints, "newest")


def test_experiment_without_checkpoint_explains_when_one_is_written(tmp_path):
    with pytest.raises(BadInput, match="has no checkpoint yet"):
        select_checkpoint("new", tmp_path / "nowhere", "latest")


def test_previous_needs_two_checkpoints(checkpoints):
    checkpoints[1].unlink()
    with pytest.raises(BadInput, match="no checkpoint previous"):
        chosen(checkpoints, "previous")


def test_damaged_latest_checkpoint_falls_back_with_note(checkpoints):
    damage(checkpoints[0])
    found = select_checkpoint("synth", checkpoints[0].parent, "latest")
    assert found.place == "previous"
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
    assert chosen(checkpoints, "latest") == (1024, "latest")
    assert reads == checkpoints
