"""Objects out of what a model calls JSON.

One pass without a way back, so that no answer takes more than linear time, and no recursion: prose, code fences and
closing marks that are missing or too many are passed over, single quotes, bare words, Python's literals and commas
too many are read as they are meant, and of an answer that was cut off everything whole counts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

MAX_ANSWER_CHARACTERS = 200_000
"""Characters of an answer that are read."""
_MAX_DEPTH = 12  # values deeper than this are not kept
_MAX_ITEMS = 200  # of one list or object

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
    """What was found in an answer."""

    objects: list[dict[str, Any]] = field(default_factory=list)
    """Those that have the wanted text, in order; none inside another."""
    missing_key_count: int = 0
    """Objects without the wanted text, and nothing with it inside them."""
    garbled_count: int = 0
    """Objects that could not be read for sure."""
    is_truncated: bool = False
    """Whether something was left open at the end."""
    is_json: bool = False
    """Whether there was a list or an object at all."""


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
    """The objects of a text that have a string under the wanted key.

    Args:
        text: What the model answered.
        wanted: The key that makes an object one of those that were asked for.
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
        place = 0
        while place < len(self._text):
            if not self._stack:
                found = _OPENING.search(self._text, place)
                if found is None:
                    break
                place = found.start()
            step = self._read_token(place)
            if step <= place:
                break
            place = step
        done = self._result
        done.is_truncated = bool(self._stack) or is_more
        for frame in self._stack:
            done.objects += frame.matches
            done.missing_key_count += frame.missing_key_count
        return done

    def _read_token(self, place: int) -> int:
        # Reads one token; a place that does not move says that the rest was cut off.
        text, mark = self._text, self._text[place]
        if mark in "[{":
            self._open(is_object=mark == "{")
        elif mark in "]}":
            self._close(is_object=mark == "}")
        elif mark == ",":
            _end_entry(self._stack[-1])
        elif mark == ":":
            _start_value(self._stack[-1])
        elif blank := _BLANK.match(text, place):
            return blank.end()
        else:
            return self._read_value(place)
        return place + 1

    def _read_value(self, place: int) -> int:
        text, mark, frame = self._text, self._text[place], self._stack[-1]
        if mark == '"' or (mark == "'" and self._allows_single_quotes):
            end = _find_string_end(text, place)
            if end is not None:
                _set_value(frame, _unescape(text[place + 1 : end]))
                return end + 1
            if mark == '"':
                return place
            self._allows_single_quotes = False  # there is no end behind this one, so none behind the next
        found = _BARE_WORD.match(text, place)
        assert found is not None  # noqa: S101 - every other mark was looked at before
        _set_value(frame, _parse_literal(found[0]))
        return found.end()

    def _open(self, *, is_object: bool) -> None:
        self._stack.append(_Frame(is_object))
        self._open_object_count += is_object
        self._result.is_json = True

    def _close(self, *, is_object: bool) -> None:
        has_one = self._open_object_count > 0 if is_object else len(self._stack) > self._open_object_count
        if not has_one:
            return  # one too many
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
            outer.matches = found  # handed on as it is, however deep it lies
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
        if (
            frame.entries
            and not frame.matches
            and not frame.missing_key_count
            and not _has_empty_list(frame.entries)
        ):
            frame.missing_key_count = 1
        return frame.matches


def _find_string_end(text: str, start: int) -> int | None:
    # Returns the index of the quote that closes the string starting at `start`. A loop, not one pattern: a group
    # that is repeated possessively matches wrongly in Python 3.11.0 to 3.11.4, and without that it may backtrack.
    quote = text[start]
    stops = _STRING_STOPS[quote]
    place = start + 1
    while stop := stops.search(text, place):
        place = stop.end()
        if stop[0] == "\\":
            place += 1
        elif _AFTER_STRING.match(text, place):
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
    # Two halves of one character, as JSON writes those beyond 65,535.
    return plain.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
