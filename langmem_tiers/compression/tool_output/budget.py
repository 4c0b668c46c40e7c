"""How much of a prompt extracted data may take, and what is shown of data that is too long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from langmem_tiers.common.checks import check_fraction, check_whole
from langmem_tiers.compression.selection import find_largest_fitting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langmem_tiers.common.ports import TokenCounter

HEAD_SHARE = 0.7
"""Of what is kept of a long text: pages say first what they are about, and last what comes next."""
_MAX_TRIM_SHARE = 0.2  # so much of a part may be given up to end it at a line or a word
_MIN_TOKENS = 20
"""An extraction for which less than that is left is left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractionBudget:
    """The limits of extracted data in a prompt.

    Args:
        max_percent: The share of the remaining budget that all extractions together may take, 0 to 1.
        max_tokens: What all of them together may take in any case.
        max_single_chars: The characters of one.
    """

    max_percent: float = 0.20
    max_tokens: int = 4_000
    max_single_chars: int = 8_000

    def __post_init__(self) -> None:
        check_fraction(self.max_percent, "max_percent")
        check_whole(self.max_tokens, 0, "max_tokens")
        check_whole(self.max_single_chars, 0, "max_single_chars")

    def compute_token_limit(self, remaining_tokens: int) -> int:
        """What all extractions together may take of a remaining budget."""
        return max(0, min(int(remaining_tokens * self.max_percent), self.max_tokens))


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedExtractions:
    """Extractions that keep the limits."""

    texts: tuple[tuple[str, str], ...]
    """Label and text, in the order in which they were given."""
    tokens: int
    """Of `text`."""
    truncated_labels: tuple[str, ...] = ()
    """Labels of those that were shortened."""
    left_out_labels: tuple[str, ...] = ()
    """Labels of those for which there was no room."""

    @property
    def text(self) -> str:
        """All of them for a prompt."""
        return _join_texts(self.texts)


def keep_head_and_tail(text: str, max_chars: int) -> str:
    """The text, or its beginning and its end with a note of how many characters were left out between them.

    Args:
        text: Any text.
        max_chars: The result is never longer. Where not even the note fits, the beginning is all there is.
    """
    if len(text) <= max_chars:
        return text
    longest_note = len(_format_note(len(text)))
    room = max_chars - longest_note
    if room < 2:
        return text[: max(0, max_chars)]
    head = _cut_head(text, int(room * HEAD_SHARE))
    tail = _cut_tail(text, room - int(room * HEAD_SHARE))
    return f"{head}{_format_note(len(text) - len(head) - len(tail))}{tail}"


def fit_head_and_tail(text: str, max_tokens: int, counter: TokenCounter) -> str:
    """As much of a text's beginning and end as the counter lets pass.

    Args:
        text: Any text.
        max_tokens: The limit.
        counter: Counts tokens.
    """
    if counter.count(text) <= max_tokens:
        return text
    # Counters are not quite monotone: what the halving finds is checked.
    size = find_largest_fitting(len(text), lambda n: counter.count(keep_head_and_tail(text, n)) <= max_tokens)
    while size > 0 and counter.count(keep_head_and_tail(text, size)) > max_tokens:
        size = size * 9 // 10
    return keep_head_and_tail(text, size)


def fit_extractions(
    extractions: Sequence[tuple[str, str]],
    remaining_tokens: int,
    counter: TokenCounter,
    budget: ExtractionBudget | None = None,
) -> FittedExtractions:
    """The newest extractions that keep the limits; the first one that is too long for the rest is cut.

    Args:
        extractions: Label and text, oldest first.
        remaining_tokens: What is left of the prompt's budget.
        counter: Counts tokens.
        budget: The limits.
    """
    limits = ExtractionBudget() if budget is None else budget
    room = limits.compute_token_limit(remaining_tokens)
    kept: list[tuple[int, str, str]] = []
    cut: set[int] = set()
    for index in range(len(extractions) - 1, -1, -1):
        label, whole = extractions[index]
        text = keep_head_and_tail(whole, limits.max_single_chars)
        shown = _fit_extraction(
            (label, text), [(name, one) for _, name, one in reversed(kept)], room, counter
        )
        if shown is not None:
            kept.append((index, label, shown))
            cut |= {index} if shown != whole else set()
        elif (
            room - counter.count(_join_texts([(name, one) for _, name, one in reversed(kept)])) < _MIN_TOKENS
        ):
            break  # the older ones, and there may be thousands, need not be looked at
    kept.reverse()
    places = {index for index, _, _ in kept}
    texts = tuple((label, text) for _, label, text in kept)
    return FittedExtractions(
        texts=texts,
        tokens=counter.count(_join_texts(texts)),
        truncated_labels=tuple(extractions[index][0] for index in sorted(cut)),
        left_out_labels=tuple(label for index, (label, _) in enumerate(extractions) if index not in places),
    )


def _fit_extraction(
    one: tuple[str, str], newer: list[tuple[str, str]], room: int, counter: TokenCounter
) -> str | None:
    label, text = one

    def fits(shown: str) -> bool:
        return counter.count(_join_texts([(label, shown), *newer])) <= room

    if fits(text):
        return text
    left = room - counter.count(_join_texts(newer))
    if left < _MIN_TOKENS:
        return None
    size = find_largest_fitting(len(text), lambda n: fits(keep_head_and_tail(text, n)))
    shown = keep_head_and_tail(text, size)
    return shown if shown and counter.count(shown) * 2 >= _MIN_TOKENS and fits(shown) else None


def _join_texts(texts: Sequence[tuple[str, str]]) -> str:
    return "\n\n".join(f"### {label}\n{text}" if label else text for label, text in texts)


def _format_note(left_out: int) -> str:
    return f"\n[... {left_out} characters left out ...]\n"


def _cut_head(text: str, size: int) -> str:
    for mark in ("\n", " "):
        end = text.rfind(mark, 0, size + 1)
        if end >= size * (1 - _MAX_TRIM_SHARE):
            return text[:end].rstrip()
    return text[:size]


def _cut_tail(text: str, size: int) -> str:
    start = len(text) - size
    for mark in ("\n", " "):
        begin = text.find(mark, start - 1)
        if 0 <= begin <= start + size * _MAX_TRIM_SHARE:
            return text[begin:].lstrip()
    return text[start:]
