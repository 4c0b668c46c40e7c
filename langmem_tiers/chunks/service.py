"""Chunks: the older messages of a session, ten at a time, with summary and topics. The messages stay as they are."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from langmem_tiers.chunks.text import merge_chunk_summaries, summarize_chunk
from langmem_tiers.common.entries import Chunk, Entry, Tier
from langmem_tiers.common.tool_call_groups import group_tool_calls
from langmem_tiers.long_term.records import CursorMove, LearningCursor, MemoryWrite, NewEntry
from langmem_tiers.recall.entry_search import build_search_terms
from langmem_tiers.text.topics import merge_topics

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet
    from datetime import datetime

    from langmem_tiers.common.messages import Message
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.compression.summarizer import Summarizer
    from langmem_tiers.config import LearningConfig
    from langmem_tiers.long_term.dependencies import LongTermDependencies
    from langmem_tiers.long_term.records import NumberedMessage, StoredEntry

CHUNK_KIND = "chunk"
_NO_LIMIT = 1_000_000
_MAX_EXTRA_MESSAGES = 200  # messages that a tool call and its results may take beyond the end of a chunk
_MAX_TOPICS = 50  # of a chunk that was merged again and again
_MERGED_SUMMARY_FACTOR = 2  # a merged summary may take twice what one takes


class Chunks:
    """Makes and reads the chunks of one session.

    Args:
        parts: Where they are kept.
        summarizer: Writes summaries.
        config: Sizes.
        namespace: Whose.
        session: Name of the session.
        key: The session's key.
    """

    def __init__(
        self,
        parts: LongTermDependencies,
        summarizer: Summarizer,
        config: LearningConfig,
        *,
        namespace: NamespacePath,
        session: str,
        key: int,
    ) -> None:
        self._dependencies = parts
        self._summarizer = summarizer
        self._config = config
        self._namespace = namespace
        self._session = session
        self._key = key

    def list_all(self) -> tuple[Chunk, ...]:
        """The chunks, oldest first."""
        kept = self._dependencies.store.list_session_entries(
            self._namespace, self._key, Tier.SHORT_TERM, limit=_NO_LIMIT
        )
        return tuple(to_chunk(one) for one in kept)

    def list_latest(self, limit: int) -> tuple[Chunk, ...]:
        """The newest chunks, oldest first."""
        kept = self._dependencies.store.list_session_entries(
            self._namespace, self._key, Tier.SHORT_TERM, limit=limit
        )
        return tuple(to_chunk(one) for one in kept)

    def list_recent_messages(self) -> tuple[Message, ...]:
        """The messages that are in no chunk, oldest first."""
        cursor = self._dependencies.store.get_cursor(self._key)
        found = self._dependencies.store.list_turns(self._key, after=cursor.chunked_turn, limit=_NO_LIMIT)
        return tuple(one.message for one in found if not one.message.is_summary)

    def list_messages(self, first_turn: int, last_turn: int) -> tuple[Message, ...]:
        """The messages of a run of turns, as they were said."""
        count = max(0, last_turn - first_turn + 1)
        found = (
            self._dependencies.store.list_turns(self._key, after=first_turn - 1, limit=count) if count else ()
        )
        return tuple(one.message for one in found if one.number <= last_turn)

    def create_chunks(self, *, whole: bool) -> tuple[tuple[Chunk, ...], tuple[str, ...]]:
        """Put messages beyond the recent ones into chunks, or all of them; the new chunks, and what went wrong.

        Args:
            whole: Whether the recent ones too, because the session is over.
        """
        made: list[Chunk] = []
        problems: list[str] = []
        while (run := self._find_next_run(whole=whole)) is not None:
            cursor, some = run
            text = summarize_chunk(
                [one.message for one in some], self._summarizer, target_tokens=self._config.chunk_tokens
            )
            problems += text.problems
            chunk = self._build_chunk(some, text.summary, text.topics, self._get_next_number())
            done = LearningCursor(cursor.learned_turn, some[-1].number)
            new = self._to_new_entry(chunk, some[-1].message.created_at)
            write = MemoryWrite(put=(new,), cursor=CursorMove(self._key, cursor, done))
            if self._dependencies.store.commit(self._namespace, write, chunk.created_at):
                made.append(chunk)
                if chunk.number > self._config.max_chunks:
                    self._merge_oldest()
        return tuple(made), tuple(dict.fromkeys(problems))

    def rebuild_chunk(self, kept: StoredEntry, without: AbstractSet[str]) -> NewEntry | None:
        """A chunk made anew from its messages, but for some; None if no other is left.

        Args:
            kept: The chunk.
            without: Ids of messages that it must not tell of any more.
        """
        chunk = to_chunk(kept)
        span = chunk.last_turn - chunk.first_turn + 1
        turns = [
            one
            for one in self._dependencies.store.list_turns(self._key, after=chunk.first_turn - 1, limit=span)
            if one.number <= chunk.last_turn and one.message.id not in without and not one.message.is_summary
        ]
        if not turns:
            return None
        share = _MERGED_SUMMARY_FACTOR if chunk.merged > 1 else 1
        text = summarize_chunk(
            [one.message for one in turns],
            self._summarizer,
            target_tokens=share * self._config.chunk_tokens,
        )
        made = self._build_chunk(turns, text.summary, text.topics, chunk.number)
        anew = replace(made, merged=chunk.merged, created_at=chunk.created_at)
        return self._to_new_entry(anew, kept.entry.valid_from or chunk.created_at)

    def _find_next_run(self, *, whole: bool) -> tuple[LearningCursor, Sequence[NumberedMessage]] | None:
        cursor, size = self._dependencies.store.get_cursor(self._key), self._config.chunk_messages
        most = max(size, self._config.recent_messages) + _MAX_EXTRA_MESSAGES
        while True:
            turns = self._dependencies.store.list_turns(self._key, after=cursor.chunked_turn, limit=most)
            found = [one for one in turns if not one.message.is_summary]
            # The newest is in no chunk while the session goes on.
            if not found or (not whole and len(found) <= max(self._config.recent_messages, size)):
                return None
            groups = group_tool_calls([one.message for one in found])
            end = next(end for _, end in groups if end >= min(size, len(found)))
            if end < len(found) or len(turns) < most:
                break
            most *= 2  # a tool call with more results than that
        if end == len(found) and not whole:
            return None  # a tool call that may still be at work
        return cursor, found[:end]

    def _get_next_number(self) -> int:
        newest = self._dependencies.store.list_session_entries(
            self._namespace, self._key, Tier.SHORT_TERM, limit=1
        )
        return 1 if not newest else newest[-1].details["last_number"] + 1

    def _build_chunk(
        self, some: Sequence[NumberedMessage], summary: str, topics: tuple[str, ...], number: int
    ) -> Chunk:
        return Chunk(
            id=self._dependencies.new_id(),
            namespace=self._namespace,
            session=self._session,
            number=number,
            summary=summary,
            topics=topics,
            first_message_id=some[0].message.id,
            last_message_id=some[-1].message.id,
            first_turn=some[0].number,
            last_turn=some[-1].number,
            message_count=len(some),
            token_count=self._dependencies.token_counter.count(summary),
            created_at=self._dependencies.now(),
        )

    def _merge_oldest(self) -> None:
        store = self._dependencies.store
        while True:
            revision = store.get_revision(self._namespace)
            kept = store.list_session_entries(self._namespace, self._key, Tier.SHORT_TERM, limit=_NO_LIMIT)
            if len(kept) <= self._config.max_chunks:
                return
            first, second = to_chunk(kept[0]), to_chunk(kept[1])
            now = self._dependencies.now()
            # Whoever asks how things stood before sees the two.
            merged = self._to_new_entry(self._merge(first, second), now)
            write = MemoryWrite(put=(merged,), archive=(first.id, second.id), revision=revision)
            store.commit(self._namespace, write, now)

    def _merge(self, first: Chunk, second: Chunk) -> Chunk:
        counter = self._dependencies.token_counter
        most = _MERGED_SUMMARY_FACTOR * self._config.chunk_tokens
        summary = merge_chunk_summaries(first.summary, second.summary, counter, most)
        return Chunk(
            id=self._dependencies.new_id(),
            namespace=first.namespace,
            session=first.session,
            number=first.number,
            summary=summary,
            topics=merge_topics(first.topics, second.topics)[:_MAX_TOPICS],
            first_message_id=first.first_message_id,
            last_message_id=second.last_message_id,
            first_turn=first.first_turn,
            last_turn=second.last_turn,
            message_count=first.message_count + second.message_count,
            merged=first.merged + second.merged,
            token_count=counter.count(summary),
            created_at=first.created_at,
        )

    def _to_new_entry(self, chunk: Chunk, valid_from: datetime) -> NewEntry:
        entry = Entry(
            id=chunk.id,
            namespace=chunk.namespace,
            tier=Tier.SHORT_TERM,
            kind=CHUNK_KIND,
            content=chunk.summary,
            created_at=chunk.created_at,
            session=chunk.session,
            token_count=chunk.token_count,
            valid_from=valid_from,
            last_access_at=chunk.created_at,
        )
        details = {
            "number": chunk.number,
            "last_number": chunk.number + chunk.merged - 1,
            "topics": list(chunk.topics),
            "messages": [chunk.first_message_id, chunk.last_message_id],
            "turns": [chunk.first_turn, chunk.last_turn],
            "message_count": chunk.message_count,
            "merged": chunk.merged,
        }
        return NewEntry(
            entry=entry,
            terms=build_search_terms([chunk.summary, *chunk.topics]),
            session_key=self._key,
            turn=chunk.last_turn,
            details=details,
        )


def to_chunk(kept: StoredEntry) -> Chunk:
    """A chunk as it is kept."""
    entry, details = kept.entry, kept.details
    return Chunk(
        id=entry.id,
        namespace=entry.namespace,
        session=entry.session or "",
        number=details["number"],
        summary=entry.content,
        topics=tuple(details["topics"]),
        first_message_id=details["messages"][0],
        last_message_id=details["messages"][1],
        first_turn=details["turns"][0],
        last_turn=details["turns"][1],
        message_count=details["message_count"],
        merged=details["merged"],
        token_count=entry.token_count,
        created_at=entry.created_at,
    )
