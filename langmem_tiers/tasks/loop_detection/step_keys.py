"""What is kept of a step to compare it with others: keys and digests of bounded size, plain as JSON."""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from langmem_tiers.common.plain_values import plain_value
from langmem_tiers.tasks.loop_detection.weights import (
    ELEMENT_FIRST,
    ELEMENT_KEYS,
    EXPLORING,
    GOING_BACK,
    PRESSING,
    READING_KEYS,
    TALKING,
    VISITING,
    ActionKind,
    Difference,
    Page,
)

if TYPE_CHECKING:
    from langmem_tiers.tasks.loop_detection.actions import Step

_HASHED_CHARACTERS = 50_000
"""Of the beginning and of the end of a text; what lies between is not looked at."""
_PAGE_CHARACTERS = 200
"""From here on an observation is taken for a page, below for a word on how it went."""
_PAGE_LINES = 5
"""From here on two pages may be nearly the same."""
_SKETCH_LINES = 32
_SAME_LINES = 0.9
_SHORT_TEXT_WORDS = 8
_WORDS_KEPT = 64
_SHOWN_CHARACTERS = 60
_LONG_ADDRESS = 2_000
_SIMPLE = frozenset({str, int, bool, type(None)})
"""Types that JSON holds as they are."""
_NUMBER = re.compile(r"-?\d+")
_UNSTEADY = re.compile(r"\[[a-zA-Z]{0,3}\d+\]|\b\d{1,2}:\d\d(?::\d\d)?\b|, focused\b")
"""What differs between two looks at one page: numbers of elements, clocks, the focus."""
_ENCODER = json.JSONEncoder(sort_keys=True, ensure_ascii=False)
_WORD = re.compile(r"[^\W\d_]{2,}")
_FAILURE = re.compile(
    r"\b(?:not (?:clickable|found|visible|available|possible|allowed|interactable)"
    r"|no (?:such|effect|change)|nothing happened|(?<!\d )failed|failure"
    r"|error|cannot|could ?n.t|could not|unable|timed out|timeout|denied|invalid|unchanged)\b",
    re.IGNORECASE,
)
_FRUITLESS = re.compile(
    r"\b(?:no (?:results?|match(?:es)?|data|items?|entries|hits)|0 (?:results|matches|items|hits)"
    r"|nothing|empty|none)\b",
    re.IGNORECASE,
)
_PREFIX = re.compile(r"^(?:browser_|page\.|playwright_|mcp__\w+?__)")


class Mark(NamedTuple):
    """A step as it is compared."""

    tool: str
    shown: str
    """The call as a person reads it, shortened."""
    kind: ActionKind
    action: str
    """The same for the same tool and parameters."""
    rest: str
    """The same for all but the element."""
    shape: str
    """The same for all but numbers."""
    element: str
    words: tuple[str, ...]
    """Of the text it was given, sorted."""
    url: str
    page: str
    """Of what was observed; empty if nothing was."""
    lines: tuple[int, ...]
    """A sample of the page's lines, for pages that are nearly the same; empty if it is no page."""
    failed: bool
    is_fruitless: bool = False
    """Whether it went well and brought nothing."""

    @property
    def is_vain(self) -> bool:
        """Whether it failed or brought nothing."""
        return self.failed or self.is_fruitless


def _reads_like(said: re.Pattern[str], observation: object) -> bool:
    # A tool may say that it could do nothing, and call that a success.
    text = observation if isinstance(observation, str) else ""
    return 0 < len(text) <= _PAGE_CHARACTERS and said.search(text) is not None


def mark_of(step: Step) -> Mark:
    """The mark of a step. Never raises, whatever its parts are."""
    tool = _text(step.tool) or "unknown"
    short = _PREFIX.sub("", tool.lower())
    plain = _plain(step.parameters)
    where = {key for key in plain if key.lower() in ELEMENT_KEYS or (key == "0" and short in ELEMENT_FIRST)}
    what = {key: value for key, value in plain.items() if key not in where} if where else plain
    whole = _json(plain)
    rest = _json(what) if where else whole
    action = digest(f"{tool}\n{whole}")
    page, lines = _page(cut(_text(step.observation)))
    return Mark(
        tool=tool,
        shown=_shown(tool, plain),
        kind=_kind(short, plain),
        action=action,
        rest=digest(f"{tool}\n{rest}") if where else action,
        shape=digest(f"{tool}\n{_NUMBER.sub('#', whole)}"),
        element=_element(plain, where),
        words=tuple(sorted(set(_WORD.findall(rest.lower())) - _key_words(what))[:_WORDS_KEPT]),
        url=_address(_text(step.url)),
        page=page,
        lines=lines,
        failed=bool(step.failed) or _reads_like(_FAILURE, step.observation),
        is_fruitless=_reads_like(_FRUITLESS, step.observation),
    )


def difference(new: Mark, old: Mark) -> Difference | None:
    """How two actions of the same tool differ; `None` if they have nothing to do with each other."""
    if new.tool != old.tool:
        return None
    if new.action == old.action or (new.kind is ActionKind.EXPLORE and new.element == old.element):
        return Difference.NONE
    if new.rest == old.rest:
        return Difference.DRIFT if new.words else Difference.NUMBER
    if new.shape == old.shape:
        return Difference.NUMBER
    other_field = new.element != old.element and bool(new.url) and new.url == old.url
    is_variant = new.kind is not ActionKind.VISIT and not other_field and _alike(new.words, old.words)
    return Difference.LITTLE if is_variant else None


def same_page(new: Mark, old: Mark) -> Page:
    """How what was observed with one compares to what was observed with the other."""
    if not new.page or not old.page:
        return Page.UNKNOWN
    if new.page == old.page:
        return Page.SAME
    if len(new.lines) < 2 or len(old.lines) < 2:  # nothing, or a text without lines, which is another one
        return Page.CHANGED
    ours, theirs = frozenset(new.lines), frozenset(old.lines)
    both = sorted(ours | theirs)[:_SKETCH_LINES]
    shared = sum(1 for line in both if line in ours and line in theirs)
    return Page.NEARLY if shared >= _SAME_LINES * len(both) else Page.CHANGED


def digest(text: str) -> str:
    """A short name for a text."""
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()


def cut(text: str) -> str:
    """The beginning and the end of a long text."""
    if len(text) <= 2 * _HASHED_CHARACTERS:
        return text
    return text[:_HASHED_CHARACTERS] + text[-_HASHED_CHARACTERS:]


def _plain(parameters: object) -> dict[str, Any]:
    if not isinstance(parameters, Mapping):
        return {"value": plain_value(parameters)}
    if all(type(key) is str and type(value) in _SIMPLE for key, value in parameters.items()):
        return dict(parameters)
    plain: dict[str, Any] = plain_value(parameters)
    return plain


def _element(parameters: Mapping[str, Any], where: set[str]) -> str:
    if not where:
        return ""
    whole = (
        _text(parameters[next(iter(where))])
        if len(where) == 1
        else _json({key: parameters[key] for key in where})
    )
    return whole if len(whole) <= _SHOWN_CHARACTERS else digest(whole)


def _json(parameters: Mapping[str, Any]) -> str:
    try:
        return cut(_ENCODER.encode(parameters))
    except (ValueError, RecursionError):  # whole numbers of thousands of digits
        return cut(json.dumps(sorted(parameters)))


def _alike(new: tuple[str, ...], old: tuple[str, ...]) -> bool:
    if not new or not old:
        return False
    ours, theirs = frozenset(new), frozenset(old)
    shared = len(ours & theirs)
    smaller, larger = sorted((len(ours), len(theirs)))
    if larger <= _SHORT_TEXT_WORDS:
        return shared > 0.5 * len(ours | theirs) or (shared == smaller and smaller >= 2)
    return shared >= 0.75 * len(ours | theirs)


def _page(text: str) -> tuple[str, tuple[int, ...]]:
    if not text:
        return "", ()
    if len(text) < _PAGE_CHARACTERS:
        return digest(" ".join(text.split())), ()
    steady = _UNSTEADY.sub("", text)
    lines = steady.splitlines()
    if len(lines) < _PAGE_LINES:
        return digest(steady), (zlib.crc32(steady.encode("utf-8", "replace")),)
    found = {zlib.crc32(line.strip().encode("utf-8", "replace")) for line in lines}
    return digest(steady), tuple(sorted(found)[:_SKETCH_LINES])


def _address(url: str) -> str:
    """Without the place on the page (``#top``, ``#map=7/42/-75``), but with a route (``#/inbox``)."""
    page, mark, place = url.strip().partition("#")
    whole = (url.strip() if mark and place[:1] in ("/", "!") else page).rstrip("/")
    return whole if len(whole) <= _LONG_ADDRESS else digest(cut(whole))


def _kind(tool: str, parameters: Mapping[str, Any]) -> ActionKind:
    if tool in PRESSING:
        keys = {_text(value).lower() for value in parameters.values()}
        return ActionKind.EXPLORE if keys & READING_KEYS else ActionKind.ACT
    for kind, tools in (
        (ActionKind.EXPLORE, EXPLORING),
        (ActionKind.BACK, GOING_BACK),
        (ActionKind.VISIT, VISITING),
        (ActionKind.TALK, TALKING),
    ):
        if tool in tools:
            return kind
    return ActionKind.ACT


def _key_words(parameters: Mapping[str, Any]) -> set[str]:
    return {word for key in parameters for word in _WORD.findall(key.lower())}


def _shown(tool: str, parameters: Mapping[str, Any]) -> str:
    inner = ", ".join(" ".join(_text(value)[:_SHOWN_CHARACTERS].split()) for value in parameters.values())
    short = inner if len(inner) <= _SHOWN_CHARACTERS else inner[:_SHOWN_CHARACTERS] + "..."
    return f"{tool[:_SHOWN_CHARACTERS]}({short})"


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    try:
        return str(plain_value(value))
    except (ValueError, RecursionError):
        return f"<{type(value).__name__}>"
