"""Two sessions of one user, in every chat engine and agent of LlamaIndex: the second knows what the first was told."""

from __future__ import annotations

import asyncio
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from langmem_tiers import MemoryEngine
from langmem_tiers_llamaindex.memory import TieredMemory
from tests.integrations.llamaindex_agents import (
    AnswerSequence,
    CompletionLLM,
    ScriptedLLM,
    SingleNodeRetriever,
    check_call_order,
    create_tool_calls,
    list_turns,
    roles,
    texts,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what the framework warns of as it loads is not ours
    from llama_index.core.agent.workflow import AgentWorkflow, CodeActAgent, FunctionAgent, ReActAgent
    from llama_index.core.chat_engine import (
        CondensePlusContextChatEngine,
        CondenseQuestionChatEngine,
        ContextChatEngine,
        SimpleChatEngine,
    )
    from llama_index.core.chat_engine.multi_modal_condense_plus_context import (
        MultiModalCondensePlusContextChatEngine,
    )
    from llama_index.core.chat_engine.multi_modal_context import MultiModalContextChatEngine
    from llama_index.core.llms import ChatMessage
    from llama_index.core.query_engine import RetrieverQueryEngine
    from llama_index.core.tools import FunctionTool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Agents and chat engines use what pydantic and their own workflows have deprecated.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

TOLD = "Please remember: my cat is called Tomasina and she is afraid of thunder."
OF_ANOTHER = "Please remember: my cat is called Rufus and he bites."
ASKED = "What is my cat called?"
MORE = "And what is she afraid of?"
NOTED = "I have noted it."
FACT = "called Tomasina"
WAYS = ("chat", "achat", "stream_chat", "astream_chat")


@pytest.fixture
def engine() -> Iterator[MemoryEngine]:
    with MemoryEngine() as opened:
        yield opened


@pytest.fixture
def memory(engine: MemoryEngine) -> Callable[[str, str], TieredMemory]:
    """A new memory object for a conversation of a user."""
    return lambda user, session: TieredMemory.from_defaults(engine=engine, user_id=user, session_id=session)


def simple(memory: Any, llm: Any) -> Any:
    return SimpleChatEngine.from_defaults(memory=memory, llm=llm, system_prompt="Be kind.")


def context(memory: Any, llm: Any) -> Any:
    return ContextChatEngine.from_defaults(
        SingleNodeRetriever(), memory=memory, llm=llm, system_prompt="Be kind."
    )


def condense_plus_context(memory: Any, llm: Any) -> Any:
    return CondensePlusContextChatEngine.from_defaults(SingleNodeRetriever(), memory=memory, llm=llm)


def condense_question(memory: Any, llm: Any) -> Any:
    answers = RetrieverQueryEngine.from_args(SingleNodeRetriever(), llm=llm, streaming=True)
    return CondenseQuestionChatEngine.from_defaults(answers, memory=memory, llm=llm)


def pictures(memory: Any, llm: Any) -> Any:
    return MultiModalContextChatEngine.from_defaults(
        SingleNodeRetriever(), memory=memory, multi_modal_llm=llm
    )


def condensed_pictures(memory: Any, llm: Any) -> Any:
    return MultiModalCondensePlusContextChatEngine.from_defaults(
        SingleNodeRetriever(), memory=memory, multi_modal_llm=llm
    )


ENGINES = (simple, context, condense_plus_context, condense_question, pictures, condensed_pictures)


async def say(chat: Any, way: str, text: str) -> str:
    if way == "chat":
        return str(chat.chat(text))
    if way == "achat":
        return str(await chat.achat(text))
    if way == "stream_chat":
        return "".join(chat.stream_chat(text).response_gen)
    response = await chat.astream_chat(text)
    return "".join([token async for token in response.async_response_gen()])


@pytest.mark.sample(4)
@pytest.mark.parametrize(("way", "kind"), [*((way, ScriptedLLM) for way in WAYS), ("chat", CompletionLLM)])
@pytest.mark.parametrize("build", ENGINES)
async def test_a_chat_engine_knows_what_another_session_was_told(
    build: Any, way: str, kind: Any, memory: Any
) -> None:
    await say(build(memory("bob", "his"), kind()), way, OF_ANOTHER)
    await say(build(memory("ada", "first"), kind()), way, TOLD)
    llm = kind()
    chat = build(memory("ada", "second"), llm)
    assert await say(chat, way, ASKED) == NOTED
    assert FACT in texts(llm.seen[0])
    assert await say(chat, way, MORE) == NOTED
    assert all("Rufus" not in texts(prompt) for prompt in llm.seen)
    assert list_turns(memory("ada", "first").get_all()) == [("user", TOLD), ("assistant", NOTED)]
    assert list_turns(chat.chat_history) == [
        ("user", ASKED),
        ("assistant", NOTED),
        ("user", MORE),
        ("assistant", NOTED),
    ]
    chat.reset()
    assert chat.chat_history == []


@pytest.mark.sample(2)
@pytest.mark.parametrize("build", ENGINES)
async def test_a_chat_engine_goes_on_with_what_an_agent_began(build: Any, memory: Any) -> None:
    mine = memory("ada", "shared")
    await FunctionAgent(tools=[note], llm=ScriptedLLM(reply=AnswerSequence(*USING_A_TOOL))).run(
        TOLD, memory=mine
    )
    llm = ScriptedLLM()
    assert await say(build(mine, llm), "chat", ASKED) == NOTED
    assert FACT in texts(llm.seen[0])
    assert roles(mine.get_all()) == ["user", "assistant", "tool", "assistant", "user", "assistant"]


@pytest.mark.sample(2)
@pytest.mark.parametrize("build", [context, condense_plus_context])
@pytest.mark.parametrize("way", WAYS)
async def test_a_chat_engine_fills_in_no_placeholder_that_somebody_said(
    build: Any, way: str, memory: Any
) -> None:
    odd = 'My template says {context_str}: {query_str} and {"json": {existing_answer}}, {other}.'
    await say(build(memory("ada", "first"), ScriptedLLM()), way, odd)
    llm = ScriptedLLM()
    chat = build(memory("ada", "second"), llm)
    await say(chat, way, "What does my template say?")
    await say(chat, way, odd)
    await say(chat, way, "And now?")
    shown = texts(llm.seen[-1]).replace("\N{WORD JOINER}", "")
    assert "My template says {context_str}: {query_str}" in texts(llm.seen[0]).replace("\N{WORD JOINER}", "")
    assert odd in shown
    assert list_turns(chat.chat_history)[2] == ("user", odd)


def note(text: str) -> str:
    """Write something on the notice board."""
    return f"The board has it: {text}"


def run_code(code: str) -> str:
    """Run code."""
    return f"ran {code}"


THINKING = 'Thought: I need a tool.\nAction: note\nAction Input: {"text": "hello"}'
ANSWERING = f"Thought: I can answer.\nAnswer: {NOTED}"
USING_A_TOOL = (create_tool_calls(("c-1", "note", {"text": "hello"}), text="Let me see."), NOTED)
REASONING = (THINKING, ANSWERING)
CODING = ("<execute>note('hello')</execute>", NOTED)

TOOL_TURN = [("assistant", "Let me see."), ("tool", "The board has it: hello"), ("assistant", NOTED)]
STEPS = (
    "Thought: I need a tool.\nAction: note\nAction Input: {'text': 'hello'}\n"
    f"Observation: The board has it: hello\nThought: I can answer.\nAnswer: {NOTED}"
)
TRACE = [("assistant", STEPS)]
RAN = "Result of executing the code given:\n\nran note('hello')"
CODE_TURN = [("assistant", CODING[0]), ("user", RAN), ("assistant", NOTED)]

AGENTS: dict[str, tuple[Any, Any, list[tuple[str, str]]]] = {
    "function": (partial(FunctionAgent, tools=[note], system_prompt="Be kind."), USING_A_TOOL, TOOL_TURN),
    "bare function": (partial(FunctionAgent, tools=[note]), USING_A_TOOL, TOOL_TURN),
    "react": (partial(ReActAgent, tools=[note], system_prompt="Be kind."), REASONING, TRACE),
    "bare react": (partial(ReActAgent, tools=[note]), REASONING, TRACE),
    "code": (partial(CodeActAgent, run_code, system_prompt="Be kind."), CODING, CODE_TURN),
    "bare code": (partial(CodeActAgent, run_code), CODING, CODE_TURN),
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("streaming", [True, False], ids=["streaming", "at once"])
@pytest.mark.parametrize("name", AGENTS)
async def test_an_agent_knows_what_another_session_was_told(
    name: str, memory: Any, *, streaming: bool
) -> None:
    build, answers, turn = AGENTS[name]

    def agent_with(llm: Any) -> Any:
        return build(llm=llm, streaming=streaming)

    def model() -> ScriptedLLM:
        return ScriptedLLM(reply=AnswerSequence(*answers))

    await agent_with(model()).run(user_msg=OF_ANOTHER, memory=memory("bob", "his"))
    await agent_with(model()).run(user_msg=TOLD, memory=memory("ada", "first"))
    llm, second = model(), memory("ada", "second")
    assert str(await agent_with(llm).run(user_msg=ASKED, memory=second)) == NOTED
    assert len(llm.seen) == 2
    for prompt in llm.seen:  # in the steps after the first as well
        assert FACT in texts(prompt)
        assert "Rufus" not in texts(prompt)
        assert texts(prompt).count("Be kind.") == ("bare" not in name)
    assert list_turns(memory("ada", "first").get_all()) == [("user", TOLD), *turn]
    assert list_turns(second.get_all()) == [("user", ASKED), *turn]
    again = model()
    await agent_with(again).run(user_msg=MORE, memory=second)
    assert ASKED in texts(again.seen[0])
    assert list_turns(second.get_all()) == [("user", ASKED), *turn, ("user", MORE), *turn]


@pytest.mark.parametrize("prompt", [None, "Be kind."], ids=["bare", "with a system prompt"])
async def test_a_completion_model_that_reasons_sees_what_is_remembered(
    prompt: str | None, memory: Any
) -> None:
    first = CompletionLLM(reply=AnswerSequence(*REASONING))
    await ReActAgent(tools=[note], llm=first, system_prompt=prompt).run(
        user_msg=TOLD, memory=memory("ada", "first")
    )
    llm = CompletionLLM(reply=AnswerSequence("", *REASONING))  # asked again, it sees it again
    agent = ReActAgent(tools=[note], llm=llm, system_prompt=prompt)
    assert str(await agent.run(user_msg=ASKED, memory=memory("ada", "second"))) == NOTED
    assert len(llm.seen) == 3
    assert all(FACT in texts(one) for one in llm.seen)


HANDOFF = create_tool_calls(("h-1", "handoff", {"to_agent": "second", "reason": "it knows cats"}))


@pytest.mark.sample(4)
@pytest.mark.parametrize("streaming", [True, False], ids=["streaming", "at once"])
@pytest.mark.parametrize("name", AGENTS)
async def test_an_agent_that_was_handed_the_question_knows_it_too(
    name: str, memory: Any, *, streaming: bool
) -> None:
    build, answers, turn = AGENTS[name]
    await FunctionAgent(tools=[note], llm=ScriptedLLM()).run(user_msg=TOLD, memory=memory("ada", "first"))
    await FunctionAgent(tools=[note], llm=ScriptedLLM()).run(user_msg=OF_ANOTHER, memory=memory("bob", "his"))
    first, second = ScriptedLLM(reply=AnswerSequence(HANDOFF)), ScriptedLLM(reply=AnswerSequence(*answers))
    agents: list[Any] = [
        FunctionAgent(name="first", description="asks", tools=[note], llm=first, streaming=streaming),
        build(name="second", description="knows", llm=second, streaming=streaming),
    ]
    mine = memory("ada", "second")
    workflow = AgentWorkflow(agents=agents, root_agent="first")
    assert str(await workflow.run(user_msg=ASKED, memory=mine)) == NOTED
    for prompt in [*first.seen, *second.seen]:
        assert FACT in texts(prompt)
        assert "Rufus" not in texts(prompt)
    handed = list_turns(mine.get_all())
    assert handed[:2] == [("user", ASKED), ("assistant", "handoff")]
    assert handed[2][0] == "tool"
    assert handed[3:] == turn
    later = ScriptedLLM()
    await FunctionAgent(tools=[note], llm=later).run(user_msg=MORE, memory=mine)
    check_call_order(later.seen[0])


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", [FunctionAgent, ReActAgent])
@pytest.mark.parametrize("limit", [300, 700, 2000])
async def test_the_question_stays_in_sight_however_many_tools_were_called_before_it_was_handed_on(
    limit: int, kind: Any, engine: MemoryEngine, memory: Any
) -> None:
    memory("ada", "first").put(ChatMessage(TOLD))
    rounds = [
        create_tool_calls(*((f"c-{number}-{n}", "note", {"text": f"{n} " * 20}) for n in range(9)))
        for number in range(5)
    ]
    first, second = (
        ScriptedLLM(reply=AnswerSequence(*rounds, HANDOFF)),
        ScriptedLLM(reply=AnswerSequence(ANSWERING)),
    )
    agents: list[Any] = [
        FunctionAgent(name="first", description="asks", tools=[note], llm=first),
        kind(name="second", description="knows", tools=[note], llm=second),
    ]
    mine = TieredMemory.from_defaults(
        engine=engine, user_id="ada", session_id="second", token_limit=limit, tokenizer_fn=str.split
    )
    workflow = AgentWorkflow(agents=agents, root_agent="first", initial_state={"mood": "good"})
    await workflow.run(user_msg=ASKED, memory=mine)
    (prompt,) = second.seen
    assert texts(prompt).count(ASKED) == 1
    assert texts(prompt).count("Current state") == 1
    assert FACT in texts(prompt)
    check_call_order(prompt)
    shown = prompt if kind is FunctionAgent else prompt[1:]
    assert len(texts(shown).split()) <= limit
    assert len(mine.get_all()) == 1 + 5 * 10 + 2 + 1


async def test_calls_without_ids_keep_their_results(memory: Any) -> None:
    # Models of Ollama and Google give none, and what a tool returns is told by the name of the tool.
    answers = (create_tool_calls((None, "note", {"text": "one"}), (None, "note", {"text": "two"})), NOTED)
    mine = memory("ada", "first")
    agent = FunctionAgent(tools=[note], llm=ScriptedLLM(reply=AnswerSequence(*answers)))
    await agent.run(user_msg=TOLD, memory=mine)
    llm = ScriptedLLM()
    await FunctionAgent(tools=[note], llm=llm).run(user_msg=ASKED, memory=mine)
    check_call_order(llm.seen[0])
    assert list_turns(llm.seen[0])[1:4] == [
        ("assistant", "note note"),
        ("tool", "The board has it: one"),
        ("tool", "The board has it: two"),
    ]
    by_hand = memory("ada", "third")
    for message in mine.get_all():
        by_hand.put(message)
    assert list_turns(by_hand.get()) == list_turns(mine.get())
    by_hand.set([*by_hand.get_all(), ChatMessage("Bye.")])
    assert by_hand.engine.session("ada", "third").count() == len(mine.get_all()) + 1


def test_calls_beside_the_blocks_keep_their_results_without_ids_too(memory: Any) -> None:
    # As older integrations of models have them.
    calls = [{"name": "note", "args": {"text": text}} for text in ("one", "two")]
    mine = memory("ada", "first")
    mine.put_messages(
        [
            ChatMessage(TOLD),
            ChatMessage(role="assistant", content="", additional_kwargs={"tool_calls": calls}),
            ChatMessage(
                role="tool", content="The board has one.", additional_kwargs={"tool_call_id": "note"}
            ),
            ChatMessage(
                role="tool", content="The board has two.", additional_kwargs={"tool_call_id": "note"}
            ),
            ChatMessage(role="assistant", content=NOTED),
            ChatMessage(ASKED),
        ]
    )
    assert mine.get() == mine.get_all()


async def test_a_call_that_got_no_result_breaks_no_later_prompt(memory: Any) -> None:
    # Of parallel calls, one that returns directly ends the turn before the others are written down.
    direct = FunctionTool.from_defaults(run_code, return_direct=True)
    both = create_tool_calls(("c-1", "run_code", {"code": "1"}), ("c-2", "note", {"text": "two"}))
    mine = memory("ada", "first")
    agent = FunctionAgent(tools=[note, direct], llm=ScriptedLLM(reply=AnswerSequence(both)))
    assert str(await agent.run(user_msg=TOLD, memory=mine)) == "ran 1"
    assert roles(mine.get_all()) == ["user", "assistant", "tool", "assistant"]
    llm = ScriptedLLM()
    await FunctionAgent(tools=[note], llm=llm).run(user_msg=ASKED, memory=mine)
    check_call_order(llm.seen[0])
    assert ("tool", "[no result: the call did not come to its end]") in list_turns(llm.seen[0])
    assert "[no result" not in texts(mine.get_all())


async def test_an_agent_that_may_take_no_further_step_leaves_a_whole_conversation(memory: Any) -> None:
    mine, calls = (
        memory("ada", "first"),
        [create_tool_calls((f"c-{n}", "note", {"text": "x"})) for n in range(3)],
    )
    agent = FunctionAgent(tools=[note], llm=ScriptedLLM(reply=AnswerSequence(*calls, NOTED)))
    handler = agent.run(user_msg=TOLD, memory=mine, max_iterations=3, early_stopping_method="generate")
    assert str(await handler) == NOTED
    for question in (ASKED, MORE):
        await agent.run(user_msg=question, ctx=handler.ctx)
    llm = ScriptedLLM()
    await FunctionAgent(tools=[note], llm=llm).run(user_msg="Bye.", memory=mine)
    check_call_order(llm.seen[0])


async def test_agents_with_several_users_and_sessions_at_once_never_meet(memory: Any) -> None:
    users = [f"user-{number}" for number in range(4)]

    async def live(user: str, session: str) -> list[str]:
        llm = ScriptedLLM(reply=AnswerSequence(*USING_A_TOOL))
        agent = FunctionAgent(tools=[note], llm=llm)
        mine = memory(user, session)
        for turn in range(3):
            await agent.run(user_msg=f"My secret number {turn} is {user}-{session}-{turn}.", memory=mine)
        return [texts(prompt) for prompt in llm.seen]

    names = [(user, session) for user in users for session in ("one", "two")]
    prompts = await asyncio.gather(*(live(*name) for name in names))
    for (user, session), seen in zip(names, prompts, strict=True):
        assert all(other not in text for text in seen for other in users if other != user)
        assert len(memory(user, session).get_all()) == 8
