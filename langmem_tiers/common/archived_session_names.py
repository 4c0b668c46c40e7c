"""Names of archived sessions: the original name followed by the archive time."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

from langmem_tiers.common.namespaces import MAX_NAME_BYTES, escape

if TYPE_CHECKING:
    from datetime import datetime

_ARCHIVED_SUFFIX = re.compile(r" \(until \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z(?: \d+)?\)")
_RESERVED_SUFFIX_BYTES = 64
"""Bytes reserved for the suffix within ``MAX_NAME_BYTES``."""
_MAX_PREFIX_CHARACTERS = 100


def build_archived_name(name: str, moment: datetime, number: int = 1) -> str:
    """Return the name of a session after it was archived.

    Args:
        name: Original name.
        moment: Time of archiving.
        number: Distinguishes sessions archived at the same moment; 1 adds nothing.
    """
    ended = moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return f"{build_archived_prefix(name)} (until {ended}{'' if number == 1 else f' {number}'})"


def is_archived_name(name: str, of: str | None = None) -> bool:
    """Return True if the name is that of an archived session.

    Args:
        name: Current name.
        of: Original name. Default: any.
    """
    if of is None:
        return any(found.end() == len(name) for found in _ARCHIVED_SUFFIX.finditer(name))
    start = build_archived_prefix(of)
    return name.startswith(start) and _ARCHIVED_SUFFIX.fullmatch(name, len(start)) is not None


def build_archived_prefix(name: str) -> str:
    """Return the common prefix of all archived names of a session.

    A name that leaves no space for the suffix is shortened and made unique by a digest.
    """
    if len(escape(name).encode()) <= MAX_NAME_BYTES - _RESERVED_SUFFIX_BYTES:
        return name
    # surrogatepass: names may contain lone surrogates.
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return f"{name[:_MAX_PREFIX_CHARACTERS]}… {digest}"
