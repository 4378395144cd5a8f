"""Databases for tests of homes; see tests/store/conftest.py."""

from tests.store.conftest import (
    _shared_postgres_url,  # noqa: F401 - fixtures
    postgres_server,  # noqa: F401
    postgres_url,  # noqa: F401
    shared_postgres_url,  # noqa: F401
)
