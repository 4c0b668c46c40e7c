"""Public interface of working memory, which is in this process and saved to sessions before eviction."""

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
    """Working memories of all agents, by namespace and session. Available as ``engine.working``. Thread-safe.

    Appended messages are only in memory and may be lost in a crash. Use ``session.add`` for messages that must not be
    lost. Messages are saved to their session, each once, when a working memory has too many tokens, when it is evicted
    because of age or size, and when the engine is closed.
    """

    def __init__(self, dependencies: SessionDependencies, config: WorkingConfig) -> None:
        self._dependencies = dependencies
        self._config = config
        self._cache = WorkingMemoryCache(dependencies, config)
        # Saves what is left if the engine is garbage-collected or the program ends without close(). The callback refers
        # to the cache: a reference to self would keep this object alive.
        self._finalizer = weakref.finalize(self, WorkingMemoryCache.close_quietly, self._cache)

    def __repr__(self) -> str:
        return f"WorkingMemories({self.status()})"

    def get(self, namespace: str | Iterable[str], session: str) -> WorkingMemory:
        """Return a snapshot of the working memory of a conversation, which may be empty."""
        address = _check_address(namespace, session)
        with self._cache.lock_existing(address, uses=True) as memory:
            messages = () if memory is None else tuple(memory.messages.values())
            return WorkingMemory(
                namespace=address[0],
                session=address[1],
                messages=messages,
                tool_results=MappingProxyType(
                    {
                        message.tool_call_id: message
                        for message in messages
                        if message.tool_call_id is not None
                    }
                ),
                scratchpad=self._cache.get_scratchpad(address, memory),
                token_count=sum(message.token_count for message in messages),
                unsaved=0 if memory is None else memory.unsaved_count,
            )

    def append(
        self,
        namespace: str | Iterable[str],
        session: str,
        message: MessageDraft | Role | str,
        content: str | None = None,
    ) -> WorkingReport:
        """Append a message: ``append("alice", "monday", "user", "Hello")``, or with a ``MessageDraft``.

        Args:
            namespace: The namespace.
            session: Name of the session.
            message: A draft, or the role of the message.
            content: Text of the message, if ``message`` is a role.

        Raises:
            MessageConflictError: The working memory contains another message with the same id.
            StorageError: The cache is full, because messages could not be saved. The message was not added.
        """
        address, draft = _check_address(namespace, session), coerce_draft(message, content)
        self._check_open()
        (new_message,) = complete_drafts(self._dependencies, [draft])
        # Evict before this memory is locked: eviction locks other memories, and two such locks could deadlock.
        self._cache.expire()
        self._cache.make_room(address, measure_bytes(new_message))
        with self._cache.lock_or_create(address) as memory:
            existing = memory.messages.get(new_message.id)
            if existing is None:
                self._cache.add_message(memory, new_message)
            elif not existing.has_same_content(new_message):
                raise MessageConflictError(
                    f"the working memory contains another message with id {new_message.id!r}: "
                    "use another id for the new message; nothing was changed"
                )
            return self._build_report(address, memory, existing or new_message, is_new=existing is None)

    def set_scratchpad(self, namespace: str | Iterable[str], session: str, text: str) -> None:
        """Replace the agent's notes for a conversation.

        They are saved in a separate session when the working memory is saved. Recall and contexts do not include them.
        """
        address = _check_address(namespace, session)
        self._check_open()
        if not isinstance(text, str):
            raise InvalidInputError(
                f"text of a scratchpad must be a str, got {type(text).__name__}: convert it to text"
            )
        check_name(get_scratchpad_name(address[1]))
        self._cache.expire()
        self._cache.make_room(address, measure_bytes(text))
        with self._cache.lock_or_create(address) as memory:
            self._cache.set_scratchpad(memory, text)

    def flush(self, namespace: str | Iterable[str] | None = None, session: str | None = None) -> FlushReport:
        """Save messages and notes of one conversation, of one namespace, or of all.

        Args:
            namespace: The namespace. Default: all namespaces.
            session: Name of the session. Default: all sessions.

        Raises:
            StorageError: Not everything could be saved. The rest remains in memory.
        """
        path = None if namespace is None else check_namespace(namespace)
        if path is None and session is not None:
            raise InvalidInputError(f"flush() got session {session!r} without a namespace: pass both")
        name = None if session is None else check_name(session)
        counts = [self._cache.save(address) for address in self._cache.list_addresses(path, name)]
        return FlushReport(messages=sum(counts), agents=sum(1 for count in counts if count))

    def delete(self, namespace: NamespacePath, session: str | None = None) -> None:
        """Delete the working memory of a conversation or a namespace, without saving it, because it is being erased."""
        self._cache.delete(namespace, session)

    def delete_erased(self, erased: ErasedIds) -> dict[str, int]:
        """Delete what was erased elsewhere. For single messages, the notes of the conversation remain."""
        for path in erased.namespaces:
            self.delete(path)
        for path, name in erased.sessions:
            self.delete(path, name)
        for address, ids in erased.messages.items():
            self._cache.remove_messages(address, ids)
        return {}

    def invalidate(self, scope: BackupScope) -> None:
        """Discard, without saving, the working memories of a part of the memory that was replaced by a restore."""
        self._cache.invalidate(scope.contains)

    def sweep(self) -> int:
        """Save and evict working memories that were unused for too long, and return their number.

        A background thread does this every minute.
        """
        return self._cache.expire()

    def unsaved(self) -> dict[tuple[NamespacePath, str], tuple[Message, ...]]:
        """Return the unsaved messages by namespace and session, also after a failed ``close()``."""
        return self._cache.list_unsaved()

    def status(self) -> WorkingStatus:
        """Return the number and the size of the working memories."""
        return self._cache.status()

    def close(self) -> None:
        """Save everything.

        Raises:
            StorageError: Not everything could be saved. ``unsaved()`` returns the rest.
        """
        self._cache.close()

    def _build_report(
        self, address: SessionAddress, memory: CachedWorkingMemory, message: Message, *, is_new: bool
    ) -> WorkingReport:
        flushed, problem = 0, None
        if memory.token_count > self._config.flush_tokens:
            flushed, problem = self._cache.try_flush(address)
        return WorkingReport(
            message=message, is_new=is_new, flushed=flushed, token_count=memory.token_count, problem=problem
        )

    def _check_open(self) -> None:
        if self._cache.is_closed:
            raise EngineClosedError("the engine of this working memory is closed: open a new MemoryEngine")


def _check_address(namespace: object, session: str) -> SessionAddress:
    return check_namespace(namespace), check_name(session)
