"""Memory for LlamaIndex chat engines and agents."""

from __future__ import annotations

import asyncio
import json
import uuid
from typing import TYPE_CHECKING, Any, Self

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.memory.types import BaseMemory
from llama_index.core.utils import get_tokenizer
from pydantic import ConfigDict, Field, PrivateAttr, field_validator

from langmem_tiers import BudgetExceededError, InvalidInputError, MemoryEngine
from langmem_tiers.integration_kit import check_engine, check_name, check_namespace, resolve_namespace
from langmem_tiers_llamaindex.chat_store import TieredSyncChatStore
from langmem_tiers_llamaindex.conversation import ChatConversation
from langmem_tiers_llamaindex.conversation_view import ViewRequest
from langmem_tiers_llamaindex.engine_references import build_engine_reference, resolve_engine
from langmem_tiers_llamaindex.events import dispatcher
from langmem_tiers_llamaindex.message_layout import InsertMethod  # noqa: TC001 - pydantic reads it
from langmem_tiers_llamaindex.token_counter import LlamaIndexCounter, get_token_count_cache
from langmem_tiers_llamaindex.turn_state import get_turn_registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from llama_index.core.llms.llm import LLM

    from langmem_tiers.integration_kit import NamespacePath

DEFAULT_TOKEN_LIMIT = 30_000
"""Default of LlamaIndex's own memory."""
WINDOW_SHARE = 0.75
"""Share of the model's window that is the limit if a model but no limit is given."""
OVER_LIMIT_MESSAGE = "Initial token count exceeds token limit"
"""Error message of LlamaIndex's own memories, word for word."""


class TieredMemory(BaseMemory):
    """Memory of one conversation, for ``memory=`` of every chat engine and agent.

    The model sees as much of the conversation as fits ``token_limit``; older messages are compressed or summarized.
    Memories from other conversations of the same user are included if they match the newest question. Stored
    messages are never removed. If the store fails, the turn continues; see ``unsaved`` and ``failures``.

    The object holds no messages, because they are stored by the engine. It can therefore be copied, serialized as
    JSON and restored, in this process or in another one.

    Args:
        engine: Engine that stores the messages. ``from_defaults`` creates one in memory by default.
        session_id: Name of the conversation. Default: a new conversation.
        user_id: Owner of the conversation; recall covers all conversations of that user.
        namespace: Owner as a namespace, such as ``["acme", "alice"]``. Without ``user_id`` and ``namespace``, the
            conversation does not recall from others.
        token_limit: Maximum number of tokens of a view, by ``tokenizer_fn``.
        insert_method: Position of memories: in a ``system`` message, before the newest question (``user``), or where
            every kind of agent sees them (``auto``).
        recall: True to include knowledge and memories from other conversations.
        tokenizer_fn: Function from a text to its tokens. Default: LlamaIndex's global tokenizer. It is not
            serialized; another process uses its own global tokenizer.

    Raises:
        ValidationError: A name is empty, or a limit is not a positive number. This is pydantic's error, a
            ``ValueError``.
        InvalidInputError: The engine is missing.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    # The fields that identify the conversation are frozen: with other values, this would be another memory.
    session_id: str = Field(default_factory=lambda: uuid.uuid4().hex, frozen=True)
    user_id: str | None = Field(default=None, frozen=True)
    namespace: list[str] = Field(default_factory=list, frozen=True)
    token_limit: int = Field(default=DEFAULT_TOKEN_LIMIT, gt=0, strict=True)
    insert_method: InsertMethod = "auto"
    recall: bool = True
    engine_reference: dict[str, str | None] = Field(default_factory=dict, frozen=True)
    """Reference to the engine for deserialization, without secrets."""
    tokenizer_fn: Any = Field(default_factory=get_tokenizer, exclude=True, repr=False, frozen=True)
    _engine: MemoryEngine = PrivateAttr()
    _conversation: ChatConversation = PrivateAttr()

    def __init__(self, engine: MemoryEngine | None = None, **data: Any) -> None:  # noqa: ANN401 - the fields
        data.pop("class_name", None)  # part of the result of to_dict()
        if engine is None and not data.get("engine_reference"):
            raise InvalidInputError(
                "a TieredMemory needs an engine: pass engine=MemoryEngine('sqlite:///memory.db'), or use "
                "TieredMemory.from_defaults() for one in memory"
            )
        opened = resolve_engine(data.get("engine_reference")) if engine is None else check_engine(engine)
        data["engine_reference"] = build_engine_reference(opened)
        if data.get("tokenizer_fn") is None:
            data.pop("tokenizer_fn", None)
        super().__init__(**data)
        self.__dict__["namespace"] = list(
            self._resolve_namespace(self.user_id, self.namespace, self.session_id)
        )
        # The tokenizer is not part of the JSON. A memory that is restored in the same process gets it back from the
        # state of its conversation.
        turn = get_turn_registry(opened).get_turn(tuple(self.namespace), self.session_id)
        if engine is None and turn.tokenizer is not None:
            self.__dict__["tokenizer_fn"] = turn.tokenizer
        turn.tokenizer = self.tokenizer_fn
        turn.max_token_limit = max(turn.max_token_limit, self.token_limit)
        self._engine = opened
        self._conversation = ChatConversation(
            opened, tuple(self.namespace), self.session_id, get_token_count_cache(self.tokenizer_fn)
        )

    @field_validator("session_id")
    @classmethod
    def _check_session(cls, name: str) -> str:
        return check_name(name, "session id")

    @staticmethod
    def _resolve_namespace(user: str | None, namespace: Sequence[str], session_id: str) -> NamespacePath:
        if user is not None and namespace and list(namespace) != [user]:
            raise InvalidInputError(
                f"expected user_id or namespace, got user_id={user!r} and namespace={list(namespace)!r}: pass one of "
                "them"
            )
        labels = namespace or ([] if user is None else [user])
        return check_namespace(labels) if labels else resolve_namespace(None, session_id)

    @classmethod
    def class_name(cls) -> str:
        """Name of the class in serialized data."""
        return "TieredMemory"

    @classmethod
    def from_defaults(  # noqa: PLR0913 - the arguments of LlamaIndex's memories, and ours
        cls,
        chat_history: list[ChatMessage] | None = None,
        llm: LLM | None = None,
        token_limit: int | None = None,
        *,
        engine: MemoryEngine | None = None,
        session_id: str | None = None,
        user_id: str | None = None,
        namespace: str | Iterable[str] | None = None,
        insert_method: InsertMethod = "auto",
        recall: bool = True,
        tokenizer_fn: Callable[[str], Any] | None = None,
        chat_store: TieredSyncChatStore | None = None,
        chat_store_key: str | None = None,
        **kwargs: Any,  # noqa: ANN401 - rejected below
    ) -> Self:
        """Create a memory; also used by ``memory_cls=TieredMemory``.

        Args:
            chat_history: Messages that replace the conversation; an empty list changes nothing.
            llm: Model whose window determines the default of ``token_limit``.
            token_limit: Maximum number of tokens of a view.
            engine: Engine that stores the messages. Default: a new one in memory.
            session_id: Name of the conversation. Default: a new conversation.
            user_id: Owner of the conversation.
            namespace: Owner as a namespace.
            insert_method: Position of memories.
            recall: True to include knowledge and memories from other conversations.
            tokenizer_fn: Function from a text to its tokens.
            chat_store: A TieredSyncChatStore, as an alternative to ``engine`` and ``namespace``.
            chat_store_key: Alternative name of ``session_id``, as used with chat stores.
            **kwargs: Not accepted; a misspelled setting is an error.

        Raises:
            InvalidInputError: A setting is invalid.
        """
        if kwargs:
            raise InvalidInputError(f"Unexpected kwargs: {kwargs!r}: check the spelling, or omit them")
        if chat_store is not None:
            engine, namespace = _unpack_store(chat_store, engine, namespace)
        if session_id is None:
            session_id = uuid.uuid4().hex if chat_store_key is None else chat_store_key
        elif chat_store_key not in (None, session_id):
            raise InvalidInputError(
                f"expected session_id or chat_store_key, got session_id={session_id!r} and "
                f"chat_store_key={chat_store_key!r}: pass one of them"
            )
        if token_limit is None:
            token_limit = (
                DEFAULT_TOKEN_LIMIT if llm is None else int(llm.metadata.context_window * WINDOW_SHARE)
            )
        tokenizer = tokenizer_fn or get_tokenizer()
        memory = cls(
            engine=MemoryEngine(counter=LlamaIndexCounter(tokenizer)) if engine is None else engine,
            session_id=session_id,
            user_id=user_id,
            namespace=[] if namespace is None else list(check_namespace(namespace)),
            token_limit=token_limit,
            insert_method=insert_method,
            recall=recall,
            tokenizer_fn=tokenizer,
        )
        if chat_history:
            memory.set(chat_history)
        return memory

    @property
    def engine(self) -> MemoryEngine:
        """Engine that stores the messages."""
        return self._engine

    @property
    def unsaved(self) -> list[ChatMessage]:
        """Messages that are not stored yet, oldest first."""
        return self._conversation.unsaved

    @property
    def failures(self) -> int:
        """Number of failed writes of this conversation in this process."""
        return self._conversation.failures

    @dispatcher.span
    def get(self, input: object = None, initial_token_count: int = 0, **_: Any) -> list[ChatMessage]:  # noqa: A002, ANN401 - the framework's signature
        """Return the messages for the model, within the limit.

        Args:
            input: The question, if it is not part of the conversation yet: a text, a message or a query.
            initial_token_count: Tokens of the limit that are already used, such as by a system prompt.
            **_: Arguments of other memories; ignored.

        Raises:
            BudgetExceededError: ``initial_token_count`` exceeds the limit.
        """
        return self._conversation.render(self._build_request(input, initial_token_count))

    @dispatcher.span
    async def aget(self, input: object = None, initial_token_count: int = 0, **_: Any) -> list[ChatMessage]:  # noqa: A002, ANN401 - as above
        """Run ``get`` in a thread."""
        return await asyncio.to_thread(
            self._conversation.render, self._build_request(input, initial_token_count)
        )

    @dispatcher.span
    def get_all(self) -> list[ChatMessage]:
        """Return all messages of the conversation unchanged, independent of the limit.

        Raises:
            StorageError: The store failed; the messages in memory would be incomplete.
        """
        return self._conversation.messages()

    @dispatcher.span
    async def aget_all(self) -> list[ChatMessage]:
        """Run ``get_all`` in a thread."""
        return await asyncio.to_thread(self._conversation.messages)

    @dispatcher.span
    def put(self, message: ChatMessage) -> None:
        """Store one message; see ``put_messages``."""
        self._conversation.add([message])

    @dispatcher.span
    async def aput(self, message: ChatMessage) -> None:
        """Run ``put`` in a thread."""
        await asyncio.to_thread(self._conversation.add, [message])

    @dispatcher.span
    def put_messages(self, messages: list[ChatMessage]) -> None:
        """Store the messages, together with earlier unsaved messages, in one transaction.

        Raises:
            InvalidMessageError: One of them is not a message; nothing was stored.
        """
        self._conversation.add(_check_messages(messages))

    @dispatcher.span
    async def aput_messages(self, messages: list[ChatMessage]) -> None:
        """Run ``put_messages`` in a thread."""
        await asyncio.to_thread(self._conversation.add, _check_messages(messages))

    @dispatcher.span
    def set(self, messages: list[ChatMessage]) -> None:
        """Replace the messages of the conversation; an empty list starts a new one, as ``reset`` does.

        Messages in both lists are kept. Messages that are not in the new list leave the conversation, but stay stored,
        and recall may find them. If the store fails, the new list is used and kept for the next write; see
        ``unsaved``.

        Raises:
            InvalidMessageError: One of them is not a message; nothing was changed.
        """
        self._conversation.replace(_check_messages(messages))

    @dispatcher.span
    async def aset(self, messages: list[ChatMessage]) -> None:
        """Run ``set`` in a thread."""
        await asyncio.to_thread(self._conversation.replace, _check_messages(messages))

    @dispatcher.span
    def reset(self) -> None:
        """Start a new conversation. Earlier messages stay stored; ``forget`` erases them.

        Later conversations of the same user recall the earlier messages. A conversation without a user or a
        namespace does not recall them.

        Raises:
            StorageError: The store failed; the conversation is unchanged.
        """
        self._conversation.reset()

    @dispatcher.span
    async def areset(self) -> None:
        """Run ``reset`` in a thread."""
        await asyncio.to_thread(self._conversation.reset)

    def forget(self) -> int:
        """Erase the conversation, including messages from before a reset, and return the number of messages.

        Raises:
            StorageError: The store failed; call it again.
        """
        return self._conversation.delete()

    async def aforget(self) -> int:
        """Run ``forget`` in a thread."""
        return await asyncio.to_thread(self._conversation.delete)

    def to_dict(self, **_: Any) -> dict[str, Any]:  # noqa: ANN401 - the framework's signature
        """Serialize names and settings, without messages and secrets."""
        return self.model_dump(mode="json")

    @classmethod
    def from_dict(cls, data: dict[str, Any], **kwargs: Any) -> Self:  # noqa: ANN401 - fields to override
        """Restore a memory from the result of ``to_dict``, on its original engine.

        Raises:
            InvalidInputError: The data is not from ``to_dict``, or the engine was in memory and no longer exists.
            StorageUnavailableError: The database cannot be opened.
        """
        if not isinstance(data, dict):
            raise InvalidInputError(
                f"expected the dict returned by to_dict(), got {type(data).__name__}: pass the whole dict"
            )
        return cls(**{**data, **kwargs})

    def to_string(self) -> str:
        """Serialize the memory as a JSON text; see ``to_dict``."""
        return json.dumps(self.to_dict())

    @classmethod
    def from_string(cls, json_str: str) -> Self:
        """Restore a memory from the result of ``to_string``."""
        return cls.from_dict(json.loads(json_str))

    def _build_request(self, question: object, taken: int) -> ViewRequest:
        if taken < 0:
            raise InvalidInputError(
                f"initial_token_count must not be negative, got {taken!r}: pass 0 or more"
            )
        if taken > self.token_limit:
            # Callers may compare the message with LlamaIndex's, so our details go into a note.
            error = BudgetExceededError(OVER_LIMIT_MESSAGE)
            error.add_note(
                f"{taken} of {self.token_limit} tokens are already used: raise token_limit or shorten the prompt"
            )
            raise error
        return ViewRequest(
            query=get_query_text(question),
            limit=self.token_limit - taken,
            insert=self.insert_method,
            recall=self.recall,
        )

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:  # noqa: ARG002 - the framework's signature
        """Return a memory on the same engine, with updated fields."""
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        if self.user_id is not None or tuple(self.namespace) == resolve_namespace(None, self.session_id):
            del fields["namespace"]  # derived from the other fields, which may be updated
        return type(self)(engine=self._engine, **{**fields, **(update or {})})

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        return self  # agents deep-copy their state: the copy must be the same conversation

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore_memory, (type(self), self.to_dict())


def get_query_text(query: object) -> str | None:
    """Return the text of a question as passed by chat engines and agents; None if it is empty."""
    if isinstance(query, ChatMessage):
        query = query.content
    text = getattr(query, "query_str", query)  # a QueryBundle, or a text
    return text if isinstance(text, str) and text.strip() else None


def _check_messages(messages: object) -> Sequence[ChatMessage]:
    if isinstance(messages, ChatMessage | str) or not isinstance(messages, list | tuple):
        raise InvalidInputError(
            f"messages must be a list of ChatMessage, got {type(messages).__name__}: use put() for one message"
        )
    return messages


def _unpack_store(
    store: object, engine: MemoryEngine | None, namespace: object
) -> tuple[MemoryEngine, NamespacePath | None]:
    if not isinstance(store, TieredSyncChatStore):
        raise InvalidInputError(
            f"chat_store must be a TieredSyncChatStore, got {type(store).__name__}: pass one, or use engine="
        )
    if engine is not None or namespace is not None:
        raise InvalidInputError("a chat store has its own engine and namespace: omit engine and namespace")
    return store.engine, None if store.namespace is None else tuple(store.namespace)


def _restore_memory(kind: type[TieredMemory], data: dict[str, Any]) -> TieredMemory:
    return kind.from_dict(data)
