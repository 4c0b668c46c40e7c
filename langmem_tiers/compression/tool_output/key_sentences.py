"""The sentences and values of a result that say most."""

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
"""The most that is kept of one sentence."""
MAX_DATA_VALUE_CHARACTERS = 100
"""The most that is kept of one value of structured data."""
MAX_CANDIDATES = 4_000
"""Sentences or rows among which is chosen."""
_MAX_IDS_PER_LINE = 50
_WORD = re.compile(r"[^\W\d_]{4,}")
_ID_KEY = re.compile(r"(?:^|[_\-.]|(?<=[a-z])(?=[IUGSK]))(?:id|uuid|guid|sku|key|ids)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class CandidateLine:
    """A line that may be kept."""

    position: int
    text: str
    score: float


def rank_sentences(text: str, places: Sequence[FactSpan]) -> list[CandidateLine]:
    """The sentences of a text with what they are worth: the words of its subject, and facts.

    Args:
        text: The text.
        places: The facts in it, in order.
    """
    spans = [span for span in find_sentence_spans(text) if span[1] - span[0] > 2][:MAX_CANDIDATES]
    words = [set(_WORD.findall(text[start:end][:1000].lower())) for start, end in spans]
    in_how_many = Counter(word for some in words for word in some)
    total = len(spans) + 1
    worth = _score_facts(spans, places)
    found: dict[str, CandidateLine] = {}
    for place, ((start, end), some) in enumerate(zip(spans, words, strict=True)):
        weight = sum(math.log(total / in_how_many[word]) * math.log(1 + in_how_many[word]) for word in some)
        score = weight / math.sqrt(8 + len(some)) + worth[place] + (1.0 if place == 0 else 0.0)
        line = shorten_text(text[start:end].lstrip("#>*•- \t"), MAX_KEY_SENTENCE_CHARACTERS)
        if line:
            found.setdefault(line, CandidateLine(place, line, score))
    return list(found.values())


def _score_facts(spans: Sequence[tuple[int, int]], places: Sequence[FactSpan]) -> list[float]:
    worth = [0.0] * len(spans)
    index = 0
    for one in places:
        while index < len(spans) and spans[index][1] <= one.start:
            index += 1
        if index < len(spans) and spans[index][0] <= one.start:
            worth[index] = min(3.0, worth[index] + one.fact.priority / 100)
    return worth


def rank_structured_data(value: object) -> tuple[str, list[CandidateLine]]:
    """One line that says what the data is, and lines of its fields, ids and values."""
    records = find_records(value)
    if len(records) > 1 or (records and isinstance(value, list | tuple)):
        return _rank_records(value, records)
    leaves = _flatten(value)
    top = [_format_name(key) for key in value][:20] if isinstance(value, Mapping) else []
    count = len(value) if isinstance(value, list | tuple | Mapping) else 1
    what = f"{count} fields: {', '.join(top)}" if top else f"{count} values"
    lines = [f"{path}: {text}" if path else text for path, text in leaves]
    scores = [2.0 if _ID_KEY.search(path) else 1.0 for path, _ in leaves]
    return shorten_text(what, 240), [
        CandidateLine(place, line, score - place / (len(lines) + 1))
        for place, (line, score) in enumerate(zip(lines, scores, strict=True))
    ]


def _rank_records(value: object, records: Sequence[Mapping[Any, Any]]) -> tuple[str, list[CandidateLine]]:
    names = list(dict.fromkeys(_format_name(key) for one in records[:MAX_CANDIDATES] for key in one))
    fields = ", ".join(names[:40])
    lines = [CandidateLine(0, shorten_text(f"fields: {fields}", 600), 10.0)]
    for name in [one for one in names if _ID_KEY.search(one)][:5]:
        ids = [_format_value(one.get(name)) for one in records[:MAX_CANDIDATES] if _is_scalar(one.get(name))]
        for start in range(0, len(ids), _MAX_IDS_PER_LINE):
            text = f"{name}: {', '.join(ids[start : start + _MAX_IDS_PER_LINE])}"
            lines.append(CandidateLine(len(lines), text, 8.0 - start / (len(ids) + 1)))
    if isinstance(value, Mapping):  # what stands beside the list: totals, pages
        for path, text in _flatten({key: one for key, one in value.items() if _is_scalar(one)}):
            lines.append(CandidateLine(len(lines), f"{path}: {text}", 9.0))
    total = len(records)
    for number, record in enumerate(records[:MAX_CANDIDATES]):
        row = "; ".join(f"{path}={text}" for path, text in _flatten(record)[:40])
        lines.append(CandidateLine(len(lines), row, 5.0 - 4.0 * number / total))
    return shorten_text(f"{total} records with the fields {fields}", 240), lines


def _flatten(value: object) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    stack: list[tuple[str, object]] = [("", value)]
    while stack and len(found) < MAX_CANDIDATES:
        path, one = stack.pop()
        if isinstance(one, Mapping):
            stack += reversed(
                [(f"{path}.{_format_name(key)}".lstrip("."), part) for key, part in one.items()]
            )
        elif isinstance(one, list | tuple) and not all(map(_is_scalar, one)):
            stack += reversed([(f"{path}[{index}]", part) for index, part in enumerate(one[:MAX_CANDIDATES])])
        elif isinstance(one, list | tuple):
            found.append(
                (
                    path,
                    shorten_text(
                        ", ".join(_format_value(part) for part in one[:100]), 3 * MAX_DATA_VALUE_CHARACTERS
                    ),
                )
            )
        else:
            found.append((path, _format_value(one)))
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
