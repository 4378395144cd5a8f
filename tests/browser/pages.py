"""Ways to every page, for tests that hold on each of them."""

from rl_teacher.clips.answer import Answer
from tests.browser.experiments import LABELER
from tests.browser.labelling_page import PATIENCE_MS, LabellingPage


def go_to_experiments(page, service, full):
    page.goto(service.link("/"))
    page.get_by_role("link", name=full.name, exact=True).wait_for(timeout=PATIENCE_MS)


def go_to_experiment(page, service, full):
    page.goto(service.link(f"/e/{full.name}"))
    page.get_by_text("Episode at step").wait_for(timeout=PATIENCE_MS)


def go_to_finished_run(page, service, full):
    clip = full.add_model_clip(7)
    episode = {"clip": clip, "true_return": 990.0, "step": 400_000}
    full.store.experiments.set_latest_episode(full.id, episode)
    full.set_status("finished", "Finished.", warnings=["Few labels agree."], is_extendable=True)
    page.goto(service.link(f"/e/{full.name}?extend"))
    page.get_by_text("After: step").wait_for(timeout=PATIENCE_MS)


def go_to_notices_of_labelling(page, service, full):
    full.store.experiments.describe(full.id, "", 60)
    message = "7 more labels until training continues"
    full.set_status("waiting", message, num_missing=7, warnings=["Few labels agree. " * 6])
    go_to_labelling(page, service, full)
    page.get_by_text(message).wait_for()


def go_to_labelling(page, service, full):
    page.goto(service.label_link(full.name))
    LabellingPage(page).shown_comparison()


def go_to_label_effect(page, service, full):
    ids = full.ask(4)
    for each in ids:
        full.store.labels.add(each, Answer.LEFT, LABELER)
    full.set_predictions({each: (0.5 * n - 1.0, 0.25 * n) for n, each in enumerate(ids)})
    go_to_labelling(page, service, full)
    page.get_by_role("button", name="Show what your labels changed").click()
    page.get_by_role("dialog").get_by_text("It agrees with 0 of your 4").wait_for()


def go_to_help(page, service, full):
    go_to_labelling(page, service, full)
    page.keyboard.press("?")
    page.get_by_role("dialog").wait_for()


def go_to_practice(page, service, full):
    page.goto(service.link(f"/e/{full.name}/label?tutorial"))
    page.get_by_role("button", name="Skip").wait_for(timeout=PATIENCE_MS)
    page.keyboard.press("ArrowLeft")
    page.get_by_role("button", name="Next", exact=True).wait_for()


def go_to_idle_labelling(page, service, full):
    go_to_labelling(page, service, full)
    for _ in range(3):
        LabellingPage(page).answer(Answer.EQUAL)
    LabellingPage(page).wait_until_idle()


def go_to_latest_episode(page, service, full):
    page.goto(service.link(f"/e/{full.name}/watch"))
    page.get_by_text("After 29k steps").wait_for(timeout=PATIENCE_MS)


def go_to_unknown_experiment(page, service, full):
    page.goto(service.label_link("no-such"))
    page.get_by_role("heading", name="Experiment not found").wait_for(timeout=PATIENCE_MS)


def go_without_token(page, service, full):
    page.goto(service.address.url + "/")
    page.get_by_role("heading", name="Authentication required").wait_for(timeout=PATIENCE_MS)


def go_to_tab(name, waits_for):
    """Return a function that opens a tab of an experiment's page."""

    def go(page, service, full):
        page.goto(service.link(f"/e/{full.name}?tab={name}"))
        page.locator(waits_for).first.wait_for(timeout=PATIENCE_MS)

    return go


def go_to_opened_comparison(page, service, full):
    go_to_tab("comparisons", "main li button")(page, service, full)
    page.locator("main li button").first.click()
    page.locator("dialog canvas").wait_for(timeout=PATIENCE_MS)


def go_to_created_invite(page, service, full):
    go_to_tab("labelers", ".labelers dd .line")(page, service, full)
    page.get_by_role("button", name="Create link").click()
    page.get_by_label("Invite link").wait_for()


def go_to_confirmation(page, service, full):
    go_to_tab("labelers", ".labelers dd .line")(page, service, full)
    page.get_by_role("button", name="Sign out").first.click()
    page.get_by_role("dialog").wait_for()


def go_to_unknown_invite(page, service, full):
    go_to_invite(page, service, full)
    page.get_by_label("Your name").fill("Zoë")
    page.get_by_role("button", name="Start labelling").click()
    page.get_by_role("heading", name="Unknown invite").wait_for()


def go_to_invite(page, service, full):
    page.goto(f"{service.address.url}/join?invite=none")
    page.get_by_label("Your name").wait_for(timeout=PATIENCE_MS)


PAGES = {
    "experiments": go_to_experiments,
    "experiment": go_to_experiment,
    "finished run": go_to_finished_run,
    "labelling": go_to_labelling,
    "labelling with notices": go_to_notices_of_labelling,
    "label effect": go_to_label_effect,
    "help": go_to_help,
    "idle labelling": go_to_idle_labelling,
    "latest episode": go_to_latest_episode,
    "practice": go_to_practice,
    "unknown experiment": go_to_unknown_experiment,
    "no token": go_without_token,
    "comparisons": go_to_tab("comparisons", "main li button"),
    "an opened comparison": go_to_opened_comparison,
    "disagreements": go_to_tab("disagreements", "main li button"),
    "ranking": go_to_tab("ranking", "main ol canvas"),
    "clips": go_to_tab("clips", "figure canvas"),
    "labelers": go_to_tab("labelers", ".labelers dd .line"),
    "a made link": go_to_created_invite,
    "a question": go_to_confirmation,
    "settings": go_to_tab("settings", "textarea"),
    "audit trail": go_to_tab("audit", "main .card"),
    "an invite": go_to_invite,
    "an invite that leads nowhere": go_to_unknown_invite,
}

PAGES_OF_EXPERIMENT = [
    *(go_to_experiments, go_to_experiment, go_to_labelling, go_to_help, go_to_label_effect),
    go_to_latest_episode,
    *(PAGES[name] for name in ("comparisons", "disagreements", "clips", "settings", "audit trail")),
    *(go_to_created_invite, go_to_confirmation, go_to_opened_comparison),
]
