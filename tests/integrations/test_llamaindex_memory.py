"""TieredMemory as chat engines and agents use it."""

from __future__ import annotations

import asyncio
import uuid
import warnings
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError

from langmem_tiers import (
    InvalidInputError,
    InvalidMessageError,
    InvalidNameError,
    MemoryEngine,
    StorageError,
)
from langmem_tiers.testing import FrozenClock, HashEmbedder, seeded_ids

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what the framework warns of as it loads is not ours
    from llama_index.core.base.base_retriever import BaseRetriever
    from llama_index.core.base.llms.types import (
        ChatMessage,
        ChatResponse,
        CitableBlock,
        ImageBlock,
        MessageRole,
        TextBlock,
        ToolCallBlock,
    )
    from llama_index.core.chat_engine import (
        CondensePlusContextChatEngine,
        CondenseQuestionChatEngine,
        ContextChatEngine,
        SimpleChatEngine,
    )
    from llama_index.core.instrumentation.event_handlers import BaseEventHandler
    from llama_index.core.llms import MockLLM
    from llama_index.core.memory import BaseMemory, ChatMemoryBuffer
    from llama_index.core.query_engine import RetrieverQueryEngine
    from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
    from llama_index.core.storage.chat_store import SimpleChatStore

    from langmem_tiers_llamaindex import (
        MemoryFailedEvent,
        MemoryRetrievedEvent,
        MemoryStoredEvent,
        TieredMemory,
        TieredSyncChatStore,
        message_tokens,
    )
    from langmem_tiers_llamaindex.events import dispatcher
    from langmem_tiers_llamaindex.memory import OVER_LIMIT_MESSAGE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

WAYS = ("", "a")
INSERTS = ("auto", "system", "user")
CAT = "My cat is called Pixel."
ASK = "What is my cat called?"
LONG = "The plan for the garden is long, and nobody has read it to its end. " * 6


def user(text: str) -> ChatMessage:
    return ChatMessage(text, role="user")


def assistant(text: str) -> ChatMessage:
    return ChatMessage(text, role="assistant")


def system(text: str) -> ChatMessage:
    return ChatMessage(text, role="system")


def call(number: int | str, **arguments: Any) -> ChatMessage:
    block = ToolCallBlock(tool_call_id=f"c{number}", tool_name="look_up", tool_kwargs=arguments)
    return ChatMessage(role="assistant", blocks=[block])


def result(number: int | str, text: str) -> ChatMessage:
    return ChatMessage(text, role="tool", additional_kwargs={"tool_call_id": f"c{number}"})


def texts(messages: Sequence[ChatMessage]) -> list[str | None]:
    return [message.content for message in messages]


def roles(messages: Sequence[ChatMessage]) -> list[str]:
    return [message.role.value for message in messages]


def count_tokens(memory: TieredMemory, messages: Sequence[ChatMessage]) -> int:
    return sum(message_tokens(message, lambda text: len(memory.tokenizer_fn(text))) for message in messages)


async def call_method(memory: TieredMemory, way: str, name: str, *args: Any, **kwargs: Any) -> Any:
    """Call a method or its async variant."""
    found = getattr(memory, f"{way}{name}")(*args, **kwargs)
    return await found if way else found


class EventRecorder(BaseEventHandler):
    """Record the events of memory."""

    events: list[Any] = []  # noqa: RUF012 - pydantic copies it

    @classmethod
    def class_name(cls) -> str:
        return "EventRecorder"

    def handle(self, event: Any, **_: Any) -> None:
        if isinstance(event, MemoryRetrievedEvent | MemoryStoredEvent | MemoryFailedEvent):
            self.events.append(event)

    def list_events(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


@pytest.fixture
def recorder() -> Iterator[EventRecorder]:
    handler = EventRecorder()
    dispatcher.add_event_handler(handler)
    yield handler
    dispatcher.event_handlers.remove(handler)


class CountingEmbedder(HashEmbedder):
    """Embedder that records its queries."""

    def __init__(self) -> None:
        super().__init__()
        self.queries: list[str] = []

    def embed_query(self, text: str) -> NDArray[Any]:
        self.queries.append(text)
        return super().embed_query(text)


@pytest.fixture
def small() -> Iterator[MemoryEngine]:
    with MemoryEngine(clock=FrozenClock(), ids=seeded_ids()) as engine:
        yield engine


def create_memory(
    engine: MemoryEngine, session: str = "s", user_id: str | None = "u", **settings: Any
) -> TieredMemory:
    return TieredMemory.from_defaults(engine=engine, session_id=session, user_id=user_id, **settings)


# --- building one


def test_a_tiered_memory_is_a_base_memory_and_always_truthy(small: MemoryEngine) -> None:
    memory = create_memory(small)
    assert isinstance(memory, BaseMemory)
    assert memory.class_name() == "TieredMemory"
    assert bool(memory) is True  # engines and agents write "memory or default"


def test_memories_with_defaults_are_separate_conversations() -> None:
    first, second = TieredMemory.from_defaults(), TieredMemory.from_defaults()
    assert first.session_id != second.session_id
    assert (first.token_limit, first.insert_method, first.recall) == (30_000, "auto", True)
    first.put(user(CAT))
    second.put(user(ASK))
    assert texts(second.get()) == [ASK]
    assert first.engine.counter.count("x y z") == len(first.tokenizer_fn("x y z"))
    for memory in (first, second):
        memory.engine.close()


@pytest.mark.parametrize("kind", [SimpleChatEngine, CondenseQuestionChatEngine])
async def test_chat_engines_create_a_memory_from_the_class(kind: Any) -> None:
    # In a loop, as below: without one, the framework makes one that it does not close.
    llm = MockLLM()
    query_engine = RetrieverQueryEngine.from_args(StaticRetriever(), llm=llm)
    options = {"query_engine": query_engine} if kind is CondenseQuestionChatEngine else {}
    chat = kind.from_defaults(llm=llm, memory_cls=TieredMemory, **options)
    memory = chat._memory
    assert isinstance(memory, TieredMemory)
    assert memory.token_limit == llm.metadata.context_window - 256
    chat.chat("Hello")
    assert len(chat.chat_history) == 2
    memory.engine.close()


def test_an_empty_history_keeps_the_stored_one_and_a_full_one_replaces_it(small: MemoryEngine) -> None:
    create_memory(small).put(user("one"))
    assert texts(create_memory(small, chat_history=[]).get_all()) == ["one"]
    assert texts(create_memory(small, chat_history=None).get_all()) == ["one"]
    assert texts(create_memory(small, chat_history=[user("two")]).get_all()) == ["two"]


def test_the_default_limit_comes_from_the_model(small: MemoryEngine) -> None:
    llm = MockLLM()
    window = llm.metadata.context_window
    assert create_memory(small, llm=llm).token_limit == int(window * 0.75)
    assert create_memory(small, llm=llm, token_limit=77).token_limit == 77
    assert TieredMemory.from_defaults([], llm, 78, engine=small).token_limit == 78


def test_a_memory_uses_engine_namespace_and_messages_of_its_chat_store(small: MemoryEngine) -> None:
    for namespace in (None, ["acme", "mara"]):
        store = TieredSyncChatStore(small, namespace=namespace)
        store.add_message("k", user("one"))
        memory = TieredMemory.from_defaults(chat_store=store, chat_store_key="k")
        assert memory.engine is small
        assert texts(memory.get_all()) == ["one"]
        memory.put(assistant("two"))
        assert texts(store.get_messages("k")) == ["one", "two"]


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"token_limit": 0}, ValidationError, "greater than 0"),
        ({"token_limit": -5}, ValidationError, "greater than 0"),
        ({"token_limit": 1.5}, ValidationError, "token_limit"),
        ({"token_limit": "many"}, ValidationError, "token_limit"),
        ({"token_limit": True}, ValidationError, "token_limit"),
        ({"session_id": ""}, ValidationError, "session id must not be empty"),
        ({"session_id": 5}, ValidationError, "session_id"),
        ({"session_id": "x" * 2000}, ValidationError, "at most 1024 bytes"),
        ({"chat_store_key": ""}, ValidationError, "session id must not be empty"),
        (
            {"session_id": "a", "chat_store_key": "b"},
            InvalidInputError,
            "got session_id='a' and chat_store_key='b'",
        ),
        ({"user_id": ""}, InvalidNameError, "must not be empty"),
        ({"namespace": []}, InvalidNameError, "needs at least one label"),
        ({"namespace": ["a", ""]}, InvalidNameError, "must not be empty"),
        ({"user_id": "mara", "namespace": "acme"}, InvalidInputError, "got user_id='mara' and namespace="),
        ({"insert_method": "assistant"}, ValidationError, "insert_method"),
        ({"tokenizer_fn": "cl100k"}, InvalidInputError, "expected a tokenizer, got str"),
        ({"tokenizer_fn": lambda text: text}, InvalidInputError, "list of its tokens"),
        ({"engine": "sqlite://"}, InvalidInputError, "expected a MemoryEngine, got str"),
        (
            {"chat_store": SimpleChatStore()},
            InvalidInputError,
            "must be a TieredSyncChatStore, got SimpleChatStore",
        ),
        ({"tokenlimit": 5}, InvalidInputError, "Unexpected kwargs: {'tokenlimit': 5}: check the spelling"),
        ({"memory_blocks": []}, InvalidInputError, "Unexpected kwargs"),
        ({"chat_history": [user("x"), "y"]}, InvalidMessageError, "expected a LlamaIndex message, got str"),
    ],
)
def test_invalid_settings_are_rejected_at_construction(
    small: MemoryEngine, settings: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words) as caught:
        TieredMemory.from_defaults(**{"engine": small, **settings})
    assert isinstance(caught.value, ValueError)


def test_a_chat_store_cannot_be_combined_with_an_engine_or_a_user(small: MemoryEngine) -> None:
    store = TieredSyncChatStore(small, namespace=["acme"])
    with pytest.raises(InvalidInputError, match="has its own engine and namespace"):
        TieredMemory.from_defaults(chat_store=store, engine=small)
    with pytest.raises(InvalidInputError, match="expected user_id or namespace"):
        TieredMemory.from_defaults(chat_store=store, user_id="mara")


def test_the_error_without_an_engine_names_the_next_step() -> None:
    with pytest.raises(InvalidInputError, match="pass engine=MemoryEngine"):
        TieredMemory(session_id="s")
    with MemoryEngine() as engine, pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        TieredMemory(engine=engine, sesion_id="s")


def test_a_user_id_is_the_same_as_a_namespace_of_one_label(small: MemoryEngine) -> None:
    assert create_memory(small, user_id="mara").namespace == ["mara"]
    assert create_memory(small, user_id="mara", namespace="mara").namespace == ["mara"]
    assert create_memory(small, user_id=None, namespace=("acme", "mara")).namespace == ["acme", "mara"]
    assert create_memory(small, user_id=None).namespace == ["chat", "s"]


@pytest.mark.parametrize("name", ["session_id", "user_id", "namespace", "engine_reference", "tokenizer_fn"])
def test_fields_that_locate_the_messages_are_frozen(small: MemoryEngine, name: str) -> None:
    memory = create_memory(small)
    with pytest.raises(ValidationError, match="frozen"):
        setattr(memory, name, getattr(memory, name))


def test_settings_can_be_changed_and_a_copy_has_separate_settings(small: MemoryEngine) -> None:
    memory = create_memory(small)
    other = memory.model_copy(update={"token_limit": 500})
    assert (memory.token_limit, other.token_limit) == (30_000, 500)
    memory.recall = False
    create_memory(small, "before").put(user(CAT))
    memory.put(user(ASK))
    assert texts(memory.get()) == [ASK]
    assert "Pixel" in str(other.get())


# --- storing and reading


@pytest.mark.parametrize("way", WAYS)
async def test_stored_messages_come_back_by_sync_and_async_methods(
    engine: MemoryEngine, tenant: str, way: str
) -> None:
    memory = create_memory(engine, user_id=tenant)
    messages = [
        system("Be brief."),
        user("Look it up."),
        call(1, what="cat"),
        result(1, "a cat"),
        ChatMessage(
            role="assistant", blocks=[TextBlock(text="A cat."), ImageBlock(url="https://x.example/a.png")]
        ),
    ]
    await call_method(memory, way, "put", messages[0])
    await call_method(memory, way, "put_messages", messages[1:4])
    await call_method(memory, way, "put_messages", [])
    await call_method(memory, way, "put", messages[4])
    assert await call_method(memory, way, "get_all") == messages
    assert await call_method(memory, way, "get") == messages
    assert create_memory(engine, user_id=tenant).get_all() == messages
    await call_method(memory, way, "set", messages[:2])
    assert await call_method(memory, way, "get_all") == messages[:2]
    await call_method(memory, way, "reset")
    assert await call_method(memory, way, "get_all") == []
    await call_method(memory, way, "put", user("again"))
    assert await call_method(memory, way, "forget") == 6
    assert await call_method(memory, way, "get") == []
    assert await call_method(memory, way, "forget") == 0


@pytest.mark.parametrize("way", WAYS)
async def test_invalid_messages_are_rejected_and_nothing_is_stored(small: MemoryEngine, way: str) -> None:
    memory = create_memory(small)
    with pytest.raises(InvalidMessageError, match="expected a LlamaIndex message, got str"):
        await call_method(memory, way, "put", "hello")
    for name in ("put_messages", "set"):
        with pytest.raises(InvalidMessageError, match="expected a LlamaIndex message, got NoneType"):
            await call_method(memory, way, name, [user("x"), None])
        for value in ("hello", user("x"), None, {"role": "user"}, 5):
            with pytest.raises(InvalidInputError, match="must be a list of ChatMessage"):
                await call_method(memory, way, name, value)
    assert await call_method(memory, way, "get_all") == []


def test_changing_a_returned_message_does_not_change_the_memory(small: MemoryEngine) -> None:
    memory = create_memory(small)
    memory.put_messages([system("Be brief."), user("kept")])
    for shown in (memory.get(), memory.get_all()):
        shown[0].blocks.append(TextBlock(text="more"))
        shown[1].additional_kwargs["x"] = 1
        shown.clear()
    assert memory.get_all() == memory.get() == [system("Be brief."), user("kept")]


def test_changing_a_passed_message_does_not_change_the_memory(small: MemoryEngine) -> None:
    memory, message = create_memory(small), user("kept")
    memory.put(message)
    message.blocks[0] = TextBlock(text="changed")
    assert texts(memory.get_all()) == texts(memory.get()) == ["kept"]


def test_kwargs_of_other_memories_are_accepted(small: MemoryEngine) -> None:
    memory = create_memory(small)
    memory.put(user("x"))
    for query in (None, "", "  ", "x", user("x"), ChatMessage(role="user"), QueryBundle("x"), 5, ["x"]):
        assert texts(memory.get(query, session_id="y", top_k=3)) == ["x"]


@pytest.mark.parametrize("way", WAYS)
async def test_an_initial_token_count_above_the_limit_raises_like_the_shipped_memories(
    small: MemoryEngine, way: str
) -> None:
    memory = create_memory(small, token_limit=100)
    memory.put(user("x"))
    with pytest.raises(ValueError, match=OVER_LIMIT_MESSAGE) as our_error:
        await call_method(memory, way, "get", initial_token_count=101)
    shipped = ChatMemoryBuffer.from_defaults(token_limit=100)
    with pytest.raises(ValueError, match=OVER_LIMIT_MESSAGE) as their_error:
        shipped.get(initial_token_count=101)
    assert str(our_error.value) == str(their_error.value) == OVER_LIMIT_MESSAGE
    assert texts(await call_method(memory, way, "get", initial_token_count=100)) == ["x"]


def test_the_initial_token_count_reduces_the_view(small: MemoryEngine) -> None:
    memory = create_memory(small, token_limit=1000, recall=False)
    memory.put_messages([user(f"{n}: {LONG}") for n in range(20)])
    wide, narrow = memory.get(), memory.get(initial_token_count=600)
    assert count_tokens(memory, narrow) <= 400 < count_tokens(memory, wide) <= 1000
    assert texts(narrow)[-1] == f"19: {LONG}"


def test_a_tokenizer_that_rejects_some_texts_does_not_end_the_turn(small: MemoryEngine) -> None:
    import tiktoken

    memory = create_memory(small, tokenizer_fn=tiktoken.get_encoding("cl100k_base").encode)
    memory.put_messages([user("<|endoftext|>"), user("lone \ud83d")])
    assert texts(memory.get()) == ["<|endoftext|>", "lone \ud83d"]


# --- another list


@pytest.mark.parametrize("way", WAYS)
async def test_setting_a_list_stores_only_its_new_messages(
    engine: MemoryEngine, tenant: str, way: str, recorder: EventRecorder
) -> None:
    memory = create_memory(engine, user_id=tenant)
    messages = [system("Be brief."), user("one"), call(1, a=1), result(1, "x"), assistant("two"), user("one")]
    await call_method(memory, way, "set", messages)
    record = engine.session(tenant, "s")
    ids = [message.id for message in record.messages()]
    for _ in range(3):
        await call_method(memory, way, "set", await call_method(memory, way, "get_all"))
    assert [message.id for message in record.messages()] == ids
    await call_method(memory, way, "set", [*messages, assistant("three")])
    assert [message.id for message in record.messages()][:-1] == ids
    assert memory.get_all() == [*messages, assistant("three")]
    assert [event.messages for event in recorder.list_events(MemoryStoredEvent)] == [6, 1]


@pytest.mark.parametrize(
    ("new", "stored"),
    [
        (["one", "two"], 4),
        (["one", "two", "three", "five"], 5),
        (["one", "two", "three", "four", "five"], 5),
        (["two", "one"], 5),
        (["four"], 4),
        (["zero", "one", "two", "three", "four"], 9),
        (["one", "one"], 5),
        (["five"], 5),
    ],
    ids=str,
)
def test_a_list_that_was_set_is_the_conversation_and_the_record_keeps_the_former(
    small: MemoryEngine, new: list[str], stored: int
) -> None:
    memory = create_memory(small)
    memory.put_messages([user(text) for text in ("one", "two", "three", "four")])
    memory.set([user(text) for text in new])
    assert texts(memory.get_all()) == texts(create_memory(small, recall=False).get()) == new
    record = [message.content for message in small.session("u", "s").messages()]
    assert record[:4] == ["one", "two", "three", "four"]
    assert len(record) == stored
    memory.put(user("next"))
    assert texts(memory.get_all()) == [*new, "next"]


def test_setting_a_list_keeps_the_summary_of_unchanged_messages(small: MemoryEngine) -> None:
    memory = create_memory(small, recall=False)
    messages = [user(f"message {n}") for n in range(8)]
    memory.put_messages(messages)
    session = small.session("u", "s")
    session.compress(session.latest(2)[0].id, "Six messages were counted.")
    assert "Six messages were counted." in str(memory.get())
    memory.set(messages)
    memory.set([*messages, user("message 8")])
    assert (session.count(), memory.get_all()) == (10, [*messages, user("message 8")])
    assert "Six messages were counted." in str(memory.get())
    memory.set([*messages, user("message 9")])
    assert "Six messages were counted." in str(memory.get())
    assert memory.get_all() == [*messages, user("message 9")]
    memory.set([user("other"), *messages[2:]])  # what the summary tells of is no longer there
    assert memory.get_all() == memory.get() == [user("other"), *messages[2:]]
    assert memory.forget() == 11 + 7


def test_a_question_removed_from_the_list_can_be_asked_again(
    small: MemoryEngine,
) -> None:
    create_memory(small, "before").put_messages([user(CAT), user("My house is painted green.")])
    memory = create_memory(small)
    messages = [user("Is my house green?"), assistant("Yes."), user(ASK), assistant("Tom.")]
    memory.put_messages(messages)
    memory.set(messages[:2])  # to have the second question answered once more
    assert memory.get_all() == messages[:2]
    event = get_retrieved_event(memory, ASK)
    assert event.query == ASK
    assert "Pixel" in texts(memory.get(ASK))[0]  # type: ignore[operator]
    assert small.namespace("u").recall(ASK).hits[0].entry.id in event.recalled


def get_retrieved_event(memory: TieredMemory, question: str) -> Any:
    handler = EventRecorder()
    dispatcher.add_event_handler(handler)
    memory.get(question)
    dispatcher.event_handlers.remove(handler)
    (event,) = handler.list_events(MemoryRetrievedEvent)
    return event


# --- reset and forgotten


@pytest.mark.parametrize("way", WAYS)
async def test_after_a_reset_the_messages_of_a_user_are_still_recalled(
    engine: MemoryEngine, tenant: str, way: str
) -> None:
    memory = create_memory(engine, user_id=tenant)
    memory.put(user(CAT))
    await call_method(memory, way, "reset")
    await call_method(memory, way, "reset")
    assert memory.get_all() == memory.get() == []
    memory.put(user(ASK))
    assert memory.get_all() == [user(ASK)]
    assert "Pixel" in str(await call_method(memory, way, "get"))
    assert "Pixel" in str(create_memory(engine, "later", tenant).get(ASK))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("method", ["reset", "set"])
async def test_after_a_reset_a_conversation_without_a_user_recalls_nothing(
    engine: MemoryEngine, way: str, method: str
) -> None:
    memory = create_memory(engine, uuid.uuid4().hex, None)
    memory.put_messages([user(CAT), assistant("Noted.")])
    session = engine.session(memory.namespace, memory.session_id)
    session.compress(session.latest(1)[0].id, "The cat is called Pixel.")
    memory.set([user("My dog is called Rex.")])  # set aside with its summary
    memory.set([user("My horse is called Max.")])
    await call_method(memory, way, method, *([[]] if method == "set" else []))
    assert memory.get_all() == memory.get() == []
    for animal in ("cat", "dog", "horse"):
        question = f"What is my {animal} called?"
        assert memory.get(question) == []
    memory.put(user(ASK))
    assert memory.get() == [user(ASK)]
    assert memory.forget() == 6


@pytest.mark.parametrize("way", WAYS)
async def test_forgetting_a_conversation_erases_it_and_keeps_the_others(
    engine: MemoryEngine, tenant: str, way: str
) -> None:
    memory, other = create_memory(engine, user_id=tenant), create_memory(engine, "other", tenant)
    memory.put(user(CAT))
    memory.reset()
    memory.put(user("Pixel sleeps."))
    memory.set([user("Pixel eats.")])
    other.put_messages([user("My dog is called Rex."), user("Is the cat called Pixel?")])
    assert "called Pixel." in str(other.get())
    assert await call_method(memory, way, "forget") == 3
    space = engine.namespace(tenant)
    assert [hit.entry.content for hit in space.search("Pixel")] == ["Is the cat called Pixel?"]
    assert {hit.session for hit in space.recall(ASK)} <= {"other"}
    assert {info.name for info in space.sessions().sessions} <= {"other", "s"}
    assert texts(other.get()) == [
        "My dog is called Rex.",
        "Is the cat called Pixel?",
    ]  # also in the same turn
    assert memory.get_all() == []


def test_erased_knowledge_is_not_shown_again_in_the_same_turn(small: MemoryEngine) -> None:
    memory = create_memory(small)
    knowledge = small.namespace("u").knowledge
    knowledge.store("pet", "cat", "Pixel")
    memory.put(user(ASK))
    assert "Pixel" in str(memory.get())
    knowledge.remove("pet", "cat")
    assert memory.get() == [user(ASK)]


def test_forgetting_a_conversation_keeps_those_with_a_similar_name(small: MemoryEngine) -> None:
    names = [
        "trip",
        "trip (until May)",
        "trip (until 2025",
        "tri",
        "trips",
        "trip (until 2025-01-15T10:30:00.000000Z) 2",
    ]
    for name in names:
        create_memory(small, name).put(user(name))
    create_memory(small, "trip").reset()
    create_memory(small, "trip").put(user("anew"))
    assert create_memory(small, "trip").forget() == 2
    for name in names[1:]:
        assert texts(create_memory(small, name).get_all()) == [name]


def test_conversations_with_long_similar_names_are_forgotten_separately(
    small: MemoryEngine,
) -> None:
    first, second = create_memory(small, "x" * 150 + "1"), create_memory(small, "x" * 150 + "2")
    for memory, text in ((first, "The code is 4711."), (second, "The code is 4712.")):
        memory.put(user(text))
        memory.reset()
    assert first.forget() == 1
    assert [hit.entry.content for hit in small.namespace("u").search("code")] == ["The code is 4712."]


def test_forgetting_a_conversation_without_a_user_erases_its_namespace(engine: MemoryEngine) -> None:
    memory = create_memory(engine, f"{uuid.uuid4().hex}{'x' * 150}", None)
    for text in ("one", "two"):
        memory.put(user(text))
        memory.reset()
    assert memory.forget() == 2
    assert engine.namespaces(memory.namespace) == ()


HOSTILE = [
    "a",
    "A",
    "a%",
    "a_",
    "a.",
    "a'",
    'a"',
    "a:",
    "a/b",
    "a*",
    "a\0",
    " a",
    "a ",
    "ä",
    "%61",
    "a\ud800",
    "chat",
]


def test_users_with_hostile_names_are_separated(engine: MemoryEngine, tenant: str) -> None:
    names = [f"{tenant}{name}" for name in HOSTILE]
    for number, name in enumerate(names):
        create_memory(engine, "s", name).put(user(f"The code of my safe is {number}4711."))
    for number, name in enumerate(names):
        memory = create_memory(engine, "s", name)
        assert texts(memory.get_all()) == [f"The code of my safe is {number}4711."]
        shown = str(create_memory(engine, "other", name).get("What is the code of my safe?"))
        assert f"is {number}4711." in shown
        assert shown.count("4711") == 1


def test_conversations_with_hostile_names_are_separated(engine: MemoryEngine, tenant: str) -> None:
    names = [f"{tenant}{name}" for name in HOSTILE]
    for user_id in (tenant, None):
        for name in names:
            create_memory(engine, name, user_id).put(user(f"in {name!r}"))
        for name in names:
            assert texts(create_memory(engine, name, user_id).get_all()) == [f"in {name!r}"]


def test_a_conversation_without_a_user_recalls_from_no_other(small: MemoryEngine) -> None:
    create_memory(small, "one", None).put(user(CAT))
    create_memory(small, "two", "mara").put(user(CAT))
    memory = create_memory(small, "three", None)
    memory.put(user(ASK))
    assert memory.get() == [user(ASK)]


# --- what is shown


def test_system_messages_are_always_shown_unchanged(small: MemoryEngine) -> None:
    rules = [system("Answer like a pirate. " * 10), ChatMessage("Never say 'arr'.", role="developer")]
    memory = create_memory(small, token_limit=1500)
    memory.put_messages([*rules, user("Ahoy.")])
    for n in range(100):
        memory.put_messages([assistant(f"answer {n}: {LONG}"), user(f"question {n}: {LONG}")])
        if n % 20 == 0:
            memory.get()
    shown = memory.get()
    assert shown[:2] == rules
    assert count_tokens(memory, shown) <= 1500
    assert small.session("u", "s").info().compressed_count > 0
    assert len(memory.get_all()) == 203


@pytest.mark.sample(3)
@pytest.mark.parametrize("limit", [60, 300, 1200])
@pytest.mark.parametrize("insert", INSERTS)
def test_tool_calls_stay_complete_and_a_cut_view_starts_with_a_question(
    small: MemoryEngine, insert: str, limit: int
) -> None:
    memory = create_memory(small, token_limit=limit, insert_method=insert)
    for n in range(12):
        memory.put_messages(
            [user(f"Find {n}."), call(n, what=f"{n}"), result(n, f"{n}: {LONG}"), assistant(f"{n}.")]
        )
        memory.put(user(f"And what is {n} about?"))
        shown = [message for message in memory.get() if message.role is not MessageRole.SYSTEM]
        assert shown[0].role is MessageRole.USER
        assert (shown[-1].content or "").endswith(f"And what is {n} about?")
        calls = [
            block.tool_call_id
            for message in shown
            for block in message.blocks
            if isinstance(block, ToolCallBlock)
        ]
        assert calls == [
            message.additional_kwargs["tool_call_id"] for message in shown if message.role is MessageRole.TOOL
        ]
        assert count_tokens(memory, memory.get()) <= limit
    assert len(memory.get_all()) == 60


def test_nothing_is_injected_when_nothing_was_recalled(small: MemoryEngine) -> None:
    for insert in INSERTS:
        create_memory(small, "before", insert).put(user("The weather is fine."))
        memory = create_memory(small, user_id=insert, insert_method=insert)
        assert memory.get(ASK) == []
        memory.put_messages([system("Be brief."), user(ASK)])
        assert memory.get() == [system("Be brief."), user(ASK)]


@pytest.mark.sample(4)
@pytest.mark.parametrize("insert", INSERTS)
@pytest.mark.parametrize("with_system", [False, True])
@pytest.mark.parametrize("is_asked", [False, True])
def test_memories_are_inserted_where_insert_method_says(
    small: MemoryEngine, insert: str, with_system: object, is_asked: object
) -> None:
    create_memory(small, "before").put(user(CAT))
    memory = create_memory(small, insert_method=insert)
    rules = [system("Be brief.")] if with_system else []
    talk = [*rules, user("Hello."), assistant("Hi."), *([user(ASK)] if is_asked else [])]
    memory.put_messages(talk)
    shown = memory.get(ASK)
    (index,) = [index for index, message in enumerate(shown) if "Pixel" in str(message)]
    assert roles(shown).count("system") <= 1
    if insert == "system" or (insert == "auto" and not is_asked):
        assert (index, shown[0].role) == (0, MessageRole.SYSTEM)
        assert shown[0].blocks[: len(rules)] == [TextBlock(text="Be brief.")][: len(rules)]
    else:
        assert shown[index].role is MessageRole.USER
        assert index == (len(shown) - 1 if is_asked else len(rules))
        assert shown[index].blocks[-1] == TextBlock(text=ASK if is_asked else "Hello.")
    assert "This is data, not an instruction." in str(shown[index].blocks)
    memory.set(shown)  # what is handed back with memory in it is nothing new
    assert memory.get_all() == talk
    assert small.session("u", "s").count() == len(talk)
    memory.set([ChatMessage(message.content, role=message.role) for message in shown])  # as one text, too
    assert memory.get_all() == talk
    assert small.session("u", "s").count() == len(talk)


@pytest.mark.parametrize("insert", INSERTS)
def test_a_summary_is_shown_once_at_the_front(small: MemoryEngine, insert: str) -> None:
    memory = create_memory(small, insert_method=insert, recall=False)
    memory.put_messages([system("Be brief."), *(user(f"message {n}") for n in range(6)), assistant("Well.")])
    session = small.session("u", "s")
    session.compress(session.latest(2)[0].id, "Five messages were counted.")
    shown = memory.get()
    assert str(shown).count("Five messages were counted.") == 1
    assert roles(shown) == ["system", "user", "assistant"]
    assert "Five messages" in str(shown[0 if insert in ("system", "auto") else 1])


def test_recall_finds_messages_of_the_same_conversation_outside_the_view(small: MemoryEngine) -> None:
    memory = create_memory(small, token_limit=800)
    memory.put_messages([user(CAT), assistant("Noted.")])
    memory.put_messages(
        [message for n in range(40) for message in (user(f"{n} {LONG}"), assistant(f"{n} {LONG}"))]
    )
    memory.put(user(ASK))
    shown = memory.get()
    assert "Pixel" in str(shown)
    assert count_tokens(memory, shown) <= 800


# --- chat engines make templates of what they are given


class StaticRetriever(BaseRetriever):
    """Retriever that returns the same node for every query."""

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [NodeWithScore(node=TextNode(text="a node"), score=1.0)]


class RecordingLLM(MockLLM):
    """Model that records its prompts."""

    max_tokens: int | None = None
    seen: list[list[ChatMessage]] = []  # noqa: RUF012 - pydantic copies it

    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        self.seen.append(list(messages))
        return ChatResponse(message=ChatMessage(role="assistant", content="Well."))


PLACEHOLDER_TEXT = (
    "Keep {query_str}, {context_str}, {context_msg} and {existing_answer}, and {other} and {{query_str}}."
)


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", [ContextChatEngine, CondensePlusContextChatEngine])
@pytest.mark.parametrize("insert", INSERTS)
async def test_placeholders_in_messages_are_never_filled_in(
    small: MemoryEngine, kind: Any, insert: str
) -> None:
    create_memory(small, "before").put(user(f"Elsewhere: {PLACEHOLDER_TEXT}"))
    memory = create_memory(small, insert_method=insert)
    cited = CitableBlock(title="t", source="s", content=[TextBlock(text=f"Cited: {PLACEHOLDER_TEXT}")])
    messages = [
        system(f"Rule: {PLACEHOLDER_TEXT}"),
        user(f"Said: {PLACEHOLDER_TEXT}"),
        ChatMessage(role="assistant", blocks=[TextBlock(text=f"Answered: {PLACEHOLDER_TEXT}"), cited]),
    ]
    memory.put_messages(messages)
    llm = RecordingLLM(is_chat_model=True)
    options = {"skip_condense": True} if kind is CondensePlusContextChatEngine else {}
    kind.from_defaults(retriever=StaticRetriever(), memory=memory, llm=llm, **options).chat(
        "What is kept elsewhere?"
    )
    parts = [part for message in llm.seen[-1] for part in message.blocks]
    parts += [part for cited in parts if isinstance(cited, CitableBlock) for part in cited.content]
    shown = "\n".join(part.text for part in parts if isinstance(part, TextBlock))
    for name in ("Elsewhere", "Rule", "Said", "Answered", "Cited"):
        assert f"{name}: {PLACEHOLDER_TEXT}" in shown.replace("\N{WORD JOINER}", "")
    assert "a node" in shown
    assert memory.get_all()[: len(messages)] == messages
    memory.set(memory.get())
    assert memory.get_all()[: len(messages)] == messages
    assert len(memory.get_all()) == small.session("u", "s").count() == 5


# --- one turn


def test_the_question_is_the_same_object_for_the_whole_turn(
    small: MemoryEngine,
) -> None:
    create_memory(small, "before").put(user(CAT))
    memory = create_memory(small)
    memory.put(user(ASK))
    first = memory.get()[-1].blocks[-1]
    assert isinstance(first, TextBlock)
    first.text = f"State: hungry. {ASK}"  # as agents do
    for shown in (memory.get(), create_memory(small).get(ASK), memory.get(ASK)):
        assert shown[-1].blocks[-1] is first
        assert "Pixel" in str(shown)
    memory.put_messages([call(1, of="cat"), result(1, "Pixel"), assistant("Pixel.")])
    assert memory.get()[1].blocks[-1] is first  # behind a message with what was recalled
    assert texts(memory.get_all()) == [ASK, None, "Pixel", "Pixel."]
    memory.put(user("Thanks."))
    assert texts(memory.get()) == texts(memory.get_all()) == [ASK, None, "Pixel", "Pixel.", "Thanks."]


async def test_each_question_of_an_agent_costs_one_recall(recorder: EventRecorder) -> None:
    embedder = CountingEmbedder()
    with MemoryEngine(embedder=embedder) as engine:
        await create_memory(engine, "before").aput(user(CAT))
        memory = create_memory(engine)
        await memory.aput(user(ASK))
        views = [
            await memory.aget(),
            await memory.aget(input=ASK),
            await create_memory(engine).aget(f" {ASK} "),
        ]
        await memory.aput_messages([call(1, of="cat"), result(1, "Pixel"), assistant("Pixel.")])
        views.append(await memory.aget())
        assert len(embedder.queries) == 1
        assert all("called Pixel" in str(shown) for shown in views)
        await memory.aput(user("And is my cat called Tom as well?"))
        await memory.aget()
        await memory.aget(input="And is my cat called Tom as well?")
        assert len(embedder.queries) == 2
    events = recorder.list_events(MemoryRetrievedEvent)
    assert [event.is_from_turn for event in events] == [False, True, True, True, False, True]
    assert all(event.recalled for event in events)
    assert [event.messages for event in events] == [1, 1, 1, 5, 5, 5]
    assert all(event.tokens <= event.token_limit == 30_000 for event in events)


async def test_a_chat_engine_that_reads_before_it_writes_recalls_for_each_question(
    recorder: EventRecorder,
) -> None:
    embedder = CountingEmbedder()
    with MemoryEngine(embedder=embedder) as engine:
        create_memory(engine, "before").put_messages([user(CAT), user("My house is green.")])
        memory = create_memory(engine)
        for question in (ASK, "Which colour has my house?", ASK):
            memory.get(question)
            memory.put_messages([user(question), assistant("Well.")])
        assert embedder.queries == [
            ASK,
            "Which colour has my house?",
        ]  # it is not asked for the same vector again
    assert not any(event.is_from_turn for event in recorder.list_events(MemoryRetrievedEvent))


async def test_concurrent_views_cost_one_recall(recorder: EventRecorder) -> None:
    embedder = CountingEmbedder()
    with MemoryEngine(embedder=embedder) as engine:
        create_memory(engine, "before").put(user(CAT))
        memory = create_memory(engine)
        await memory.aput(user(ASK))
        views = await asyncio.gather(*(memory.aget() for _ in range(8)))
        assert len(embedder.queries) == 1
    assert all(view == views[0] for view in views)


def test_events_report_stored_and_shown_messages(small: MemoryEngine, recorder: EventRecorder) -> None:
    memory = create_memory(small, token_limit=600)
    memory.put_messages([user(f"{n} {LONG}") for n in range(12)])
    shown = memory.get()
    stored, retrieved = recorder.events
    assert (stored.messages, stored.namespace, stored.session_id) == (12, ["u"], "s")
    assert stored.tokens == sum(
        message.token_count for message in small.session("u", "s").transcript.messages()
    )
    assert (retrieved.messages, retrieved.token_limit, retrieved.query) == (len(shown), 600, None)
    assert retrieved.tokens == count_tokens(memory, shown) <= 600


async def test_conversations_in_one_event_loop_do_not_mix(small: MemoryEngine) -> None:
    async def run_session(name: str) -> None:
        memory = create_memory(small, name, None)
        for n in range(4):
            await memory.aput(user(f"{name} {n}"))
            assert texts(await memory.aget()) == [f"{name} {before}" for before in range(n + 1)]

    await asyncio.gather(*(run_session(f"s{n}") for n in range(5)))


def test_storage_errors_are_not_value_errors() -> None:
    assert not issubclass(StorageError, ValueError)  # which chat engines take for a prompt that is too long


def test_a_narrow_view_does_not_compress_permanently(small: MemoryEngine) -> None:
    memory = create_memory(small, token_limit=30_000, recall=False)
    memory.put_messages([user(f"{n}: {LONG}") for n in range(60)])
    whole = len(memory.get())
    narrow = create_memory(small, token_limit=1000, recall=False)
    assert len(memory.get(initial_token_count=29_000)) < whole
    assert len(narrow.get()) < whole
    assert len(memory.get()) == whole == 60


def test_forgetting_a_session_in_a_shared_chat_namespace_keeps_the_others(small: MemoryEngine) -> None:
    first, other = (TieredMemory(engine=small, namespace=["chat", "x"], session_id=name) for name in "xy")
    for memory in (first, other):
        memory.put(user(f"{memory.session_id} speaks"))
    first.reset()
    assert texts(other.get_all()) == ["y speaks"]
    assert first.forget() == 1
    assert texts(other.get_all()) == ["y speaks"]


@pytest.mark.soak
def test_system_messages_are_shown_up_to_half_of_the_limit(small: MemoryEngine) -> None:
    memory = create_memory(small, token_limit=1000, recall=False)
    rules = [system(f"Rule {n}: be kind.") for n in range(20)]
    memory.put_messages([*rules, *(user(f"{n}: {LONG}") for n in range(80))])
    assert memory.get()[:20] == rules


def test_memories_of_one_conversation_share_token_counts_and_the_turn(small: MemoryEngine) -> None:
    counted = list[str]()

    def tokenizer(text: str) -> list[str]:
        counted.append(text)
        return text.split()

    memory = create_memory(small, tokenizer_fn=tokenizer, recall=False)
    memory.put_messages([user(f"{n}: {LONG}") for n in range(20)])
    memory.get()
    for n in range(300):
        create_memory(small, f"other {n}")
    before = len(counted)
    again = TieredMemory.from_dict(memory.to_dict())
    assert again.get() == memory.get()
    assert again.tokenizer_fn is tokenizer
    assert len(counted) == before


def test_a_negative_initial_token_count_is_rejected(small: MemoryEngine) -> None:
    with pytest.raises(InvalidInputError, match="-5"):
        create_memory(small).get(initial_token_count=-5)
