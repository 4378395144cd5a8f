"""Ranking of an experiment's clips by the current answers."""

import math

import pytest

from rl_teacher.clips.answer import Answer
from rl_teacher.web import clip_ranking
from tests.web.conftest import ENV_ID, assert_problem

URL = "/api/v1/experiments/hopper/ranking"


def ask_about(trainer, *pairs):
    """Add comparisons of clips by name and return their ids."""
    hashes = [(trainer.add_clip(left), trainer.add_clip(right)) for left, right in pairs]
    return trainer.store.comparisons.add(trainer.id, hashes, ENV_ID, 60, 0)


@pytest.fixture
def sorted_clips(trainer, store):
    """Three clips, best first, each pair compared by three labelers."""
    ids = ask_about(trainer, ("best", "middle"), ("middle", "worst"), ("best", "worst"))
    for comparison_id in ids:
        for labeler in ("ann", "bob", "cleo"):
            store.labels.add(comparison_id, Answer.LEFT, labeler)
    return [trainer.add_clip(name) for name in ("best", "middle", "worst")]


def hashes(ranking):
    return [each["hash"] for each in ranking["clips"]]


class TestRanking:
    def test_ranking_without_comparisons_is_empty(self, program, trainer):
        empty = {"clips": [], "num_answers": 0, "num_contradictions": 0, "contradictions": []}
        assert program.get(URL).json() == empty

    def test_preferred_clips_come_first(self, program, sorted_clips):
        ranking = program.get(URL).json()
        assert hashes(ranking) == sorted_clips
        best, middle, worst = ranking["clips"]
        assert [each["rank"] for each in ranking["clips"]] == [1, 2, 3]
        assert best["quality"] > middle["quality"] > worst["quality"]
        assert best["quality"] == pytest.approx(-worst["quality"], abs=1e-3)
        assert 0 < middle["standard_deviation"] < best["standard_deviation"] < 3
        assert [each["num_answers"] for each in ranking["clips"]] == [6, 6, 6]
        assert ranking["num_answers"] == 9
        assert best["clip"]["url"] == f"/api/v1/clips/{best['hash']}"

    def test_unanswered_clips_have_the_prior_and_open_comparisons(
        self, program, trainer, sorted_clips
    ):
        ask_about(trainer, ("best", "new"), ("new", "newer"))
        clips = {each["hash"]: each for each in program.get(URL).json()["clips"]}
        new = clips[trainer.add_clip("new")]
        assert (new["num_answers"], new["num_open"], new["quality"]) == (0, 2, 0)
        assert new["standard_deviation"] == pytest.approx(3)
        assert [clips[each]["num_open"] for each in sorted_clips] == [1, 0, 0]

    def test_changed_and_withdrawn_answers_rank_again(self, program, trainer, store):
        [comparison_id] = ask_about(trainer, ("one", "other"))
        one, other = trainer.add_clip("one"), trainer.add_clip("other")
        store.labels.add(comparison_id, Answer.LEFT, "ann")
        assert hashes(program.get(URL).json()) == [one, other]
        store.labels.add(comparison_id, Answer.RIGHT, "ann")
        assert hashes(program.get(URL).json()) == [other, one]
        store.labels.add(comparison_id, None, "ann")
        assert program.get(URL).json()["num_answers"] == 0

    def test_answers_of_excluded_labelers_do_not_count(self, program, trainer, store):
        [comparison_id] = ask_about(trainer, ("one", "other"))
        store.labels.add(comparison_id, Answer.LEFT, "ann")
        assert program.get(URL).json()["num_answers"] == 1
        store.labelers.set_excluded("ann", is_excluded=True)
        ranking = program.get(URL).json()
        assert ranking["num_answers"] == 0
        assert {each["quality"] for each in ranking["clips"]} == {0}
        [found] = program.get(f"{URL}/{trainer.add_clip('one')}").json()
        [answer] = found["answers"]
        assert (answer["is_excluded"], answer["probability"]) == (True, None)

    def test_equal_counts_and_cannot_tell_does_not(self, program, trainer, store):
        equal, unclear = ask_about(trainer, ("one", "other"), ("one", "third"))
        store.labels.add(equal, Answer.EQUAL, "ann")
        store.labels.add(unclear, Answer.CANNOT_TELL, "ann")
        ranking = program.get(URL).json()
        answers = {each["hash"]: each["num_answers"] for each in ranking["clips"]}
        assert answers[trainer.add_clip("one")] == 1
        assert answers[trainer.add_clip("third")] == 0

    def test_contradicting_answer_is_listed(self, program, store, sorted_clips, trainer):
        assert program.get(URL).json()["contradictions"] == []
        _, _, across = ask_about(
            trainer, ("best", "middle"), ("middle", "worst"), ("best", "worst")
        )
        store.labels.add(across, Answer.RIGHT, "dora")
        ranking = program.get(URL).json()
        assert ranking["num_contradictions"] == 1
        [found] = ranking["contradictions"]
        assert (found["id"], found["left"]["hash"]) == (across, sorted_clips[0])
        answers = {each["labeler"]: each for each in found["answers"]}
        assert answers["dora"]["is_contradiction"]
        assert answers["dora"]["probability"] < 0.1
        assert not answers["ann"]["is_contradiction"]
        # The preference is the logistic function of the difference in quality.
        best, _, worst = (each["quality"] for each in ranking["clips"])
        expected = 1 / (1 + math.exp(worst - best))
        assert answers["ann"]["probability"] == pytest.approx(expected)

    def test_clips_that_cannot_be_shown_are_ranked(self, program, trainer, store):
        [comparison_id] = trainer.ask(rendered=False)
        store.labels.add(comparison_id, Answer.LEFT, "ann")
        clips = program.get(URL).json()["clips"]
        assert [(each["clip"], each["rank"]) for each in clips] == [(None, 1), (None, 2)]

    def test_ranking_is_computed_once_for_the_same_answers(
        self, program, sorted_clips, monkeypatch
    ):
        first = program.get(URL).json()
        monkeypatch.setattr(clip_ranking, "fit_ranking", None)
        assert program.get(URL).json() == first


class TestComparisonsOfClip:
    def test_comparisons_of_clip_contain_probabilities(self, program, sorted_clips):
        found = program.get(f"{URL}/{sorted_clips[1]}").json()
        assert [each["number"] for each in found] == [1, 2]
        assert sorted_clips[1] == found[0]["right"]["hash"] == found[1]["left"]["hash"]
        answers = [answer for each in found for answer in each["answers"]]
        assert [each["labeler"] for each in answers] == ["ann", "bob", "cleo"] * 2
        assert all(0.5 < each["probability"] < 1 for each in answers)

    @pytest.mark.parametrize("content_hash", ["0" * 64, "x", "a%00b"])
    def test_clip_of_no_comparison_is_not_found(self, program, sorted_clips, content_hash):
        assert_problem(program.get(f"{URL}/{content_hash}"), 404)
