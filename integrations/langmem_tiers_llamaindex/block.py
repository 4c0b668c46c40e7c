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

from langmem_tiers.common.budget import TokenBudget
from langmem_tiers.common.namespaces import check_name
from langmem_tiers.engine import MemoryEngine  # noqa: TC001 - it is in a signature that pydantic reads
from langmem_tiers.errors import InvalidInputError
from langmem_tiers.integration_kit.argument_checks import resolve_namespace
from langmem_tiers.integration_kit.retry_queue import STORE_ERRORS, get_retry_queue
from langmem_tiers.sessions.models import Listing
from langmem_tiers_llamaindex.convert import to_draft
from langmem_tiers_llamaindex.engines import EngineBackedModel
from langmem_tiers_llamaindex.placeholders import protect_placeholders

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langmem_tiers.common.messages import Message, MessageDraft
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.sessions.transcript import Transcript

_log = logging.getLogger("langmem_tiers")
_SESSION_KEY = "session_id"
_MAX_CACHED_QUERIES = 64
"""Questions that are held in case that their memories are to be cut."""
_MAX_TRIES = 6
"""The engine counts by its own counter, so that what it gives may take more by LlamaIndex's tokenizer."""
_FOLLOW_UP_MESSAGES = 3
"""Messages that say what a short question is about."""
_ARCHIVED_LOOKBACK_MESSAGES = 200
"""Archived messages, beside as many as there are new ones, among which these are looked for."""


class _BlockQuery(NamedTuple):
    namespace: NamespacePath
    query: str
    seen_texts: frozenset[str]


class TieredMemoryBlock(EngineBackedModel, BaseMemoryBlock[str]):
    """What memory has to say to the newest question, for ``Memory.from_defaults(memory_blocks=[...])``.

    What ``Memory`` moves out of its queue is stored, in a session of that name. If the store fails, ``Memory`` goes
    on, and what could not be stored waits.

    Args:
        engine: Where memory is; one in memory, if left out.
        user_id: Whose it is; recall reaches all sessions of that user.
        namespace: Whose it is, where a user is not enough. Without both, each session recalls from no other.
        token_limit: What the block may take, by LlamaIndex's tokenizer.
        name: Its name in the prompt, and its session if ``Memory`` does not say which.
        priority: 0 is never cut; a larger one is cut to what there is room for, the least relevant first.
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
                f"whose memory it is was told twice, as user_id={user!r} and namespace={namespace!r}: pass one"
            )

    async def aput(
        self,
        messages: list[ChatMessage],
        from_short_term_memory: bool = False,  # noqa: FBT001, FBT002 - the framework's signature
        session_id: str | None = None,
    ) -> None:
        """Store what was moved out of the queue; the messages themselves stay as they are."""
        if self.accept_short_term_memory or not from_short_term_memory:
            session_id = session_id or _find_session_id(messages)
            # Copied before anybody else runs: other blocks write into the messages that all of them share.
            said = [_remove_session_id(one, session_id) for one in messages]
            await asyncio.to_thread(self._store_messages, said, session_id)

    async def _aput(self, messages: list[ChatMessage]) -> None:
        await self.aput(messages)

    async def _aget(self, messages: list[ChatMessage] | None = None, **block_kwargs: Any) -> str:  # noqa: ANN401 - the framework's signature
        return await asyncio.to_thread(self._recall_text, messages or [], block_kwargs.get(_SESSION_KEY))

    async def atruncate(self, content: str, tokens_to_truncate: int) -> str | None:
        """The block with so many tokens less, the least relevant memories first; None if nothing is left."""
        return await asyncio.to_thread(self._truncate, content, tokens_to_truncate)

    def _resolve_session(self, session_id: str | None) -> tuple[NamespacePath, str]:
        name = check_name(session_id or self.name)
        return resolve_namespace(self._namespace_path, name), name

    def _recall_text(self, messages: Sequence[ChatMessage], session_id: str | None) -> str:
        newest = next((one for one in reversed(messages) if one.role is MessageRole.USER), None)
        query = "" if newest is None else newest.content or ""
        if not query.strip():
            return ""
        namespace, _ = self._resolve_session(session_id)
        seen = frozenset(to_draft(one, self._engine.counter).content for one in messages)
        talk = "\n".join(text for one in messages[-_FOLLOW_UP_MESSAGES:] if (text := one.content))
        for words in (query, talk):  # "And Germany?" asks about what was just spoken of
            asked = _BlockQuery(namespace, words, seen)
            told = self._try_render(asked, self.token_limit)
            if told is None:
                break
            if told:
                self._cache_query(told, asked)
                return told
        return ""

    def _cache_query(self, told: str, asked: _BlockQuery) -> None:
        with self._lock:
            known = self._queries.pop(told, asked)
            # What was told in the same words to another tenant must not be cut to what that one knows.
            is_ours = known is not None and known.namespace == asked.namespace
            self._queries[told] = asked if is_ours else None
            while len(self._queries) > _MAX_CACHED_QUERIES:
                self._queries.popitem(last=False)

    def _truncate(self, content: object, tokens_to_truncate: int) -> str | None:
        with self._lock:
            asked = self._queries.get(content) if isinstance(content, str) else None
        if asked is None or not isinstance(content, str):
            return None  # nothing that this block told, or nothing at all
        return self._try_render(asked, len(get_tokenizer()(content)) - tokens_to_truncate) or None

    def _try_render(self, asked: _BlockQuery, limit: int) -> str | None:
        try:
            return self._render_to_fit(asked, limit)
        except STORE_ERRORS as error:
            _log.warning("%s recalls nothing: %s", self.name, type(error).__name__)
            return None

    def _render_to_fit(self, asked: _BlockQuery, limit: int) -> str:
        count, budget, tenant = get_tokenizer(), limit, self._engine.namespace(asked.namespace)
        for _ in range(_MAX_TRIES):
            if budget < 1:
                break
            context = tenant.build_context(asked.query, budget=TokenBudget.of(budget), seen=asked.seen_texts)
            told = protect_placeholders("\n".join(message.content for message in context.messages))
            tokens = len(count(told))
            if tokens <= limit:
                return told
            budget = budget * limit // tokens - 1
        return ""

    def _store_messages(self, messages: Sequence[ChatMessage], session_id: str | None) -> None:
        namespace, name = self._resolve_session(session_id)
        said = [one for one in messages if one.blocks or one.additional_kwargs]
        drafts = [to_draft(one, self._engine.counter, id=self._engine.new_id()) for one in said]
        unsaved = get_retry_queue(self._engine)
        waiting = unsaved.pop_drafts(namespace, name)
        if not waiting and not drafts:
            return
        try:
            session = self._engine.session(namespace, name)
            new = [*_drop_archived(session.transcript, waiting), *_drop_archived(session.transcript, drafts)]
            session.add_many(new)
        except STORE_ERRORS as error:
            unsaved.add_failed(namespace, name, [*waiting, *drafts])
            _log.warning(
                "%s could not store %d messages, they wait: %s", self.name, len(drafts), type(error).__name__
            )
        except BaseException:
            unsaved.add_failed(namespace, name, waiting)
            raise


def _drop_archived(transcript: Transcript, drafts: Sequence[MessageDraft]) -> Sequence[MessageDraft]:
    # A TieredChatStore on the same engine has them already, one behind the other among those it archived.
    wanted = [_get_content_key(one) for one in drafts]
    archived, kinds = transcript.count((Listing.ARCHIVED,)) if drafts else 0, set(wanted)
    if not archived:
        return drafts
    newest = transcript.messages(
        (Listing.ARCHIVED,), offset=max(0, archived - len(drafts) - _ARCHIVED_LOOKBACK_MESSAGES)
    )
    there = [said for one in newest if (said := _get_content_key(one)) in kinds]
    runs = (there[place : place + len(wanted)] for place in range(len(there)))
    return () if wanted in runs else drafts


def _get_content_key(message: Message | MessageDraft) -> object:
    # Without its payload: what other blocks have written into a message is a part of that.
    return message.role, message.content, message.tool_calls, message.tool_call_id


def _find_session_id(messages: Sequence[ChatMessage]) -> str | None:
    told = messages[0].additional_kwargs.get(_SESSION_KEY) if messages else None
    return told if isinstance(told, str) and told else None


def _remove_session_id(message: ChatMessage, session_id: str | None) -> ChatMessage:
    kwargs = dict(message.additional_kwargs)
    if session_id is not None and kwargs.get(_SESSION_KEY) == session_id:
        del kwargs[_SESSION_KEY]  # Memory writes it into the messages that its blocks share
    return message.model_copy(update={"additional_kwargs": kwargs})
