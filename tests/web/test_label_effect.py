"""Effect of a labeler's own labels on the reward predictor."""

import pytest

from rl_teacher.clips.answer import Answer
from tests.web.conftest import ENV_ID

URL = "/api/v1/experiments/hopper/effect"


def effect(client):
    response = client.get(URL)
    assert response.status_code == 200, response.text
    return response.json()


def set_predictions(trainer, predicted, num_fits=1):
    """Store the predicted returns of the left and the right clip, by comparison id."""
    comparisons = [[each, *returns] for each, returns in predicted.items()]
    diagnostics = {"comparisons": comparisons, "num_fits": num_fits, "num_labels": len(comparisons)}
    trainer.store.experiments.set_diagnostics(trainer.id, diagnostics)


def clips_of(trainer, comparison_id):
    view = trainer.store.comparisons.get(comparison_id)
    return view.left.content_hash, view.right.content_hash


def hashes(clips):
    return [each["hash"] for each in clips]


@pytest.fixture
def answered(trainer):
    """Four comparisons that Ann has answered with `left`, in their stored order."""
    ids = trainer.ask(4)
    for each in ids:
        trainer.store.labels.add(each, Answer.LEFT, "ann")
    return ids


def test_effect_is_empty_before_first_fit(guest, answered):
    assert effect(guest) == {
        "num_fits": 0,
        "num_labels": 0,
        "num_compared": 0,
        "num_agreed": 0,
        "disagreements": [],
        "highest": [],
        "lowest": [],
    }


def test_effect_compares_predictions_with_own_labels(guest, trainer, answered):
    first, second, third, fourth = answered
    set_predictions(
        trainer, {first: (2.0, 1.0), second: (-1.0, 0.5), third: (0.1, 0.0), fourth: (-3.0, 4.0)}, 7
    )
    found = effect(guest)
    assert (found["num_fits"], found["num_labels"]) == (7, 4)
    assert (found["num_compared"], found["num_agreed"]) == (4, 2)
    assert [each["id"] for each in found["disagreements"]] == [fourth, second]
    for each in found["disagreements"]:
        # In the order of sides that Ann saw.
        shown = guest.get(f"/api/v1/comparisons/{each['id']}").json()
        assert (each["answer"], each["left"]) == (shown["answer"], shown["left"])
    best = clips_of(trainer, fourth)[1], clips_of(trainer, first)[0]
    worst = clips_of(trainer, fourth)[0], clips_of(trainer, second)[0]
    assert tuple(hashes(found["highest"])[:2]) == best
    assert tuple(hashes(found["lowest"])[:2]) == worst
    assert not {*hashes(found["highest"])} & {*hashes(found["lowest"])}


def test_effect_does_not_reveal_labels_of_others(guest, other_guest, trainer, answered):
    shared, *own = answered
    trainer.store.labels.add(shared, Answer.RIGHT, "bob")
    set_predictions(trainer, dict.fromkeys(answered, (0.0, 1.0)))
    found = effect(guest)
    assert {each["id"] for each in found["disagreements"]} == {*own}
    assert not {*clips_of(trainer, shared)} & {*hashes(found["highest"]), *hashes(found["lowest"])}
    of_bob = effect(other_guest)
    assert (of_bob["num_compared"], of_bob["highest"], of_bob["disagreements"]) == (0, [], [])


def test_effect_reveals_nothing_about_comparisons_still_to_be_asked(
    guest, other_guest, trainer, answered
):
    first, *others = answered
    left, _ = clips_of(trainer, first)
    set_predictions(trainer, dict.fromkeys(answered, (0.0, 1.0)))
    assert effect(guest)["num_compared"] == 4
    # Another comparison asks about a clip that Ann has seen.
    trainer.store.comparisons.add(trainer.id, [(left, trainer.add_clip("new"))], ENV_ID, 60, 0)
    found = effect(guest)
    assert {each["id"] for each in found["disagreements"]} == {*others}
    assert left not in {*hashes(found["highest"]), *hashes(found["lowest"])}
