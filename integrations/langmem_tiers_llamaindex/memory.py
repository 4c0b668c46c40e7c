"""Memory for chat engines and agents."""

from __future__ import annotations

import asyncio
import json
import uuid
from typing import TYPE_CHECKING, Any, Self

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.memory.types import BaseMemory
from llama_index.core.utils import get_tokenizer
from pydantic import ConfigDict, Field, PrivateAttr, field_validator

from langmem_tiers.common.namespaces import check_name, check_namespace
from langmem_tiers.engine import MemoryEngine
from langmem_tiers.errors import BudgetExceededError, InvalidInputError
from langmem_tiers.integration_kit.argument_checks import check_engine, resolve_namespace
from langmem_tiers_llamaindex.conversation import ChatConversation
from langmem_tiers_llamaindex.conversation_view import ViewRequest
from langmem_tiers_llamaindex.engines import build_engine_reference, resolve_engine
from langmem_tiers_llamaindex.events import dispatcher
from langmem_tiers_llamaindex.layout import InsertMethod  # noqa: TC001 - pydantic reads it
from langmem_tiers_llamaindex.sync_chat_store import TieredSyncChatStore
from langmem_tiers_llamaindex.token_count_cache import get_token_count_cache
from langmem_tiers_llamaindex.token_counter import LlamaIndexCounter
from langmem_tiers_llamaindex.turn_state import get_turn_registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from llama_index.core.llms.llm import LLM

    from langmem_tiers.common.namespaces import NamespacePath

DEFAULT_TOKEN_LIMIT = 30_000
"""As LlamaIndex's own memory has it."""
WINDOW_SHARE = 0.75
"""Of a model's window, where a model is given and no limit."""
OVER_LIMIT_MESSAGE = "Initial token count exceeds token limit"
"""What LlamaIndex's own memories say then, word by word."""


class TieredMemory(BaseMemory):
    """Memory of one conversation, for ``memory=`` of every chat engine and agent.

    A model is shown as much of the conversation as ``token_limit`` holds, older messages in fewer words or behind a
    summary, and what answers the newest question from other conversations of the same user. Nothing that was said is
    taken out of the record. If the store fails, the turn goes on; see ``unsaved`` and ``failures``.

    The object holds no messages: all of them are in the engine. So it may be copied, written down as JSON and read
    again, by this process or by another one.

    Args:
        engine: Where the messages are. ``from_defaults`` makes one in memory, if left out.
        session_id: The conversation; a new one, if left out.
        user_id: Whose it is; recall reaches all conversations of that user.
        namespace: Whose it is, where a user is not enough, such as ``["acme", "alice"]``. Without a user and a
            namespace, the conversation recalls from no other.
        token_limit: What a view may take, by ``tokenizer_fn``.
        insert_method: Where memories stand: in a ``system`` message, in front of the newest question (``user``), or
            where every agent sees them (``auto``).
        recall: Whether what is known and what was said elsewhere comes along.
        tokenizer_fn: From a text to its tokens; LlamaIndex's global one, if left out. It is not written down: another
            process counts by its global one.

    Raises:
        ValidationError: Pydantic's, a ``ValueError``: a name is empty, a limit is no number above 0.
        InvalidInputError: There is no engine.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    # What says where the messages are cannot be changed: that would be another memory.
    session_id: str = Field(default_factory=lambda: uuid.uuid4().hex, frozen=True)
    user_id: str | None = Field(default=None, frozen=True)
    namespace: list[str] = Field(default_factory=list, frozen=True)
    token_limit: int = Field(default=DEFAULT_TOKEN_LIMIT, gt=0, strict=True)
    insert_method: InsertMethod = "auto"
    recall: bool = True
    engine_reference: dict[str, str | None] = Field(default_factory=dict, frozen=True)
    """Where the engine is found again; without secrets."""
    tokenizer_fn: Any = Field(default_factory=get_tokenizer, exclude=True, repr=False, frozen=True)
    _engine: MemoryEngine = PrivateAttr()
    _conversation: ChatConversation = PrivateAttr()

    def __init__(self, engine: MemoryEngine | None = None, **data: Any) -> None:  # noqa: ANN401 - the fields
        data.pop("class_name", None)  # of what to_dict() gave
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
                f"whose memory it is was told twice, as user_id={user!r} and namespace={list(namespace)!r}: pass one"
            )
        given = namespace or ([] if user is None else [user])
        return check_namespace(given) if given else resolve_namespace(None, session_id)

    @classmethod
    def class_name(cls) -> str:
        """Its name in what is written down."""
        return "TieredMemory"

    @classmethod
    def from_defaults(  # noqa: PLR0913 - what the memories of LlamaIndex take, and ours
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
        **kwargs: Any,  # noqa: ANN401 - refused below
    ) -> Self:
        """A memory; also as ``memory_cls=TieredMemory``.

        Args:
            chat_history: What the conversation is to be, in place of what it was; an empty list changes nothing.
            llm: Its window decides the limit, if none is given.
            token_limit: What a view may take.
            engine: Where the messages are; one in memory, if left out.
            session_id: The conversation; a new one, if left out.
            user_id: Whose it is.
            namespace: Whose it is, where a user is not enough.
            insert_method: Where memories stand.
            recall: Whether what is known and what was said elsewhere comes along.
            tokenizer_fn: From a text to its tokens.
            chat_store: One of ours, in place of an engine and a namespace.
            chat_store_key: The same as ``session_id``, as it is called with a store.
            **kwargs: Nothing; a misspelled setting is an error.

        Raises:
            InvalidInputError: A setting makes no sense.
        """
        if kwargs:
            raise InvalidInputError(f"Unexpected kwargs: {kwargs!r}: check the spelling, or leave them out")
        if chat_store is not None:
            engine, namespace = _unpack_store(chat_store, engine, namespace)
        if session_id is None:
            session_id = uuid.uuid4().hex if chat_store_key is None else chat_store_key
        elif chat_store_key not in (None, session_id):
            raise InvalidInputError(
                f"the conversation was named twice, as session_id={session_id!r} and "
                f"chat_store_key={chat_store_key!r}: pass one"
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
        """Where the messages are."""
        return self._engine

    @property
    def unsaved(self) -> list[ChatMessage]:
        """What the store did not take yet, oldest first."""
        return self._conversation.unsaved

    @property
    def failures(self) -> int:
        """How many writes of this conversation failed in this process."""
        return self._conversation.failures

    @dispatcher.span
    def get(self, input: object = None, initial_token_count: int = 0, **_: Any) -> list[ChatMessage]:  # noqa: A002, ANN401 - the framework's signature
        """What the model is shown, within the limit.

        Args:
            input: The question, if it is not in the conversation yet: a text, a message or a query.
            initial_token_count: What of the limit is taken already, such as by a system prompt.
            **_: What other memories take.

        Raises:
            BudgetExceededError: More is taken already than there is.
        """
        return self._conversation.render(self._build_request(input, initial_token_count))

    @dispatcher.span
    async def aget(self, input: object = None, initial_token_count: int = 0, **_: Any) -> list[ChatMessage]:  # noqa: A002, ANN401 - as above
        """What the model is shown; see ``get``."""
        return await asyncio.to_thread(
            self._conversation.render, self._build_request(input, initial_token_count)
        )

    @dispatcher.span
    def get_all(self) -> list[ChatMessage]:
        """All messages of the conversation as they were said, whatever the limit.

        Raises:
            StorageError: The store failed: what is held would be a part only.
        """
        return self._conversation.messages()

    @dispatcher.span
    async def aget_all(self) -> list[ChatMessage]:
        """All messages of the conversation; see ``get_all``."""
        return await asyncio.to_thread(self._conversation.messages)

    @dispatcher.span
    def put(self, message: ChatMessage) -> None:
        """Store a message; see ``put_messages``."""
        self._conversation.add([message])

    @dispatcher.span
    async def aput(self, message: ChatMessage) -> None:
        """Store a message; see ``put_messages``."""
        await asyncio.to_thread(self._conversation.add, [message])

    @dispatcher.span
    def put_messages(self, messages: list[ChatMessage]) -> None:
        """Store the messages in one transaction, with what could not be stored before.

        Raises:
            InvalidMessageError: One of them is no message; nothing was stored.
        """
        self._conversation.add(_check_messages(messages))

    @dispatcher.span
    async def aput_messages(self, messages: list[ChatMessage]) -> None:
        """Store the messages; see ``put_messages``."""
        await asyncio.to_thread(self._conversation.add, _check_messages(messages))

    @dispatcher.span
    def set(self, messages: list[ChatMessage]) -> None:
        """Put another list in the place of this conversation; an empty one begins it anew, as ``reset`` does.

        What both have stays as it is. What is no longer there stays in the record, where recall may find it. If the
        store fails, the list is the conversation all the same, and waits to be stored; see ``unsaved``.

        Raises:
            InvalidMessageError: One of them is no message; nothing was changed.
        """
        self._conversation.replace(_check_messages(messages))

    @dispatcher.span
    async def aset(self, messages: list[ChatMessage]) -> None:
        """Put another list in the place of this conversation; see ``set``."""
        await asyncio.to_thread(self._conversation.replace, _check_messages(messages))

    @dispatcher.span
    def reset(self) -> None:
        """Begin the conversation anew. What was said stays in the record; ``forget`` erases.

        The user's memory keeps it as well: later conversations recall it. A conversation that belongs to no user
        recalls nothing of what was said before.

        Raises:
            StorageError: The store failed; the conversation goes on.
        """
        self._conversation.reset()

    @dispatcher.span
    async def areset(self) -> None:
        """Begin the conversation anew; see ``reset``."""
        await asyncio.to_thread(self._conversation.reset)

    def forget(self) -> int:
        """Erase the conversation with all that was said before it was reset; how many messages that were.

        Raises:
            StorageError: The store failed; call it again.
        """
        return self._conversation.delete()

    async def aforget(self) -> int:
        """Erase the conversation; see ``forget``."""
        return await asyncio.to_thread(self._conversation.delete)

    def to_dict(self, **_: Any) -> dict[str, Any]:  # noqa: ANN401 - the framework's signature
        """What it takes to have this memory again: names and settings, no messages and no secret."""
        return self.model_dump(mode="json")

    @classmethod
    def from_dict(cls, data: dict[str, Any], **kwargs: Any) -> Self:  # noqa: ANN401 - fields to have otherwise
        """The memory that was written down, on the engine that it was on.

        Raises:
            InvalidInputError: That is nothing that was written down, or its engine was in memory and is gone.
            StorageUnavailableError: Its database does not open.
        """
        if not isinstance(data, dict):
            raise InvalidInputError(
                f"a {type(data).__name__} is nothing that to_dict() gave: pass the whole dict"
            )
        return cls(**{**data, **kwargs})

    def to_string(self) -> str:
        """The same as a text."""
        return json.dumps(self.to_dict())

    @classmethod
    def from_string(cls, json_str: str) -> Self:
        """The memory of that text."""
        return cls.from_dict(json.loads(json_str))

    def _build_request(self, asked: object, taken: int) -> ViewRequest:
        if taken < 0:
            raise InvalidInputError(
                f"initial_token_count must not be negative, got {taken!r}: pass 0 or more"
            )
        if taken > self.token_limit:
            error = BudgetExceededError(OVER_LIMIT_MESSAGE)
            error.add_note(
                f"{taken} tokens are taken of {self.token_limit}: raise token_limit or shorten the prompt"
            )
            raise error
        return ViewRequest(
            query=get_query_text(asked),
            limit=self.token_limit - taken,
            insert=self.insert_method,
            recall=self.recall,
        )

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:  # noqa: ARG002 - the framework's signature
        """This memory once more; with other fields, the memory that they name, on the same engine."""
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        if self.user_id is not None or tuple(self.namespace) == resolve_namespace(None, self.session_id):
            del fields["namespace"]  # it follows from the others
        return type(self)(engine=self._engine, **{**fields, **(update or {})})

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        return self  # agents copy their state with all memory in it: it is the same conversation

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore_memory, (type(self), self.to_dict())


def get_query_text(asked: object) -> str | None:
    """What a question says, as chat engines and agents hand it in; None if it says nothing."""
    if isinstance(asked, ChatMessage):
        asked = asked.content
    text = getattr(asked, "query_str", asked)
    return text if isinstance(text, str) and text.strip() else None


def _check_messages(messages: object) -> Sequence[ChatMessage]:
    if isinstance(messages, ChatMessage | str) or not isinstance(messages, list | tuple):
        raise InvalidInputError(
            f"messages must be a list of ChatMessage, got a {type(messages).__name__}: use put() for one message"
        )
    return messages


def _unpack_store(
    store: object, engine: MemoryEngine | None, namespace: object
) -> tuple[MemoryEngine, NamespacePath | None]:
    if not isinstance(store, TieredSyncChatStore):
        raise InvalidInputError(
            f"a {type(store).__name__} keeps messages elsewhere: pass a TieredSyncChatStore, or engine="
        )
    if engine is not None or namespace is not None:
        raise InvalidInputError(
            "a chat store has an engine and a namespace of its own: leave engine and namespace out"
        )
    return store.engine, None if store.namespace is None else tuple(store.namespace)


def _restore_memory(kind: type[TieredMemory], data: dict[str, Any]) -> TieredMemory:
    return kind.from_dict(data)
