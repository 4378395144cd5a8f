import pytest

from rl_teacher.common.errors import BadInput, CorruptCheckpoint
from rl_teacher.play.checkpoints import choose


def chosen(checkpoints, wanted):
    found = choose("synth", checkpoints[0].parent, wanted)
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
def test_a_checkpoint_is_chosen_by_its_place_or_its_step(checkpoints, wanted, expected):
    # Note: the last one is written twice, after the last rollout and at the end.
    assert chosen(checkpoints, wanted) == expected


@pytest.mark.parametrize("wanted", ["7", "1024.5", "-1", "nan", "inf"])
def test_a_step_that_is_not_kept_is_answered_with_those_that_are(checkpoints, wanted):
    with pytest.raises(BadInput) as error:
        chosen(checkpoints, wanted)
    assert "step 1,024 (latest), step 1,024 (previous)" in str(error.value)


def test_a_word_that_is_none_is_answered_with_those_that_are(checkpoints):
    with pytest.raises(BadInput, match=r"latest, previous or a step is needed.*1,024"):
        chosen(checkpoints, "newest")


def test_without_any_checkpoint_it_says_that_training_must_begin(tmp_path):
    with pytest.raises(BadInput, match="has no checkpoint yet"):
        choose("new", tmp_path / "nowhere", "latest")


def test_there_is_no_previous_one_after_the_first(checkpoints):
    checkpoints[1].unlink()
    with pytest.raises(BadInput, match="no checkpoint previous"):
        chosen(checkpoints, "previous")


def test_a_damaged_latest_one_is_passed_over_and_that_is_said(checkpoints):
    damage(checkpoints[0])
    found = choose("synth", checkpoints[0].parent, "latest")
    assert found.place == "previous"
    assert found.note is not None
    assert "step 1,024 is damaged" in found.note


def test_a_damaged_one_that_was_named_is_not_replaced_by_another(checkpoints):
    damage(checkpoints[1])
    with pytest.raises(CorruptCheckpoint, match="is damaged"):
        chosen(checkpoints, "previous")


def test_where_all_are_damaged_nothing_is_played(checkpoints):
    for each in checkpoints:
        damage(each)
    with pytest.raises(CorruptCheckpoint, match="None of the 2 checkpoints"):
        chosen(checkpoints, "latest")


def test_one_that_a_training_run_takes_away_meanwhile_is_looked_for_again(checkpoints, monkeypatch):
    from rl_teacher.play import checkpoints as module

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
