"""The default way of ranking: words and meaning, each with its neighbours, and who said it when.

The weights were found by a listwise fit over conversations of several kinds and checked on conversations
that were left out each time. Nothing in them knows how long the turns are: that is in the reach of words.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from langmem_tiers.common.clock import microseconds
from langmem_tiers.recall.positions import Kernel
from langmem_tiers.recall.vector_index import with_neighbours

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from langmem_tiers.recall.bm25 import WordScores
    from langmem_tiers.recall.positions import Places
    from langmem_tiers.recall.records import Flags, Floats, Rows, Trust
    from langmem_tiers.text.time_expressions.extraction import TimeRange

NEAR, WIDE = 0, 1
KERNELS = (Kernel(15.0), Kernel(60.0))
LONG_ENOUGH = 40
"""Terms from which on a longer message says no more."""
SECOND_LOOK = 3.0
"""What the leads of a first look count: less than the words of the question."""
FEW = 2000
"""Up to so many messages, all are candidates: choosing some would cost more than it saves."""
AFTERWARDS = 10 * 86_400 * 10**6
"""Microseconds for which something is still told of after its day."""


@dataclass(frozen=True, slots=True)
class Weights:
    """What each signal counts."""

    near: float = 3.1
    wide: float = 3.5
    session: float = 1.8
    meaning: float = 7.6
    speaker: float = 1.1
    time: float = 3.3
    asks: float = -0.2
    answers: float = 0.1
    length: float = 1.35

    @property
    def most(self) -> float:
        """What a message can reach, about: scores are shares of it."""
        signals = self.near + self.wide + self.session + self.meaning + self.speaker + self.time
        return signals + self.answers + self.length * float(np.log1p(LONG_ENOUGH))


@dataclass(slots=True)
class Evidence:
    """All that speaks for the messages of a namespace, each over all rows."""

    words: WordScores
    speaker: Flags
    time: Floats
    trust: Trust | None = None
    """None without vectors."""
    cosines: Floats | None = None
    """Of all rows, where they are at hand."""
    nearest: Rows | None = None
    """The nearest of the rows that are allowed, where a store found them."""
    fetch: Callable[[Rows], Floats] | None = None
    """Cosines for some rows as an array over all, where a store computes them."""
    second: Floats | None = None
    """What the leads of a first look say for each row."""


@dataclass(slots=True)
class Ranked:
    """Rows with their scores, best first, and what each signal gave."""

    rows: Rows
    scores: Floats
    signals: dict[str, Floats] = field(default_factory=dict)


def rank(places: Places, evidence: Evidence, allowed: Flags | None, limit: int, weights: Weights) -> Ranked:
    """The best rows that are allowed."""
    some = candidates(places, evidence, allowed, limit, weights)
    rows, signals = np.arange(places.count)[some], _signals(places, evidence, some, weights)
    together = np.concatenate(list(signals.values())).reshape(len(signals), len(rows))
    scores = together.sum(axis=0)
    order = _first(scores, limit)
    parts = together[:, order] / weights.most
    return Ranked(rows[order], scores[order] / weights.most, dict(zip(signals, parts, strict=True)))


def _first(scores: Floats, limit: int) -> Rows:
    # Among equals the newest first, so that the same memories always come in the same order.
    best = np.arange(len(scores))
    if limit < len(scores):  # sorting all of them would cost more than finding where the best begin
        best = np.flatnonzero(scores >= scores[np.argpartition(scores, -limit)[-limit]])
    return best[np.lexsort((-best, -scores[best]))[:limit]]


def _signals(places: Places, evidence: Evidence, rows: Rows | slice, weights: Weights) -> dict[str, Floats]:
    found = _found(places, evidence, rows)
    near, wide = found["near"], found["wide"]
    own = np.minimum(evidence.words.own[rows], np.minimum(near, wide))
    signals: dict[str, Floats] = {
        "message": (weights.near + weights.wide) * own,
        "neighbours": weights.near * (near - own) + weights.wide * (wide - own),
        "session": weights.session * found["session"],
        "meaning": weights.meaning * found["meaning"],
        "speaker": weights.speaker * found["speaker"],
        "time": weights.time * found["time"],
        "form": _form(places, rows, weights),
    }
    if evidence.second is not None:
        signals["second look"] = SECOND_LOOK * evidence.second[rows]
    return signals


def features(places: Places, evidence: Evidence, rows: Rows | slice) -> dict[str, Floats]:
    """What speaks for each row before it is weighed: one array for each field of ``Weights``."""
    return _found(places, evidence, rows) | _forms(places, rows)


def _found(places: Places, evidence: Evidence, rows: Rows | slice) -> dict[str, Floats]:
    words = evidence.words
    near = words.with_neighbours[NEAR][rows]
    return {
        "near": near,
        "wide": words.with_neighbours[WIDE][rows],
        "session": words.sessions[places["session"][rows]],
        "meaning": _meaning(places, evidence, rows, len(near)),
        "speaker": evidence.speaker[rows],
        "time": evidence.time[rows],
    }


def _forms(places: Places, rows: Rows | slice) -> dict[str, Floats]:
    return {
        "asks": places["asks"][rows],
        "answers": places["follows_question"][rows],
        "length": np.log1p(np.minimum(places["lengths"][rows], LONG_ENOUGH)),
    }


def candidates(
    places: Places, evidence: Evidence, allowed: Flags | None, limit: int, weights: Weights
) -> Rows | slice:
    """A true union: the best by words, speaker and time, and the nearest by meaning."""
    if places.count <= FEW:
        return slice(None) if allowed is None else np.flatnonzero(allowed)
    if allowed is not None and np.count_nonzero(allowed) <= FEW:
        return np.flatnonzero(allowed)
    words = evidence.words
    by_words = weights.near * words.with_neighbours[NEAR] + weights.wide * words.with_neighbours[WIDE]
    by_words += weights.session * words.sessions[places["session"]]
    by_words += weights.time * evidence.time
    hint = by_words + weights.speaker * evidence.speaker
    many = max(100, 4 * limit)
    found = [_top(hint, allowed, many)]
    if evidence.cosines is not None and evidence.trust is not None and evidence.trust.share > 0:
        found.append(_top(evidence.cosines, allowed, many))
    if evidence.second is not None:
        found.append(_top(evidence.second, allowed, many))
    if evidence.nearest is not None:
        found.append(evidence.nearest)
    return np.unique(np.concatenate(found))


def times_of(places: Places, ranges: Sequence[TimeRange]) -> Floats:
    """1 for what was said in one of the ranges, less for what was said in the days after it."""
    told = np.zeros(places.count)
    for span in ranges:
        times, start, end = places["times"], microseconds(span.start), microseconds(span.end)
        late = 1 - (times - end) / AFTERWARDS
        told = np.maximum(told, np.where(times < start, 0, np.where(times < end, 1, np.clip(late, 0, 1))))
    return told


def _top(scores: Floats, allowed: Flags | None, many: int) -> Rows:
    rows = None if allowed is None else np.flatnonzero(allowed)
    if rows is not None:
        scores = scores[rows]
    count = len(scores)
    best = np.argpartition(scores, count - many)[-many:] if count > many else np.arange(count)
    return best if rows is None else rows[best]


def _meaning(places: Places, evidence: Evidence, rows: Rows | slice, count: int) -> Floats:
    if evidence.trust is None or evidence.trust.share == 0 or not count:
        return np.zeros(count)
    cosines = evidence.cosines
    if cosines is None:
        if evidence.fetch is None:
            return np.zeros(count)
        near, own = places["neighbours"][rows], np.arange(places.count)[rows]
        cosines = evidence.fetch(np.unique(np.concatenate([own, near[near >= 0]])))
    together = with_neighbours(places, NEAR, cosines, rows)
    return evidence.trust.share * evidence.trust.scale * together


def _form(places: Places, rows: Rows | slice, weights: Weights) -> Floats:
    if isinstance(rows, slice):  # all of them, which stay as they are
        return places.once(weights, lambda: _weighed_form(places, rows, weights))
    return _weighed_form(places, rows, weights)


def _weighed_form(places: Places, rows: Rows | slice, weights: Weights) -> Floats:
    parts = _forms(places, rows)
    form: Floats = (
        weights.length * parts["length"] + weights.asks * parts["asks"] + weights.answers * parts["answers"]
    )
    return form
