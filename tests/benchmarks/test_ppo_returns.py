import pytest

from benchmarks import machine, ppo_returns
from benchmarks.children import ChildFailed
from benchmarks.options import Options
from benchmarks.settings import setting

HOPPER = ("Hopper-v5",)


def cells_of(changes, peer_returns=(100.0,)):
    """Return the peer's cells and ours, where the peer has reached some returns."""
    seeds = tuple(range(len(peer_returns)))
    options = Options(run="", only=HOPPER, seeds=seeds, settings=changes)
    peers = list(ppo_returns.peer_cells(options))
    recorded = [
        {"key": cell.key, "final_return": each, "source": machine.source()}
        for cell, each in zip(peers, peer_returns, strict=True)
    ]
    return [*peers, *ppo_returns.our_cells(options, recorded)]


@pytest.mark.parametrize("changes", [{}, dict([setting("ppo.gae_lambda=0.98")])])
def test_both_sides_have_the_same_gae_lambda(changes):
    peer, ours = (cell.settings for cell in cells_of(changes))
    expected = changes.get("ppo.gae_lambda", ppo_returns.GAE_LAMBDA)
    assert peer["arguments"]["gae_lambda"] == ours["config"]["ppo"]["gae_lambda"] == expected


@pytest.mark.parametrize("text", ["ppo.hidden=32,32", "ppo.final_learning_rate=0", "agent=a2c"])
def test_setting_that_the_peer_does_not_have_is_refused(text):
    changes = dict([setting(text)])
    with pytest.raises(ChildFailed, match=f"{next(iter(changes))} does not apply"):
        cells_of(changes)


def make_record(steps, **facts):
    return {
        "who": ppo_returns.PEER,
        "env_id": "Hopper-v5",
        "seed": 0,
        "steps": steps,
        "final_return": 100.0,
        "process_s": 1.0,
        "settings": {"steps": steps, "arguments": {"gae_lambda": 0.95, "batch_size": 64, **facts}},
        "source": "a",
        **facts,
    }


def test_bar_is_the_interquartile_mean_of_the_peer():
    cells = cells_of({}, peer_returns=(10.0, 20.0, 30.0, 900.0))
    assert [cell.settings["bar"] for cell in cells[4:]] == [25.0] * 4


def test_share_of_time_is_that_of_the_peer_with_the_same_seed():
    peers = [make_record(1000, seed=seed) | {"process_s": 60.0 * (seed + 1)} for seed in (0, 1)]
    # From launch: 1 s before the work, and 11 s until the bar.
    ours = [
        each
        | {"who": ppo_returns.OURS, "work_s": 59.0 + 60 * each["seed"], "reached_s": 11.0}
        | {"settings": {"bar": 100.0, "config": {"ppo": {"minibatch_size": 64, "gae_lambda": 1}}}}
        for each in peers
    ]
    ours.append(ours[0] | {"seed": 2, "reached_s": None})
    unrelated = make_record(1000) | {"process_s": 1.0, "source": "b"}
    [row] = [
        line
        for line in ppo_returns.report([*peers, *ours, unrelated])
        if line.startswith("| Hopper-v5, rl-teacher")
    ]
    # 12 s of 60 s and of 120 s.
    assert [cell.strip() for cell in row.split("|")[4:6]] == ["2 of 3", "0.15"]
