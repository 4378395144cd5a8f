from benchmarks import wrappers


def make_record(kind, seed, value, source, steps=80_000, **wrapper):
    return {
        "env_id": "CartPole-v1",
        "kind": kind,
        "seed": seed,
        "return": value,
        "random_return": 20.0,
        "labels": 300,
        "settings": {"agent": "DQN", "steps": steps, "seed": seed, "wrapper": wrapper or None},
        "source": source,
    }


def test_every_run_is_shown_against_the_true_reward_at_its_source():
    records = [
        make_record("true reward", 0, 520.0, "a"),
        make_record("true reward", 0, 20.0, "a", steps=20_000),
        make_record("labels", 0, 20.0, "a", pretrain_labels=100),
        make_record("labels", 1, 520.0, "a", pretrain_labels=100),
        make_record("labels", 0, 270.0, "a", pretrain_labels=200),
        make_record("labels", 0, 520.0, "b"),
    ]
    rows = [line for line in wrappers.report(records) if line.startswith("| DQN, CartPole-v1")]
    shares = [row.split(" | ")[-3:] for row in rows]
    assert shares == [["**0.50**", "0, 1", "a |"], ["**0.50**", "0", "a |"], ["-", "0", "b |"]]
