"""Memory block for LlamaIndex's ``Memory``."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.memory.memory import BaseMemoryBlock
from llama_index.core.utils import get_tokenizer
from pydantic import Field, PrivateAttr

from langmem_tiers.adapting.checks import namespace_of
from langmem_tiers.adapting.unsaved import FAILS, unsaved_of
from langmem_tiers.core.budget import TokenBudget
from langmem_tiers.core.names import check_name
from langmem_tiers.core.transcripts import Listing
from langmem_tiers.engine import MemoryEngine  # noqa: TC001 - it is in a signature that pydantic reads
from langmem_tiers_llamaindex.convert import to_draft
from langmem_tiers_llamaindex.engines import opened
from langmem_tiers_llamaindex.placeholders import protected

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langmem_tiers.core.messages import MessageDraft
    from langmem_tiers.core.names import NamespacePath

_log = logging.getLogger("langmem_tiers")
_SESSION = "session_id"
_ASKED = 64
"""Questions that are held in case that their memories are to be cut."""
_LEAST_TOKENS = 40
"""Below which nothing is left of a block that is cut."""
_TRIES = 4
_TALK = 3
"""Messages that say what a short question is about."""


class TieredMemoryBlock(BaseMemoryBlock[str]):
    """What memory has to say to the newest question, for ``Memory.from_defaults(memory_blocks=[...])``.

    What ``Memory`` moves out of its queue is stored, in a session of that name. If the store fails, ``Memory`` goes
    on, and what could not be stored waits.

    Args:
        engine: Where memory is; one in memory, if left out.
        user_id: Whose it is; recall reaches all sessions of that user.
        namespace: Whose it is, where a user is not enough. Without both, each session recalls from no other.
        token_limit: What the block may take.
        name: Its name in the prompt, and its session if ``Memory`` does not say which.
        priority: 0 is never cut; a larger one is cut to what there is room for, the least relevant first.
    """

    name: str = "TieredMemory"
    user_id: str | None = None
    namespace: list[str] | None = None
    token_limit: int = Field(default=2_000, gt=0)
    engine_reference: dict[str, str | None] = Field(default_factory=dict)
    """Where the engine is found again; without secrets."""
    _engine: MemoryEngine = PrivateAttr()
    _whose: tuple[str, ...] | None = PrivateAttr()
    _asked: OrderedDict[str, tuple[NamespacePath, str, frozenset[str]]] = PrivateAttr(
        default_factory=OrderedDict
    )

    def __init__(self, engine: MemoryEngine | None = None, **data: Any) -> None:  # noqa: ANN401 - the fields
        if data.get("namespace") is None and data.get("user_id") is not None:
            data["namespace"] = [data["user_id"]]
        found = opened(engine, data)
        super().__init__(**found.fields)
        self._engine, self._whose = found.engine, found.namespace

    @property
    def engine(self) -> MemoryEngine:
        """Where memory is."""
        return self._engine

    async def aput(
        self,
        messages: list[ChatMessage],
        from_short_term_memory: bool = False,  # noqa: FBT001, FBT002 - the framework's signature
        session_id: str | None = None,
    ) -> None:
        """Store what was moved out of the queue; the messages themselves stay as they are."""
        if messages and (self.accept_short_term_memory or not from_short_term_memory):
            await asyncio.to_thread(self._store, messages, session_id)

    async def _aput(self, messages: list[ChatMessage]) -> None:
        await asyncio.to_thread(self._store, messages, None)

    async def _aget(self, messages: list[ChatMessage] | None = None, **block_kwargs: Any) -> str:  # noqa: ANN401 - the framework's signature
        return await asyncio.to_thread(self._told, messages or [], block_kwargs.get(_SESSION))

    async def atruncate(self, content: str, tokens_to_truncate: int) -> str | None:
        """The block with so many tokens less, the least relevant memories first; None if nothing is left."""
        return await asyncio.to_thread(self._cut, content, tokens_to_truncate)

    def _place(self, session_id: str | None) -> tuple[NamespacePath, str]:
        name = check_name(session_id or self.name)
        return namespace_of(self._whose, name), name

    def _told(self, messages: Sequence[ChatMessage], session_id: str | None) -> str:
        asked = next((one for one in reversed(messages) if one.role is MessageRole.USER), None)
        query = "" if asked is None else asked.content or ""
        if not query.strip():
            return ""
        namespace, _ = self._place(session_id)
        seen = frozenset(text for one in messages if (text := one.content))
        told = self._recalled(namespace, query, seen, self.token_limit)
        if not told:  # "And Germany?" asks about what was just spoken of
            query = "\n".join(text for one in messages[-_TALK:] if (text := one.content))
            told = self._recalled(namespace, query, seen, self.token_limit)
        self._asked[told] = (namespace, query, seen)
        while len(self._asked) > _ASKED:
            self._asked.popitem(last=False)
        return told

    def _recalled(self, namespace: NamespacePath, query: str, seen: frozenset[str], limit: int) -> str:
        try:
            context = self._engine.namespace(namespace).build_context(
                query, budget=TokenBudget.of(limit), seen=seen
            )
        except FAILS as error:
            _log.warning("%s recalls nothing: %s", self.name, type(error).__name__)
            return ""
        return protected("\n".join(message.content for message in context.messages))

    def _cut(self, content: str, tokens_to_truncate: int) -> str | None:
        known = self._asked.get(content)
        if known is None:
            return None  # nothing that this block told
        count = get_tokenizer()
        allowed = len(count(content)) - tokens_to_truncate
        budget = allowed
        for _ in range(_TRIES):
            if budget < _LEAST_TOKENS:
                return None
            shorter = self._recalled(*known, budget)
            over = len(count(shorter)) - allowed
            if over <= 0:
                return shorter or None
            budget -= over
        return None

    def _store(self, messages: Sequence[ChatMessage], session_id: str | None) -> None:
        session_id = session_id or _told_session(messages)
        namespace, name = self._place(session_id)
        said = [_without_session(one, session_id) for one in messages if one.blocks or one.additional_kwargs]
        drafts = [to_draft(one, self._engine.counter, id=uuid.uuid4().hex) for one in said]
        unsaved = unsaved_of(self._engine)
        waiting = unsaved.take(namespace, name)
        try:
            session = self._engine.session(namespace, name)
            if drafts and not self._is_there(namespace, name, drafts):
                session.add_many([*waiting, *drafts])
            elif waiting:
                session.add_many(waiting)
        except FAILS as error:
            unsaved.keep(namespace, name, [*waiting, *drafts])
            _log.warning(
                "%s could not store %d messages, they wait: %s", self.name, len(drafts), type(error).__name__
            )

    def _is_there(self, namespace: NamespacePath, name: str, drafts: Sequence[MessageDraft]) -> bool:
        # A TieredChatStore on the same engine has them already, as the newest that it archived.
        transcript = self._engine.session(namespace, name).transcript
        archived = (Listing.ARCHIVED,)
        start = max(0, transcript.count(archived) - len(drafts))
        newest = transcript.messages(archived, limit=len(drafts), offset=start)
        return [(one.content, one.payload_json) for one in newest] == [
            (one.content, one.payload_json) for one in drafts
        ]


def _told_session(messages: Sequence[ChatMessage]) -> str | None:
    told = messages[0].additional_kwargs.get(_SESSION) if messages else None
    return told if isinstance(told, str) and told else None


def _without_session(message: ChatMessage, session_id: str | None) -> ChatMessage:
    # Memory writes the session into the messages that its blocks share.
    if session_id is None or message.additional_kwargs.get(_SESSION) != session_id:
        return message
    kwargs = {key: value for key, value in message.additional_kwargs.items() if key != _SESSION}
    return message.model_copy(update={"additional_kwargs": kwargs})
