"""Working memories: what agents have at hand in this process, stored to their sessions before they leave."""

from __future__ import annotations

import weakref
from types import MappingProxyType
from typing import TYPE_CHECKING

from langmem_tiers.common.namespaces import check_name, check_namespace
from langmem_tiers.errors import EngineClosedError, InvalidInputError, MessageConflictError
from langmem_tiers.sessions.service import coerce_draft, complete_drafts
from langmem_tiers.working_memory.cache import WorkingMemoryCache, measure_bytes
from langmem_tiers.working_memory.models import FlushReport, WorkingMemory, WorkingReport, WorkingStatus
from langmem_tiers.working_memory.session_writer import get_scratchpad_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from langmem_tiers.backup.models import BackupScope
    from langmem_tiers.common.messages import Message, MessageDraft, Role
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.config import WorkingConfig
    from langmem_tiers.erasure.models import ErasedIds
    from langmem_tiers.sessions.service import SessionDependencies
    from langmem_tiers.working_memory.cache import CachedWorkingMemory
    from langmem_tiers.working_memory.session_writer import SessionAddress


class WorkingMemories:
    """The working memories of all agents, by namespace and session. Get it as ``engine.working``.

    A message that is put here is in no session yet, so a crash may take it: use ``session.add`` for what must not be
    lost. It is stored when there are too many tokens, when its memory leaves because of age or for want of room, and
    at the end of the engine, each message once. Safe to use from several threads.
    """

    def __init__(self, parts: SessionDependencies, config: WorkingConfig) -> None:
        self._dependencies = parts
        self._config = config
        self._cache = WorkingMemoryCache(parts, config)
        # An engine that is dropped, or a program that ends, without close() stores what is left all the same.
        self._finalizer = weakref.finalize(self, WorkingMemoryCache.close_quietly, self._cache)

    def __repr__(self) -> str:
        return f"WorkingMemories({self.status()})"

    def get(self, namespace: str | Iterable[str], session: str) -> WorkingMemory:
        """What the agent has at hand in a conversation; empty if that is nothing."""
        place = _check_address(namespace, session)
        with self._cache.lock_existing(place, uses=True) as held:
            messages = () if held is None else tuple(held.messages.values())
            return WorkingMemory(
                namespace=place[0],
                session=place[1],
                messages=messages,
                tool_results=MappingProxyType(
                    {one.tool_call_id: one for one in messages if one.tool_call_id is not None}
                ),
                scratchpad=self._cache.get_scratchpad(place, held),
                token_count=sum(one.token_count for one in messages),
                unsaved=0 if held is None else held.unsaved_count,
            )

    def append(
        self,
        namespace: str | Iterable[str],
        session: str,
        message: MessageDraft | Role | str,
        content: str | None = None,
    ) -> WorkingReport:
        """Put a message at the end: ``append("alice", "monday", "user", "Hello")``, or a ``MessageDraft``.

        Raises:
            MessageConflictError: The memory holds another message with its id.
            StorageError: There is no room, because the database takes nothing; the message was not taken.
        """
        place, draft = _check_address(namespace, session), coerce_draft(message, content)
        self._check_open()
        (sealed,) = complete_drafts(self._dependencies, [draft])
        self._cache.expire()
        self._cache.make_room(place, measure_bytes(sealed))
        with self._cache.lock_or_create(place) as held:
            known = held.messages.get(sealed.id)
            if known is None:
                self._cache.add_message(held, sealed)
            elif not known.has_same_content(sealed):
                raise MessageConflictError(
                    f"the working memory holds another message with the id {sealed.id!r}: "
                    "give the new one an id of its own; nothing was changed"
                )
            return self._build_report(place, held, known or sealed, is_new=known is None)

    def set_scratchpad(self, namespace: str | Iterable[str], session: str, text: str) -> None:
        """What the agent notes for itself in this conversation, in place of what it noted before.

        It is stored, beside the session, when the memory leaves; recall and contexts do not show it.
        """
        place = _check_address(namespace, session)
        self._check_open()
        if not isinstance(text, str):
            raise InvalidInputError(f"a scratchpad is a str, got a {type(text).__name__}: convert it to text")
        check_name(get_scratchpad_name(place[1]))
        self._cache.expire()
        self._cache.make_room(place, measure_bytes(text))
        with self._cache.lock_or_create(place) as held:
            self._cache.set_scratchpad(held, text)

    def flush(self, namespace: str | Iterable[str] | None = None, session: str | None = None) -> FlushReport:
        """Store what is in no session yet, and notes: of one conversation, of one namespace, or all of it.

        Raises:
            StorageError: The database took it not, or not all; what it did not take is held on.
        """
        path = None if namespace is None else check_namespace(namespace)
        if path is None and session is not None:
            raise InvalidInputError(f"flush() got the session {session!r} of no namespace: name both")
        name = None if session is None else check_name(session)
        counts = [self._cache.save(place) for place in self._cache.list_addresses(path, name)]
        return FlushReport(messages=sum(counts), agents=sum(1 for count in counts if count))

    def delete(self, namespace: NamespacePath, session: str | None = None) -> None:
        """Drop what is held of a conversation, or of a whole namespace, and store nothing of it: it is being erased."""
        self._cache.delete(namespace, session)

    def delete_erased(self, erased: ErasedIds) -> dict[str, int]:
        """Hold nothing of what was erased: of conversations that stay only their messages go, not the notes."""
        for path in erased.namespaces:
            self.delete(path)
        for path, name in erased.sessions:
            self.delete(path, name)
        for place, ids in erased.messages.items():
            self._cache.remove_messages(place, ids)
        return {}

    def invalidate(self, scope: BackupScope) -> None:
        """Drop what is held of a part of the memory in whose place there is another now."""
        self._cache.invalidate(scope.contains)

    def sweep(self) -> int:
        """Store and let go of what nobody used for too long; how many memories. A thread does so every minute."""
        return self._cache.expire()

    def unsaved(self) -> dict[tuple[NamespacePath, str], tuple[Message, ...]]:
        """The messages that are in no session yet, by namespace and session; also after a ``close()`` that failed."""
        return self._cache.list_unsaved()

    def status(self) -> WorkingStatus:
        """How many memories are held, and what they take."""
        return self._cache.status()

    def close(self) -> None:
        """Store everything.

        Raises:
            StorageError: The database took it not; ``unsaved()`` has what is left.
        """
        self._cache.close()

    def _build_report(
        self, place: SessionAddress, held: CachedWorkingMemory, message: Message, *, is_new: bool
    ) -> WorkingReport:
        flushed, problem = 0, None
        if held.token_count > self._config.flush_tokens:
            flushed, problem = self._cache.try_flush(place)
        return WorkingReport(
            message=message, is_new=is_new, flushed=flushed, token_count=held.token_count, problem=problem
        )

    def _check_open(self) -> None:
        if self._cache.is_closed:
            raise EngineClosedError("the engine of this working memory is closed: open a new MemoryEngine")


def _check_address(namespace: object, session: str) -> SessionAddress:
    return check_namespace(namespace), check_name(session)
