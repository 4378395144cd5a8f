"""Journeys of invited labelers, and of visitors without access."""

from datetime import UTC, datetime, timedelta

import pytest

from rl_teacher.clips.answer import Answer, is_swapped, mirror_answer
from rl_teacher.web.address import experiment_path
from tests.browser.accessibility import assert_accessible
from tests.browser.conftest import PHONE
from tests.browser.labelling_page import KEYS, PATIENCE_MS, LabellingPage, text_on
from tests.store.comparisons import add_labeler

pytestmark = pytest.mark.browser


def invite_link(service, experiment):
    expires_at = datetime.now(UTC) + timedelta(days=1)
    token = experiment.store.access.invite(experiment=experiment.name, expires_at=expires_at)[1]
    return f"{service.address.url}/join?invite={token}"


def join(page, link, name):
    page.goto(link)
    page.get_by_label("Your name").fill(name, timeout=PATIENCE_MS)
    page.get_by_role("button", name="Start labelling").click()


def answers_of(experiment, name):
    """Return a labeler's current answers by comparison, in the stored order."""
    page = experiment.store.comparisons.page(experiment.id, limit=200)
    return {row.id: vote.answer for row in page.rows for vote in row.votes if vote.labeler == name}


def test_invited_labeler_joins_practises_and_labels_on_phone(open_context, service, experiment):
    experiment.ask(4)
    store, link = experiment.store, invite_link(service, experiment)
    add_labeler(store, f"Ada of {experiment.name}")
    page = open_context(viewport=PHONE, has_touch=True, is_mobile=True).new_page()
    join(page, link, f"Ada of {experiment.name}")
    page.get_by_role("alert").get_by_text("is taken").wait_for()
    name = f"guest of {experiment.name}"
    lost = []

    def lose_first_response(route):
        if lost:
            route.continue_()
        else:
            lost.append(route.fetch().status)
            route.abort()

    page.route("**/api/v1/join", lose_first_response)
    for _ in range(2):
        page.get_by_label("Your name").fill(name)
        page.get_by_role("button", name="Start labelling").click()
        if not lost:
            page.get_by_role("alert").wait_for()
    page.get_by_role("heading", name="hops farther").wait_for(timeout=PATIENCE_MS)
    page.keyboard.press("ArrowRight")
    text_on(page, "the expected answer is “top is better”").wait_for()
    for key in ("ArrowRight", "ArrowDown"):
        page.keyboard.press("Enter")
        page.get_by_role("group", name="Your label").wait_for()
        page.keyboard.press(key)
        text_on(page, "Correct.", exact=True).wait_for()
    page.get_by_role("button", name="Start labelling").click()
    labelling = LabellingPage(page)
    first = labelling.shown_comparison()
    page.get_by_role("button", name="Top is better").tap()
    labelling.shown_comparison(other_than=first)
    labelling.wait_until_sent()
    seen = mirror_answer(Answer.LEFT, swapped=is_swapped(first, name))
    assert answers_of(experiment, name) == {first: seen}

    page.goto(service.address.url + experiment_path(experiment.name))
    second = labelling.shown_comparison()
    assert page.url.endswith("/label")
    other = open_context().new_page()
    join(other, link, f"second of {experiment.name}")
    other.get_by_role("heading", name="This invite cannot be used").wait_for()
    assert other.context.cookies() == []
    store.access.revoke_credentials(name)
    labelling.press(KEYS[Answer.EQUAL])
    text_on(page, "This browser is no longer signed in").wait_for()
    assert labelling.hook("outboxLength") == 1
    assert second not in answers_of(experiment, name)


def test_visitor_without_token_gets_help_and_token_signs_in_until_sign_out(
    open_context, service, experiment
):
    page = open_context().new_page()
    answered = page.goto(f"{service.address.url}/e/some?token={'x' * 43}")
    assert answered is not None
    assert answered.status == 401
    assert "Open the link that you received" in page.locator("body").inner_text()
    page.goto(f"{service.address.url}/join?invite=none")
    page.get_by_label("Your name").wait_for(timeout=PATIENCE_MS)
    assert_accessible(page)
    page.goto(service.link("/"))
    page.get_by_role("link", name=experiment.name, exact=True).wait_for(timeout=PATIENCE_MS)
    assert page.url == service.address.url + "/"
    assert page.evaluate("document.cookie") == ""
    assert service.token not in page.content()
    [cookie] = page.context.cookies()
    assert service.token not in cookie["value"]
    page.get_by_role("button", name="Sign out").click()
    page.get_by_text("Open the link that you received").wait_for()
    page.context.add_cookies([cookie])
    again = page.goto(service.address.url)
    assert again is not None
    assert again.status == 401
