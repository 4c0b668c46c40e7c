"""Reversible mapping of session ids to file names that are valid on every file system.

Lowercase letters, digits and ``- _ . :`` are unchanged, except for ``:`` on Windows, so common ids remain readable.
All other characters, including uppercase letters, are percent-encoded as UTF-8. Two ids therefore never share a file
on a file system that ignores case or accents, and no id leads out of the folder. An id that is too long for a file
name is cut and followed by ``~`` and a hash.
"""

from __future__ import annotations

import hashlib
import os
import re

from langmem_tiers.common.namespaces import check_name

MAX_STEM_CHARACTERS = 180
"""Maximum length of a name without its suffix. File systems allow 255 bytes including all suffixes."""
_LONG_STEM_CHARACTERS = 120
_SAFE_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_." + (":" if os.name == "posix" else ""))
# Windows opens a device for such a name, with any suffix.
_WINDOWS_DEVICE = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)(?:\.|\Z)")
_ESCAPED = re.compile("%([0-9A-F]{2})")
# An escape sequence that was cut at the end of a shortened name.
_HALF_ESCAPE = re.compile("%.?\\Z")


def to_file_stem(session_id: str) -> str:
    """Return the file name of a session without ``.json``."""
    stem = "".join(
        character if character in _SAFE_CHARACTERS else _escape(character)
        for character in check_name(session_id, "session id")
    )
    # Escape the first character of hidden files, of "..", and of Windows device names.
    if stem[0] == "." or _WINDOWS_DEVICE.match(stem):
        stem = _escape(stem[0]) + stem[1:]
    return stem if len(stem) <= MAX_STEM_CHARACTERS else _shorten_stem(stem, session_id)


def is_shortened_stem(stem: str) -> bool:
    """Return True if the name contains only the beginning of the id."""
    return "~" in stem


def parse_file_stem(stem: str) -> str | None:
    """Return the session id for a file name, or None if the name is shortened or not one of ours."""
    try:
        data = _ESCAPED.sub(lambda found: chr(int(found[1], 16)), stem).encode("latin-1")
        session_id = data.decode("utf-8", "surrogatepass")
        # Accept only the name that to_file_stem() would produce; otherwise two files could have the same id.
        return session_id if to_file_stem(session_id) == stem else None
    except ValueError:
        # Characters outside Latin-1, bytes that are not UTF-8, or an invalid session id.
        return None


def _escape(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode("utf-8", "surrogatepass"))


def _shorten_stem(stem: str, session_id: str) -> str:
    digest = hashlib.blake2b(session_id.encode("utf-8", "surrogatepass"), digest_size=20).hexdigest()
    return f"{_HALF_ESCAPE.sub('', stem[:_LONG_STEM_CHARACTERS])}~{digest}"
