"""Journeys of an owner: experiments, their tabs, and the run."""

import re

import pytest

from rl_teacher.clips.answer import Answer
from rl_teacher.store.records import AssignmentPolicy, NewLabel
from rl_teacher.web.address import experiment_path
from tests.browser.conftest import PHONE
from tests.browser.experiments import Experiment
from tests.browser.labelling_page import PATIENCE_MS, LabellingPage
from tests.browser.layout import assert_fits
from tests.store.comparisons import add_labeler

pytestmark = pytest.mark.browser

RANKED = "main ol li button"


@pytest.fixture
def open_tab(open_context, service, experiment):
    """Return a function that opens a tab of the experiment's page as owner."""

    def opened(tab="overview", **options):
        page = open_context(**options).new_page()
        page.goto(service.link(f"{experiment_path(experiment.name)}?tab={tab}"))
        page.locator("main[aria-busy=false]").wait_for(timeout=PATIENCE_MS)
        return page

    return opened


def store_answers(store, comparison_id, **answers):
    for name, answer in answers.items():
        if name not in [each.name for each in store.labelers.all()]:
            add_labeler(store, name)
        store.labels.add_many([NewLabel(comparison_id, answer, name)])


def test_list_follows_runs_and_is_searched(open_context, service, store, full):
    other = Experiment(store, full.media, f"{full.name}-gait", env_id="ShortWalker-v1")
    page = open_context().new_page()
    page.goto(service.link("/"))
    row = page.get_by_role("listitem").filter(
        has=page.get_by_role("link", name=full.name, exact=True)
    )
    row.wait_for(timeout=PATIENCE_MS)
    full.set_status("training", "Learning to hop.", step=123_456)
    row.get_by_text("123.5k of 400k steps").wait_for(timeout=PATIENCE_MS)
    page.get_by_label("Search experiments").fill(f"walker {full.name}")
    row.wait_for(state="detached")
    assert page.locator("main li .name a").all_inner_texts() == [other.name]
    page.get_by_label("Search experiments").fill("no such thing")
    page.get_by_text("No experiment matches").wait_for()


def test_only_several_experiments_are_offered_for_comparison(open_context, service, store, full):
    Experiment(store, full.media, f"{full.name}-gait", env_id="ShortWalker-v1")
    page = open_context().new_page()
    page.goto(service.link("/"))
    page.get_by_label(f"Compare {full.name}", exact=True).wait_for(timeout=PATIENCE_MS)

    def leave_one(route):
        shown = [each for each in route.fetch().json() if each["name"] == full.name]
        route.fulfill(json=shown)

    page.route("**/api/v1/experiments", leave_one)
    page.route("**/api/v1/events**", lambda route: route.abort())
    page.reload()
    page.get_by_role("link", name=full.name, exact=True).wait_for(timeout=PATIENCE_MS)
    assert page.get_by_label(f"Compare {full.name}", exact=True).count() == 0


def test_labelled_experiment_is_renamed_archived_and_deleted_only_after_its_name_is_typed(
    open_context, service, store, experiment
):
    store.labels.add(experiment.ask(2)[0], Answer.LEFT, "Ada")
    experiment.set_status("stopped", "Stopped.")
    new_name = f"{experiment.name}-new"
    page = open_context().new_page()
    page.goto(service.link("/"))
    page.get_by_role("button", name=f"Manage {experiment.name}", exact=True).click(
        timeout=PATIENCE_MS
    )
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
    manage.click()
    page.get_by_role("button", name="Delete…").click()
    delete = page.get_by_role("button", name="Delete permanently")
    typed = page.get_by_label("Type the name of the experiment")
    for text, is_enabled in (("", False), (experiment.name, False), (new_name, True)):
        typed.fill(text)
        assert delete.is_enabled() == is_enabled
    delete.click()
    link.wait_for(state="detached")
    assert {experiment.name, new_name}.isdisjoint(each.name for each in store.experiments.all())


def test_owner_pauses_stops_and_changes_the_run(open_tab, experiment, store):
    experiment.set_status("training", "training")
    page = open_tab()

    def control():
        return store.experiments.control(experiment.id)

    page.get_by_role("button", name="Pause", exact=True).first.click()
    page.get_by_text("Pausing the run.").wait_for()
    assert control().state == "pause"
    experiment.set_status("paused", "paused")
    page.get_by_role("button", name="Resume").click(timeout=PATIENCE_MS)
    page.get_by_text("Resuming the run.").wait_for()
    assert control().state == "run"
    page.get_by_role("button", name="Stop and save").click()
    page.get_by_role("dialog").get_by_role("button", name="Stop and save").click()
    page.get_by_text("Saving and stopping the run.").wait_for()
    assert control().state == "stop"

    page.get_by_role("link", name="Settings").click()
    page.get_by_label("Instructions").fill("Prefer the higher jump.", timeout=PATIENCE_MS)
    page.get_by_label("Overlap").fill("25")
    page.get_by_label("Seconds between labels").fill("2.5")
    page.get_by_role("button", name="Save", exact=True).click()
    page.get_by_text("Saved.").wait_for()
    assert store.experiments.get(experiment.name).instructions == "Prefer the higher jump."
    assert store.experiments.assignment(experiment.id) == AssignmentPolicy(overlap=0.25)
    assert control().seconds_between == 2.5
    page.get_by_role("link", name="Audit trail").click()
    page.get_by_text("changed the instructions").wait_for(timeout=PATIENCE_MS)
    changes = page.get_by_role("list", name="Audit trail").get_by_role("listitem")
    changes.filter(has_text="Overlap 0 % → 25 %").wait_for()
    changes.filter(has_text="paused the run").wait_for()
    page.get_by_label("Kind of change").select_option("people")
    page.get_by_text("No such changes.").wait_for()


def test_owner_filters_adjudicates_and_downloads_comparisons(open_tab, experiment, store):
    agreed, disputed, third = experiment.ask(3)
    store_answers(store, agreed, Ada=Answer.LEFT, Ben=Answer.LEFT)
    store_answers(store, disputed, Ada=Answer.LEFT, Ben=Answer.RIGHT)
    page = open_tab("comparisons")
    rows = page.get_by_role("list", name="Comparisons").get_by_role("button")
    page.get_by_role("button", name=experiment.title_of(third)).wait_for(timeout=PATIENCE_MS)
    assert rows.count() == 3
    page.get_by_label("Label", exact=True).select_option("right")
    page.get_by_role("button", name=experiment.title_of(third)).wait_for(state="detached")
    page.get_by_role("button", name=experiment.title_of(disputed)).wait_for()
    with page.expect_download() as download:
        page.get_by_role("link", name="JSON Lines").click()
    assert '"left"' in download.value.path().read_text()

    page.get_by_role("link", name="Disagreements").click()
    page.get_by_role("button", name=experiment.title_of(disputed)).click(timeout=PATIENCE_MS)
    assert rows.count() == 1
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("group", name="Your label").get_by_text("Right is better").click()
    dialog.locator("li").filter(has_text="owner").get_by_text("right is better").wait_for()
    dialog.get_by_role("group", name="Gold answer").get_by_text("Right is better").click()
    dialog.get_by_text("Select the answer again").wait_for()
    page.set_viewport_size(PHONE)
    assert dialog.evaluate("dialog => dialog.scrollWidth <= dialog.clientWidth")
    golds = {row.id: row.gold for row in store.comparisons.page(experiment.id).rows}
    assert golds == {agreed: None, disputed: Answer.RIGHT, third: None}


def test_owner_invites_and_excludes_labelers_whose_names_are_text(open_tab, experiment, store):
    name = f"<img src=x> {experiment.name}"
    store_answers(store, experiment.ask()[0], **{name: Answer.LEFT})
    page = open_tab("labelers")
    page.get_by_label("People").fill("2", timeout=PATIENCE_MS)
    page.get_by_label("Valid for").select_option("1 hour")
    page.get_by_role("button", name="Create link").click()
    page.get_by_text("Send this link to up to 2 people.").wait_for()
    assert "/join?invite=" in page.get_by_label("Invite link").input_value()
    page.get_by_role("list", name="Open invites").get_by_text("0 of 2 people").first.wait_for()
    card = page.get_by_role("listitem").filter(has=page.get_by_role("heading", name=name))
    card.get_by_role("button", name="Exclude").click(timeout=PATIENCE_MS)
    card.get_by_role("button", name="Include").wait_for()
    assert name in {each.name for each in store.labelers.all() if each.excluded_at}
    card.get_by_role("button", name="Include").click()
    card.get_by_role("button", name="Exclude").wait_for()
    assert page.locator("img").count() == 0


@pytest.mark.slow
def test_long_list_renders_only_visible_rows(open_tab, experiment):
    pair = (experiment.add_model_clip(1), experiment.add_model_clip(2))
    ids = experiment.ask_about([pair] * 300)
    page = open_tab("comparisons")
    rows = page.get_by_role("list", name="Comparisons").get_by_role("button")
    rows.first.wait_for(timeout=PATIENCE_MS)
    oldest = page.get_by_role("button", name=experiment.title_of(ids[0]))
    for _ in range(600):
        if oldest.count():
            break
        page.mouse.wheel(0, 4000)
        page.wait_for_timeout(50)
    assert oldest.count() == 1
    assert rows.count() < 60


def test_overview_shows_earlier_agents_and_compares_and_zooms_curves(
    open_context, service, store, full
):
    other = Experiment(store, full.media, f"{full.name}-other")
    for step in range(1, 20):
        store.metrics.append(other.id, 2000 * step, {"true_return": 700.0 - step})
    page = open_context(viewport={"width": 1280, "height": 900}).new_page()
    page.goto(service.link(experiment_path(full.name)))
    card = page.get_by_role("region", name="Episodes of the agent")
    slider = card.get_by_role("slider", name="Agent after")
    slider.press("ArrowLeft", timeout=PATIENCE_MS)
    card.get_by_text("Episode at step 8k, true return 120").wait_for(timeout=PATIENCE_MS)
    slider.press("End")
    card.get_by_text("Latest episode").wait_for()
    full.store.metrics.append(full.id, 50_000, {"held_out_accuracy": 0.123})
    page.get_by_text(re.compile(r"^12\s%$")).first.wait_for(timeout=PATIENCE_MS)

    curves = page.get_by_label("Learning curves")
    page.get_by_label("Compare with another experiment").select_option(other.name)
    paths = curves.locator("figure").filter(has_text="True return").locator("path")
    paths.nth(1).wait_for(timeout=PATIENCE_MS)
    assert f"compare={other.name}" in page.url
    plot = curves.locator("figure").filter(has_text="True return").locator("svg")
    plot.scroll_into_view_if_needed()
    before = paths.first.get_attribute("d")
    box = plot.bounding_box()
    page.mouse.move(box["x"] + 0.4 * box["width"], box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 60, steps=4)
    page.mouse.up()
    reset = page.get_by_role("button", name="All steps")
    reset.wait_for()
    assert paths.first.get_attribute("d") != before
    reset.click()
    assert paths.first.get_attribute("d") == before


def test_run_is_finished_where_the_owner_labels_and_extended(open_page, full):
    late = {"clip": full.add_model_clip(7), "true_return": 990.0, "step": 400_000}
    full.store.experiments.set_latest_episode(full.id, late)
    full.store.metrics.append(full.id, 400_000, {"held_out_accuracy": 0.81})
    full.set_status("training", "training", step=400_000)
    page = open_page(full.name, viewport=PHONE, reduced_motion="reduce").page
    page.get_by_role("button", name="Finish").click(timeout=PATIENCE_MS)
    page.get_by_role("button", name="Finish now").click()
    page.get_by_role("button", name="Finishing").wait_for(timeout=PATIENCE_MS)
    finished = full.store.experiments.control(full.id)
    num_labels = full.store.experiments.get(full.name).answered
    assert (finished.target_labels, finished.target_steps) == (num_labels, 400_000)
    full.set_status("finished", "finished; extend it", step=400_000, is_extendable=True)
    results = page.get_by_role("region", name="The run is finished")
    results.get_by_text("Before: step 1k, true return 10").wait_for(timeout=PATIENCE_MS)
    results.get_by_text("After: step 400k, true return 990").wait_for()
    assert {"81 %", "400,000"} <= set(results.locator("dl").inner_text().split("\n"))
    results.get_by_role("button", name="NumPy").click()
    # The run has no checkpoint.
    assert full.name in results.get_by_role("alert").inner_text(timeout=PATIENCE_MS)
    assert_fits(page)
    page.get_by_role("button", name="20 more labels").click()
    page.get_by_text("continues within seconds").wait_for()
    control = full.store.experiments.control(full.id)
    added = -(-20 * 400_000 // num_labels)
    assert (control.target_labels, control.target_steps) == (num_labels + 20, 400_000 + added)


def positions(page):
    """Return the middle of each shown clip in the window, by rank."""
    return {
        int(rank): x
        for rank, x in page.locator(RANKED).evaluate_all(
            """all => all.map(one => {
                const { left, width } = one.getBoundingClientRect()
                return [one.ariaLabel.split(' ')[1], left + width / 2]
            })"""
        )
    }


def touch(page):
    """Return a function that sends touches; Playwright itself can only tap."""
    session = page.context.new_cdp_session(page)

    def send(kind, *points):
        touches = [{"x": x, "y": y, "id": number} for number, (x, y) in enumerate(points)]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": touches})

    return send


@pytest.mark.slow
def test_ranking_is_zoomed_opened_and_follows_answers(open_tab, experiment):
    experiment.rank_clips(200)
    page = open_tab("ranking")
    clips = page.locator(RANKED)
    clips.first.focus(timeout=PATIENCE_MS)
    page.keyboard.press("End")
    page.wait_for_function("() => document.activeElement.ariaLabel?.startsWith('Rank 200 ')")
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Clip of rank 200")
    dialog.get_by_text("Ada: this clip is worse").first.wait_for(timeout=PATIENCE_MS)
    page.keyboard.press("Escape")

    rank, x = min(positions(page).items(), key=lambda item: abs(item[1] - 600))
    page.mouse.move(x, page.locator(".stage").bounding_box()["y"] + 20)
    for _ in range(8):
        page.mouse.wheel(0, -400)
    page.wait_for_function("() => document.querySelectorAll('main ol li').length < 20")
    assert positions(page)[rank] == pytest.approx(x, abs=5)

    contradictions = page.get_by_role("region", name="Answers that contradict the ranking")
    contradictions.get_by_role("button").first.click()
    own = page.get_by_role("dialog", name="Comparison").get_by_role("group", name="Your label")
    own.get_by_role("button", name="Left").click()
    own.get_by_role("button", name="Left", pressed=True).wait_for()
    page.keyboard.press("Escape")
    page.get_by_text(f"of {len(experiment.log()):,} answers, the least").wait_for(
        timeout=PATIENCE_MS
    )


@pytest.mark.slow
def test_pinch_zooms_ranking_around_its_middle_and_one_finger_pans(open_tab, experiment):
    experiment.rank_clips(200)
    page = open_tab("ranking", viewport=PHONE, has_touch=True, is_mobile=True)
    page.locator(RANKED).first.tap(timeout=PATIENCE_MS)
    page.get_by_role("dialog", name="Clip of rank 1").get_by_role("button", name="Close").tap()
    stage = page.locator(".stage").bounding_box()
    y, middle = stage["y"] + 40, stage["x"] + stage["width"] / 2
    before, send = positions(page), touch(page)
    send("touchStart", (middle - 20, y), (middle + 20, y))
    for left_reach, right_reach in ((20, 90), (90, 90), (90, 150), (150, 150)):
        send("touchMove", (middle - left_reach, y), (middle + right_reach, y))
    send("touchEnd")
    first = f"document.querySelector('{RANKED}').ariaLabel.split(' ')[1]"
    page.wait_for_function(f"() => {first} !== '1'")
    pinched = positions(page)
    left = [each for each, x in before.items() if x < middle - 50]
    assert all(x < middle + 50 for each, x in pinched.items() if each in left)
    send("touchStart", (middle, y))
    for x in range(0, 101, 10):
        send("touchMove", (middle + x, y))
    send("touchEnd")
    page.wait_for_function(f"rank => +{first} < rank", arg=min(pinched))
    panned = positions(page)
    shared = set(panned) & set(pinched)
    assert {round(panned[rank] - pinched[rank], -1) for rank in shared} == {100}


@pytest.mark.slow
def test_opened_comparison_is_downloaded_as_film_and_linked(open_tab, experiment):
    (comparison_id,) = experiment.ask()
    page = open_tab("comparisons")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    rows = page.get_by_role("list", name="Comparisons").get_by_role("button")
    rows.first.click(timeout=PATIENCE_MS)
    share = page.get_by_role("dialog").get_by_role("group", name="Share")
    for name, position, head in (("GIF", 0, b"GIF8"), ("MP4", 4, b"ftyp")):
        with page.expect_download(timeout=PATIENCE_MS) as download:
            share.get_by_role("button", name=name).click()
        content = download.value.path().read_bytes()
        assert content[position : position + 4] == head
    share.get_by_role("button", name="Copy link").click()
    share.get_by_role("button", name="Copied").wait_for()
    page.goto(page.evaluate("navigator.clipboard.readText()"))
    LabellingPage(page).wait_for_comparison(comparison_id)
