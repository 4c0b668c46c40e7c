"""What is kept of a step to compare it with others: keys and digests of bounded size, plain as JSON."""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from langmem_tiers.common.plain_values import to_plain_value
from langmem_tiers.tasks.loop_detection.weights import (
    ELEMENT_FIRST_TOOLS,
    ELEMENT_KEYS,
    EXPLORING_TOOLS,
    GOING_BACK_TOOLS,
    KEY_PRESS_TOOLS,
    READING_KEYS,
    TALKING_TOOLS,
    VISITING_TOOLS,
    ActionDifference,
    PageComparison,
    StepKind,
)

if TYPE_CHECKING:
    from langmem_tiers.tasks.loop_detection.actions import Step

_MAX_HASHED_CHARACTERS = 50_000
"""Of the beginning and of the end of a text; what lies between is not looked at."""
_MIN_PAGE_CHARACTERS = 200
"""From here on an observation is taken for a page, below for a word on how it went."""
_MIN_PAGE_LINES = 5
"""From here on two pages may be nearly the same."""
_MAX_SKETCH_LINES = 32
_MIN_SAME_LINES_SHARE = 0.9
_MAX_SHORT_TEXT_WORDS = 8
_MAX_WORDS = 64
_MAX_SHOWN_CHARACTERS = 60
_MAX_ADDRESS_CHARACTERS = 2_000
_JSON_TYPES = frozenset({str, int, bool, type(None)})
"""Types that JSON holds as they are."""
_NUMBER = re.compile(r"-?\d+")
_VOLATILE = re.compile(r"\[[a-zA-Z]{0,3}\d+\]|\b\d{1,2}:\d\d(?::\d\d)?\b|, focused\b")
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


class StepKey(NamedTuple):
    """A step as it is compared."""

    tool: str
    shown: str
    """The call as a person reads it, shortened."""
    kind: StepKind
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
    def is_unsuccessful(self) -> bool:
        """Whether it failed or brought nothing."""
        return self.failed or self.is_fruitless


def _matches_short_text(said: re.Pattern[str], observation: object) -> bool:
    # A tool may say that it could do nothing, and call that a success.
    text = observation if isinstance(observation, str) else ""
    return 0 < len(text) <= _MIN_PAGE_CHARACTERS and said.search(text) is not None


def build_step_key(step: Step) -> StepKey:
    """The mark of a step. Never raises, whatever its parts are."""
    tool = _to_text(step.tool) or "unknown"
    short = _PREFIX.sub("", tool.lower())
    plain = _to_plain(step.parameters)
    where = {
        key for key in plain if key.lower() in ELEMENT_KEYS or (key == "0" and short in ELEMENT_FIRST_TOOLS)
    }
    what = {key: value for key, value in plain.items() if key not in where} if where else plain
    whole = _dump_json(plain)
    rest = _dump_json(what) if where else whole
    action = hash_text(f"{tool}\n{whole}")
    page, lines = _digest_page(cut_middle(_to_text(step.observation)))
    return StepKey(
        tool=tool,
        shown=_format_call(tool, plain),
        kind=_classify_tool(short, plain),
        action=action,
        rest=hash_text(f"{tool}\n{rest}") if where else action,
        shape=hash_text(f"{tool}\n{_NUMBER.sub('#', whole)}"),
        element=_get_element_key(plain, where),
        words=tuple(sorted(set(_WORD.findall(rest.lower())) - _find_key_words(what))[:_MAX_WORDS]),
        url=_normalize_address(_to_text(step.url)),
        page=page,
        lines=lines,
        failed=bool(step.failed) or _matches_short_text(_FAILURE, step.observation),
        is_fruitless=_matches_short_text(_FRUITLESS, step.observation),
    )


def compare_actions(new: StepKey, old: StepKey) -> ActionDifference | None:
    """How two actions of the same tool differ; `None` if they have nothing to do with each other."""
    if new.tool != old.tool:
        return None
    if new.action == old.action or (new.kind is StepKind.EXPLORE and new.element == old.element):
        return ActionDifference.NONE
    if new.rest == old.rest:
        return ActionDifference.DRIFT if new.words else ActionDifference.NUMBER
    if new.shape == old.shape:
        return ActionDifference.NUMBER
    other_field = new.element != old.element and bool(new.url) and new.url == old.url
    is_variant = new.kind is not StepKind.VISIT and not other_field and _are_similar(new.words, old.words)
    return ActionDifference.LITTLE if is_variant else None


def compare_pages(new: StepKey, old: StepKey) -> PageComparison:
    """How what was observed with one compares to what was observed with the other."""
    if not new.page or not old.page:
        return PageComparison.UNKNOWN
    if new.page == old.page:
        return PageComparison.SAME
    if len(new.lines) < 2 or len(old.lines) < 2:  # nothing, or a text without lines, which is another one
        return PageComparison.CHANGED
    ours, theirs = frozenset(new.lines), frozenset(old.lines)
    both = sorted(ours | theirs)[:_MAX_SKETCH_LINES]
    shared = sum(1 for line in both if line in ours and line in theirs)
    return PageComparison.NEARLY if shared >= _MIN_SAME_LINES_SHARE * len(both) else PageComparison.CHANGED


def hash_text(text: str) -> str:
    """A short name for a text."""
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()


def cut_middle(text: str) -> str:
    """The beginning and the end of a long text."""
    if len(text) <= 2 * _MAX_HASHED_CHARACTERS:
        return text
    return text[:_MAX_HASHED_CHARACTERS] + text[-_MAX_HASHED_CHARACTERS:]


def _to_plain(parameters: object) -> dict[str, Any]:
    if not isinstance(parameters, Mapping):
        return {"value": to_plain_value(parameters)}
    if all(type(key) is str and type(value) in _JSON_TYPES for key, value in parameters.items()):
        return dict(parameters)
    plain: dict[str, Any] = to_plain_value(parameters)
    return plain


def _get_element_key(parameters: Mapping[str, Any], where: set[str]) -> str:
    if not where:
        return ""
    whole = (
        _to_text(parameters[next(iter(where))])
        if len(where) == 1
        else _dump_json({key: parameters[key] for key in where})
    )
    return whole if len(whole) <= _MAX_SHOWN_CHARACTERS else hash_text(whole)


def _dump_json(parameters: Mapping[str, Any]) -> str:
    try:
        return cut_middle(_ENCODER.encode(parameters))
    except (ValueError, RecursionError):  # whole numbers of thousands of digits
        return cut_middle(json.dumps(sorted(parameters)))


def _are_similar(new: tuple[str, ...], old: tuple[str, ...]) -> bool:
    if not new or not old:
        return False
    ours, theirs = frozenset(new), frozenset(old)
    shared = len(ours & theirs)
    smaller, larger = sorted((len(ours), len(theirs)))
    if larger <= _MAX_SHORT_TEXT_WORDS:
        return shared > 0.5 * len(ours | theirs) or (shared == smaller and smaller >= 2)
    return shared >= 0.75 * len(ours | theirs)


def _digest_page(text: str) -> tuple[str, tuple[int, ...]]:
    if not text:
        return "", ()
    if len(text) < _MIN_PAGE_CHARACTERS:
        return hash_text(" ".join(text.split())), ()
    steady = _VOLATILE.sub("", text)
    lines = steady.splitlines()
    if len(lines) < _MIN_PAGE_LINES:
        return hash_text(steady), (zlib.crc32(steady.encode("utf-8", "replace")),)
    found = {zlib.crc32(line.strip().encode("utf-8", "replace")) for line in lines}
    return hash_text(steady), tuple(sorted(found)[:_MAX_SKETCH_LINES])


def _normalize_address(url: str) -> str:
    """Without the place on the page (``#top``, ``#map=7/42/-75``), but with a route (``#/inbox``)."""
    page, mark, place = url.strip().partition("#")
    whole = (url.strip() if mark and place[:1] in ("/", "!") else page).rstrip("/")
    return whole if len(whole) <= _MAX_ADDRESS_CHARACTERS else hash_text(cut_middle(whole))


def _classify_tool(tool: str, parameters: Mapping[str, Any]) -> StepKind:
    if tool in KEY_PRESS_TOOLS:
        keys = {_to_text(value).lower() for value in parameters.values()}
        return StepKind.EXPLORE if keys & READING_KEYS else StepKind.ACT
    for kind, tools in (
        (StepKind.EXPLORE, EXPLORING_TOOLS),
        (StepKind.BACK, GOING_BACK_TOOLS),
        (StepKind.VISIT, VISITING_TOOLS),
        (StepKind.TALK, TALKING_TOOLS),
    ):
        if tool in tools:
            return kind
    return StepKind.ACT


def _find_key_words(parameters: Mapping[str, Any]) -> set[str]:
    return {word for key in parameters for word in _WORD.findall(key.lower())}


def _format_call(tool: str, parameters: Mapping[str, Any]) -> str:
    inner = ", ".join(
        " ".join(_to_text(value)[:_MAX_SHOWN_CHARACTERS].split()) for value in parameters.values()
    )
    short = inner if len(inner) <= _MAX_SHOWN_CHARACTERS else inner[:_MAX_SHOWN_CHARACTERS] + "..."
    return f"{tool[:_MAX_SHOWN_CHARACTERS]}({short})"


def _to_text(value: object) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    try:
        return str(to_plain_value(value))
    except (ValueError, RecursionError):
        return f"<{type(value).__name__}>"
