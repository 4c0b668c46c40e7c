"""Views of the memory middleware: complete, within the budget, and with the newest message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain.agents.middleware.types import ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.runtime import ExecutionInfo, Runtime

from langmem_tiers import BudgetExceededError, MemoryEngine, Session, TokenBudget
from langmem_tiers.testing import FrozenClock, seeded_ids
from langmem_tiers.text.token_counting import FRAME_TOKENS, REPLY_TOKENS, count_draft
from langmem_tiers_langchain.convert import to_draft
from langmem_tiers_langchain.middleware import TieredMemoryMiddleware
from tests.hypothesis_settings import examples
from tests.integrations.langchain_agents import ScriptedChat, check_tool_call_order, join_texts

if TYPE_CHECKING:
    from collections.abc import Sequence

TEXTS = st.one_of(
    st.text(max_size=200),
    st.integers(1, 400).map(
        lambda n: f"The gate {n} is at https://gate.example/{n}, it opens at {n % 24}:00. " * 3
    ),
    st.integers(1, 60).map(lambda n: f"word{n} " * n * 5),
    st.just('{"rows": [' + ", ".join(f'{{"id": {n}, "name": "row {n}"}}' for n in range(80)) + "]}"),
    st.just("def f(x):\n    return x + 1\n" * 20),
)
IMAGE = {"type": "image", "base64": "A" * 100_000, "mime_type": "image/png"}


@tool
def look_up(what: str, how_often: int = 1) -> str:
    """Look something up in the large book of everything, as often as it takes."""
    return what


@st.composite
def threads(draw: st.DrawFn) -> list[BaseMessage]:
    """Generate threads with parallel calls, missing results, texts and pictures."""
    messages: list[BaseMessage] = []
    for turn in range(draw(st.integers(1, 8))):
        text = draw(TEXTS)
        content: Any = [{"type": "text", "text": text}, IMAGE] if draw(st.integers(0, 9)) == 0 else text
        messages.append(HumanMessage(content, id=f"q{turn}"))
        for step in range(draw(st.integers(0, 6))):
            ids = [f"c{turn}-{step}-{n}" for n in range(draw(st.integers(1, 3)))]
            calls = [{"name": "look_up", "args": {"what": draw(TEXTS)}, "id": call_id} for call_id in ids]
            messages.append(AIMessage(draw(TEXTS), id=f"a{turn}-{step}", tool_calls=calls))
            came = [call_id for call_id in ids if draw(st.integers(0, 9))]
            messages += [ToolMessage(draw(TEXTS), tool_call_id=call_id, id=f"r{call_id}") for call_id in came]
        if draw(st.booleans()):
            messages.append(AIMessage(draw(TEXTS), id=f"e{turn}"))
    return messages


def count_message(counter: Any, message: BaseMessage) -> int:
    draft = to_draft(message, counter)
    return (draft.token_count or count_draft(counter, draft)) + FRAME_TOKENS


def build_request(messages: Sequence[BaseMessage], thread: str = "t", user: str = "u") -> ModelRequest[Any]:
    return ModelRequest(
        model=ScriptedChat(),
        messages=list(messages),  # type: ignore[arg-type]
        system_message=SystemMessage("Be brief, and look things up."),
        tools=[look_up],
        state={"messages": list(messages)},  # type: ignore[arg-type]
        runtime=Runtime(
            context={"user_id": user},
            execution_info=ExecutionInfo(checkpoint_id="", checkpoint_ns="", task_id="", thread_id=thread),
        ),
    )


def show(middleware: TieredMemoryMiddleware, request: ModelRequest[Any]) -> list[BaseMessage]:
    given_to: list[BaseMessage] = []

    def handler(request: ModelRequest[Any]) -> ModelResponse[Any]:
        given_to.extend([*([request.system_message] if request.system_message else []), *request.messages])
        return ModelResponse(result=[AIMessage("done")])

    middleware.wrap_model_call(request, handler)
    return given_to


def count_tokens(engine: MemoryEngine, shown: Sequence[BaseMessage]) -> int:
    import json

    from langchain_core.utils.function_calling import convert_to_openai_tool

    schema = json.dumps(convert_to_openai_tool(look_up), ensure_ascii=False)
    tools = engine.counter.count(schema) + FRAME_TOKENS
    return sum(count_message(engine.counter, message) for message in shown) + tools + REPLY_TOKENS


@examples(15)
@given(threads(), st.integers(150, 4000), st.sampled_from(["alone", "recall", "recall of a past"]))
def test_a_view_is_complete_and_within_its_budget(
    messages: list[BaseMessage], tokens: int, memory: str
) -> None:
    with MemoryEngine(clock=FrozenClock(), ids=seeded_ids()) as engine:
        if "past" in memory:
            engine.session("u", "before").add(
                "user", "word7 word8: the gate 12 is at https://gate.example/12"
            )
            engine.namespace("u").knowledge.store("preference", "tone", "brief")
        middleware = TieredMemoryMiddleware(engine, budget=tokens, recall=memory != "alone")
        before = [message.model_copy(deep=True) for message in messages]
        for end in range(1, len(messages) + 1):  # call after call, as the thread grows
            if isinstance(messages[end - 1], AIMessage):
                continue
            try:
                shown = show(middleware, build_request(messages[:end]))
            except BudgetExceededError:
                continue
            check_tool_call_order(shown)
            assert count_tokens(engine, shown) <= tokens
            newest = messages[end - 1]
            assert newest.id in {message.id for message in shown}
            question = next(m for m in reversed(messages[:end]) if isinstance(m, HumanMessage))
            assert question.id in {message.id for message in shown}
        assert messages == before
        assert not middleware.stats.failures


def test_the_question_stays_in_the_view_during_many_tool_calls() -> None:
    messages: list[BaseMessage] = [HumanMessage("Find the colour of the door of house 7.", id="q")]
    with MemoryEngine() as engine:
        middleware = TieredMemoryMiddleware(engine, budget=1500)
        for step in range(50):
            call = {"name": "look_up", "args": {"what": f"house {step}"}, "id": f"c{step}"}
            messages.append(AIMessage("", id=f"a{step}", tool_calls=[call]))
            messages.append(
                ToolMessage(f"House {step} has a door. " * 12, tool_call_id=f"c{step}", id=f"r{step}")
            )
            shown = show(middleware, build_request(messages))
            check_tool_call_order(shown)
            assert "colour of the door of house 7" in join_texts(shown)
            assert f"House {step} has a door" in join_texts(shown)
            assert count_tokens(engine, shown) <= 1500
        assert not middleware.stats.failures
        assert len(list(engine.session("u", "t").messages())) >= len(messages)


def test_with_a_closed_engine_a_tool_result_beyond_the_budget_is_shortened(tmp_path: Any) -> None:
    engine = MemoryEngine(tmp_path / "memory.db")
    middleware = TieredMemoryMiddleware(engine, budget=700)
    engine.close()
    messages = [
        HumanMessage("Which gate is open?", id="q"),
        AIMessage("", id="a", tool_calls=[{"name": "look_up", "args": {"what": "gates"}, "id": "c"}]),
        ToolMessage("The gate is closed. " * 1000, tool_call_id="c", id="r"),
    ]
    shown = show(middleware, build_request(messages))
    assert [message.id for message in shown if message.id] == ["q", "a", "r"]
    assert "The gate is closed." in str(shown[-1].text)
    assert count_tokens(engine, shown) <= 700


def test_with_a_closed_engine_the_view_is_complete_and_within_its_budget(tmp_path: Any) -> None:
    engine = MemoryEngine(tmp_path / "memory.db")
    middleware = TieredMemoryMiddleware(engine, budget=700)
    engine.close()
    messages: list[BaseMessage] = []
    for turn in range(30):
        call = {"name": "look_up", "args": {"what": "x"}, "id": f"c{turn}"}
        messages += [
            HumanMessage(f"question {turn} " * 10, id=f"q{turn}"),
            AIMessage("", id=f"a{turn}", tool_calls=[call]),
            ToolMessage("a result " * 10, tool_call_id=f"c{turn}", id=f"r{turn}"),
        ]
    shown = show(middleware, build_request(messages))
    check_tool_call_order(shown)
    assert {"q29", "a29", "r29"} <= {message.id for message in shown}
    assert len(shown) > 5
    assert count_tokens(engine, shown) <= 700
    assert middleware.stats.failures["EngineClosedError"] == 2


def test_a_budget_below_the_fixed_parts_raises() -> None:
    with MemoryEngine() as engine:
        middleware = TieredMemoryMiddleware(engine, budget=20)
        with pytest.raises(BudgetExceededError, match="system prompt .* tools .* of 20"):
            show(middleware, build_request([HumanMessage("hello", id="q")]))


def test_an_abandoned_branch_is_not_shown() -> None:
    first: list[BaseMessage] = [HumanMessage("What is a boat?", id="1"), AIMessage("A ship.", id="2")]
    given_up: list[BaseMessage] = [*first, HumanMessage("And a zeppelin?", id="3")]
    instead: list[BaseMessage] = [*first, HumanMessage("And a bicycle?", id="4")]
    with MemoryEngine() as engine:
        middleware = TieredMemoryMiddleware(engine, recall=False)
        show(middleware, build_request(given_up))
        assert "zeppelin" not in join_texts(show(middleware, build_request(instead)))


def test_a_message_changed_by_another_middleware_is_shown_changed_and_stored_unchanged() -> None:
    messages: list[BaseMessage] = [HumanMessage("The code is 4711.", id="1"), AIMessage("Noted.", id="2")]
    messages.append(HumanMessage("Go on.", id="3"))
    cleared = [messages[0].model_copy(update={"content": "[cleared]"}), *messages[1:]]
    with MemoryEngine() as engine:
        middleware = TieredMemoryMiddleware(engine, recall=False)
        shown = show(middleware, build_request(messages).override(messages=cleared))  # type: ignore[arg-type]
        assert "[cleared]" in join_texts(shown)
        assert "4711" not in join_texts(shown)
        assert engine.session("u", "t").get("1").content == "The code is 4711."


def test_messages_added_by_another_middleware_are_shown() -> None:
    messages: list[BaseMessage] = [HumanMessage("Hello there.", id="1")]
    added = [HumanMessage("A note that has no id."), *messages]
    with MemoryEngine() as engine:
        middleware = TieredMemoryMiddleware(engine)
        shown = show(middleware, build_request(messages).override(messages=added))  # type: ignore[arg-type]
        assert "A note that has no id." in join_texts(shown)
        assert next(engine.session("u", "t").messages()).content == "Hello there."


def test_the_context_leaves_room_for_messages_of_another_middleware_at_once_and_is_built_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    messages: list[BaseMessage] = [HumanMessage(f"Gate {n} is open. " * 10, id=f"{n}") for n in range(60)]
    added = [HumanMessage("A note that has no id. " * 50), *messages]
    built: list[Any] = []
    build_context = Session.build_context

    def watched(session: Session, *args: Any, **options: Any) -> Any:
        built.append(build_context(session, *args, **options))
        return built[-1]

    monkeypatch.setattr(Session, "build_context", watched)
    with MemoryEngine(embedder=None) as engine:
        middleware = TieredMemoryMiddleware(engine, budget=2000)
        shown = show(middleware, build_request(messages).override(messages=added))  # type: ignore[arg-type]
        assert count_tokens(engine, shown) <= 2000
    assert "A note that has no id." in join_texts(shown)
    assert len(built) == 1


def test_an_edited_message_is_stored_next_to_its_former_text() -> None:
    with MemoryEngine() as engine:
        middleware = TieredMemoryMiddleware(engine)
        show(middleware, build_request([HumanMessage("I live in Rome.", id="1")]))
        shown = show(middleware, build_request([HumanMessage("I live in Oslo.", id="1")]))
        assert "I live in Oslo." in join_texts(shown)
        contents = [message.content for message in engine.session("u", "t").messages()]
        assert contents == ["I live in Rome.", "done", "I live in Oslo.", "done"]


def test_a_picture_counts_by_its_token_cost_and_not_by_its_data() -> None:
    messages: list[BaseMessage] = [HumanMessage([{"type": "text", "text": "What is this?"}, IMAGE], id="1")]
    with MemoryEngine() as engine:
        shown = show(TieredMemoryMiddleware(engine, budget=4000), build_request(messages))
        assert shown[-1].content == messages[0].content


def test_the_budget_comes_from_the_models_profile() -> None:
    messages = [HumanMessage("word " * 400, id=f"m{n}") for n in range(40)]
    with MemoryEngine() as engine:
        middleware, request = TieredMemoryMiddleware(engine), build_request(messages)
        request.model.profile = {"max_input_tokens": 3000}
        shown = show(middleware, request)
        assert count_tokens(engine, shown) <= 3000
        given_budget = TieredMemoryMiddleware(
            engine, budget=TokenBudget(context_tokens=6000, system_tokens=0, response_tokens=1000)
        )
        assert count_tokens(engine, show(given_budget, build_request(messages, thread="t2"))) <= 5000


def test_token_counts_are_calibrated_with_reported_usage() -> None:
    messages = [HumanMessage("word " * 300, id=f"m{n}") for n in range(40)]
    with MemoryEngine() as engine:
        middleware = TieredMemoryMiddleware(engine, budget=4000, recall=False)
        first = show(middleware, build_request(messages))
        usage = {"input_tokens": 2 * count_tokens(engine, first), "output_tokens": 1, "total_tokens": 1}
        middleware.wrap_model_call(
            build_request(messages),
            lambda _: ModelResponse(result=[AIMessage("ok", usage_metadata=usage)]),
        )
        assert middleware.calibration.get_ratio(ScriptedChat()) == pytest.approx(2.0, rel=0.02)
        assert count_tokens(engine, show(middleware, build_request(messages))) <= 4000 / 1.95


@pytest.mark.parametrize("budget", [0, -1, 1.5, "many", True])
def test_an_invalid_budget_is_rejected(budget: Any) -> None:
    from langmem_tiers import InvalidConfigError

    with MemoryEngine() as engine, pytest.raises(InvalidConfigError, match="TokenBudget or a number"):
        TieredMemoryMiddleware(engine, budget=budget)
