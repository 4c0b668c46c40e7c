"""Selection of the most important sentences and values of a tool result."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from langmem_tiers.compression.tool_output.detection import find_records
from langmem_tiers.compression.tool_output.urls import to_safe_text
from langmem_tiers.text.sentences import find_sentence_spans, shorten_text

if TYPE_CHECKING:
    from langmem_tiers.compression.fact_finder import FactSpan

MAX_KEY_SENTENCE_CHARACTERS = 300
"""Maximum length of a sentence."""
MAX_DATA_VALUE_CHARACTERS = 100
"""Maximum length of a value of structured data."""
MAX_CANDIDATES = 4_000
"""Maximum number of sentences or rows that are ranked."""
_MAX_IDS_PER_LINE = 50
_WORD = re.compile(r"[^\W\d_]{4,}")
_ID_KEY = re.compile(r"(?:^|[_\-.]|(?<=[a-z])(?=[IUGSK]))(?:id|uuid|guid|sku|key|ids)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class CandidateLine:
    """A line with its position in the result and its score."""

    position: int
    text: str
    score: float


def rank_sentences(text: str, fact_spans: Sequence[FactSpan]) -> list[CandidateLine]:
    """Score the sentences of a text by its subject words and facts. Duplicates are removed.

    Args:
        text: The text.
        fact_spans: Facts in the text, in order.
    """
    spans = [span for span in find_sentence_spans(text) if span[1] - span[0] > 2][:MAX_CANDIDATES]
    word_sets = [set(_WORD.findall(text[start:end][:1000].lower())) for start, end in spans]
    frequencies = Counter(word for words in word_sets for word in words)
    total = len(spans) + 1
    fact_scores = _score_facts(spans, fact_spans)
    found: dict[str, CandidateLine] = {}
    for position, ((start, end), words) in enumerate(zip(spans, word_sets, strict=True)):
        # Words that recur indicate the subject, words in almost every sentence indicate nothing. The first sentence
        # gets a bonus: it usually says what the text is about.
        weight = sum(math.log(total / frequencies[word]) * math.log(1 + frequencies[word]) for word in words)
        score = weight / math.sqrt(8 + len(words)) + fact_scores[position] + (1.0 if position == 0 else 0.0)
        line = shorten_text(text[start:end].lstrip("#>*•- \t"), MAX_KEY_SENTENCE_CHARACTERS)
        if line:
            found.setdefault(line, CandidateLine(position, line, score))
    return list(found.values())


def _score_facts(spans: Sequence[tuple[int, int]], fact_spans: Sequence[FactSpan]) -> list[float]:
    # Both sequences are ordered, so one pass assigns each fact to the sentence in which it starts. The limit per
    # sentence prevents a list of numbers from outscoring everything else.
    scores = [0.0] * len(spans)
    index = 0
    for fact_span in fact_spans:
        while index < len(spans) and spans[index][1] <= fact_span.start:
            index += 1
        if index < len(spans) and spans[index][0] <= fact_span.start:
            scores[index] = min(3.0, scores[index] + fact_span.fact.priority / 100)
    return scores


def rank_structured_data(value: object) -> tuple[str, list[CandidateLine]]:
    """Describe structured data in one line, and score lines of its fields, ids and values."""
    records = find_records(value)
    if len(records) > 1 or (records and isinstance(value, list | tuple)):
        return _rank_records(value, records)
    leaves = _flatten(value)
    top = [_format_name(key) for key in value][:20] if isinstance(value, Mapping) else []
    count = len(value) if isinstance(value, list | tuple | Mapping) else 1
    description = f"{count} fields: {', '.join(top)}" if top else f"{count} values"
    lines = [f"{path}: {text}" if path else text for path, text in leaves]
    # Ids first, then in the order of the data.
    scores = [2.0 if _ID_KEY.search(path) else 1.0 for path, _ in leaves]
    return shorten_text(description, 240), [
        CandidateLine(position, line, score - position / (len(lines) + 1))
        for position, (line, score) in enumerate(zip(lines, scores, strict=True))
    ]


def _rank_records(value: object, records: Sequence[Mapping[Any, Any]]) -> tuple[str, list[CandidateLine]]:
    # By score: field names (10), values beside the list (9), ids of all records (8 to 7), rows (5 to 1).
    names = list(dict.fromkeys(_format_name(key) for record in records[:MAX_CANDIDATES] for key in record))
    fields = ", ".join(names[:40])
    lines = [CandidateLine(0, shorten_text(f"fields: {fields}", 600), 10.0)]
    for name in [name for name in names if _ID_KEY.search(name)][:5]:
        ids = [
            _format_value(record.get(name))
            for record in records[:MAX_CANDIDATES]
            if _is_scalar(record.get(name))
        ]
        for start in range(0, len(ids), _MAX_IDS_PER_LINE):
            text = f"{name}: {', '.join(ids[start : start + _MAX_IDS_PER_LINE])}"
            lines.append(CandidateLine(len(lines), text, 8.0 - start / (len(ids) + 1)))
    if isinstance(value, Mapping):  # values beside the list, such as totals and page numbers
        for path, text in _flatten({key: member for key, member in value.items() if _is_scalar(member)}):
            lines.append(CandidateLine(len(lines), f"{path}: {text}", 9.0))
    total = len(records)
    for number, record in enumerate(records[:MAX_CANDIDATES]):
        row = "; ".join(f"{path}={text}" for path, text in _flatten(record)[:40])
        lines.append(CandidateLine(len(lines), row, 5.0 - 4.0 * number / total))
    return shorten_text(f"{total} records with the fields {fields}", 240), lines


def _flatten(value: object) -> list[tuple[str, str]]:
    # Returns paths and texts of the leaves in order. Uses a stack, not recursion: data may be nested deeply.
    found: list[tuple[str, str]] = []
    stack: list[tuple[str, object]] = [("", value)]
    while stack and len(found) < MAX_CANDIDATES:
        path, node = stack.pop()
        if isinstance(node, Mapping):
            stack += reversed(
                [(f"{path}.{_format_name(key)}".lstrip("."), child) for key, child in node.items()]
            )
        elif isinstance(node, list | tuple) and not all(map(_is_scalar, node)):
            stack += reversed(
                [(f"{path}[{index}]", child) for index, child in enumerate(node[:MAX_CANDIDATES])]
            )
        elif isinstance(node, list | tuple):
            found.append(
                (
                    path,
                    shorten_text(
                        ", ".join(_format_value(child) for child in node[:100]), 3 * MAX_DATA_VALUE_CHARACTERS
                    ),
                )
            )
        else:
            found.append((path, _format_value(node)))
    return found


def _format_name(key: object) -> str:
    return shorten_text(to_safe_text(key), MAX_DATA_VALUE_CHARACTERS)


def _is_scalar(value: object) -> bool:
    return value is None or isinstance(value, str | int | float | bool)


def _format_value(value: object) -> str:
    return (
        shorten_text(to_safe_text(value), MAX_DATA_VALUE_CHARACTERS)
        if isinstance(value, str)
        else to_safe_text(value)
    )
