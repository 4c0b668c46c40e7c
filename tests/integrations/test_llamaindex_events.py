"""Events and spans of a memory in LlamaIndex's dispatcher."""

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


class EventRecorder(BaseEventHandler):
    """Record the events of memory."""

    events: list[Any] = Field(default_factory=list)

    @classmethod
    def class_name(cls) -> str:
        return "EventRecorder"

    def handle(self, event: Any, **_: Any) -> None:
        if isinstance(event, OURS):
            self.events.append(event)


class InstrumentationRecorder:
    """Record events and spans in order."""

    def __init__(self) -> None:
        self.handler, self._spans = EventRecorder(), SimpleSpanHandler()
        root = get_dispatcher()
        self._former = root.event_handlers, root.span_handlers
        root.event_handlers = [*root.event_handlers, self.handler]
        root.span_handlers = [*root.span_handlers, self._spans]

    def close(self) -> None:
        root = get_dispatcher()
        root.event_handlers, root.span_handlers = self._former

    def events(self) -> list[Any]:
        """Return and clear the events since the last call."""
        found = list(self.handler.events)
        self.handler.events.clear()
        return found

    def spans(self) -> list[tuple[str, bool]]:
        """Return the memory spans since the last call, and whether each was completed."""
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
def recorder() -> Iterator[InstrumentationRecorder]:
    recorder = InstrumentationRecorder()
    yield recorder
    recorder.close()


@pytest.fixture
def engine() -> Iterator[MemoryEngine]:
    with MemoryEngine() as opened:
        yield opened


@pytest.fixture
def memory(engine: MemoryEngine) -> TieredMemory:
    return TieredMemory.from_defaults(engine=engine, user_id="ada", session_id="one", token_limit=2000)


def get_address(event: Any) -> tuple[list[str], str]:
    return event.namespace, event.session_id


def test_stored_events_report_the_written_messages(
    memory: TieredMemory, recorder: InstrumentationRecorder
) -> None:
    memory.put(ChatMessage("The key is under the mat."))
    memory.put_messages([ChatMessage(role="assistant", content="Noted."), ChatMessage("Good.")])
    memory.put_messages([])
    memory.set([*memory.get_all(), ChatMessage("Bye.")])
    memory.set(memory.get_all())  # nothing is new
    memory.reset()
    events = recorder.events()
    assert [type(event) for event in events] == [MemoryStoredEvent] * 3
    assert [event.messages for event in events] == [1, 2, 1]
    assert all(event.tokens > 0 for event in events)
    assert all(get_address(event) == (["ada"], "one") for event in events)
    names = ["put", "put_messages", "put_messages", "get_all", "set", "get_all", "set", "reset"]
    assert recorder.spans() == [(name, True) for name in names]


async def test_async_writes_emit_stored_events(
    memory: TieredMemory, recorder: InstrumentationRecorder
) -> None:
    await memory.aput(ChatMessage("The key is under the mat."))
    await memory.aput_messages([ChatMessage(role="assistant", content="Noted."), ChatMessage("Good.")])
    await memory.aset([*await memory.aget_all(), ChatMessage("Bye.")])
    await memory.areset()
    assert [event.messages for event in recorder.events()] == [1, 2, 1]
    assert recorder.spans() == [
        (name, True) for name in ("aput", "aput_messages", "aget_all", "aset", "areset")
    ]


def test_retrieved_events_report_tokens_and_recalled_ids(
    engine: MemoryEngine, memory: TieredMemory, recorder: InstrumentationRecorder
) -> None:
    TieredMemory.from_defaults(engine=engine, user_id="ada", session_id="zero").put(
        ChatMessage("The key is under the mat.")
    )
    memory.put(ChatMessage("Where is the key?"))
    recorder.events()
    shown = memory.get()
    again = memory.get("Where is the key?", initial_token_count=100)
    other = memory.get("Who has a dog?")
    first, second, third = recorder.events()
    assert [type(event) for event in (first, second, third)] == [MemoryRetrievedEvent] * 3
    assert (get_address(first), first.query, first.token_limit) == ((["ada"], "one"), None, 2000)
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


async def test_events_carry_the_id_of_their_span(
    memory: TieredMemory, recorder: InstrumentationRecorder
) -> None:
    memory.put(ChatMessage("Hello."))
    memory.get()
    await memory.aput(ChatMessage("Hello."))
    await memory.aget()
    spans = [event.span_id.partition("-")[0] for event in recorder.events()]
    assert spans == [f"TieredMemory.{name}" for name in ("put", "get", "aput", "aget")]


def test_dropped_messages_are_counted(engine: MemoryEngine, recorder: InstrumentationRecorder) -> None:
    small = TieredMemory.from_defaults(engine=engine, user_id="ada", session_id="two", token_limit=120)
    small.put_messages([ChatMessage(f"Number {number} is a lucky number of mine.") for number in range(60)])
    recorder.events()
    shown = small.get()
    (event,) = recorder.events()
    assert event.tokens <= event.token_limit == 120
    assert event.messages == len(shown) < 60
    assert event.dropped > 0


def test_failed_events_do_not_contain_texts_or_messages_of_the_driver(
    engine: MemoryEngine,
    memory: TieredMemory,
    recorder: InstrumentationRecorder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: Any) -> Any:
        raise StorageUnavailableError("the server of 12345 is away")

    memory.put(ChatMessage("The key is under the mat."))
    recorder.events()
    monkeypatch.setattr(engine._services.short_term.sessions, "get_or_create", fail)
    memory.put(ChatMessage("My password is 12345."))
    memory.get()
    events = recorder.events()
    assert {type(event) for event in events} == {MemoryFailedEvent}
    assert all((event.error, event.waiting) == ("StorageUnavailableError", 1) for event in events)
    assert "12345" not in "".join(str(event) for event in events)


def test_an_invalid_call_ends_its_span_with_the_error(
    memory: TieredMemory, recorder: InstrumentationRecorder
) -> None:
    with pytest.raises(ValueError, match="Initial token count"):
        memory.get(initial_token_count=2001)
    with pytest.raises(ValueError, match="expected a LlamaIndex message"):
        memory.put("hello")
    assert recorder.spans() == [("get", False), ("put", False)]
    assert recorder.events() == []


async def test_a_turn_of_an_agent_emits_events_and_spans(
    memory: TieredMemory, recorder: InstrumentationRecorder
) -> None:
    def look_up(what: str) -> str:
        """Look something up."""
        return f"The {what} is in the attic."

    llm = ScriptedLLM(
        reply=AnswerSequence(create_tool_calls(("c-1", "look_up", {"what": "key"})), "In the attic.")
    )
    await FunctionAgent(tools=[look_up], llm=llm).run(user_msg="Where is the key?", memory=memory)
    events = recorder.events()
    stored = [event.messages for event in events if isinstance(event, MemoryStoredEvent)]
    from_turn = [event.is_from_turn for event in events if isinstance(event, MemoryRetrievedEvent)]
    assert stored == [1, 3]
    assert from_turn == [False, True, True]  # memory is asked once in a turn
    assert [name for name, _ in recorder.spans()] == ["aput", "aget", "aget", "aput_messages", "aget"]


def test_memory_works_without_event_handlers(memory: TieredMemory) -> None:
    assert not dispatcher.event_handlers
    chat = SimpleChatEngine.from_defaults(memory=memory, llm=ScriptedLLM())
    assert str(chat.chat("Hello.")) == "I have noted it."


def test_a_failing_event_handler_does_not_affect_memory(
    memory: TieredMemory, recorder: InstrumentationRecorder
) -> None:
    class Failing(EventRecorder):
        def handle(self, event: Any, **_: Any) -> None:
            raise RuntimeError("no room on this disk")

    root = get_dispatcher()
    root.event_handlers = [Failing(), *root.event_handlers]
    memory.put(ChatMessage("Hello."))
    assert len(memory.get()) == 1
    assert len(recorder.events()) == 2
