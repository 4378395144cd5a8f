"""Fixtures of tests on a cluster."""

import pytest

from tests.cluster import clusters


@pytest.fixture(scope="module")
def nodes():
    """A cluster of two nodes with one CPU each."""
    with clusters.running() as nodes:
        yield nodes
