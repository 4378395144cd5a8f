"""Credentials for tests."""

from sqlalchemy import insert

from rl_teacher.store.access import hash_if_token, hash_token, new_token
from rl_teacher.store.tables import Credential


def issue_credential(store, name, experiment=None):
    """Give a labeler, who may have others, a credential, and return its token."""
    token = new_token()
    row = {
        "labeler_id": store.labelers.id_of(name),
        "token_hash": hash_token(token),
        "hint": token[:8],
        "created_at": store.database.now(),
        "experiment": experiment,
    }
    with store.database.writing() as connection:
        connection.execute(insert(Credential), row)
    return token


def identify(store, token):
    """Return the holder of a token; None if there is none."""
    return store.access.identify_hashes([hash_if_token(token)])[0]
