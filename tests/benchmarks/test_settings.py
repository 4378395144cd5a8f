import json

import pytest

from benchmarks.settings import saved_to_config, setting, teach_config


def test_config_round_trips_through_json():
    config = teach_config({"env_id": "Hopper-v5", "n_labels": 7}, {"ppo.hidden": (32, 16)})
    assert saved_to_config(json.loads(json.dumps(config.saved()))).saved() == config.saved()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ppo.num_envs=16", ("ppo.num_envs", 16)),
        ("num_timesteps=1e6", ("num_timesteps", 1_000_000)),
        ("clip_length=2", ("clip_length", 2.0)),
        ("n_labels=none", ("n_labels", None)),
        ("teacher_strength=1", ("teacher_strength", 1.0)),
        ("fit=async", ("fit", "async")),
        ("ppo.hidden=32,32", ("ppo.hidden", (32, 32))),
    ],
)
def test_setting_is_parsed_by_type_of_its_field(text, expected):
    assert setting(text) == expected


@pytest.mark.parametrize("text", ["ppo.no_such=1", "no_such=1", "seed", "seed=x"])
def test_unknown_or_malformed_setting_raises_value_error(text):
    with pytest.raises(ValueError):  # noqa: PT011 - the text differs
        setting(text)
