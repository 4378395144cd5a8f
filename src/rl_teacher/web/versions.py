"""Check of the database schema version.

The database is migrated when it is opened, but another release or a restored backup may change it
while the service runs.
"""

from rl_teacher.common.errors import StoreUnavailable
from rl_teacher.store.database import versions
from rl_teacher.store.store import Store


def check_schema_version(store: Store) -> str:
    """Return the schema version of the database.

    Raises:
        StoreUnavailable: The version belongs to another release or cannot be read.
    """
    found, needed = store.schema_version(), versions()[0]
    if found != needed:
        raise StoreUnavailable(
            f"The database has version {found}, and this service works with version {needed}: "
            "another release changed it, or a backup was put back. Nothing was written. Stop the "
            "service, and start it again with the newest rl-teacher that is in use."
        )
    return found
