"""Rows that recall reads: terms, positions and vectors of messages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    import numpy as np
    from numpy.typing import NDArray

    from langmem_tiers.common.entries import ViewItem


DEFAULT_TRUST_SHARE = 0.5
"""Trust in a model while there are too few messages to measure it."""


@dataclass(frozen=True, slots=True)
class IndexText:
    """Index data of a message."""

    terms: Sequence[str]
    """Terms in the order of the text, with repetitions."""
    length: int
    """Number of words that the terms were made from."""
    speaker: str | None
    """Terms of the speaker's name. Separate from ``terms``: a message is rarely about its own speaker."""
    is_question: bool
    """True if the message ends with a question."""
    importance: float
    """Importance by content alone, without age and use."""


@dataclass(frozen=True, slots=True)
class IndexRows:
    """Messages of a namespace in columns, one array per column, in ascending order of keys."""

    keys: NDArray[np.int64]
    sessions: NDArray[np.int64]
    positions: NDArray[np.int64]
    times: NDArray[np.int64]
    """Creation times in microseconds since 1970."""
    roles: NDArray[np.uint8]
    """Indexes into the members of the enum ``Role``."""
    lengths: NDArray[np.float32]
    is_question: NDArray[np.bool_]
    importance: NDArray[np.float64]
    accesses: NDArray[np.float32]
    speakers: Sequence[str | None]
    """Terms of the speakers' names."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """A namespace at the time it was read."""

    key: int
    erasure_epoch: int
    """Counter of erasures. If it has changed, cached keys are invalid: a key may belong to another message now."""


@dataclass(frozen=True, slots=True)
class IndexChanges:
    """Rows that were added since the last read."""

    tenant: Tenant | None
    """The namespace, or None if it does not exist."""
    rows: IndexRows
    watermark: int
    """Start of the next read."""
    has_knowledge: bool = False
    """True if the namespace has knowledge."""
    terms: Mapping[int, Sequence[str]] = field(default_factory=dict)
    """Terms of the messages by key. Empty unless they were requested."""


@dataclass(frozen=True, slots=True)
class RecalledMessage:
    """A recalled message and the name of its session."""

    view_item: ViewItem
    session: str


@dataclass(frozen=True, slots=True)
class VectorSearchFilter:
    """Restriction of a vector search to a part of a namespace."""

    count: int
    """Maximum number of messages that match."""
    sessions: tuple[int, ...] | None = None
    """Keys of sessions. Default: all sessions."""
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class TrustSampleRecord:
    """Sample on which a model was measured. The same sample always gives the same trust."""

    last_key: int
    """Key of the last message that the sample could be drawn from."""
    size: int
    """Number of messages that the sample could be drawn from."""
    pair_count: int
    other_count: int

    @property
    def extent(self) -> tuple[int, int, int]:
        """Size of the sample: source messages, pairs and others."""
        return self.size, self.pair_count, self.other_count


@dataclass(frozen=True, slots=True)
class Trust:
    """Weight of a model's cosines in a namespace."""

    share: float = DEFAULT_TRUST_SHARE
    """Weight of the cosines, from 0 (ignored) to 1."""
    scale: float = 1.0
    """Factor that brings the spread of the cosines to that of the model the weights were fitted with."""
