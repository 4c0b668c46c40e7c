"""Lenient JSON reader for the answers of language models.

The reader needs a single pass without backtracking or recursion, so it takes linear time for any answer. It skips
prose and code fences, and tolerates missing or superfluous brackets. It accepts single quotes, bare words, Python
literals and superfluous commas. Of a truncated answer, it returns all complete objects.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

MAX_ANSWER_CHARACTERS = 200_000
"""Maximum number of characters read from an answer."""
_MAX_DEPTH = 12  # deeper values are replaced by None
_MAX_ITEMS = 200  # kept of one list or object

_OPENING = re.compile(r"[\[{]")
_BLANK = re.compile(r"\s+")
_STRING_STOPS = {'"': re.compile(r'["\\]'), "'": re.compile(r"['\\]")}
# A quote ends a string only if one of these follows: models forget to escape quotes.
_AFTER_STRING = re.compile(r"\s*(?:[,:}\]]|\Z)")
_BARE_WORD = re.compile(r"[^\s{}\[\]:,\"]+")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_LITERAL_VALUES = {
    "true": True,
    "false": False,
    "null": None,
    "none": None,
    "undefined": None,
    "nan": None,
    "infinity": None,
    "-infinity": None,
}


@dataclass(slots=True)
class LenientParseResult:
    """Objects found in an answer, and statistics about the rest."""

    objects: list[dict[str, Any]] = field(default_factory=list)
    """Objects with a string under the requested key, in order and not nested in each other."""
    missing_key_count: int = 0
    """Number of objects without that key, neither in them nor in a nested object."""
    garbled_count: int = 0
    """Number of objects that could not be read reliably."""
    is_truncated: bool = False
    """True if a list, object or string was not closed at the end."""
    is_json: bool = False
    """True if the answer contained any list or object."""


@dataclass(slots=True)
class _Frame:
    is_object: bool
    matches: list[dict[str, Any]] = field(default_factory=list)
    items: list[Any] = field(default_factory=list)
    entries: dict[str, Any] = field(default_factory=dict)
    key: str | None = None
    value: Any = None
    has_value: bool = False
    is_after_colon: bool = False
    is_garbled: bool = False
    missing_key_count: int = 0
    count: int = 0


def find_objects(text: str, wanted: str) -> LenientParseResult:
    """Find the objects of a text that have a string under a key.

    Args:
        text: Answer of the model.
        wanted: Key that an object must have.
    """
    return _Reader(text[:MAX_ANSWER_CHARACTERS], wanted).read(is_more=len(text) > MAX_ANSWER_CHARACTERS)


class _Reader:
    def __init__(self, text: str, wanted: str) -> None:
        self._text = text
        self._wanted_key = wanted
        self._stack: list[_Frame] = []
        self._open_object_count = 0
        self._allows_single_quotes = True
        self._result = LenientParseResult()

    def read(self, *, is_more: bool) -> LenientParseResult:
        position = 0
        while position < len(self._text):
            # Outside of lists and objects there is prose: skip to the next bracket.
            if not self._stack:
                found = _OPENING.search(self._text, position)
                if found is None:
                    break
                position = found.start()
            following = self._read_token(position)
            if following <= position:
                break
            position = following
        result = self._result
        result.is_truncated = bool(self._stack) or is_more
        # Frames that are still open were truncated: keep the complete objects inside of them.
        for frame in self._stack:
            result.objects += frame.matches
            result.missing_key_count += frame.missing_key_count
        return result

    def _read_token(self, position: int) -> int:
        # Reads one token and returns the position after it. The same position means that the rest is an unfinished
        # string.
        text, mark = self._text, self._text[position]
        if mark in "[{":
            self._open(is_object=mark == "{")
        elif mark in "]}":
            self._close(is_object=mark == "}")
        elif mark == ",":
            _end_entry(self._stack[-1])
        elif mark == ":":
            _start_value(self._stack[-1])
        elif blank := _BLANK.match(text, position):
            return blank.end()
        else:
            return self._read_value(position)
        return position + 1

    def _read_value(self, position: int) -> int:
        text, mark, frame = self._text, self._text[position], self._stack[-1]
        if mark == '"' or (mark == "'" and self._allows_single_quotes):
            end = _find_string_end(text, position)
            if end is not None:
                _set_value(frame, _unescape(text[position + 1 : end]))
                return end + 1
            if mark == '"':
                return position
            # No closing quote in the rest of the text. Searching again at every apostrophe would take quadratic time.
            self._allows_single_quotes = False
        found = _BARE_WORD.match(text, position)
        assert found is not None  # noqa: S101 - all other characters are handled above
        _set_value(frame, _parse_literal(found[0]))
        return found.end()

    def _open(self, *, is_object: bool) -> None:
        self._stack.append(_Frame(is_object))
        self._open_object_count += is_object
        self._result.is_json = True

    def _close(self, *, is_object: bool) -> None:
        # The counter makes this check O(1); searching the stack for each bracket would take quadratic time.
        is_open = self._open_object_count > 0 if is_object else len(self._stack) > self._open_object_count
        if not is_open:
            return  # superfluous
        # Everything inside that is still open lacks its closing bracket.
        while self._stack[-1].is_object is not is_object:
            self._stack[-1].is_garbled = True
            self._pop()
        self._pop()

    def _pop(self) -> None:
        frame = self._stack.pop()
        _end_entry(frame)
        self._open_object_count -= frame.is_object
        found = self._collect_matches(frame)
        if not self._stack:
            self._result.objects += found
            self._result.missing_key_count += frame.missing_key_count
            return
        outer = self._stack[-1]
        outer.missing_key_count += frame.missing_key_count
        if outer.matches:
            outer.matches += found
        else:
            outer.matches = found  # without a copy: deep nesting would make copies quadratic
        is_kept = len(self._stack) < _MAX_DEPTH
        _set_value(outer, (frame.entries if frame.is_object else frame.items) if is_kept else None)

    def _collect_matches(self, frame: _Frame) -> list[dict[str, Any]]:
        if not frame.is_object:
            return frame.matches
        if frame.is_garbled:
            self._result.garbled_count += 1
            return frame.matches
        if isinstance(frame.entries.get(self._wanted_key), str):
            frame.missing_key_count = 0
            return [frame.entries]
        # An object that contains matching objects, or an empty list of them, is a wrapper, not a bad result.
        if (
            frame.entries
            and not frame.matches
            and not frame.missing_key_count
            and not _has_empty_list(frame.entries)
        ):
            frame.missing_key_count = 1
        return frame.matches


def _find_string_end(text: str, start: int) -> int | None:
    # Returns the index of the quote that closes the string starting at `start`. A loop, not one pattern: possessive
    # repetition of a group is broken in Python 3.11.0 to 3.11.4, and ordinary repetition may backtrack.
    quote = text[start]
    stops = _STRING_STOPS[quote]
    position = start + 1
    while stop := stops.search(text, position):
        position = stop.end()
        if stop[0] == "\\":
            position += 1
        elif _AFTER_STRING.match(text, position):
            return stop.start()
    return None


def _set_value(frame: _Frame, value: Any) -> None:  # noqa: ANN401 - any JSON value
    if frame.has_value:
        frame.is_garbled = True  # two values without a comma between them
        return
    frame.value, frame.has_value = value, True


def _start_value(frame: _Frame) -> None:
    if not frame.is_object or frame.is_after_colon or not frame.has_value or not isinstance(frame.value, str):
        frame.is_garbled = True
        return
    frame.key, frame.value, frame.has_value, frame.is_after_colon = frame.value, None, False, True


def _end_entry(frame: _Frame) -> None:
    is_kept = frame.count < _MAX_ITEMS
    if frame.is_object and frame.is_after_colon and frame.key is not None:
        if is_kept:
            frame.entries[frame.key.strip().lower()] = frame.value
    elif frame.has_value:
        if frame.is_object:
            frame.is_garbled = True  # a key without a value
        elif is_kept:
            frame.items.append(frame.value)
    frame.count += 1
    frame.key, frame.value, frame.has_value, frame.is_after_colon = None, None, False, False


def _has_empty_list(entries: dict[str, Any]) -> bool:
    return any(value == [] for value in entries.values())


def _parse_literal(word: str) -> object:
    if word.lower() in _LITERAL_VALUES:
        return _LITERAL_VALUES[word.lower()]
    try:
        return float(word) if len(word) < 40 and word[0] in "-+.0123456789" else word
    except ValueError:
        return word


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    plain = _ESCAPE.sub(
        lambda found: chr(int(found[1][1:], 16)) if len(found[1]) == 5 else _ESCAPES.get(found[1], found[1]),
        text,
    )
    # JSON escapes characters beyond U+FFFF as surrogate pairs; this joins the halves and replaces single ones.
    return plain.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
