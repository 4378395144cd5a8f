"""A wall clock that jumps by an hour, forward or back, blocks nobody and loses nothing."""

import pytest

from rl_teacher.web.address import one_time_code
from rl_teacher.web.app import create_app
from rl_teacher.web.settings import Settings
from tests.web.conftest import TOKEN, label, post
from tests.web.test_experiments import detail
from tests.web.test_leases import claim_next, lease_states

HOUR_S = 3600
JUMPS_S = pytest.mark.parametrize("jump_s", [HOUR_S, -HOUR_S])


@pytest.fixture
def app(store, media, static, clock):
    """Application whose wall clock jumps, while its monotonic clock does not."""
    settings = Settings(TOKEN, instance="this-one", static=static, now=clock)
    return create_app(store, media, settings)


@JUMPS_S
def test_label_of_comparison_claimed_before_the_jump_is_stored(
    guest, trainer, clock, store, jump_s
):
    [comparison_id] = trainer.ask()
    [mine] = claim_next(guest)
    clock.advance(jump_s)
    response = post(guest, label(mine["id"], lease=mine["lease"], left_hash=mine["left"]["hash"]))
    assert len(response.json()["accepted"]) == 1
    assert lease_states(store) == ["late" if jump_s > 0 else "held"]
    assert store.labels.answers([comparison_id])


@JUMPS_S
def test_killed_run_is_shown_as_lost_after_the_jump(program, trainer, clock, jump_s):
    trainer.set_phase("training")
    clock.advance(jump_s)
    assert (detail(program)["phase"], detail(program)["is_running"]) == ("lost", False)


def test_run_whose_loop_hangs_is_shown_after_a_jump_back(program, trainer, clock, store):
    trainer.set_phase("training")
    clock.advance(-HOUR_S)
    trainer.beat()
    assert detail(program)["phase"] == "lost"
    assert detail(program)["is_running"]


def test_used_code_is_refused_after_the_clock_has_jumped_forward_and_back(app, clock):
    redeem = app.state.services.authenticator.redeem_code
    code = one_time_code(TOKEN, "", clock.seconds())
    assert redeem(code)
    clock.advance(HOUR_S)
    assert redeem(one_time_code(TOKEN, "", clock.seconds()))
    clock.advance(-HOUR_S)
    assert not redeem(code)


@JUMPS_S
def test_session_survives_the_jump(browser, clock, jump_s):
    clock.advance(jump_s)
    assert browser.get("/api/v1/me").status_code == 200
