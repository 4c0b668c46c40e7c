"""Read word lists from data files.

A data file is UTF-8 text in the folder ``data`` next to the module that uses it. ``[name]`` starts a section. A line
that starts with ``#`` and a space is a comment. An indented line continues the line before it.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_CONTINUATION = re.compile(r"\n[ \t]+")
_SECTION = re.compile(r"^\[([^\]\n]+)\]$", re.MULTILINE)
_COMMENT = re.compile(r"^#(?: .*)?$", re.MULTILINE)


def load_words(module: str, name: str, section: str) -> tuple[str, ...]:
    """Return the words of a section in order.

    Args:
        module: ``__name__`` of the module next to the folder ``data``.
        name: Name of the file without its suffix.
        section: Section of the file.
    """
    return tuple(" ".join(load_lines(module, name, section)).split())


def load_lines(module: str, name: str, section: str) -> tuple[str, ...]:
    """Return the lines of a section in order, without comments and empty lines. Arguments as for `load_words`."""
    return _read_sections(module.rpartition(".")[0], name)[section]


def load_groups(module: str, name: str, section: str) -> tuple[tuple[str, str], ...]:
    """Return a section whose lines have the form ``key: members``, as pairs. Arguments as for `load_words`."""
    pairs = (line.partition(":") for line in load_lines(module, name, section))
    return tuple((key.strip(), members.strip()) for key, _, members in pairs)


@cache
def _read_sections(package: str, name: str) -> Mapping[str, tuple[str, ...]]:
    text = files(package).joinpath("data", f"{name}.txt").read_text(encoding="utf-8")
    _, *parts = _SECTION.split(_CONTINUATION.sub(" ", _COMMENT.sub("", text)))
    return {
        section: tuple(filter(None, map(str.strip, lines.split("\n"))))
        for section, lines in zip(parts[::2], parts[1::2], strict=True)
    }
