"""Rows that an erasure affects, and the plan that deletes or rewrites them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from langmem_tiers.common.messages import Message, MessageToolCall
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.facts.models import ExtractedFact
    from langmem_tiers.long_term.models import Relation
    from langmem_tiers.long_term.records import NewEntry, StoredEntry


class SessionRef(NamedTuple):
    """Reference to a session by key and by name."""

    key: int
    namespace: NamespacePath
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRef:
    """The fields of a message that decide which other messages are erased with it."""

    key: int
    id: str
    number: int
    """Turn of the message; for a summary, the turn of the message that follows it."""
    is_summary: bool
    is_old: bool = False
    is_promoted: bool = False
    tool_calls: tuple[MessageToolCall, ...] = ()
    tool_call_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionViewState:
    """State of a session's view that an erasure depends on."""

    session: SessionRef
    view_number: int
    """Turn of the first visible message; 1 if all messages are visible."""
    view_key: int
    """Key of the current summary; 0 if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureImpact:
    """Data that an erasure may have to delete or rewrite, as of one moment."""

    namespace: NamespacePath
    stamp: tuple[int, ...]
    """Counters that differ after any change of this data."""
    sessions: tuple[SessionRef, ...] = ()
    """Sessions that are erased completely."""
    state: SessionViewState | None = None
    """View of the session whose messages are erased, if the session itself remains."""
    messages: tuple[MessageRef, ...] = ()
    """Messages that are erased."""
    following_turns: Mapping[int, int] = field(default_factory=dict)
    """Turn of the second message after each erased message: an episode may quote a message up to there."""
    chunks_and_episodes: tuple[StoredEntry, ...] = ()
    """Chunks and episodes of the session, including archived ones."""
    entries: tuple[StoredEntry, ...] = ()
    """Long-term entries that come from the erased data, or name it as their source."""
    facts: tuple[ExtractedFact, ...] = ()
    """Facts that were extracted from the erased data."""
    facts_from_elsewhere: Mapping[str, tuple[ExtractedFact, ...]] = field(default_factory=dict)
    """Facts from other sources that support the same entry, by the id of the entry."""
    versions: frozenset[str] = frozenset()
    """Ids in ``entries`` of earlier versions of the entry to erase."""
    derivations: tuple[Relation, ...] = ()
    """Relations of entries that were derived from ``entries``, directly or indirectly."""
    linking_episodes: tuple[StoredEntry, ...] = ()
    """Episodes of the namespace that link to ``entries``."""
    knowledge: tuple[tuple[str, str], ...] = ()
    """Category and key of knowledge that comes from the erased data."""
    sources: tuple[str, ...] = ()
    """Texts by which knowledge names the erased data as its source."""
    past_knowledge: tuple[tuple[str, str], ...] = ()
    """Category and key of earlier values that come from the erased data."""
    procedures: tuple[str, ...] = ()
    """Ids of patterns learned from the erased tasks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasurePlan:
    """Rows to delete and to write in one transaction."""

    namespace: NamespacePath
    stamp: tuple[int, ...]
    """Stamp of the ``ErasureImpact`` that the plan is based on."""
    sessions: tuple[SessionRef, ...] = ()
    context_names: tuple[str, ...] = ()
    """Names of sessions whose context files are deleted."""
    state: SessionViewState | None = None
    messages: tuple[MessageRef, ...] = ()
    summary: Message | None = None
    """Replacement for the current summary, if that covers an erased message."""
    digest: dict[str, Any] | None = None
    """Digest that the replacement was built from."""
    memories: tuple[str, ...] = ()
    """Ids of long-term entries, episodes and chunks to delete."""
    versions: frozenset[str] = frozenset()
    """Ids in ``memories`` of earlier versions."""
    rewritten_entries: tuple[NewEntry, ...] = ()
    """Entries without the erased content; each replaces the stored entry with the same id."""
    facts: tuple[str, ...] = ()
    knowledge: tuple[tuple[str, str], ...] = ()
    sources: tuple[str, ...] = ()
    """Sources of earlier values to delete; a current value from another source is kept."""
    past_knowledge: tuple[tuple[str, str], ...] = ()
    """Category and key of these values. External copies are erased, because their version is unknown."""
    is_clearing_query_vectors: bool = True
    """True if cached vectors of queries are deleted too, because a query may contain the erased text."""
