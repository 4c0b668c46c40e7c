"""Chunks: runs of older messages of a session, each with a summary and topics. The messages themselves are kept."""

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
_MAX_EXTRA_MESSAGES = (
    200  # a chunk may exceed its size by this many messages to keep a tool call with its results
)
_MAX_TOPICS = 50  # of a chunk that is merged repeatedly
_MERGED_SUMMARY_FACTOR = 2  # token limit of a merged summary, as a multiple of the limit of a single one


class Chunks:
    """Chunks of one session: create, merge, read.

    Args:
        dependencies: Store, clock, ids and token counter.
        summarizer: Summarizer for the chunk texts.
        config: Sizes and limits of chunks.
        namespace: Namespace of the session.
        session: Name of the session.
        key: Key of the session in the store.
    """

    def __init__(
        self,
        dependencies: LongTermDependencies,
        summarizer: Summarizer,
        config: LearningConfig,
        *,
        namespace: NamespacePath,
        session: str,
        key: int,
    ) -> None:
        self._dependencies = dependencies
        self._summarizer = summarizer
        self._config = config
        self._namespace = namespace
        self._session = session
        self._key = key

    def list_all(self) -> tuple[Chunk, ...]:
        """Return all chunks, oldest first."""
        stored = self._dependencies.store.list_session_entries(
            self._namespace, self._key, Tier.SHORT_TERM, limit=_NO_LIMIT
        )
        return tuple(to_chunk(entry) for entry in stored)

    def list_latest(self, limit: int) -> tuple[Chunk, ...]:
        """Return the newest chunks, ordered from oldest to newest."""
        stored = self._dependencies.store.list_session_entries(
            self._namespace, self._key, Tier.SHORT_TERM, limit=limit
        )
        return tuple(to_chunk(entry) for entry in stored)

    def list_recent_messages(self) -> tuple[Message, ...]:
        """Return the messages that are not in a chunk yet, oldest first."""
        cursor = self._dependencies.store.get_cursor(self._key)
        turns = self._dependencies.store.list_turns(self._key, after=cursor.chunked_turn, limit=_NO_LIMIT)
        return tuple(turn.message for turn in turns if not turn.message.is_summary)

    def list_messages(self, first_turn: int, last_turn: int) -> tuple[Message, ...]:
        """Return the original messages of a range of turns, both ends included."""
        count = max(0, last_turn - first_turn + 1)
        turns = (
            self._dependencies.store.list_turns(self._key, after=first_turn - 1, limit=count) if count else ()
        )
        # Turns of erased messages are missing, so `count` messages may extend beyond `last_turn`.
        return tuple(turn.message for turn in turns if turn.number <= last_turn)

    def create_chunks(self, *, whole: bool) -> tuple[tuple[Chunk, ...], tuple[str, ...]]:
        """Create chunks of all messages except the recent ones. Return the new chunks and the summarizer's problems.

        Args:
            whole: If True, recent messages become chunks too, because the session is over.
        """
        created: list[Chunk] = []
        problems: list[str] = []
        while (run := self._find_next_run(whole=whole)) is not None:
            cursor, turns = run
            text = summarize_chunk(
                [turn.message for turn in turns], self._summarizer, target_tokens=self._config.chunk_tokens
            )
            problems += text.problems
            chunk = self._build_chunk(turns, text.summary, text.topics, self._get_next_number())
            new_cursor = LearningCursor(cursor.learned_turn, turns[-1].number)
            new = self._to_new_entry(chunk, turns[-1].message.created_at)
            write = MemoryWrite(put=(new,), cursor=CursorMove(self._key, cursor, new_cursor))
            # If another process moved the cursor meanwhile, the commit changes nothing and the loop continues
            # from the new cursor. So no message is in two chunks.
            if self._dependencies.store.commit(self._namespace, write, chunk.created_at):
                created.append(chunk)
                if chunk.number > self._config.max_chunks:
                    self._merge_oldest()
        return tuple(created), tuple(dict.fromkeys(problems))

    def rebuild_chunk(self, stored: StoredEntry, excluded_ids: AbstractSet[str]) -> NewEntry | None:
        """Rebuild a chunk from its messages without the erased ones. Return None if no message remains.

        Args:
            stored: The chunk.
            excluded_ids: Ids of the messages to leave out.
        """
        chunk = to_chunk(stored)
        span = chunk.last_turn - chunk.first_turn + 1
        turns = [
            turn
            for turn in self._dependencies.store.list_turns(self._key, after=chunk.first_turn - 1, limit=span)
            if turn.number <= chunk.last_turn
            and turn.message.id not in excluded_ids
            and not turn.message.is_summary
        ]
        if not turns:
            return None
        factor = _MERGED_SUMMARY_FACTOR if chunk.merged > 1 else 1
        text = summarize_chunk(
            [turn.message for turn in turns],
            self._summarizer,
            target_tokens=factor * self._config.chunk_tokens,
        )
        rebuilt = self._build_chunk(turns, text.summary, text.topics, chunk.number)
        # The number, count of merges and times stay: the rebuilt chunk keeps its place in the session.
        rebuilt = replace(rebuilt, merged=chunk.merged, created_at=chunk.created_at)
        return self._to_new_entry(rebuilt, stored.entry.valid_from or chunk.created_at)

    def _find_next_run(self, *, whole: bool) -> tuple[LearningCursor, Sequence[NumberedMessage]] | None:
        # Returns the cursor and the messages of the next chunk, or None if there are not enough messages.
        cursor, size = self._dependencies.store.get_cursor(self._key), self._config.chunk_messages
        limit = max(size, self._config.recent_messages) + _MAX_EXTRA_MESSAGES
        while True:
            turns = self._dependencies.store.list_turns(self._key, after=cursor.chunked_turn, limit=limit)
            unchunked = [turn for turn in turns if not turn.message.is_summary]
            # The newest message is never in a chunk while the session continues.
            if not unchunked or (not whole and len(unchunked) <= max(self._config.recent_messages, size)):
                return None
            # A chunk ends at the end of a group: a tool call and its results are not separated.
            groups = group_tool_calls([turn.message for turn in unchunked])
            end = next(end for _, end in groups if end >= min(size, len(unchunked)))
            if end < len(unchunked) or len(turns) < limit:
                break
            limit *= 2  # the group reaches the end of the page: its results may continue on the next one
        if end == len(unchunked) and not whole:
            return None  # the last group may be a tool call that is still running
        return cursor, unchunked[:end]

    def _get_next_number(self) -> int:
        newest = self._dependencies.store.list_session_entries(
            self._namespace, self._key, Tier.SHORT_TERM, limit=1
        )
        return 1 if not newest else newest[-1].details["last_number"] + 1

    def _build_chunk(
        self, turns: Sequence[NumberedMessage], summary: str, topics: tuple[str, ...], number: int
    ) -> Chunk:
        return Chunk(
            id=self._dependencies.new_id(),
            namespace=self._namespace,
            session=self._session,
            number=number,
            summary=summary,
            topics=topics,
            first_message_id=turns[0].message.id,
            last_message_id=turns[-1].message.id,
            first_turn=turns[0].number,
            last_turn=turns[-1].number,
            message_count=len(turns),
            token_count=self._dependencies.token_counter.count(summary),
            created_at=self._dependencies.now(),
        )

    def _merge_oldest(self) -> None:
        # Merges the two oldest chunks until the limit is met. The revision is read before the chunks: if another
        # process changes the namespace before the commit, the commit changes nothing and the loop starts again.
        store = self._dependencies.store
        while True:
            revision = store.get_revision(self._namespace)
            stored = store.list_session_entries(self._namespace, self._key, Tier.SHORT_TERM, limit=_NO_LIMIT)
            if len(stored) <= self._config.max_chunks:
                return
            first, second = to_chunk(stored[0]), to_chunk(stored[1])
            now = self._dependencies.now()
            # The merged chunk is valid from now on, and the originals are archived rather than deleted: queries
            # for an earlier point in time still see both.
            merged = self._to_new_entry(self._merge(first, second), now)
            write = MemoryWrite(put=(merged,), archive=(first.id, second.id), revision=revision)
            store.commit(self._namespace, write, now)

    def _merge(self, first: Chunk, second: Chunk) -> Chunk:
        counter = self._dependencies.token_counter
        max_tokens = _MERGED_SUMMARY_FACTOR * self._config.chunk_tokens
        summary = merge_chunk_summaries(first.summary, second.summary, counter, max_tokens)
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


def to_chunk(stored: StoredEntry) -> Chunk:
    """Convert a stored entry to a chunk."""
    entry, details = stored.entry, stored.details
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
