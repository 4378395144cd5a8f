"""Keyset pagination.

A page continues after the last row of the previous one. The thousandth page costs as much as the
first, and rows that are added in between shift nothing.
"""

import base64
import json
from collections.abc import Callable, Sequence
from typing import TypeVar

from rl_teacher.common.errors import BadCursor
from rl_teacher.store.records import Page
from rl_teacher.store.sql import MAX_ID

Row = TypeVar("Row")


def encode_cursor(key: Sequence[int]) -> str:
    """Encode the sort key of a row as URL-safe text."""
    return base64.urlsafe_b64encode(json.dumps(key).encode()).decode().rstrip("=")


def decode_cursor(cursor: str, length: int) -> list[int]:
    """Decode a sort key of known length.

    Raises:
        BadCursor: The text is not such a key.
    """
    try:
        key = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, RecursionError) as error:
        raise BadCursor(cursor) from error
    is_key = isinstance(key, list) and len(key) == length
    if not is_key or not all(type(each) is int and 0 <= each <= MAX_ID for each in key):
        raise BadCursor(cursor)
    return key


def page_of(found: Sequence[Row], limit: int, cursor: Callable[[Row], str]) -> Page[Row]:
    """Cut a page from a query result that holds one row more, if there is a next page."""
    rows = list(found[:limit])
    return Page(rows, cursor(rows[-1]) if len(found) > limit and rows else None)
