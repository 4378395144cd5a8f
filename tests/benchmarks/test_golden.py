import json

import numpy as np
import pytest

from benchmarks import golden


def test_every_run_is_recorded_or_compared_with_a_recorded_one():
    recorded = json.loads(golden.GOLDEN_FILE.read_text())
    assert recorded.keys() == {golden.EQUAL_RUNS.get(name, name) for name in golden.names()}


def test_digest_depends_on_values_alone():
    one, other = np.ones(3, np.float32), np.zeros(2, np.float32)
    assert golden.digest([one, other]) == golden.digest([other, one]) != golden.digest([one])


def test_digest_of_nothing_is_refused():
    with pytest.raises(ValueError, match="none of the arrays"):
        golden.digest([np.arange(3)])
