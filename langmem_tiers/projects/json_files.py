"""A project's memory as four readable JSON files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langmem_tiers.common.decay import compute_decay_since, compute_entry_decay
from langmem_tiers.common.entries import Tier
from langmem_tiers.episodes.service import to_episode
from langmem_tiers.long_term.models import EntryFilters

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from langmem_tiers.chunks.service import Chunks
    from langmem_tiers.common.entries import Chunk, Entry
    from langmem_tiers.common.messages import Message
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.episodes.models import Episode
    from langmem_tiers.long_term.dependencies import LongTermDependencies
    from langmem_tiers.long_term.models import Relation
    from langmem_tiers.long_term.records import StoredEntry
    from langmem_tiers.projects.models import Conversation
    from langmem_tiers.session import Session

LONG_TERM_FILE = "long-term-memory.json"
EPISODIC_FILE = "episodic-memory.json"
CONVERSATIONS_FILE = "conversations.json"
CHUNKS_FILE = "conversation-chunks.json"
_PAGE_SIZE = 500
_ANY_TIME = EntryFilters(archived=True)


def build_project_files(
    dependencies: LongTermDependencies,
    get_chunks: Callable[[Session], Chunks],
    namespace: NamespacePath,
    conversations: Sequence[tuple[Conversation, Session]],
) -> dict[str, list[dict[str, Any]]]:
    """Build the content of each file.

    Args:
        dependencies: Long-term memory to read from.
        get_chunks: Returns the chunks of a session.
        namespace: Namespace of the project.
        conversations: Conversations of the project with their sessions.
    """
    now = dependencies.now()
    files: dict[str, list[dict[str, Any]]] = {
        LONG_TERM_FILE: list(_serialize_entries(dependencies, namespace, now)),
        EPISODIC_FILE: [
            _serialize_episode(to_episode(stored), now)
            for stored in _iterate_entries(dependencies, namespace, Tier.EPISODIC)
        ],
        CONVERSATIONS_FILE: [],
        CHUNKS_FILE: [],
    }
    for conversation, session in conversations:
        chunks = session.chunks()
        files[CHUNKS_FILE] += [_serialize_chunk(chunk, session.messages_of(chunk)) for chunk in chunks]
        recent = get_chunks(session).list_recent_messages()
        files[CONVERSATIONS_FILE].append(
            _serialize_conversation(dependencies, conversation, session, chunks, recent)
        )
    return files


def _iterate_entries(
    dependencies: LongTermDependencies,
    namespace: NamespacePath,
    tier: Tier,
    filters: EntryFilters = _ANY_TIME,
) -> Iterator[StoredEntry]:
    before: int | None = None
    while page := dependencies.store.list_entries(namespace, tier, filters, before=before, limit=_PAGE_SIZE):
        yield from map(dependencies.access_counter.with_pending_accesses, page)
        before = page[-1].key


def _serialize_entries(
    dependencies: LongTermDependencies, namespace: NamespacePath, now: datetime
) -> Iterator[dict[str, Any]]:
    # Page by page, so that the relations of a page are read with one query.
    store, before = dependencies.store, None
    while page := store.list_entries(namespace, Tier.LONG_TERM, _ANY_TIME, before=before, limit=_PAGE_SIZE):
        before = page[-1].key
        entries = [dependencies.access_counter.with_pending_accesses(stored).entry for stored in page]
        relations: dict[str, list[Relation]] = {}
        for relation in store.list_relations(namespace, [entry.id for entry in entries]):
            relations.setdefault(relation.source, []).append(relation)
        yield from (_serialize_entry(entry, relations.get(entry.id, []), now) for entry in entries)


def _serialize_entry(entry: Entry, relations: Sequence[Relation], now: datetime) -> dict[str, Any]:
    return {
        "id": entry.id,
        "type": entry.kind,
        "content": entry.content,
        "category": entry.category,
        "tags": sorted(entry.tags),
        "relationships": [
            {
                "targetId": relation.target,
                "type": relation.kind,
                "strength": relation.strength,
                "createdAt": relation.created_at.isoformat(),
            }
            for relation in relations
        ],
        "validFrom": (entry.valid_from or entry.created_at).isoformat(),
        "validUntil": None if entry.valid_until is None else entry.valid_until.isoformat(),
        "createdAt": entry.created_at.isoformat(),
        "state": entry.state.value,
        "metadata": {
            "source": entry.source,
            "conversationId": entry.session,
            "importance": entry.importance,
            "accessCount": entry.access_count,
            "lastAccessedAt": (entry.last_access_at or entry.created_at).isoformat(),
            "decayFactor": round(compute_entry_decay(entry, now), 6),
            "tokens": entry.token_count,
        },
    }


def _serialize_episode(episode: Episode, now: datetime) -> dict[str, Any]:
    last = episode.last_access_at or episode.created_at
    return {
        "id": episode.id,
        "type": "episode",
        "episodeType": episode.kind.value,
        "title": episode.title,
        "summary": episode.summary,
        "context": episode.context,
        "participants": list(episode.participants),
        "outcome": episode.outcome,
        "emotionalValence": episode.valence,
        "significance": episode.significance,
        "linkedMemories": list(episode.linked),
        "conversationRef": {
            "conversationId": episode.session,
            "turnRange": {"start": episode.first_turn, "end": episode.last_turn},
        },
        "createdAt": episode.created_at.isoformat(),
        "metadata": {
            "source": f"conversation {episode.session}",
            "importance": episode.significance,
            "accessCount": episode.access_count,
            "lastAccessedAt": last.isoformat(),
            "decayFactor": round(compute_decay_since(last, episode.access_count, now), 6),
            "tokens": episode.token_count,
        },
    }


def _serialize_conversation(
    dependencies: LongTermDependencies,
    conversation: Conversation,
    session: Session,
    chunks: Sequence[Chunk],
    recent: Sequence[Message],
) -> dict[str, Any]:
    own = EntryFilters(sessions=frozenset({session.name}), valid_at=dependencies.now())
    facts = [
        stored.entry.id for stored in _iterate_entries(dependencies, session.namespace, Tier.LONG_TERM, own)
    ]
    return {
        "id": conversation.id,
        "projectId": conversation.project_id,
        "startedAt": conversation.started_at.isoformat(),
        "endedAt": None if conversation.ended_at is None else conversation.ended_at.isoformat(),
        "status": conversation.status.value,
        "outcome": conversation.outcome,
        "totalTurns": conversation.total_turns,
        "chunks": [chunk.id for chunk in chunks],
        "recentMessages": [_serialize_message(message) for message in recent],
        "activeFacts": facts,
        "milestones": [episode.id for episode in session.arc().key_moments],
    }


def _serialize_chunk(chunk: Chunk, messages: Sequence[Message]) -> dict[str, Any]:
    return {
        "id": chunk.id,
        "conversationId": chunk.session,
        "chunkNumber": chunk.number,
        "messages": [_serialize_message(message) for message in messages],
        "summary": chunk.summary,
        "keyTopics": list(chunk.topics),
        "tokenCount": chunk.token_count,
        "createdAt": chunk.created_at.isoformat(),
    }


def _serialize_message(message: Message) -> dict[str, Any]:
    return {
        "id": message.id,
        "role": message.role.value,
        "content": message.content,
        "timestamp": message.created_at.isoformat(),
    }
