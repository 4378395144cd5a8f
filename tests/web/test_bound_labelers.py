"""Labelers who are limited to one experiment."""

from datetime import timedelta

import pytest

from rl_teacher.web.access import EXPERIMENT_PATH, Access, required_access
from tests.store.comparisons import num_labels_of
from tests.web.conftest import Trainer, assert_problem, enter, label, post

WITHOUT_A_NAME = {
    "/",
    "/api/openapi.json",
    "/api/v1/clips/{content_hash}",
    "/api/v1/comparisons/{comparison_id}",
    "/api/v1/comparisons/{comparison_id}/download",
    "/api/v1/clips/{content_hash}/download",
    "/api/v1/events",
    "/api/v1/experiments",
    "/api/v1/labels",
    "/api/v1/leases/release",
    "/api/v1/leases/renew",
    "/api/v1/me",
    "/api/v1/sign-out",
    "/api/v1/scenes/{scene_hash}",
    "/e/{name}",
    "/e/{name}/label",
    "/e/{name}/watch",
    "/play",
    "/readyz",
}
"""Open to labelers, and about no experiment by its path. Those that tell of one ask who sees it:
see below. What is new here needs a test there."""


@pytest.fixture
def secret(store, media):
    """Other experiment with waiting comparisons."""
    made = Trainer(store, media, "secret")
    made.ask(3)
    return made


@pytest.fixture
def token(store, trainer, clock):
    """Credential of Cleo, who was invited to `hopper`."""
    trainer.ask(3)
    expires_at = clock() + timedelta(days=1)
    _, invite = store.access.invite(experiment="hopper", expires_at=expires_at)
    return store.access.accept_invite(invite, "Cleo")[1]


@pytest.fixture
def bound(app, token):
    return enter(app, token)


def first_of(store, trainer):
    return store.comparisons.page(trainer.id).rows[-1].id


def test_labeler_routes_without_experiment_are_listed(app):
    unnamed = {
        route.path
        for route in app.routes
        if required_access(route) is Access.LABELER and not route.path.startswith(EXPERIMENT_PATH)
    }
    assert unnamed == WITHOUT_A_NAME


def test_bound_labeler_lists_only_own_experiment(bound, guest, secret):
    def names(client):
        return [each["name"] for each in client.get("/api/v1/experiments").json()]

    assert names(bound) == ["hopper"]
    assert names(guest) == ["secret", "hopper"]


@pytest.mark.parametrize("rest", ["", "/comparisons/next", "/labels", "/comparisons/next?limit=99"])
def test_other_experiment_looks_missing(app, bound, store, secret, rest):
    there = bound.get(f"/api/v1/experiments/secret{rest}")
    assert_problem(there, 404)
    store.experiments.delete("secret")
    assert bound.get(f"/api/v1/experiments/secret{rest}").content == there.content


@pytest.mark.parametrize("rest", ["", "/download"])
def test_comparison_of_other_experiment_looks_missing(bound, store, secret, rest):
    path = f"/api/v1/comparisons/{first_of(store, secret)}{rest}"
    there = bound.get(path)
    assert_problem(there, 404)
    store.experiments.delete("secret")
    assert bound.get(path).content == there.content


def test_label_for_other_experiment_is_rejected_alone(bound, store, trainer, secret):
    own, foreign = first_of(store, trainer), first_of(store, secret)
    receipt = post(bound, label(own), label(foreign)).json()
    assert len(receipt["accepted"]) == 1
    assert [each["problem"]["status"] for each in receipt["rejected"]] == [404]
    assert num_labels_of(store, secret.id, "Cleo") == 0
