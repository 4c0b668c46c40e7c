"""Read word lists from data files.

A data file is UTF-8 text in the folder ``data`` next to the module that uses it. ``[name]`` starts a section. A line
that starts with ``#`` and a space is a comment.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_PACKAGE = Path(__file__).parents[1]


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
    _, *folders, _ = module.split(".")
    return _read_sections("/".join([*folders, "data", f"{name}.txt"]))[section]


def load_groups(module: str, name: str, section: str) -> tuple[tuple[str, str], ...]:
    """Return a section whose lines have the form ``key: members``, as pairs. Arguments as for `load_words`."""
    pairs = (line.partition(":") for line in load_lines(module, name, section))
    return tuple((key.strip(), members.strip()) for key, _, members in pairs)


@cache
def _read_sections(path: str) -> Mapping[str, tuple[str, ...]]:
    # Not importlib.resources: its readers take longer to import than all lists to read, and most lists are read while
    # the package is imported.
    lines: list[str] = []
    sections: dict[str, list[str]] = {}
    for line in (_PACKAGE / path).read_text(encoding="utf-8").split("\n"):
        if not line or line.startswith("# "):
            continue
        if line[0] == "[" and line[-1] == "]":
            lines = sections[line[1:-1]] = []
        else:
            lines.append(line)
    return {section: tuple(found) for section, found in sections.items()}
