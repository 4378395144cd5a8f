import pytest

from benchmarks import ppo_returns
from benchmarks.options import Options
from benchmarks.settings import setting

HOPPER = ("Hopper-v5",)


@pytest.mark.parametrize("changes", [{}, dict([setting("ppo.gae_lambda=0.98")])])
def test_both_sides_have_the_same_gae_lambda(changes):
    cells = ppo_returns.cells(Options(run="", only=HOPPER, seeds=(0,), settings=changes))
    peer, ours = (cell.settings for cell in cells)
    expected = changes.get("ppo.gae_lambda", ppo_returns.GAE_LAMBDA)
    assert peer["arguments"]["gae_lambda"] == ours["config"]["ppo"]["gae_lambda"] == expected


def test_lambda_of_recorded_runs_is_found_whatever_its_name_was():
    old = [{"config": {"ppo": {"trace": 0.98}}}, {"num_epochs": 10}]
    new = [{"config": {"ppo": {"gae_lambda": 0.95}}}, {"arguments": {"gae_lambda": 0.9}}]
    found = [ppo_returns.lambda_of({"settings": each}) for each in old + new]
    assert found == [0.98, 0.95, 0.95, 0.9]
