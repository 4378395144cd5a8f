import pytest

from benchmarks import throughput
from benchmarks.children import ChildFailed, Finished
from benchmarks.options import Options
from benchmarks.records import Records

PACES = {
    "Stable-Baselines3, 16 environments, DummyVecEnv, 1 threads": 100.0,
    "Stable-Baselines3, 16 environments, EnvPool, 1 threads": 200.0,
    "rl-teacher, 16 environments": 600.0,
    "physics alone, 16 environments": 800.0,
}


def test_pace_is_compared_with_the_fastest_environments_of_each_kind():
    records = [
        {"run": "a", "part": "pace", "who": who, "num_envs": 16, "steps_per_second": pace}
        for who, pace in PACES.items()
    ]
    records[2] |= {"rollout_us_per_step": 1400.0, "update_us_per_step": 200.0}
    text = "\n".join(throughput.report(records))
    assert "**6.00x** Stable-Baselines3's PPO with its own environments" in text
    assert "**3.00x** with EnvPool's, each at its best" in text
    assert "**0.75x** raw physics" in text
    assert "takes 1,667 µs: 1,400 in rollouts, 200 in updates." in text
    assert "Raw physics takes 1,250 µs." in text


@pytest.mark.parametrize("part", ["pace", "labels"])
def test_round_that_fails_half_way_is_not_recorded(part, monkeypatch, tmp_path):
    peer = {"who": "Stable-Baselines3", "num_envs": 16, "steps_per_second": 100.0}
    without_labels = Finished({"steps_per_second": 100.0}, wall_s=1.0, peak_mb=1.0)
    ours = iter([without_labels] if part == "labels" else [])

    def run_ours(*_job, **_settings):
        if (finished := next(ours, None)) is None:
            raise ChildFailed
        return finished

    monkeypatch.setattr(throughput, "peer_pace", lambda _options: [peer])
    monkeypatch.setattr(throughput, "run_ours", run_ours)
    records = Records("throughput", folder=tmp_path)
    with pytest.raises(ChildFailed):
        throughput.run(Options(run="a", only=(part,)), records)
    assert records.all() == []
