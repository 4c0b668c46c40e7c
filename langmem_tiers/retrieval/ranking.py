"""The default way of ranking: words and meaning, each with its neighbours, and who said it when.

The weights were found by a listwise fit over conversations of several kinds and checked on conversations
that were left out each time. Nothing in them knows how long the turns are: that is in the reach of words.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from langmem_tiers.core.clock import microseconds
from langmem_tiers.retrieval.meaning import with_neighbours
from langmem_tiers.retrieval.places import Kernel

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from langmem_tiers.retrieval.arrays import Flags, Floats, Rows
    from langmem_tiers.retrieval.meaning import Trust
    from langmem_tiers.retrieval.places import Places
    from langmem_tiers.retrieval.words import WordScores
    from langmem_tiers.scoring.times.ranges import TimeRange

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
    """The nearest rows, where a store found them."""
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
    rows = candidates(places, evidence, allowed, limit, weights)
    found = features(places, evidence, rows)
    near, wide = found["near"], found["wide"]
    own = np.minimum(evidence.words.own[rows], np.minimum(near, wide))
    gave = {name: getattr(weights, name) * part for name, part in found.items()}
    signals: dict[str, Floats] = {
        "message": (weights.near + weights.wide) * own,
        "neighbours": weights.near * (near - own) + weights.wide * (wide - own),
        **{name: gave[name] for name in ("session", "meaning", "speaker", "time")},
        "form": gave["length"] + gave["asks"] + gave["answers"],
    }
    if evidence.second is not None:
        signals["second look"] = SECOND_LOOK * evidence.second[rows]
    scores = sum(signals.values(), np.zeros(len(rows)))
    # Among equals the newest first, so that the same memories always come in the same order.
    order = np.lexsort((-rows, -scores))[:limit]
    most = weights.most
    return Ranked(
        rows[order], scores[order] / most, {name: part[order] / most for name, part in signals.items()}
    )


def features(places: Places, evidence: Evidence, rows: Rows) -> dict[str, Floats]:
    """What speaks for each row before it is weighed: one array for each field of ``Weights``."""
    words = evidence.words
    return {
        "near": words.with_neighbours[NEAR][rows],
        "wide": words.with_neighbours[WIDE][rows],
        "session": words.sessions[places["session"][rows]],
        "meaning": _meaning(places, evidence, rows),
        "speaker": evidence.speaker[rows],
        "time": evidence.time[rows],
        "asks": places["asks"][rows],
        "answers": places["follows_question"][rows],
        "length": np.log1p(np.minimum(places["lengths"][rows], LONG_ENOUGH)),
    }


def candidates(
    places: Places, evidence: Evidence, allowed: Flags | None, limit: int, weights: Weights
) -> Rows:
    """A true union: the best by words, speaker and time, and the nearest by meaning."""
    if places.count <= FEW:
        return np.arange(places.count) if allowed is None else np.flatnonzero(allowed)
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
        nearest = evidence.nearest
        found.append(nearest if allowed is None else nearest[allowed[nearest]])
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


def _meaning(places: Places, evidence: Evidence, rows: Rows) -> Floats:
    if evidence.trust is None or evidence.trust.share == 0 or not len(rows):
        return np.zeros(len(rows))
    cosines = evidence.cosines
    if cosines is None:
        if evidence.fetch is None:
            return np.zeros(len(rows))
        near = places["neighbours"][rows]
        cosines = evidence.fetch(np.unique(np.concatenate([rows, near[near >= 0]])))
    together = with_neighbours(places, NEAR, cosines, rows)
    return evidence.trust.share * evidence.trust.scale * together
