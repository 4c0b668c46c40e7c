"""Token budget for extracted data in a prompt, and truncation of data that exceeds it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from langmem_tiers.common.checks import check_fraction, check_whole
from langmem_tiers.text.sentences import find_largest_fitting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langmem_tiers.common.ports import TokenCounter

HEAD_SHARE = 0.7
"""Share of the beginning in a truncated text. Pages begin with their subject and end with the next steps."""
_MAX_TRIM_SHARE = 0.2  # share of a part that may be given up to end it at a line or word boundary
_MIN_TOKENS = 20
"""Minimum space for an extraction; with less, it is left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractionBudget:
    """Limits of extracted data in a prompt.

    Args:
        max_percent: Maximum share of the remaining budget for all extractions together, from 0 to 1. Default: 0.2.
        max_tokens: Maximum number of tokens for all extractions together. Default: 4,000.
        max_single_chars: Maximum length of one extraction, in characters. Default: 8,000.
    """

    max_percent: float = 0.20
    max_tokens: int = 4_000
    max_single_chars: int = 8_000

    def __post_init__(self) -> None:
        check_fraction(self.max_percent, "max_percent")
        check_whole(self.max_tokens, 0, "max_tokens")
        check_whole(self.max_single_chars, 0, "max_single_chars")

    def compute_token_limit(self, remaining_tokens: int) -> int:
        """Return the number of tokens that all extractions together may use of a remaining budget."""
        return max(0, min(int(remaining_tokens * self.max_percent), self.max_tokens))


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedExtractions:
    """Extractions within the limits."""

    texts: tuple[tuple[str, str], ...]
    """Label and text of each extraction, in the original order."""
    tokens: int
    """Number of tokens of ``text``."""
    truncated_labels: tuple[str, ...] = ()
    """Labels of the shortened extractions."""
    left_out_labels: tuple[str, ...] = ()
    """Labels of the extractions that did not fit."""

    @property
    def text(self) -> str:
        """All extractions as one text for a prompt."""
        return _join_texts(self.texts)


def keep_head_and_tail(text: str, max_chars: int) -> str:
    """Truncate a text to its beginning and end, with a note on the number of characters left out.

    Args:
        text: Any text.
        max_chars: Maximum length of the result. If not even the note fits, only the beginning is returned.
    """
    if len(text) <= max_chars:
        return text
    # The note is longest if it names the whole length; the real one may be a digit shorter.
    longest_note = len(_format_note(len(text)))
    available = max_chars - longest_note
    if available < 2:
        return text[: max(0, max_chars)]
    head = _cut_head(text, int(available * HEAD_SHARE))
    tail = _cut_tail(text, available - int(available * HEAD_SHARE))
    return f"{head}{_format_note(len(text) - len(head) - len(tail))}{tail}"


def fit_head_and_tail(text: str, max_tokens: int, counter: TokenCounter) -> str:
    """Truncate a text to its beginning and end so that it has at most ``max_tokens``.

    Args:
        text: Any text.
        max_tokens: Maximum number of tokens.
        counter: Token counter.
    """
    if counter.count(text) <= max_tokens:
        return text
    # Token counts are not monotone in the length, so the result of the binary search may not fit: check it and
    # reduce it further.
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
    """Select the newest extractions within the limits. The first one that does not fit is truncated.

    Args:
        extractions: Label and text of each extraction, oldest first.
        remaining_tokens: Remaining token budget of the prompt.
        counter: Token counter.
        budget: Limits. Default: ``ExtractionBudget()``.
    """
    limits = ExtractionBudget() if budget is None else budget
    token_limit = limits.compute_token_limit(remaining_tokens)
    kept: list[tuple[int, str, str]] = []
    cut: set[int] = set()
    for index in range(len(extractions) - 1, -1, -1):
        label, whole = extractions[index]
        text = keep_head_and_tail(whole, limits.max_single_chars)
        shown = _fit_extraction(
            (label, text),
            [(kept_label, kept_text) for _, kept_label, kept_text in reversed(kept)],
            token_limit,
            counter,
        )
        if shown is not None:
            kept.append((index, label, shown))
            cut |= {index} if shown != whole else set()
        elif (
            token_limit
            - counter.count(
                _join_texts([(kept_label, kept_text) for _, kept_label, kept_text in reversed(kept)])
            )
            < _MIN_TOKENS
        ):
            break  # no space left: skip the older extractions, of which there may be thousands
    kept.reverse()
    kept_indexes = {index for index, _, _ in kept}
    texts = tuple((label, text) for _, label, text in kept)
    return FittedExtractions(
        texts=texts,
        tokens=counter.count(_join_texts(texts)),
        truncated_labels=tuple(extractions[index][0] for index in sorted(cut)),
        left_out_labels=tuple(
            label for index, (label, _) in enumerate(extractions) if index not in kept_indexes
        ),
    )


def _fit_extraction(
    extraction: tuple[str, str], newer: list[tuple[str, str]], token_limit: int, counter: TokenCounter
) -> str | None:
    # Returns the text, truncated to the space that the newer extractions leave, or None if it is too small.
    label, text = extraction

    def fits(shown: str) -> bool:
        return counter.count(_join_texts([(label, shown), *newer])) <= token_limit

    if fits(text):
        return text
    remaining = token_limit - counter.count(_join_texts(newer))
    if remaining < _MIN_TOKENS:
        return None
    size = find_largest_fitting(len(text), lambda n: fits(keep_head_and_tail(text, n)))
    shown = keep_head_and_tail(text, size)
    # Counters are not monotone, so check again; and a few words are not worth their heading.
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
