"""Every test has a home of its own, and computes as the product does."""

import os
from pathlib import Path

import hypothesis
import pytest

from rl_teacher import compute

os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parent.parent / ".pytest_cache" / "xla")
)
compute.prepare()

# Note: the machines that run this are shared, so a slow example is no failure.
hypothesis.settings.register_profile("shared-machine", deadline=None)
hypothesis.settings.load_profile("shared-machine")


@pytest.fixture
def as_nobody():
    """A function that gives up root's right to write anywhere, until the test ends."""

    def become_nobody():
        if os.geteuid() == 0:
            os.seteuid(65534)

    before = os.geteuid()
    yield become_nobody
    os.seteuid(before)


@pytest.fixture(autouse=True)
def _own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("RL_TEACHER_HOME", str(tmp_path / "rl-teacher"))
    monkeypatch.setenv("HOME", str(tmp_path))
