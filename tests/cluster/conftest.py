"""Fixtures of tests on a cluster."""

import pytest

from tests.cluster import clusters


@pytest.fixture(scope="package")
def nodes():
    """A cluster of two nodes with one CPU each; tests that add or end nodes restore them."""
    with clusters.running() as nodes:
        yield nodes
