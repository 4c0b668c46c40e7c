"""The sentences and values of a result that say most."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from langmem_tiers.compression.tool_output.detection import records_of
from langmem_tiers.compression.tool_output.urls import safe_text
from langmem_tiers.text.sentences import sentence_spans, shortened

if TYPE_CHECKING:
    from langmem_tiers.compression.fact_finder import Found

SENTENCE_CHARACTERS = 300
"""The most that is kept of one sentence."""
VALUE_CHARACTERS = 100
"""The most that is kept of one value of structured data."""
MAX_CANDIDATES = 4_000
"""Sentences or rows among which is chosen."""
_IDS_PER_LINE = 50
_WORD = re.compile(r"[^\W\d_]{4,}")
_ID_KEY = re.compile(r"(?:^|[_\-.]|(?<=[a-z])(?=[IUGSK]))(?:id|uuid|guid|sku|key|ids)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A line that may be kept."""

    place: int
    text: str
    score: float


def key_lines(text: str, places: Sequence[Found]) -> list[Candidate]:
    """The sentences of a text with what they are worth: the words of its subject, and facts.

    Args:
        text: The text.
        places: The facts in it, in order.
    """
    spans = [span for span in sentence_spans(text) if span[1] - span[0] > 2][:MAX_CANDIDATES]
    words = [set(_WORD.findall(text[start:end][:1000].lower())) for start, end in spans]
    in_how_many = Counter(word for some in words for word in some)
    total = len(spans) + 1
    worth = _worth_of_facts(spans, places)
    found: dict[str, Candidate] = {}
    for place, ((start, end), some) in enumerate(zip(spans, words, strict=True)):
        weight = sum(math.log(total / in_how_many[word]) * math.log(1 + in_how_many[word]) for word in some)
        score = weight / math.sqrt(8 + len(some)) + worth[place] + (1.0 if place == 0 else 0.0)
        line = shortened(text[start:end].lstrip("#>*•- \t"), SENTENCE_CHARACTERS)
        if line:
            found.setdefault(line, Candidate(place, line, score))
    return list(found.values())


def _worth_of_facts(spans: Sequence[tuple[int, int]], places: Sequence[Found]) -> list[float]:
    worth = [0.0] * len(spans)
    index = 0
    for one in places:
        while index < len(spans) and spans[index][1] <= one.start:
            index += 1
        if index < len(spans) and spans[index][0] <= one.start:
            worth[index] = min(3.0, worth[index] + one.fact.priority / 100)
    return worth


def structured_lines(value: object) -> tuple[str, list[Candidate]]:
    """One line that says what the data is, and lines of its fields, ids and values."""
    records = records_of(value)
    if len(records) > 1 or (records and isinstance(value, list | tuple)):
        return _of_records(value, records)
    leaves = _leaves(value)
    top = [_name(key) for key in value][:20] if isinstance(value, Mapping) else []
    count = len(value) if isinstance(value, list | tuple | Mapping) else 1
    what = f"{count} fields: {', '.join(top)}" if top else f"{count} values"
    lines = [f"{path}: {text}" if path else text for path, text in leaves]
    scores = [2.0 if _ID_KEY.search(path) else 1.0 for path, _ in leaves]
    return shortened(what, 240), [
        Candidate(place, line, score - place / (len(lines) + 1))
        for place, (line, score) in enumerate(zip(lines, scores, strict=True))
    ]


def _of_records(value: object, records: Sequence[Mapping[Any, Any]]) -> tuple[str, list[Candidate]]:
    names = list(dict.fromkeys(_name(key) for one in records[:MAX_CANDIDATES] for key in one))
    fields = ", ".join(names[:40])
    lines = [Candidate(0, shortened(f"fields: {fields}", 600), 10.0)]
    for name in [one for one in names if _ID_KEY.search(one)][:5]:
        ids = [_value(one.get(name)) for one in records[:MAX_CANDIDATES] if _is_scalar(one.get(name))]
        for start in range(0, len(ids), _IDS_PER_LINE):
            text = f"{name}: {', '.join(ids[start : start + _IDS_PER_LINE])}"
            lines.append(Candidate(len(lines), text, 8.0 - start / (len(ids) + 1)))
    if isinstance(value, Mapping):  # what stands beside the list: totals, pages
        for path, text in _leaves({key: one for key, one in value.items() if _is_scalar(one)}):
            lines.append(Candidate(len(lines), f"{path}: {text}", 9.0))
    total = len(records)
    for number, record in enumerate(records[:MAX_CANDIDATES]):
        row = "; ".join(f"{path}={text}" for path, text in _leaves(record)[:40])
        lines.append(Candidate(len(lines), row, 5.0 - 4.0 * number / total))
    return shortened(f"{total} records with the fields {fields}", 240), lines


def _leaves(value: object) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    stack: list[tuple[str, object]] = [("", value)]
    while stack and len(found) < MAX_CANDIDATES:
        path, one = stack.pop()
        if isinstance(one, Mapping):
            stack += reversed([(f"{path}.{_name(key)}".lstrip("."), part) for key, part in one.items()])
        elif isinstance(one, list | tuple) and not all(map(_is_scalar, one)):
            stack += reversed([(f"{path}[{index}]", part) for index, part in enumerate(one[:MAX_CANDIDATES])])
        elif isinstance(one, list | tuple):
            found.append(
                (path, shortened(", ".join(_value(part) for part in one[:100]), 3 * VALUE_CHARACTERS))
            )
        else:
            found.append((path, _value(one)))
    return found


def _name(key: object) -> str:
    return shortened(safe_text(key), VALUE_CHARACTERS)


def _is_scalar(value: object) -> bool:
    return value is None or isinstance(value, str | int | float | bool)


def _value(value: object) -> str:
    return shortened(safe_text(value), VALUE_CHARACTERS) if isinstance(value, str) else safe_text(value)
