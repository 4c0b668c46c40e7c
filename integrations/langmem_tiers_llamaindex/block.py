"""Memory block for LlamaIndex's ``Memory``."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, NamedTuple

from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.memory.memory import BaseMemoryBlock
from llama_index.core.utils import get_tokenizer
from pydantic import Field, PrivateAttr

from langmem_tiers import (
    InvalidInputError,
    MemoryEngine,
    TokenBudget,
)
from langmem_tiers.integration_kit import (
    STORE_ERRORS,
    Listing,
    check_name,
    get_retry_queue,
    resolve_namespace,
)
from langmem_tiers_llamaindex.convert import protect_placeholders, to_draft
from langmem_tiers_llamaindex.engine_references import EngineBackedModel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langmem_tiers import Message, MessageDraft
    from langmem_tiers.integration_kit import NamespacePath, Transcript

_log = logging.getLogger("langmem_tiers")
_SESSION_KEY = "session_id"
_MAX_CACHED_QUERIES = 64
"""Number of cached queries, needed if ``Memory`` truncates their text later."""
_MAX_ATTEMPTS = 6
"""Attempts to fit the limit: LlamaIndex's tokenizer may count more tokens than the engine's counter."""
_FOLLOW_UP_MESSAGES = 3
"""Number of newest messages that provide the topic of a short question."""
_ARCHIVED_LOOKBACK_MESSAGES = 200
"""Number of archived messages, in addition to the number of new ones, searched for duplicates."""


class _BlockQuery(NamedTuple):
    namespace: NamespacePath
    query: str
    seen_texts: frozenset[str]


class TieredMemoryBlock(EngineBackedModel, BaseMemoryBlock[str]):
    """Memory block with memories for the newest question, for ``Memory.from_defaults(memory_blocks=[...])``.

    Messages that ``Memory`` moves out of its queue are stored in a session with the same id. If the store fails,
    ``Memory`` continues, and the messages are stored later.

    Args:
        engine: Memory engine. Default: a new one in memory.
        user_id: Owner of the memory; recall covers all sessions of that user.
        namespace: Owner as a namespace. Without ``user_id`` and ``namespace``, a session does not recall from
            others.
        token_limit: Maximum number of tokens of the block, by LlamaIndex's tokenizer.
        name: Name of the block in the prompt, and of its session if ``Memory`` does not pass a session id.
        priority: 0 is never truncated; other values may be truncated, the least relevant memories first.
    """

    name: str = "TieredMemory"
    user_id: str | None = Field(default=None, frozen=True)
    token_limit: int = Field(default=2_000, gt=0, strict=True)
    _lock: threading.Lock = PrivateAttr(default_factory=threading.Lock)
    _queries: OrderedDict[str, _BlockQuery | None] = PrivateAttr(default_factory=OrderedDict)

    def __init__(self, engine: MemoryEngine | None = None, **data: Any) -> None:  # noqa: ANN401 - the fields
        user, namespace = data.get("user_id"), data.get("namespace")
        if user is not None and namespace is None:
            data["namespace"] = [user]
        super().__init__(engine, **data)
        if user is not None and self.namespace != [user]:
            raise InvalidInputError(
                f"expected user_id or namespace, got user_id={user!r} and namespace={namespace!r}: pass one of them"
            )

    async def aput(
        self,
        messages: list[ChatMessage],
        from_short_term_memory: bool = False,  # noqa: FBT001, FBT002 - the framework's signature
        session_id: str | None = None,
    ) -> None:
        """Store messages that were moved out of the queue, without changing them."""
        if self.accept_short_term_memory or not from_short_term_memory:
            session_id = session_id or _find_session_id(messages)
            # Copy before the first await: all blocks share the messages, and other blocks write into them.
            copies = [_remove_session_id(message, session_id) for message in messages]
            await asyncio.to_thread(self._store_messages, copies, session_id)

    async def _aput(self, messages: list[ChatMessage]) -> None:
        await self.aput(messages)

    async def _aget(self, messages: list[ChatMessage] | None = None, **block_kwargs: Any) -> str:  # noqa: ANN401 - the framework's signature
        return await asyncio.to_thread(self._recall_text, messages or [], block_kwargs.get(_SESSION_KEY))

    async def atruncate(self, content: str, tokens_to_truncate: int) -> str | None:
        """Return the text with fewer tokens, without the least relevant memories; None if nothing is left."""
        return await asyncio.to_thread(self._truncate, content, tokens_to_truncate)

    def _resolve_session(self, session_id: str | None) -> tuple[NamespacePath, str]:
        name = check_name(session_id or self.name)
        return resolve_namespace(self._namespace_path, name), name

    def _recall_text(self, messages: Sequence[ChatMessage], session_id: str | None) -> str:
        newest = next((message for message in reversed(messages) if message.role is MessageRole.USER), None)
        query = "" if newest is None else newest.content or ""
        if not query.strip():
            return ""
        namespace, _ = self._resolve_session(session_id)
        seen = frozenset(to_draft(message, self._engine.counter).content for message in messages)
        recent = "\n".join(text for message in messages[-_FOLLOW_UP_MESSAGES:] if (text := message.content))
        # If the question alone finds nothing, try it with its context: "And Germany?" depends on earlier messages.
        for query_text in (query, recent):
            block_query = _BlockQuery(namespace, query_text, seen)
            text = self._try_render(block_query, self.token_limit)
            if text is None:
                break
            if text:
                self._cache_query(text, block_query)
                return text
        return ""

    def _cache_query(self, text: str, query: _BlockQuery) -> None:
        with self._lock:
            cached = self._queries.pop(text, query)
            # The cache is keyed by the text, because Memory passes nothing else to atruncate(). If two tenants got
            # the same text, store None: truncating must not use the memories of the other tenant.
            is_ours = cached is not None and cached.namespace == query.namespace
            self._queries[text] = query if is_ours else None
            # First in, first out: a text is truncated soon after it was built, or never.
            while len(self._queries) > _MAX_CACHED_QUERIES:
                self._queries.popitem(last=False)

    def _truncate(self, content: object, tokens_to_truncate: int) -> str | None:
        with self._lock:
            query = self._queries.get(content) if isinstance(content, str) else None
        if query is None or not isinstance(content, str):
            return None  # not a text of this block, or an ambiguous one
        return self._try_render(query, len(get_tokenizer()(content)) - tokens_to_truncate) or None

    def _try_render(self, query: _BlockQuery, limit: int) -> str | None:
        try:
            return self._render_to_fit(query, limit)
        except STORE_ERRORS as error:
            _log.warning("%s could not recall memories: %s", self.name, type(error).__name__)
            return None

    def _render_to_fit(self, query: _BlockQuery, limit: int) -> str:
        tokenize, budget, tenant = get_tokenizer(), limit, self._engine.namespace(query.namespace)
        for _ in range(_MAX_ATTEMPTS):
            if budget < 1:
                break
            context = tenant.build_context(query.query, budget=TokenBudget.of(budget), seen=query.seen_texts)
            text = protect_placeholders("\n".join(message.content for message in context.messages))
            tokens = len(tokenize(text))
            if tokens <= limit:
                return text
            # Scale the budget by the ratio of both counts; the -1 guarantees progress.
            budget = budget * limit // tokens - 1
        return ""

    def _store_messages(self, messages: Sequence[ChatMessage], session_id: str | None) -> None:
        namespace, name = self._resolve_session(session_id)
        nonempty = [message for message in messages if message.blocks or message.additional_kwargs]
        drafts = [to_draft(message, self._engine.counter, id=self._engine.new_id()) for message in nonempty]
        retry_queue = get_retry_queue(self._engine)
        waiting = retry_queue.pop_drafts(namespace, name)
        if not waiting and not drafts:
            return
        try:
            session = self._engine.session(namespace, name)
            new = [*_drop_archived(session.transcript, waiting), *_drop_archived(session.transcript, drafts)]
            session.add_many(new)
        except STORE_ERRORS as error:
            retry_queue.add_failed(namespace, name, [*waiting, *drafts])
            _log.warning(
                "%s could not store %d messages and will retry: %s",
                self.name,
                len(drafts),
                type(error).__name__,
            )
        except BaseException:
            retry_queue.add_failed(namespace, name, waiting)
            raise


def _drop_archived(transcript: Transcript, drafts: Sequence[MessageDraft]) -> Sequence[MessageDraft]:
    # Memory archives messages in its chat store before it passes them to the block. If that store is a
    # TieredChatStore on the same engine, they are stored already, as a contiguous run of archived messages.
    keys = [_get_content_key(draft) for draft in drafts]
    archived, distinct = transcript.count((Listing.ARCHIVED,)) if drafts else 0, set(keys)
    if not archived:
        return drafts
    newest = transcript.messages(
        (Listing.ARCHIVED,), offset=max(0, archived - len(drafts) - _ARCHIVED_LOOKBACK_MESSAGES)
    )
    stored = [key for message in newest if (key := _get_content_key(message)) in distinct]
    runs = (stored[start : start + len(keys)] for start in range(len(stored)))
    return () if keys in runs else drafts


def _get_content_key(message: Message | MessageDraft) -> object:
    # Without the payload, because other blocks may have written into the message.
    return message.role, message.content, message.tool_calls, message.tool_call_id


def _find_session_id(messages: Sequence[ChatMessage]) -> str | None:
    session_id = messages[0].additional_kwargs.get(_SESSION_KEY) if messages else None
    return session_id if isinstance(session_id, str) and session_id else None


def _remove_session_id(message: ChatMessage, session_id: str | None) -> ChatMessage:
    kwargs = dict(message.additional_kwargs)
    if session_id is not None and kwargs.get(_SESSION_KEY) == session_id:
        del kwargs[_SESSION_KEY]  # added by Memory, not part of the original message
    return message.model_copy(update={"additional_kwargs": kwargs})
