"""Chunks: the older messages of a session, ten at a time, with summary and topics. The messages stay as they are."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from langmem_tiers.chunks.text import chunk_text, merged_summary
from langmem_tiers.common.entries import Chunk, Entry, Tier
from langmem_tiers.common.tool_call_groups import groups_of
from langmem_tiers.long_term.records import Cursor, CursorMove, MemoryWrite, NewEntry
from langmem_tiers.recall.entry_search import terms_for
from langmem_tiers.text.topics import united_topics

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet
    from datetime import datetime

    from langmem_tiers.common.messages import Message
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.compression.summarizer import Summarizer
    from langmem_tiers.config import LearningConfig
    from langmem_tiers.long_term.dependencies import LastingParts
    from langmem_tiers.long_term.records import KeptEntry, Turn

KIND = "chunk"
_ALL = 1_000_000
_BEYOND = 200  # messages that a tool call and its results may take beyond the end of a chunk
_MOST_TOPICS = 50  # of a chunk that was merged again and again
_MERGED_SHARE = 2  # a merged summary may take twice what one takes


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
        parts: LastingParts,
        summarizer: Summarizer,
        config: LearningConfig,
        *,
        namespace: NamespacePath,
        session: str,
        key: int,
    ) -> None:
        self._parts = parts
        self._summarizer = summarizer
        self._config = config
        self._namespace = namespace
        self._session = session
        self._key = key

    def all(self) -> tuple[Chunk, ...]:
        """The chunks, oldest first."""
        kept = self._parts.store.of_session(self._namespace, self._key, Tier.SHORT_TERM, limit=_ALL)
        return tuple(to_chunk(one) for one in kept)

    def latest(self, limit: int) -> tuple[Chunk, ...]:
        """The newest chunks, oldest first."""
        kept = self._parts.store.of_session(self._namespace, self._key, Tier.SHORT_TERM, limit=limit)
        return tuple(to_chunk(one) for one in kept)

    def recent(self) -> tuple[Message, ...]:
        """The messages that are in no chunk, oldest first."""
        cursor = self._parts.store.cursor(self._key)
        found = self._parts.store.turns(self._key, after=cursor.chunked, limit=_ALL)
        return tuple(one.message for one in found if not one.message.is_summary)

    def messages(self, first_turn: int, last_turn: int) -> tuple[Message, ...]:
        """The messages of a run of turns, as they were said."""
        count = max(0, last_turn - first_turn + 1)
        found = self._parts.store.turns(self._key, after=first_turn - 1, limit=count) if count else ()
        return tuple(one.message for one in found if one.number <= last_turn)

    def make(self, *, whole: bool) -> tuple[tuple[Chunk, ...], tuple[str, ...]]:
        """Put messages beyond the recent ones into chunks, or all of them; the new chunks, and what went wrong.

        Args:
            whole: Whether the recent ones too, because the session is over.
        """
        made: list[Chunk] = []
        problems: list[str] = []
        while (run := self._next(whole=whole)) is not None:
            cursor, some = run
            text = chunk_text(
                [one.message for one in some], self._summarizer, target_tokens=self._config.chunk_tokens
            )
            problems += text.problems
            chunk = self._chunk(some, text.summary, text.topics, self._number())
            done = Cursor(cursor.learned, some[-1].number)
            new = self._new(chunk, some[-1].message.created_at)
            write = MemoryWrite(put=(new,), cursor=CursorMove(self._key, cursor, done))
            if self._parts.store.commit(self._namespace, write, chunk.created_at):
                made.append(chunk)
                if chunk.number > self._config.max_chunks:
                    self._merge_oldest()
        return tuple(made), tuple(dict.fromkeys(problems))

    def remade(self, kept: KeptEntry, without: AbstractSet[str]) -> NewEntry | None:
        """A chunk made anew from its messages, but for some; None if no other is left.

        Args:
            kept: The chunk.
            without: Ids of messages that it must not tell of any more.
        """
        chunk = to_chunk(kept)
        span = chunk.last_turn - chunk.first_turn + 1
        turns = [
            one
            for one in self._parts.store.turns(self._key, after=chunk.first_turn - 1, limit=span)
            if one.number <= chunk.last_turn and one.message.id not in without and not one.message.is_summary
        ]
        if not turns:
            return None
        share = _MERGED_SHARE if chunk.merged > 1 else 1
        text = chunk_text(
            [one.message for one in turns],
            self._summarizer,
            target_tokens=share * self._config.chunk_tokens,
        )
        made = self._chunk(turns, text.summary, text.topics, chunk.number)
        anew = replace(made, merged=chunk.merged, created_at=chunk.created_at)
        return self._new(anew, kept.entry.valid_from or chunk.created_at)

    def _next(self, *, whole: bool) -> tuple[Cursor, Sequence[Turn]] | None:
        cursor, size = self._parts.store.cursor(self._key), self._config.chunk_messages
        most = max(size, self._config.recent_messages) + _BEYOND
        while True:
            turns = self._parts.store.turns(self._key, after=cursor.chunked, limit=most)
            found = [one for one in turns if not one.message.is_summary]
            # The newest is in no chunk while the session goes on.
            if not found or (not whole and len(found) <= max(self._config.recent_messages, size)):
                return None
            groups = groups_of([one.message for one in found])
            end = next(end for _, end in groups if end >= min(size, len(found)))
            if end < len(found) or len(turns) < most:
                break
            most *= 2  # a tool call with more results than that
        if end == len(found) and not whole:
            return None  # a tool call that may still be at work
        return cursor, found[:end]

    def _number(self) -> int:
        newest = self._parts.store.of_session(self._namespace, self._key, Tier.SHORT_TERM, limit=1)
        return 1 if not newest else newest[-1].details["last_number"] + 1

    def _chunk(self, some: Sequence[Turn], summary: str, topics: tuple[str, ...], number: int) -> Chunk:
        return Chunk(
            id=self._parts.new_id(),
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
            token_count=self._parts.counter.count(summary),
            created_at=self._parts.now(),
        )

    def _merge_oldest(self) -> None:
        store = self._parts.store
        while True:
            revision = store.revision(self._namespace)
            kept = store.of_session(self._namespace, self._key, Tier.SHORT_TERM, limit=_ALL)
            if len(kept) <= self._config.max_chunks:
                return
            first, second = to_chunk(kept[0]), to_chunk(kept[1])
            now = self._parts.now()
            # Whoever asks how things stood before sees the two.
            merged = self._new(self._merged(first, second), now)
            write = MemoryWrite(put=(merged,), archive=(first.id, second.id), revision=revision)
            store.commit(self._namespace, write, now)

    def _merged(self, first: Chunk, second: Chunk) -> Chunk:
        counter = self._parts.counter
        most = _MERGED_SHARE * self._config.chunk_tokens
        summary = merged_summary(first.summary, second.summary, counter, most)
        return Chunk(
            id=self._parts.new_id(),
            namespace=first.namespace,
            session=first.session,
            number=first.number,
            summary=summary,
            topics=united_topics(first.topics, second.topics)[:_MOST_TOPICS],
            first_message_id=first.first_message_id,
            last_message_id=second.last_message_id,
            first_turn=first.first_turn,
            last_turn=second.last_turn,
            message_count=first.message_count + second.message_count,
            merged=first.merged + second.merged,
            token_count=counter.count(summary),
            created_at=first.created_at,
        )

    def _new(self, chunk: Chunk, valid_from: datetime) -> NewEntry:
        entry = Entry(
            id=chunk.id,
            namespace=chunk.namespace,
            tier=Tier.SHORT_TERM,
            kind=KIND,
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
            terms=terms_for([chunk.summary, *chunk.topics]),
            session_key=self._key,
            turn=chunk.last_turn,
            details=details,
        )


def to_chunk(kept: KeptEntry) -> Chunk:
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
