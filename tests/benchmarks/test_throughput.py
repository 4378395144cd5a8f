from benchmarks import throughput

PACES = {
    "Stable-Baselines3, 16 environments, DummyVecEnv, 1 threads": 100.0,
    "Stable-Baselines3, 16 environments, EnvPool, 1 threads": 200.0,
    "rl-teacher, 16 environments": 600.0,
    "physics alone, 16 environments": 800.0,
}


def test_pace_is_compared_with_the_fastest_environments_of_the_peer():
    records = [
        {"run": "a", "part": "pace", "who": who, "num_envs": 16, "steps_per_second": pace}
        for who, pace in PACES.items()
    ]
    text = "\n".join(throughput.report(records))
    assert "**3.00x** Stable-Baselines3's PPO, each at its best" in text
    assert "**0.75x** raw physics" in text


def test_peer_is_measured_with_every_kind_of_environment_and_thread_count():
    kinds = ("DummyVecEnv", "SubprocVecEnv", "EnvPool")
    assert set(throughput.PEERS) == {(kind, threads) for kind in kinds for threads in (1, 2)}
