"""No credential is ever in a log, in an error, or in the words of an object."""

import logging
import re
from pathlib import Path

import pytest

from rl_teacher.web.access import Access, requires
from rl_teacher.web.labelers_cli import NewCredential
from rl_teacher.web.settings import Settings
from tests.web.conftest import SAME_ORIGIN, TOKEN, TestClient, assert_problem, enter, label, post

SOURCE = Path(__file__).parents[2] / "src" / "rl_teacher"
RUNS_DATA = re.compile(
    r"\b(import|from)\s+(pickle|cloudpickle|marshal|shelve|dill|joblib)\b|\bpickle\.(load|Unpick)"
    r"|\beval\(|\bexec\(|allow_pickle\s*=\s*True|\btorch\.load\((?!.*\bweights_only=True\))|\byaml\.(unsafe_)?load\b"
)


@pytest.fixture
def secret(store):
    store.labelers.add("ann")
    return store.access.issue_credential("ann")


def test_no_log_has_a_credential_in_it(app, program, trainer, secret, caplog):
    caplog.set_level(logging.DEBUG)
    [comparison_id] = trainer.ask()
    ann = enter(app, secret)
    post(ann, label(comparison_id))
    ann.get("/api/v1/nothing")
    ann.get("/api/v1/labelers")
    wrong = "rlt_" + "w" * 43
    enter(app, wrong).get("/api/v1/me")
    link = program.post("/api/v1/invites", json={}).json()["link"]
    invite = link.partition("invite=")[2]
    stranger = program
    del stranger.headers["Authorization"]
    stranger.get(f"/join?invite={invite}")
    said = {"invite": invite, "name": "Bob"}
    assert stranger.post("/api/v1/join", json=said, headers=SAME_ORIGIN).status_code == 200
    assert_problem(stranger.post("/api/v1/join", json=said, headers=SAME_ORIGIN), 409)
    stranger.get(f"/e/hopper?token={secret}")
    stranger.get(f"/e/hopper?token={TOKEN}")
    logged = words_of_the_service(caplog)
    assert "/e/hopper 303" in logged
    for each in (secret, wrong, invite, TOKEN, stranger.cookies[Settings(TOKEN).cookie]):
        assert each not in logged


def words_of_the_service(caplog):
    """What was logged, but for what the tests' own client says of its requests."""
    formatter = logging.Formatter()
    return "\n".join(
        formatter.format(each) for each in caplog.records if not each.name.startswith("http")
    )


def test_a_fault_of_our_own_puts_no_credential_into_the_log(app, store, secret, caplog):
    @requires(Access.LABELER)
    def fail():
        raise RuntimeError("it broke")

    app.router.add_api_route("/api/v1/broken", fail)
    with TestClient(app, headers={"Authorization": f"Bearer {secret}"}) as client:
        assert_problem(client.get("/api/v1/broken"), 500)
    assert "it broke" in words_of_the_service(caplog)
    assert secret not in words_of_the_service(caplog)


def test_no_answer_repeats_a_credential_that_was_wrong(app, stranger):
    wrong = "rlt_" + "w" * 43
    for response in (
        enter(app, wrong).get("/api/v1/me"),
        stranger.get(f"/?token={wrong}"),
        stranger.post("/api/v1/join", json={"invite": wrong, "name": "x"}, headers=SAME_ORIGIN),
    ):
        assert response.status_code >= 400
        assert wrong not in response.text


def test_no_object_shows_a_credential_in_its_words(app, store, secret, clock):
    identity = store.access.identify(secret)
    store.access.invite("labeler", expires_at=clock())
    shown = [
        Settings(TOKEN),
        identity,
        app.state.services,
        app.state.services.authenticator,
        NewCredential("ann", secret, f"http://127.0.0.1/?token={secret}"),
        store.access.credentials("ann"),
        store.access.invites(),
        store.labelers.all(),
    ]
    for each in shown:
        for words in (repr(each), str(each)):
            assert secret not in words
            assert TOKEN not in words


def test_credentials_have_256_random_bits_and_a_prefix_that_scanners_see(store, secret):
    assert re.fullmatch(r"rlt_[A-Za-z0-9_-]{43}", secret)
    assert store.access.issue_credential("ann") != secret


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "    from pickle import loads",
        "x = pickle.loads(b)",
        "np.load(f, allow_pickle=True)",
        "eval(text)",
        "torch.load(f)",
        "torch.load(f, weights_only=False)",
    ],
)
def test_what_would_run_data_is_known_when_it_is_seen(line):
    assert RUNS_DATA.search(line)


def test_tensors_alone_may_be_read_with_torch():
    assert not RUNS_DATA.search('torch.load(f, map_location="cpu", weights_only=True)')


def test_nothing_in_the_package_runs_what_it_reads():
    found = {
        f"{path.relative_to(SOURCE)}: {line.strip()}"
        for path in SOURCE.rglob("*.py")
        for line in path.read_text().splitlines()
        if RUNS_DATA.search(line)
    }
    assert found == set()
