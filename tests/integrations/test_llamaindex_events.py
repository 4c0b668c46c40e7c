"""What those who watch through LlamaIndex's dispatcher are told of a memory."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import Field

from langmem_tiers import MemoryEngine, StorageUnavailableError
from langmem_tiers_llamaindex.convert import message_tokens
from langmem_tiers_llamaindex.events import (
    MemoryFailedEvent,
    MemoryRetrievedEvent,
    MemoryStoredEvent,
    dispatcher,
)
from langmem_tiers_llamaindex.memory import TieredMemory
from tests.integrations.llamaindex_agents import AnswerSequence, ScriptedLLM, create_tool_calls

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what the framework warns of as it loads is not ours
    from llama_index.core.agent.workflow import FunctionAgent
    from llama_index.core.chat_engine import SimpleChatEngine
    from llama_index.core.instrumentation.event_handlers import BaseEventHandler
    from llama_index.core.instrumentation.span_handlers import SimpleSpanHandler
    from llama_index.core.llms import ChatMessage
    from llama_index.core.utils import get_tokenizer
    from llama_index_instrumentation import get_dispatcher

if TYPE_CHECKING:
    from collections.abc import Iterator

# Agents use what pydantic and their own workflows have deprecated.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

OURS = (MemoryFailedEvent, MemoryRetrievedEvent, MemoryStoredEvent)


class Watching(BaseEventHandler):
    """Keeps the events of memory."""

    events: list[Any] = Field(default_factory=list)

    @classmethod
    def class_name(cls) -> str:
        return "Watching"

    def handle(self, event: Any, **_: Any) -> None:
        if isinstance(event, OURS):
            self.events.append(event)


class Watch:
    """Events and spans as they came."""

    def __init__(self) -> None:
        self.handler, self._spans = Watching(), SimpleSpanHandler()
        root = get_dispatcher()
        self._former = root.event_handlers, root.span_handlers
        root.event_handlers = [*root.event_handlers, self.handler]
        root.span_handlers = [*root.span_handlers, self._spans]

    def close(self) -> None:
        root = get_dispatcher()
        root.event_handlers, root.span_handlers = self._former

    def events(self) -> list[Any]:
        """What came since the last time."""
        found = list(self.handler.events)
        self.handler.events.clear()
        return found

    def spans(self) -> list[tuple[str, bool]]:
        """The spans of memory since the last time, and whether each came to its end."""
        found = [
            (span.id_.partition("-")[0].removeprefix("TieredMemory."), span in self._spans.completed_spans)
            for span in sorted(
                [*self._spans.completed_spans, *self._spans.dropped_spans], key=lambda span: span.start_time
            )
            if span.id_.startswith("TieredMemory.")
        ]
        self._spans.completed_spans, self._spans.dropped_spans = [], []
        return found


@pytest.fixture
def watch() -> Iterator[Watch]:
    watching = Watch()
    yield watching
    watching.close()


@pytest.fixture
def engine() -> Iterator[MemoryEngine]:
    with MemoryEngine() as opened:
        yield opened


@pytest.fixture
def memory(engine: MemoryEngine) -> TieredMemory:
    return TieredMemory.from_defaults(engine=engine, user_id="ada", session_id="one", token_limit=2000)


def place(event: Any) -> tuple[list[str], str]:
    return event.namespace, event.session_id


def test_writing_is_told_with_what_was_written(memory: TieredMemory, watch: Watch) -> None:
    memory.put(ChatMessage("The key is under the mat."))
    memory.put_messages([ChatMessage(role="assistant", content="Noted."), ChatMessage("Good.")])
    memory.put_messages([])
    memory.set([*memory.get_all(), ChatMessage("Bye.")])
    memory.set(memory.get_all())  # nothing is new
    memory.reset()
    told = watch.events()
    assert [type(event) for event in told] == [MemoryStoredEvent] * 3
    assert [event.messages for event in told] == [1, 2, 1]
    assert all(event.tokens > 0 for event in told)
    assert all(place(event) == (["ada"], "one") for event in told)
    names = ["put", "put_messages", "put_messages", "get_all", "set", "get_all", "set", "reset"]
    assert watch.spans() == [(name, True) for name in names]


async def test_writing_without_blocking_is_told_as_well(memory: TieredMemory, watch: Watch) -> None:
    await memory.aput(ChatMessage("The key is under the mat."))
    await memory.aput_messages([ChatMessage(role="assistant", content="Noted."), ChatMessage("Good.")])
    await memory.aset([*await memory.aget_all(), ChatMessage("Bye.")])
    await memory.areset()
    assert [event.messages for event in watch.events()] == [1, 2, 1]
    assert watch.spans() == [(name, True) for name in ("aput", "aput_messages", "aget_all", "aset", "areset")]


def test_a_view_is_told_with_what_it_takes_and_what_was_recalled(
    engine: MemoryEngine, memory: TieredMemory, watch: Watch
) -> None:
    TieredMemory.from_defaults(engine=engine, user_id="ada", session_id="zero").put(
        ChatMessage("The key is under the mat.")
    )
    memory.put(ChatMessage("Where is the key?"))
    watch.events()
    shown = memory.get()
    again = memory.get("Where is the key?", initial_token_count=100)
    other = memory.get("Who has a dog?")
    first, second, third = watch.events()
    assert [type(event) for event in (first, second, third)] == [MemoryRetrievedEvent] * 3
    assert (place(first), first.query, first.token_limit) == ((["ada"], "one"), None, 2000)
    assert first.messages == len(shown) == len(again)
    tokenizer = get_tokenizer()
    counted = sum(message_tokens(message, lambda text: len(tokenizer(text))) for message in shown)
    assert first.tokens == counted <= 2000
    assert len(first.recalled) == 1
    assert first.dropped == 0
    assert not first.is_from_turn
    assert (second.query, second.token_limit, second.is_from_turn) == ("Where is the key?", 1900, True)
    assert second.recalled == first.recalled
    assert (third.query, third.messages, third.is_from_turn) == ("Who has a dog?", len(other), False)


async def test_events_say_in_which_span_they_came(memory: TieredMemory, watch: Watch) -> None:
    memory.put(ChatMessage("Hello."))
    memory.get()
    await memory.aput(ChatMessage("Hello."))
    await memory.aget()
    spans = [event.span_id.partition("-")[0] for event in watch.events()]
    assert spans == [f"TieredMemory.{name}" for name in ("put", "get", "aput", "aget")]


def test_what_had_no_room_is_counted(engine: MemoryEngine, watch: Watch) -> None:
    small = TieredMemory.from_defaults(engine=engine, user_id="ada", session_id="two", token_limit=120)
    small.put_messages([ChatMessage(f"Number {number} is a lucky number of mine.") for number in range(60)])
    watch.events()
    shown = small.get()
    (event,) = watch.events()
    assert event.tokens <= event.token_limit == 120
    assert event.messages == len(shown) < 60
    assert event.dropped > 0


def test_a_store_that_fails_is_told_without_its_words(
    engine: MemoryEngine, memory: TieredMemory, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any) -> Any:
        raise StorageUnavailableError("the server of 12345 is away")

    memory.put(ChatMessage("The key is under the mat."))
    watch.events()
    monkeypatch.setattr(engine._services.short_term.sessions, "get_or_create", away)
    memory.put(ChatMessage("My password is 12345."))
    memory.get()
    told = watch.events()
    assert {type(event) for event in told} == {MemoryFailedEvent}
    assert all((event.error, event.waiting) == ("StorageUnavailableError", 1) for event in told)
    assert "12345" not in "".join(str(event) for event in told)


def test_a_wrong_call_ends_its_span_with_the_error(memory: TieredMemory, watch: Watch) -> None:
    with pytest.raises(ValueError, match="Initial token count"):
        memory.get(initial_token_count=2001)
    with pytest.raises(ValueError, match="expected a LlamaIndex message"):
        memory.put("hello")
    assert watch.spans() == [("get", False), ("put", False)]
    assert watch.events() == []


async def test_a_turn_of_an_agent_is_seen_from_outside(memory: TieredMemory, watch: Watch) -> None:
    def look_up(what: str) -> str:
        """Look something up."""
        return f"The {what} is in the attic."

    llm = ScriptedLLM(
        reply=AnswerSequence(create_tool_calls(("c-1", "look_up", {"what": "key"})), "In the attic.")
    )
    await FunctionAgent(tools=[look_up], llm=llm).run(user_msg="Where is the key?", memory=memory)
    told = watch.events()
    stored = [event.messages for event in told if isinstance(event, MemoryStoredEvent)]
    viewed = [event.is_from_turn for event in told if isinstance(event, MemoryRetrievedEvent)]
    assert stored == [1, 3]
    assert viewed == [False, True, True]  # memory is asked once in a turn
    assert [name for name, _ in watch.spans()] == ["aput", "aget", "aget", "aput_messages", "aget"]


def test_without_anybody_watching_everything_works(memory: TieredMemory) -> None:
    assert not dispatcher.event_handlers
    chat = SimpleChatEngine.from_defaults(memory=memory, llm=ScriptedLLM())
    assert str(chat.chat("Hello.")) == "I have noted it."


def test_a_watcher_that_fails_disturbs_nobody(memory: TieredMemory, watch: Watch) -> None:
    class Failing(Watching):
        def handle(self, event: Any, **_: Any) -> None:
            raise RuntimeError("no room on this disk")

    root = get_dispatcher()
    root.event_handlers = [Failing(), *root.event_handlers]
    memory.put(ChatMessage("Hello."))
    assert len(memory.get()) == 1
    assert len(watch.events()) == 2
