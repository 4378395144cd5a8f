"""Access, resources and accessibility of every page."""

import re

import pytest

from rl_teacher.clips.answer import Answer
from rl_teacher.web.address import label_path
from tests.browser.conftest import PHONE, WIDE
from tests.browser.experiments import Experiment
from tests.browser.labelling_page import PATIENCE_MS, text_on
from tests.browser.pages import (
    PAGES_OF_EXPERIMENT,
    go_to_experiment,
    go_to_experiments,
    go_to_labelling,
)
from tests.browser.test_layout import OVERFLOWING

pytestmark = pytest.mark.browser

LOG_EXPERIMENT_EVENTS = """() => {
  const source = new EventSource("/api/v1/events")
  source.addEventListener("experiment", ({ data }) => console.log(JSON.parse(data).name))
}"""


def hold_experiment_lists(page):
    """Return a list that receives the requests for experiments, unanswered, and their responses."""
    held = []
    page.route("**/api/v1/experiments", lambda route: held.append((route, route.fetch())))
    return held


def wait_for_held(page, held):
    while not held:
        page.wait_for_timeout(20)


class TestAccess:
    @pytest.mark.parametrize("path", ["/", "/e/some", label_path("some")])
    @pytest.mark.parametrize("query", ["", "?token=", "?token=" + "x" * 43])
    def test_missing_or_wrong_token_returns_help_page(self, open_context, service, path, query):
        page = open_context().new_page()
        answered = page.goto(service.address.url + path + query)
        assert answered.status == 401
        text = page.locator("body").inner_text()
        assert "Open the link that you received" in text
        assert page.locator("code").first.inner_text() == "rl-teacher teach"
        assert "`" not in text
        assert page.context.cookies() == []

    def test_token_is_removed_from_address_and_hidden_from_scripts(
        self, open_context, service, full
    ):
        page = open_context().new_page()
        go_to_labelling(page, service, full)
        assert page.url == service.address.url + label_path(full.name)
        assert page.evaluate("document.cookie") == ""
        assert service.token not in page.content()

    def test_user_signs_out(self, open_context, service, full):
        page = open_context().new_page()
        go_to_experiments(page, service, full)
        [cookie] = page.context.cookies()
        assert service.token not in cookie["value"]
        page.get_by_role("button", name="Sign out").click()
        page.get_by_text("Open the link that you received").wait_for()
        assert page.context.cookies() == []
        page.context.add_cookies([cookie])
        assert page.goto(service.address.url).status == 401

    def test_lost_cookie_shows_message_and_keeps_answer(self, open_page, full):
        opened = open_page(full.name)
        opened.shown_comparison()
        opened.page.context.clear_cookies()
        answered = opened.shown_comparison()
        opened.press("ArrowDown")
        text_on(opened.page, "This browser is no longer signed in.").wait_for()
        assert opened.hook("outboxLength") == 1
        assert answered not in full.answers()


class TestEveryPage:
    @pytest.mark.parametrize(
        "size",
        [pytest.param(WIDE, id="wide", marks=pytest.mark.slow), pytest.param(PHONE, id="phone")],
    )
    def test_pages_load_no_external_resources_and_log_nothing(
        self, open_context, service, full, size
    ):
        context = open_context(viewport=size, has_touch=size == PHONE)
        requests, complaints = [], []
        context.on("request", lambda request: requests.append(request.url))
        context.on("console", lambda message: complaints.append((message.type, message.text)))
        page = context.new_page()
        for visit in PAGES_OF_EXPERIMENT:
            visit(page, service, full)
            assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
        allowed = (service.address.url + "/", "data:", f"blob:{service.address.url}/")
        assert [url for url in requests if not url.startswith(allowed)] == []
        assert any("/api/v1/clips/" in url for url in requests)
        # Chromium warns that its software rendering reads frames back.
        complaints = [text for _, text in complaints if "GPU stall due to ReadPixels" not in text]
        assert complaints == []

    def test_experiment_list_follows_changes(self, open_context, service, full):
        page = open_context().new_page()
        go_to_experiments(page, service, full)
        row = page.get_by_role("listitem").filter(has_text=full.name)
        full.set_status("training", "Learning to hop.", step=123_456)
        row.get_by_text("123.5k of 400k steps").wait_for(timeout=PATIENCE_MS)

    def test_experiment_list_is_shown_once_it_is_read(self, open_context, service, full):
        """Summaries of the event stream alone would be a part of the list."""
        page = open_context().new_page()
        held = hold_experiment_lists(page)
        page.goto(service.link("/"))
        wait_for_held(page, held)
        full.set_status("training", "Learning to hop.", step=123_456)
        with page.expect_event("console", lambda message: message.text == full.name):
            page.evaluate(LOG_EXPERIMENT_EVENTS)
        page.get_by_label("Loading the experiments").wait_for()
        assert page.get_by_role("link", name=full.name, exact=True).count() == 0
        for route, response in held:
            route.fulfill(response=response)
        row = page.get_by_role("listitem").filter(has_text=full.name)
        row.get_by_text("123.5k of 400k steps").wait_for(timeout=PATIENCE_MS)

    def test_experiment_list_keeps_events_that_are_newer_than_a_response(
        self, open_context, service, full
    ):
        page = open_context().new_page()
        go_to_experiments(page, service, full)
        held = hold_experiment_lists(page)
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        wait_for_held(page, held)
        row = page.get_by_role("listitem").filter(has_text=full.name)
        full.set_status("training", "Learning to hop.", step=123_456)
        row.get_by_text("123.5k of 400k steps").wait_for(timeout=PATIENCE_MS)
        for route, response in held:
            listed = response.json()["experiments"]
            listed.append({**listed[0], "name": "in-the-response"})
            route.fulfill(json={"experiments": listed})
        page.get_by_role("link", name="in-the-response", exact=True).wait_for(timeout=PATIENCE_MS)
        assert row.get_by_text("123.5k of 400k steps").is_visible()

    def test_experiment_list_is_searched_by_name_and_environment(
        self, open_context, service, store, full
    ):
        other = Experiment(store, full.media, f"{full.name}-gait", env_id="ShortWalker-v1")
        page = open_context().new_page()
        go_to_experiments(page, service, full)
        links = page.locator("main li .name a")
        page.get_by_label("Search experiments").fill(f"walker {full.name}")
        page.get_by_role("link", name=full.name, exact=True).wait_for(state="detached")
        assert links.all_inner_texts() == [other.name]
        page.get_by_label("Search experiments").fill("no such thing")
        page.get_by_text("No experiment matches").wait_for()

    def test_search_stays_when_one_experiment_is_left(self, open_context, service, full):
        page = open_context().new_page()

        def leave_one(route):
            route.fulfill(json={"experiments": route.fetch().json()["experiments"][:1]})

        page.route("**/api/v1/experiments", leave_one)
        page.route("**/api/v1/events*", lambda route: route.abort())  # they add the others
        page.goto(service.link("/?search=deleted"))
        page.get_by_text("No experiment matches").wait_for(timeout=PATIENCE_MS)
        page.get_by_label("Search experiments").fill("")
        page.locator("main li .name a").wait_for()

    def test_back_returns_to_scroll_position_of_experiment_list(
        self, open_context, service, store, full
    ):
        for n in range(8):
            Experiment(store, full.media, f"{full.name}-{n}")
        page = open_context().new_page()
        page.goto(service.link("/"))
        link = page.get_by_role("link", name=full.name, exact=True)
        link.wait_for(timeout=PATIENCE_MS)
        page.evaluate("scrollTo(0, 400)")
        link.evaluate("link => link.click()")
        page.get_by_role("heading", name=full.name).wait_for(timeout=PATIENCE_MS)
        assert page.evaluate("scrollY") == 0
        page.go_back()
        link.wait_for(timeout=PATIENCE_MS)
        assert page.evaluate("scrollY") == 400

    def test_thumbnails_that_fail_to_load_are_loaded_again(self, open_context, service, full):
        page = open_context().new_page()
        latest = full.add_model_clip(100)  # loaded again with each summary
        episode = {"clip": latest, "true_return": 240.0, "step": 30_000}
        full.store.experiments.set_latest_episode(full.id, episode)
        clips = re.compile(f"/api/v1/clips/(?!{latest})")
        failed = []
        page.route(clips, lambda route: (failed.append(route.request.url), route.abort()))
        page.goto(service.link(f"/e/{full.name}?tab=clips"))
        wait_for_held(page, failed)
        with page.expect_response(lambda response: response.url == failed[0] and response.ok):
            page.unroute(clips)

    def test_owner_renames_archives_and_deletes_experiment(
        self, open_context, service, store, full
    ):
        old = Experiment(store, full.media, f"{full.name}-old")
        old.set_status("stopped", "Stopped.")
        old.ask(1)
        new_name = f"{full.name}-new"
        page = open_context().new_page()
        go_to_experiments(page, service, full)
        to_label = page.get_by_text(re.compile(r"comparisons? to label$"))
        num_waiting = int(to_label.inner_text().split()[0])
        page.get_by_role("button", name=f"Manage {old.name}").click()
        field = page.get_by_label("Name")
        field.fill(new_name)
        # Text selected beyond the edge of the dialog does not close it.
        box = field.bounding_box()
        page.mouse.move(box["x"] + 30, box["y"] + box["height"] / 2)
        page.mouse.down()
        page.mouse.move(5, box["y"] + box["height"] / 2)
        page.mouse.up()
        page.get_by_role("button", name="Rename").click()
        link = page.get_by_role("link", name=new_name, exact=True)
        link.wait_for()
        manage = page.get_by_role("button", name=f"Manage {new_name}")
        manage.click()
        page.get_by_role("button", name="Archive", exact=True).click()
        link.wait_for(state="detached")
        page.get_by_role("button", name="archived experiment").click()
        assert int(to_label.inner_text().split()[0]) == num_waiting - 1
        manage.click()
        page.get_by_role("button", name="Delete…").click()
        page.get_by_role("button", name="Delete permanently").click()
        link.wait_for(state="detached")
        names = [each.name for each in store.experiments.all()]
        assert full.name in names
        assert {old.name, new_name}.isdisjoint(names)

    def test_labelled_experiment_is_deleted_only_after_its_name_is_typed(
        self, open_context, service, store, full
    ):
        old = Experiment(store, full.media, f"{full.name}-labelled")
        store.labels.add(old.ask()[0], Answer.LEFT, "Ada")
        old.set_status("finished", "Finished.")
        page = open_context().new_page()
        go_to_experiments(page, service, full)
        page.get_by_role("button", name=f"Manage {old.name}").click()
        page.get_by_role("button", name="Delete…").click()
        delete = page.get_by_role("button", name="Delete permanently")
        name = page.get_by_label("Type the name of the experiment")
        for typed, is_enabled in (("", False), (full.name, False), (old.name, True)):
            name.fill(typed)
            assert delete.is_enabled() == is_enabled
        delete.click()
        page.get_by_role("link", name=old.name, exact=True).wait_for(state="detached")
        assert old.name not in [each.name for each in store.experiments.all()]

    def test_running_experiment_cannot_be_deleted(self, open_context, service, full):
        page = open_context().new_page()
        go_to_experiments(page, service, full)
        page.get_by_role("button", name=f"Manage {full.name}", exact=True).click()
        page.get_by_text("Stop it before you rename, archive or delete it.").wait_for()
        assert page.get_by_role("button", name="Delete").count() == 0

    def test_experiment_page_follows_changes(self, open_context, service, full):
        page = open_context().new_page()
        go_to_experiment(page, service, full)
        full.store.metrics.append(full.id, 50_000, {"held_out_accuracy": 0.123})
        page.get_by_text(re.compile(r"^12\s%$")).first.wait_for(timeout=PATIENCE_MS)


def test_filter_of_labelers_is_read_again_after_a_failure(open_context, service, full):
    page = open_context().new_page()
    page.route("**/api/v1/labelers", lambda route: route.abort(), times=1)
    page.goto(service.link(f"/e/{full.name}?tab=comparisons"))
    labelers = page.get_by_role("combobox", name="Labeler")
    labelers.select_option(f"Ada of {full.name}", timeout=PATIENCE_MS)


def test_list_without_comparisons_is_told_apart_from_no_match(open_context, service, experiment):
    page = open_context().new_page()
    page.goto(service.link(f"/e/{experiment.name}?tab=comparisons&sort=oldest"))
    page.get_by_text("No comparisons yet.").wait_for(timeout=PATIENCE_MS)
    page.get_by_role("checkbox", name="Gold").check()
    page.get_by_text("No matching comparisons.").wait_for(timeout=PATIENCE_MS)


def test_instructions_keep_line_breaks(open_context, service, full):
    lines = "Prefer the clip that\n- hops,\n\n- stays upright."
    full.store.experiments.describe(full.id, f"\n{lines}\n", 60)
    page = open_context().new_page()
    go_to_labelling(page, service, full)
    assert page.get_by_role("heading", level=1).inner_text() == lines
    go_to_experiment(page, service, full)
    assert page.locator(".instructions").inner_text() == f"“{lines}”"


def test_blank_instructions_are_shown_as_none(open_context, service, full):
    full.store.experiments.describe(full.id, " \n", 60)
    page = open_context().new_page()
    go_to_labelling(page, service, full)
    assert page.get_by_role("heading", level=1).inner_text() == "Which clip is better?"


@pytest.mark.parametrize(
    ("path", "phase"), [("", "waiting"), ("", "finished"), ("/watch", "waiting")]
)
def test_missing_clip_of_latest_episode_is_reported(open_context, service, experiment, path, phase):
    clip = experiment.add_model_clip(7)
    (service.home / "media" / f"clips/{clip}.poses").unlink()
    episode = {"clip": clip, "true_return": 240.0, "step": 30_000}
    experiment.store.experiments.set_latest_episode(experiment.id, episode)
    experiment.set_status(phase, "Waiting for answers.")
    page = open_context(viewport=PHONE).new_page()
    page.goto(service.link(f"/e/{experiment.name}{path}"))
    page.get_by_text(f"Clip {clip} cannot be shown.").wait_for(timeout=PATIENCE_MS)
    assert page.evaluate(OVERFLOWING) == []


def test_counts_of_one_are_in_the_singular(open_context, service, experiment):
    experiment.ask(1)
    experiment.store.experiments.describe(experiment.id, "", 1)
    page = open_context().new_page()
    page.goto(service.link(f"/e/{experiment.name}"))
    page.get_by_text("1 comparison asked").wait_for(timeout=PATIENCE_MS)
    go_to_experiments(page, service, experiment)
    row = page.get_by_role("listitem").filter(has_text=experiment.name)
    row.get_by_text("of 1 label", exact=True).wait_for()
