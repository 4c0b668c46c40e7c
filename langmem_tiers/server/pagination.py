"""Cursors: where the next page begins, in a text that means nothing to a client."""

from __future__ import annotations

import base64
import binascii
import json

from langmem_tiers.server.error_responses import Problem

_MAX_CURSOR_CHARACTERS = (
    20_000  # a category and a key of the longest, with each character escaped, take 16,400
)
_MAX_NUMBER = 2**53  # any number of ours is less


def encode_cursor(listing: str, *place: str | int) -> str:
    """The cursor of a place in a listing."""
    told = json.dumps([listing, *place], separators=(",", ":"))
    return base64.urlsafe_b64encode(told.encode()).decode().rstrip("=")


def decode_cursor(listing: str, cursor: str | None, *kinds: type[str | int]) -> tuple[str | int, ...] | None:
    """The place of a cursor, None for the first page, or an answer that says it is none of this listing.

    Args:
        listing: Which.
        cursor: As ``cursor_of`` made it.
        kinds: What a place of it is made of.
    """
    if cursor is None:
        return None
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        told = (
            json.loads(base64.b64decode(padded, b"-_", validate=True))
            if len(cursor) <= _MAX_CURSOR_CHARACTERS
            else None
        )
    except (ValueError, binascii.Error, RecursionError):
        told = None
    name, *place = told if isinstance(told, list) and told else [None]
    is_ours = name == listing and [type(one) for one in place] == list(kinds)
    if not is_ours or any(not 0 <= one < _MAX_NUMBER for one in place if isinstance(one, int)):
        raise Problem(400, "bad_cursor", "that cursor is none of this list: start again without one")
    return tuple(place)
