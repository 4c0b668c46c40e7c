"""Names of tenants, sessions and messages, and their one-to-one form in the database.

A name may contain any character. The database stores it with ``%``, NUL and lone
surrogates escaped. Two different names therefore never share a row, on any backend, and
a namespace reads as a path: ``("acme", "alice")`` is ``acme/alice``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

from langmem_tiers.errors import InvalidNameError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime


NamespacePath: TypeAlias = tuple[str, ...]
"""A tenant: a user, an agent, a project. Matching is exact, by whole labels."""

MAX_NAME_BYTES = 1024
"""Maximum size of the stored form of a namespace, a session name or a message id.

PostgreSQL cannot index longer names.
"""

CONTEXT_FILES_LABEL, CONVERSATIONS_LABEL = "langmem-tiers: context files", "langmem-tiers: conversations"
SESSION_ITEM_LABELS = (CONTEXT_FILES_LABEL, CONVERSATIONS_LABEL)
"""First labels of namespaces whose items belong to the namespace in the remaining labels. The key of an item names
its session."""

MAX_ENTRY_ID_BYTES = 6 * MAX_NAME_BYTES + 1
"""Maximum size of the stored form of an entry id.

Ids of knowledge are the longest: the category (a slash in it is written as ``%2F`` and stored as ``%252F``), a
slash, and the key.
"""

_UNSAFE = re.compile("[%\0\ud800-\udfff]")
_UNSAFE_IN_LABEL = re.compile("[%/\0\ud800-\udfff]")
_ESCAPED = re.compile("%(u[0-9A-F]{4}|[0-9A-F]{2})")


def check_namespace(labels: object) -> NamespacePath:
    """Return the namespace as a tuple, or raise InvalidNameError.

    Args:
        labels: One label, or several from the widest to the narrowest.
    """
    if not isinstance(labels, str | Iterable) or isinstance(labels, bytes):
        raise InvalidNameError(
            f"a namespace must be a str or a tuple of str, got {type(labels).__name__}: convert it first"
        )
    path = (labels,) if isinstance(labels, str) else tuple(labels)
    if not path:
        raise InvalidNameError("a namespace needs at least one label, got (): pass e.g. ('acme',)")
    for label in path:
        _check_text(label, "namespace label")
    _check_length(build_namespace_key(path), path, "namespace")
    return path


def check_name(name: str, what: str = "session name") -> str:
    """Return the name unchanged, or raise InvalidNameError."""
    _check_text(name, what)
    _check_length(escape(name), name, what)
    return name


def check_entry_id(entry_id: str) -> str:
    """Return the id of a message, an entry or knowledge unchanged, or raise InvalidNameError."""
    _check_text(entry_id, "entry id")
    size = len(escape(entry_id).encode())
    if size > MAX_ENTRY_ID_BYTES:
        raise InvalidNameError(
            f"an entry id takes at most {MAX_ENTRY_ID_BYTES} bytes, {entry_id[:40]!r}... takes {size}: "
            "use an id returned by recall or a list method"
        )
    return entry_id


def check_key(key: str) -> str:
    """Return the key of an item unchanged, or raise InvalidNameError; unlike names it may be empty."""
    return key if key == "" else check_name(key, "key")


def build_namespace_key(path: NamespacePath) -> str:
    """Return the stored form of a namespace: escaped labels joined by ``/``."""
    return "/".join(_UNSAFE_IN_LABEL.sub(_escape_character, label) for label in path)


def parse_namespace_key(key: str) -> NamespacePath:
    """Return the namespace whose stored form is ``key``."""
    return tuple(unescape(part) for part in key.split("/"))


def escape(name: str) -> str:
    """Return the stored form of a single name."""
    return _UNSAFE.sub(_escape_character, name)


def unescape(stored: str) -> str:
    """Return the name whose stored form is ``stored``."""
    # A fast path: most names contain no escape.
    if "%" not in stored:
        return stored
    return _ESCAPED.sub(lambda m: chr(int(m[1].removeprefix("u"), 16)), stored)


def _escape_character(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"%u{code:04X}" if code > 0xFF else f"%{code:02X}"


def _check_text(name: object, what: str) -> None:
    if not isinstance(name, str):
        raise InvalidNameError(f"a {what} must be a str, got {type(name).__name__}: convert it to text first")
    if not name:
        raise InvalidNameError(f"a {what} must not be empty, got {name!r}: pass at least one character")


def _check_length(stored: str, value: object, what: str) -> None:
    size = len(stored.encode())
    if size > MAX_NAME_BYTES:
        raise InvalidNameError(
            f"a {what} takes at most {MAX_NAME_BYTES} bytes, {str(value)[:40]!r}... takes {size}: "
            "use a shorter name, for example a hash of it"
        )


_LABEL_SEPARATOR = re.compile(r"\\(.)|/", re.DOTALL)


def parse_namespace(text: str) -> NamespacePath:
    """Parse a namespace such as ``acme/alice``; a backslash escapes a slash or a backslash in a label."""
    labels, start, label = [], 0, ""
    # Matches either an escaped character, which is added to the label, or a separator.
    for found in _LABEL_SEPARATOR.finditer(text):
        label += text[start : found.start()]
        start = found.end()
        if found[1] is None:
            labels.append(label)
            label = ""
        else:
            label += found[1]
    try:
        return check_namespace([*labels, label + text[start:]])
    except InvalidNameError as error:
        raise InvalidNameError(
            f"{text!r} is not a namespace ({error}): separate its labels by slashes, for example acme/alice"
        ) from error


def format_namespace(path: Sequence[str]) -> str:
    """Format a namespace so that ``parse_namespace()`` can read it."""
    return "/".join(label.replace("\\", "\\\\").replace("/", "\\/") for label in path)


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


def is_archived_name(name: str, original: str | None = None) -> bool:
    """Return True if the name is that of an archived session.

    Args:
        name: Current name.
        original: Original name. Default: any.
    """
    if original is None:
        return any(found.end() == len(name) for found in _ARCHIVED_SUFFIX.finditer(name))
    start = build_archived_prefix(original)
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
