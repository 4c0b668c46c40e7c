"""The names of conversations that are over: theirs, with when that was."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

from langmem_tiers.common.namespaces import MAX_NAME_BYTES, escape

if TYPE_CHECKING:
    from datetime import datetime

_ARCHIVED_SUFFIX = re.compile(r" \(until \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z(?: \d+)?\)")
_RESERVED_SUFFIX_BYTES = 64
"""Bytes that are kept for what is added."""
_MAX_PREFIX_CHARACTERS = 100


def build_archived_name(name: str, moment: datetime, number: int = 1) -> str:
    """What a session of that name is called after it was set aside.

    Args:
        name: Its name.
        moment: When.
        number: Tells several apart that were set aside at the same moment.
    """
    ended = moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return f"{build_archived_prefix(name)} (until {ended}{'' if number == 1 else f' {number}'})"


def is_archived_name(name: str, of: str | None = None) -> bool:
    """Whether a session was set aside, by its name.

    Args:
        name: The name that it has now.
        of: The name that it had; any, if left out.
    """
    if of is None:
        return any(found.end() == len(name) for found in _ARCHIVED_SUFFIX.finditer(name))
    start = build_archived_prefix(of)
    return name.startswith(start) and _ARCHIVED_SUFFIX.fullmatch(name, len(start)) is not None


def build_archived_prefix(name: str) -> str:
    """How the names begin that a session of that name has once it was set aside."""
    if len(escape(name).encode()) <= MAX_NAME_BYTES - _RESERVED_SUFFIX_BYTES:
        return name
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return f"{name[:_MAX_PREFIX_CHARACTERS]}… {digest}"
