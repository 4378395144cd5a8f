import pytest

from benchmarks import ppo_returns
from benchmarks.children import ChildFailed
from benchmarks.options import Options
from benchmarks.settings import setting

HOPPER = ("Hopper-v5",)


@pytest.mark.parametrize("changes", [{}, dict([setting("ppo.gae_lambda=0.98")])])
def test_both_sides_have_the_same_gae_lambda(changes):
    cells = ppo_returns.cells(Options(run="", only=HOPPER, seeds=(0,), settings=changes))
    peer, ours = (cell.settings for cell in cells)
    expected = changes.get("ppo.gae_lambda", ppo_returns.GAE_LAMBDA)
    assert peer["arguments"]["gae_lambda"] == ours["config"]["ppo"]["gae_lambda"] == expected


def test_constant_learning_rate_is_changed_on_both_sides():
    changes = dict([setting("ppo.learning_rate=1e-3")])
    peer, ours = ppo_returns.cells(Options(run="", only=HOPPER, seeds=(0,), settings=changes))
    ppo = ours.settings["config"]["ppo"]
    rates = peer.settings["arguments"]["learning_rate"], ppo["learning_rate"]
    assert [*rates, ppo["final_learning_rate"]] == [1e-3] * 3
    assert peer.facts["changes"] == ours.facts["changes"] == changes


@pytest.mark.parametrize("text", ["ppo.hidden=32,32", "ppo.final_learning_rate=0", "agent=a2c"])
def test_setting_that_the_peer_does_not_have_is_refused(text):
    changes = dict([setting(text)])
    with pytest.raises(ChildFailed, match=f"{next(iter(changes))} does not apply"):
        list(ppo_returns.cells(Options(run="", only=HOPPER, seeds=(0,), settings=changes)))


def make_record(steps, **facts):
    return {
        "who": ppo_returns.PEER,
        "env_id": "Hopper-v5",
        "seed": 0,
        "steps": steps,
        "final_return": 100.0,
        "process_s": 1.0,
        "settings": {"steps": steps, "arguments": {"gae_lambda": 0.95, **facts}},
        "source": "a",
        **facts,
    }


def test_rows_name_their_steps_and_changed_settings():
    records = [make_record(1000), make_record(200, changes={"ppo.gamma": 0.9})]
    rows = [line for line in ppo_returns.report(records) if line.startswith("| Hopper-v5")]
    assert [row.split(" | ")[:2] for row in rows] == [
        ["| Hopper-v5, Stable-Baselines3", "1,000"],
        ["| Hopper-v5, Stable-Baselines3, ppo.gamma=0.9", "200"],
    ]


def test_lambda_of_recorded_runs_is_found_whatever_its_name_was():
    old = [{"config": {"ppo": {"trace": 0.98}}}, {"num_epochs": 10}]
    new = [{"config": {"ppo": {"gae_lambda": 0.95}}}, {"arguments": {"gae_lambda": 0.9}}]
    found = [ppo_returns.lambda_of({"settings": each}) for each in old + new]
    assert found == [0.98, 0.95, 0.95, 0.9]
