"""Invites, concurrent labelers and the owner's page."""

import time
from datetime import UTC, datetime, timedelta

import pytest

from rl_teacher.clips.answer import Answer, is_swapped, mirror_answer
from rl_teacher.store.records import AssignmentPolicy, Control, NewLabel
from rl_teacher.web.address import experiment_path
from tests.browser.conftest import PHONE
from tests.browser.labelling_page import KEYS, PATIENCE_MS, LabellingPage, text_on

pytestmark = pytest.mark.browser

TRANSITION_TEXTS = {"pause": "Pausing…", "run": "Resuming…", "stop": "Saving and stopping…"}


@pytest.fixture
def invite(store, experiment, service):
    """Return a function that creates an invite link for this experiment."""

    def made(*, lasts=timedelta(days=1)):
        expires_at = datetime.now(UTC) + lasts
        token = store.access.invite(experiment=experiment.name, expires_at=expires_at).token
        return f"{service.address.url}/join?invite={token}"

    return made


@pytest.fixture
def join(open_context):
    """Return a function that follows an invite link in a new browser context.

    It skips the practice comparisons, except with `skips=False` or where the invite is rejected.
    """

    def joined(link, name, *, skips=True, **options):
        page = open_context(**options).new_page()
        page.goto(link)
        page.get_by_label("Your name").fill(name)
        page.get_by_role("button", name="Start labelling").click()
        if skips:
            page.get_by_role("button", name="Skip").click(timeout=PATIENCE_MS)
        return page

    return joined


@pytest.fixture
def open_tab(open_context, service, experiment):
    """Return a function that opens a tab of the experiment's page as owner."""

    def opened(tab=""):
        page = open_context().new_page()
        page.goto(service.link(experiment_path(experiment.name)))
        if tab:
            # Warnings move the tabs when they are loaded, perhaps between press and release.
            page.locator("main[aria-busy=false]").wait_for(timeout=PATIENCE_MS)
            page.get_by_role("link", name=tab, exact=True).click(timeout=PATIENCE_MS)
        return page

    return opened


def store_answer(store, name, comparison_id, answer, **more):
    """Store a label of a labeler who may be new."""
    if name not in [each.name for each in store.labelers.all()]:
        store.labelers.add(name)
    store.labels.add_many([NewLabel(comparison_id, answer, name, **more)])


def answers_of(store, experiment, name):
    """Return a labeler's current answers by comparison, in the stored order."""
    page = store.comparisons.page(experiment.id, limit=200)
    return {row.id: vote.answer for row in page.rows for vote in row.votes if vote.labeler == name}


class TestInvites:
    def test_invited_labeler_joins_and_labels_on_phone(self, invite, join, experiment, store):
        experiment.ask(4)
        name = f"guest of {experiment.name}"
        page = join(invite(), name, viewport=PHONE, has_touch=True, is_mobile=True)
        labelling = LabellingPage(page)
        first = labelling.shown_comparison()
        page.get_by_role("button", name="Top is better").tap()
        labelling.shown_comparison(other_than=first)
        labelling.wait_until_sent()
        seen = mirror_answer(Answer.LEFT, swapped=is_swapped(first, name))
        assert answers_of(store, experiment, name) == {first: seen}
        assert page.locator(f"a[href='{experiment_path(experiment.name)}']").count() == 0

    def test_invited_labeler_practises_before_the_first_label(
        self, invite, join, experiment, store
    ):
        experiment.ask(2)
        name = f"novice of {experiment.name}"
        page = join(invite(), name, skips=False)
        page.get_by_role("heading", name="hops farther").wait_for(timeout=PATIENCE_MS)
        page.keyboard.press("ArrowRight")
        text_on(page, "the expected answer is “left is better”").wait_for()
        for key in ("ArrowRight", "ArrowDown"):
            page.keyboard.press("Enter")
            page.get_by_role("group", name="Your label").wait_for()
            page.keyboard.press(key)
            text_on(page, "Right.", exact=True).wait_for()
        page.get_by_role("button", name="Start labelling").click()
        labelling = LabellingPage(page)
        comparison_id = labelling.answer(Answer.EQUAL)
        labelling.wait_until_sent()
        assert answers_of(store, experiment, name) == {comparison_id: Answer.EQUAL}

    def test_invited_labeler_practises_with_gold_comparisons(self, invite, join, experiment, store):
        golds = experiment.ask(3)
        for each in golds:
            store.labels.add(each, Answer.LEFT, "owner")
            store.comparisons.set_gold(each, Answer.LEFT)
        [first] = experiment.ask()
        store.experiments.set_assignment(experiment.id, AssignmentPolicy(gold=1.0))
        name = f"trainee of {experiment.name}"
        page = join(invite(), name, skips=False)
        page.get_by_role("heading", name="Prefer the one that hops").wait_for(timeout=PATIENCE_MS)
        page.keyboard.press(KEYS[Answer.EQUAL])
        text_on(page, "The owner of the experiment set this answer.").wait_for()
        for each in golds[1:]:
            page.keyboard.press("Enter")
            page.get_by_role("group", name="Your label").wait_for()
            right = mirror_answer(Answer.LEFT, swapped=is_swapped(each, name))
            assert right is not None
            page.keyboard.press(KEYS[right])
            text_on(page, "Right.", exact=True).wait_for()
        page.get_by_role("button", name="Start labelling").click()
        labelling = LabellingPage(page)
        assert labelling.answer(Answer.EQUAL) == first
        labelling.wait_until_sent()
        assert answers_of(store, experiment, name) == {first: Answer.EQUAL}

    def test_labeler_is_redirected_from_owner_page(self, invite, join, experiment, service):
        experiment.ask(2)
        page = join(invite(), f"curious of {experiment.name}")
        LabellingPage(page).shown_comparison()
        page.goto(service.address.url + experiment_path(experiment.name))
        LabellingPage(page).shown_comparison()
        assert page.url.endswith("/label")

    def test_used_invite_is_rejected(self, invite, join, experiment):
        link = invite()
        experiment.ask(2)
        LabellingPage(join(link, f"first of {experiment.name}")).shown_comparison()
        second = join(link, f"second of {experiment.name}", skips=False)
        second.get_by_role("heading", name="This invite has already been used").wait_for()
        assert second.context.cookies() == []

    def test_invite_survives_a_lost_response(self, open_context, invite, experiment, store):
        experiment.ask(2)
        name = f"Ida of {experiment.name}"
        page = open_context().new_page()
        lost = []

        def lose_first(route):
            if lost:
                route.continue_()
            else:
                lost.append(route.fetch().status)
                route.abort()

        page.route("**/api/v1/join", lose_first)
        page.goto(invite())
        page.get_by_label("Your name").fill(name)
        page.get_by_role("button", name="Start labelling").click()
        page.get_by_role("alert").wait_for()
        assert lost == [200]
        page.get_by_role("button", name="Start labelling").click()
        page.get_by_role("button", name="Skip").click(timeout=PATIENCE_MS)
        LabellingPage(page).shown_comparison()

    def test_expired_invite_shows_message(self, invite, join):
        page = join(invite(lasts=timedelta(seconds=-1)), "late", skips=False)
        page.get_by_role("heading", name="This invite has expired").wait_for()

    def test_revoked_invite_shows_message(self, invite, join, store):
        link = invite()
        store.access.revoke_invite(store.access.invites()[0].id)
        page = join(link, "unwanted", skips=False)
        page.get_by_role("heading", name="This invite was revoked").wait_for()

    def test_taken_name_can_be_replaced(self, invite, join, experiment, store):
        experiment.ask(2)
        store.labelers.add(f"Ada of {experiment.name}")
        page = join(invite(), f"Ada of {experiment.name}", skips=False)
        page.get_by_role("alert").get_by_text("is taken").wait_for()
        page.get_by_label("Your name").fill(f"Eve of {experiment.name}")
        page.get_by_role("button", name="Start labelling").click()
        page.get_by_role("button", name="Skip").click(timeout=PATIENCE_MS)
        LabellingPage(page).shown_comparison()

    def test_created_invite_is_valid_for_chosen_time_by_clock_of_service(
        self, open_tab, join, experiment, store
    ):
        experiment.ask(2)
        page = open_tab("Labelers")
        create = page.get_by_role("button", name="Create link")
        create.wait_for(timeout=PATIENCE_MS)
        page.clock.set_fixed_time(datetime.now(UTC) + timedelta(hours=3))
        page.get_by_label("Valid for").select_option("1 hour")
        create.click()
        link = page.get_by_label("Invite link").input_value()
        page.get_by_role("list", name="Open invites").get_by_text("until").first.wait_for()
        left = store.access.invites()[0].expires_at - datetime.now(UTC)
        assert timedelta(minutes=50) < left <= timedelta(hours=1)
        LabellingPage(join(link, f"Cleo of {experiment.name}")).shown_comparison()

    def test_owner_creates_link_for_a_class(self, open_tab, join, experiment):
        experiment.ask(6)
        page = open_tab("Labelers")
        page.get_by_label("People").fill("2", timeout=PATIENCE_MS)
        page.get_by_role("button", name="Create link").click()
        page.get_by_text("Send this link to up to 2 people.").wait_for()
        link = page.get_by_label("Invite link").input_value()
        for who in ("Dan", "Eva"):
            LabellingPage(join(link, f"{who} of {experiment.name}")).shown_comparison()
        third = join(link, f"Fay of {experiment.name}", skips=False)
        third.get_by_role("heading", name="This invite has already been used").wait_for()


class TestTwoLabelers:
    def test_two_labelers_get_different_comparisons(self, invite, join, experiment):
        experiment.ask(10)
        pages = [join(invite(), f"{who} of {experiment.name}") for who in ("one", "two")]
        comparison_ids = [LabellingPage(page).shown_comparison() for page in pages]
        assert len(set(comparison_ids)) == 2

    @pytest.mark.slow
    def test_closed_page_releases_its_leases(self, invite, join, experiment):
        experiment.ask(2)
        first = join(invite(), f"hasty of {experiment.name}")
        LabellingPage(first).shown_comparison()
        LabellingPage(first).wait_until("hooks.numAhead > 0")
        second = LabellingPage(join(invite(), f"patient of {experiment.name}"))
        second.wait_until_idle()
        text_on(second.page, "Other labelers have").wait_for()
        first.goto("about:blank")
        second.shown_comparison()

    def test_revoked_labeler_sees_message_and_keeps_answer(self, invite, join, experiment, store):
        experiment.ask(4)
        name = f"fired of {experiment.name}"
        labelling = LabellingPage(join(invite(), name))
        labelling.shown_comparison()
        store.access.revoke_credentials(name)
        labelling.press("ArrowDown")
        text_on(labelling.page, "This browser is no longer signed in.").wait_for()
        assert labelling.hook("outboxLength") == 1
        assert answers_of(store, experiment, name) == {}


class TestOwner:
    def test_owner_pauses_resumes_and_stops_run(self, open_tab, experiment, store):
        page = open_tab()

        def wait_for_state(state):
            page.get_by_text(TRANSITION_TEXTS[state]).wait_for()
            deadline = time.monotonic() + PATIENCE_MS / 1000
            while store.experiments.control(experiment.id).state != state:
                assert time.monotonic() < deadline
                page.wait_for_timeout(20)

        experiment.set_status("training", "training")
        page.get_by_role("button", name="Pause", exact=True).first.click(timeout=PATIENCE_MS)
        wait_for_state("pause")
        experiment.set_status("paused", "paused")
        page.get_by_role("button", name="Resume").click(timeout=PATIENCE_MS)
        wait_for_state("run")
        page.get_by_role("button", name="Stop and save").click()
        page.get_by_role("dialog").get_by_role("button", name="Stop and save").click()
        wait_for_state("stop")

    def test_owner_changes_instructions_and_assignment(self, open_tab, experiment, store):
        page = open_tab("Settings")
        page.get_by_label("Instructions").fill("Prefer the higher jump.", timeout=PATIENCE_MS)
        page.get_by_label("Overlap").fill("25")
        page.get_by_label("Seconds between labels").fill("2.5")
        page.get_by_role("button", name="Save", exact=True).click()
        page.get_by_text("Saved.").wait_for()
        assert store.experiments.get(experiment.name).instructions == "Prefer the higher jump."
        assert store.experiments.assignment(experiment.id) == AssignmentPolicy(overlap=0.25)
        assert store.experiments.control(experiment.id).seconds_between == 2.5

    def test_loaded_status_does_not_move_the_tabs(self, open_context, service, experiment):
        page = open_context().new_page()
        held = []

        def hold(route):
            held.append(route)

        page.route(f"**/api/v1/experiments/{experiment.name}", hold)
        page.goto(service.link(experiment_path(experiment.name)))
        tabs = page.get_by_role("navigation", name="Sections")
        tabs.wait_for(timeout=PATIENCE_MS)
        before = tabs.bounding_box()
        assert page.get_by_text(experiment.env_id).count() == 0
        for route in held:
            route.continue_()
        page.get_by_text(experiment.env_id).wait_for(timeout=PATIENCE_MS)
        assert tabs.bounding_box() == before

    def test_owner_clears_settings(self, open_tab, experiment, store):
        store.experiments.set_control(experiment.id, Control(seconds_between=2.5, target_labels=70))
        page = open_tab("Settings")
        page.get_by_label("Target number of labels").fill("", timeout=PATIENCE_MS)
        page.get_by_label("Seconds between labels").fill("")
        page.get_by_role("button", name="Save", exact=True).click()
        page.get_by_text("Saved.").wait_for()
        assert store.experiments.control(experiment.id) == Control("run")
        page.get_by_role("link", name="Audit trail").click()
        page.get_by_text("target labels none").wait_for(timeout=PATIENCE_MS)

    def test_owner_adjudicates_disagreement(self, open_tab, experiment, store):
        agreed, disputed = experiment.ask(2)
        names = [f"{who} of {experiment.name}" for who in ("Ada", "Ben")]
        for name, answer in zip(names, (Answer.LEFT, Answer.RIGHT), strict=True):
            store_answer(store, name, agreed, Answer.LEFT)
            store_answer(store, name, disputed, answer)
        page = open_tab("Disagreements")
        page.get_by_role("button", name=experiment.title_of(disputed)).click(timeout=PATIENCE_MS)
        assert page.get_by_role("button", name=experiment.title_of(agreed)).count() == 0
        dialog = page.get_by_role("dialog")
        dialog.get_by_role("group", name="Your label").get_by_text("Right is better").click()
        dialog.locator("li").filter(has_text="owner").get_by_text("right is better").wait_for()
        dialog.get_by_role("group", name="Gold answer").get_by_text("Right is better").click()
        dialog.get_by_text("Select the answer again").wait_for()
        assert answers_of(store, experiment, "owner") == {disputed: Answer.RIGHT}
        rows = store.comparisons.page(experiment.id).rows
        assert [row.gold for row in rows] == [Answer.RIGHT, None]
        page.get_by_role("button", name="Close").click()
        page.get_by_role("link", name="Audit trail").click()
        page.get_by_text("adjudicated a comparison").wait_for(timeout=PATIENCE_MS)

    def test_comparison_closes_before_its_clips_are_drawn(self, open_tab, experiment, store):
        (disputed,) = experiment.ask()
        for who, answer in (("Ada", Answer.LEFT), ("Ben", Answer.RIGHT)):
            store_answer(store, f"{who} of {experiment.name}", disputed, answer)
        page = open_tab("Disagreements")
        held = []

        def hold(route):
            held.append(route)

        page.route("**/three-renderer*.js", hold)
        with page.expect_request("**/three-renderer*.js", timeout=PATIENCE_MS):
            page.get_by_role("button", name=experiment.title_of(disputed)).click(
                timeout=PATIENCE_MS
            )
        page.get_by_role("button", name="Close").click()
        page.get_by_role("dialog").wait_for(state="hidden")
        for route in held:
            route.continue_()
        # The page requested this file earlier, so its own wait ends before this one.
        page.evaluate("file => import(file)", held[0].request.url)

    @pytest.mark.slow
    def test_opened_comparison_is_downloaded_as_film_and_linked(self, open_tab, experiment):
        (comparison_id,) = experiment.ask()
        page = open_tab("Comparisons")
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        rows = page.get_by_role("list", name="Comparisons").get_by_role("button")
        rows.first.click(timeout=PATIENCE_MS)
        share = page.get_by_role("dialog").get_by_role("group", name="Share")
        for name, position, head in (("GIF", 0, b"GIF8"), ("MP4", 4, b"ftyp")):
            with page.expect_download(timeout=PATIENCE_MS) as download:
                share.get_by_role("button", name=name).click()
            assert download.value.suggested_filename.endswith(f".{name.lower()}")
            content = download.value.path().read_bytes()
            assert content[position : position + 4] == head
        share.get_by_role("button", name="Copy link").click()
        share.get_by_role("button", name="Copied").wait_for()
        link = page.evaluate("navigator.clipboard.readText()")
        page.goto(link)
        LabellingPage(page).wait_for_comparison(comparison_id)

    def test_opened_comparison_fits_narrow_window(self, open_tab, experiment, store):
        (judged,) = experiment.ask()
        store_answer(store, f"Ada of {experiment.name}", judged, Answer.LEFT)
        page = open_tab("Comparisons")
        page.set_viewport_size({"width": 390, "height": 844})
        rows = page.get_by_role("list", name="Comparisons").get_by_role("button")
        rows.first.click(timeout=PATIENCE_MS)
        page.get_by_role("dialog").get_by_role("group", name="Gold answer").wait_for()
        widths = "dialog => [dialog.scrollWidth, dialog.clientWidth]"
        content, room = page.locator("dialog[open]").evaluate(widths)
        assert content <= room

    def test_owner_excludes_and_includes_labeler(self, open_tab, experiment, store):
        name = f"Mallory of {experiment.name}"
        store_answer(store, name, experiment.ask()[0], Answer.LEFT)
        page = open_tab("Labelers")
        card = page.get_by_role("listitem").filter(has=page.get_by_role("heading", name=name))
        card.get_by_role("button", name="Exclude").click(timeout=PATIENCE_MS)
        card.get_by_role("button", name="Include").wait_for()
        excluded = {each.name for each in store.labelers.all() if each.excluded_at}
        assert name in excluded
        card.get_by_role("button", name="Include").click()
        card.get_by_role("button", name="Exclude").wait_for()
        assert name not in {each.name for each in store.labelers.all() if each.excluded_at}

    def test_name_with_markup_is_shown_as_text(self, open_tab, experiment, store):
        name = f"<img src=x> {experiment.name}"
        store_answer(store, name, experiment.ask()[0], Answer.LEFT)
        page = open_tab("Labelers")
        page.get_by_role("heading", name=name).wait_for(timeout=PATIENCE_MS)
        assert page.locator("img").count() == 0

    def test_comparisons_are_filtered_by_answer(self, open_tab, experiment, store):
        first, second, third = experiment.ask(3)
        store_answer(store, "owner", first, Answer.LEFT)
        store_answer(store, "owner", second, Answer.EQUAL)
        page = open_tab("Comparisons")
        rows = page.get_by_role("list", name="Comparisons").get_by_role("button")
        row = page.get_by_role("button", name=experiment.title_of(third))
        row.wait_for(timeout=PATIENCE_MS)
        assert rows.count() == 3
        page.get_by_label("Label", exact=True).select_option("equal")
        row.wait_for(state="detached")
        page.get_by_role("button", name=experiment.title_of(second)).wait_for()
        assert rows.count() == 1
        assert "answer=equal" in page.url

    def test_rows_show_thumbnails_that_play_under_the_pointer(self, open_tab, experiment):
        experiment.ask(2)
        page = open_tab("Comparisons")
        row = page.get_by_role("list", name="Comparisons").get_by_role("button").first
        row.wait_for(timeout=PATIENCE_MS)
        pictures = "row => [...row.querySelectorAll('canvas')].map(one => one.toDataURL()).join()"
        has_colours = """row => [...row.querySelectorAll('canvas')].every(one => {
            const { data } = one.getContext('2d').getImageData(0, 0, one.width, one.height)
            return new Set(new Uint32Array(data.buffer)).size > 20
        })"""
        page.wait_for_function(has_colours, arg=row.element_handle(), timeout=PATIENCE_MS)
        assert row.locator("canvas").count() == 2
        still = row.evaluate(pictures)
        page.wait_for_timeout(300)
        assert row.evaluate(pictures) == still
        row.hover()
        has_moved = f"([row, still]) => ({pictures})(row) !== still"
        page.wait_for_function(has_moved, arg=[row.element_handle(), still], timeout=PATIENCE_MS)

    def test_long_list_renders_only_visible_rows(self, open_tab, experiment):
        pair = (experiment.add_model_clip(1), experiment.add_model_clip(2))
        ids = experiment.ask_about([pair] * 300)
        page = open_tab("Comparisons")
        rows = page.get_by_role("list", name="Comparisons").get_by_role("button")
        rows.first.wait_for(timeout=PATIENCE_MS)
        oldest = page.get_by_role("button", name=experiment.title_of(ids[0]))
        for _ in range(600):
            if oldest.count():
                break
            page.mouse.wheel(0, 4000)
            page.wait_for_timeout(100)
        assert oldest.count() == 1
        assert rows.count() < 60

    def test_owner_downloads_labels(self, open_tab, experiment, store):
        store_answer(store, "owner", experiment.ask()[0], Answer.LEFT)
        page = open_tab("Comparisons")
        with page.expect_download() as download:
            page.get_by_role("link", name="JSON Lines").click(timeout=PATIENCE_MS)
        assert '"left"' in download.value.path().read_text()
