"""Session ids as file names, one to one, on every file system.

Small letters, digits and ``- _ . :`` stay as they are (on Windows, ``:`` does not), so that the usual ids can be read.
All other characters, capitals among them, become ``%`` and two digits for each of their bytes: two ids never share a
file where case or accents do not count, and no id leads out of the folder. An id whose name would be too long for a
file keeps its beginning, followed by ``~`` and a hash.
"""

from __future__ import annotations

import hashlib
import os
import re

from langmem_tiers.common.namespaces import check_name

MAX_STEM_CHARACTERS = 180
"""Characters of a name without its ending; file systems take 255 bytes with all endings."""
_LONG_STEM_CHARACTERS = 120
_SAFE_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_." + (":" if os.name == "posix" else ""))
_WINDOWS_DEVICE = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)(?:\.|\Z)")
_ESCAPED = re.compile("%([0-9A-F]{2})")
_HALF_ESCAPE = re.compile("%.?\\Z")


def to_file_stem(session_id: str) -> str:
    """The name of a session's file, without ``.json``."""
    stem = "".join(
        one if one in _SAFE_CHARACTERS else _escape(one) for one in check_name(session_id, "session id")
    )
    if stem[0] == "." or _WINDOWS_DEVICE.match(stem):  # hidden, a way up, or a device of Windows
        stem = _escape(stem[0]) + stem[1:]
    return stem if len(stem) <= MAX_STEM_CHARACTERS else _shorten_stem(stem, session_id)


def is_shortened_stem(stem: str) -> bool:
    """Whether the name does not hold the whole id."""
    return "~" in stem


def parse_file_stem(stem: str) -> str | None:
    """The session whose file has that name; None if no session's has, or if the name is cut short."""
    try:
        data = _ESCAPED.sub(lambda found: chr(int(found[1], 16)), stem).encode("latin-1")
        session_id = data.decode("utf-8", "surrogatepass")
        return session_id if to_file_stem(session_id) == stem else None
    except (
        ValueError
    ):  # characters that we would have escaped, bytes that are no text, or a name that is refused
        return None


def _escape(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode("utf-8", "surrogatepass"))


def _shorten_stem(stem: str, session_id: str) -> str:
    digest = hashlib.blake2b(session_id.encode("utf-8", "surrogatepass"), digest_size=20).hexdigest()
    return f"{_HALF_ESCAPE.sub('', stem[:_LONG_STEM_CHARACTERS])}~{digest}"
