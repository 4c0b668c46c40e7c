"""Text that any database takes and gives back unchanged.

PostgreSQL refuses NUL, and neither database takes lone surrogates. Text that holds them
is stored readable with U+FFFD in their place, and its exact form beside it.
"""

from __future__ import annotations

import base64
import re

_REFUSED = re.compile("[\0\ud800-\udfff]")
_EXACT_PREFIX = "base64:"  # JSON never starts like this


def storable(text: str) -> str:
    """The text with every character that a database refuses replaced; the same object if there is none."""
    return _REFUSED.sub("\N{REPLACEMENT CHARACTER}", text) if _REFUSED.search(text) else text


def pack_json(text: str) -> str:
    """JSON text in a form that every database takes."""
    if _REFUSED.search(text) is None:
        return text
    return _EXACT_PREFIX + base64.b64encode(text.encode("utf-8", "surrogatepass")).decode("ascii")


def unpack_json(stored: str) -> str:
    """The JSON text that was packed."""
    if not stored.startswith(_EXACT_PREFIX):
        return stored
    return base64.b64decode(stored[len(_EXACT_PREFIX) :]).decode("utf-8", "surrogatepass")
