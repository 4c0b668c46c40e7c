"""Keys for the comparison of steps: digests of bounded size that can be stored as JSON."""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from langmem_tiers.common.json_values import to_plain_value
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
"""Number of characters at the beginning and at the end of a text that are compared. The middle is ignored."""
_MIN_PAGE_CHARACTERS = 200
"""Minimum length of an observation that is treated as a page. A shorter one is a status message."""
_MIN_PAGE_LINES = 5
"""Minimum number of lines of a page that can be nearly equal to another."""
_MAX_SKETCH_LINES = 32
_MIN_SAME_LINES_SHARE = 0.9
_MAX_SHORT_TEXT_WORDS = 8
_MAX_WORDS = 64
_MAX_SHOWN_CHARACTERS = 60
_MAX_ADDRESS_CHARACTERS = 2_000
_JSON_TYPES = frozenset({str, int, bool, type(None)})
"""Types that need no conversion to JSON."""
_NUMBER = re.compile(r"-?\d+")
_VOLATILE = re.compile(r"\[[a-zA-Z]{0,3}\d+\]|\b\d{1,2}:\d\d(?::\d\d)?\b|, focused\b")
"""Parts that vary between observations of the same page: element numbers, times of day and the focus."""
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
# Prefixes that tool servers and libraries add to the name of a browser action.
_PREFIX = re.compile(r"^(?:browser_|page\.|playwright_|mcp__\w+?__)")


class StepKey(NamedTuple):
    """Comparison key of a step."""

    tool: str
    shown: str
    """Shortened display text of the call."""
    kind: StepKind
    action: str
    """Digest of the tool and all parameters."""
    rest: str
    """Digest of the tool and the parameters without the element."""
    shape: str
    """Digest of the tool and the parameters with all numbers replaced."""
    element: str
    """The element that the action addresses, or a digest of it."""
    words: tuple[str, ...]
    """Sorted words of the parameters without the element."""
    url: str
    page: str
    """Digest of the observation; empty without one."""
    lines: tuple[int, ...]
    """Checksums of a sample of the page's lines; empty if the observation is not a page."""
    failed: bool
    is_fruitless: bool = False
    """True if the action succeeded without a result."""

    @property
    def is_unsuccessful(self) -> bool:
        """True if the action failed or had no result."""
        return self.failed or self.is_fruitless


def _matches_short_text(pattern: re.Pattern[str], observation: object) -> bool:
    # Some tools report "nothing found" or "not clickable" as success. Only short texts are searched: a page may
    # contain such words anywhere.
    text = observation if isinstance(observation, str) else ""
    return 0 < len(text) <= _MIN_PAGE_CHARACTERS and pattern.search(text) is not None


def build_step_key(step: Step) -> StepKey:
    """Build the comparison key of a step. Never raises, whatever the step contains."""
    tool = _to_text(step.tool) or "unknown"
    short_name = _PREFIX.sub("", tool.lower())
    plain = _to_plain(step.parameters)
    # Separate the parameters that address an element from the others.
    element_keys = {
        key
        for key in plain
        if key.lower() in ELEMENT_KEYS or (key == "0" and short_name in ELEMENT_FIRST_TOOLS)
    }
    other = {key: value for key, value in plain.items() if key not in element_keys} if element_keys else plain
    whole = _dump_json(plain)
    rest = _dump_json(other) if element_keys else whole
    action = hash_text(f"{tool}\n{whole}")
    page, lines = _digest_page(cut_middle(_to_text(step.observation)))
    return StepKey(
        tool=tool,
        shown=_format_call(tool, plain),
        kind=_classify_tool(short_name, plain),
        action=action,
        rest=hash_text(f"{tool}\n{rest}") if element_keys else action,
        shape=hash_text(f"{tool}\n{_NUMBER.sub('#', whole)}"),
        element=_get_element_key(plain, element_keys),
        words=tuple(sorted(set(_WORD.findall(rest.lower())) - _find_key_words(other))[:_MAX_WORDS]),
        url=_normalize_address(_to_text(step.url)),
        page=page,
        lines=lines,
        failed=bool(step.failed) or _matches_short_text(_FAILURE, step.observation),
        is_fruitless=_matches_short_text(_FRUITLESS, step.observation),
    )


def compare_actions(new: StepKey, old: StepKey) -> ActionDifference | None:
    """Return the difference between two actions of the same tool, or None if they are unrelated."""
    if new.tool != old.tool:
        return None
    # From the smallest difference to the largest. Scrolling by another amount counts as the same action.
    if new.action == old.action or (new.kind is StepKind.EXPLORE and new.element == old.element):
        return ActionDifference.NONE
    if new.rest == old.rest:
        return ActionDifference.DRIFT if new.words else ActionDifference.NUMBER
    if new.shape == old.shape:
        return ActionDifference.NUMBER
    # Similar texts in different fields of the same page are the filling of a form.
    other_field = new.element != old.element and bool(new.url) and new.url == old.url
    is_variant = new.kind is not StepKind.VISIT and not other_field and _are_similar(new.words, old.words)
    return ActionDifference.LITTLE if is_variant else None


def compare_pages(new: StepKey, old: StepKey) -> PageComparison:
    """Compare the observations of two steps."""
    if not new.page or not old.page:
        return PageComparison.UNKNOWN
    if new.page == old.page:
        return PageComparison.SAME
    # A status message or a text without lines has no sample to compare; another digest means another text.
    if len(new.lines) < 2 or len(old.lines) < 2:
        return PageComparison.CHANGED
    # Estimate the share of common lines. Each sample contains the lines with the smallest checksums (see
    # _digest_page()), and the smallest of the union are a random sample of both pages: a min-hash sketch.
    ours, theirs = frozenset(new.lines), frozenset(old.lines)
    both = sorted(ours | theirs)[:_MAX_SKETCH_LINES]
    shared = sum(1 for line in both if line in ours and line in theirs)
    return PageComparison.NEARLY if shared >= _MIN_SAME_LINES_SHARE * len(both) else PageComparison.CHANGED


def hash_text(text: str) -> str:
    """Return a short digest of a text."""
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()


def cut_middle(text: str) -> str:
    """Return a text, or only the beginning and the end of a long one."""
    if len(text) <= 2 * _MAX_HASHED_CHARACTERS:
        return text
    return text[:_MAX_HASHED_CHARACTERS] + text[-_MAX_HASHED_CHARACTERS:]


def _to_plain(parameters: object) -> dict[str, Any]:
    if not isinstance(parameters, Mapping):
        return {"value": to_plain_value(parameters)}
    # Fast path for the usual case of flat parameters.
    if all(type(key) is str and type(value) in _JSON_TYPES for key, value in parameters.items()):
        return dict(parameters)
    plain: dict[str, Any] = to_plain_value(parameters)
    return plain


def _get_element_key(parameters: Mapping[str, Any], element_keys: set[str]) -> str:
    if not element_keys:
        return ""
    whole = (
        _to_text(parameters[next(iter(element_keys))])
        if len(element_keys) == 1
        else _dump_json({key: parameters[key] for key in element_keys})
    )
    return whole if len(whole) <= _MAX_SHOWN_CHARACTERS else hash_text(whole)


def _dump_json(parameters: Mapping[str, Any]) -> str:
    try:
        return cut_middle(_ENCODER.encode(parameters))
    except (ValueError, RecursionError):
        # An integer with thousands of digits, or very deep nesting: use only the names of the parameters.
        return cut_middle(json.dumps(sorted(parameters)))


def _are_similar(new: tuple[str, ...], old: tuple[str, ...]) -> bool:
    if not new or not old:
        return False
    ours, theirs = frozenset(new), frozenset(old)
    shared = len(ours & theirs)
    smaller, larger = sorted((len(ours), len(theirs)))
    # Short texts, such as search queries, are similar if half of the words are equal or one contains the other.
    if larger <= _MAX_SHORT_TEXT_WORDS:
        return shared > 0.5 * len(ours | theirs) or (shared == smaller and smaller >= 2)
    return shared >= 0.75 * len(ours | theirs)


def _digest_page(text: str) -> tuple[str, tuple[int, ...]]:
    if not text:
        return "", ()
    if len(text) < _MIN_PAGE_CHARACTERS:
        return hash_text(" ".join(text.split())), ()
    stable_text = _VOLATILE.sub("", text)
    lines = stable_text.splitlines()
    if len(lines) < _MIN_PAGE_LINES:
        return hash_text(stable_text), (zlib.crc32(stable_text.encode("utf-8", "replace")),)
    checksums = {zlib.crc32(line.strip().encode("utf-8", "replace")) for line in lines}
    return hash_text(stable_text), tuple(sorted(checksums)[:_MAX_SKETCH_LINES])


def _normalize_address(url: str) -> str:
    """Remove a fragment that is a position (``#top``, ``#map=7/42/-75``), but keep a route (``#/inbox``)."""
    page, separator, fragment = url.strip().partition("#")
    whole = (url.strip() if separator and fragment[:1] in ("/", "!") else page).rstrip("/")
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
