"""Pagination cursors: the start of the next page as an opaque text."""

from __future__ import annotations

import base64
import binascii
import json

from langmem_tiers.server.error_responses import Problem

# A category and a key of maximum length, with each character escaped, need 16,400.
_MAX_CURSOR_CHARACTERS = 20_000
_MAX_NUMBER = 2**53  # larger than any number in a cursor


def encode_cursor(listing: str, *position: str | int) -> str:
    """Return the cursor for a position in a listing."""
    text = json.dumps([listing, *position], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode_cursor(listing: str, cursor: str | None, *kinds: type[str | int]) -> tuple[str | int, ...] | None:
    """Return the position of a cursor, or None for the first page.

    Args:
        listing: Name of the listing.
        cursor: Cursor from ``encode_cursor``.
        kinds: Expected types of the position.

    Raises:
        Problem: The cursor is invalid or belongs to another listing.
    """
    if cursor is None:
        return None
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        values = (
            json.loads(base64.b64decode(padded, b"-_", validate=True))
            if len(cursor) <= _MAX_CURSOR_CHARACTERS
            else None
        )
    except (ValueError, binascii.Error, RecursionError):
        values = None
    name, *position = values if isinstance(values, list) and values else [None]
    # Exact types: bool would pass an isinstance check for int.
    is_valid = name == listing and [type(value) for value in position] == list(kinds)
    if not is_valid or any(not 0 <= value < _MAX_NUMBER for value in position if isinstance(value, int)):
        raise Problem(400, "bad_cursor", "the cursor does not belong to this list: start again without one")
    return tuple(position)
