"""Two sessions of one user in every LlamaIndex chat engine and agent: the second recalls the first."""

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

STATEMENT = "Please remember: my cat is called Tomasina and she is afraid of thunder."
STATEMENT_OF_BOB = "Please remember: my cat is called Rufus and he bites."
QUESTION = "What is my cat called?"
SECOND_QUESTION = "And what is she afraid of?"
NOTED = "I have noted it."
FACT = "called Tomasina"
WAYS = ("chat", "achat", "stream_chat", "astream_chat")


@pytest.fixture
def engine() -> Iterator[MemoryEngine]:
    with MemoryEngine() as opened:
        yield opened


@pytest.fixture
def memory(engine: MemoryEngine) -> Callable[[str, str], TieredMemory]:
    """Function that creates the memory of a session of a user."""
    return lambda user, session: TieredMemory.from_defaults(engine=engine, user_id=user, session_id=session)


def create_simple_engine(memory: Any, llm: Any) -> Any:
    return SimpleChatEngine.from_defaults(memory=memory, llm=llm, system_prompt="Be kind.")


def create_context_engine(memory: Any, llm: Any) -> Any:
    return ContextChatEngine.from_defaults(
        SingleNodeRetriever(), memory=memory, llm=llm, system_prompt="Be kind."
    )


def create_condense_plus_context_engine(memory: Any, llm: Any) -> Any:
    return CondensePlusContextChatEngine.from_defaults(SingleNodeRetriever(), memory=memory, llm=llm)


def create_condense_question_engine(memory: Any, llm: Any) -> Any:
    answers = RetrieverQueryEngine.from_args(SingleNodeRetriever(), llm=llm, streaming=True)
    return CondenseQuestionChatEngine.from_defaults(answers, memory=memory, llm=llm)


def create_multi_modal_engine(memory: Any, llm: Any) -> Any:
    return MultiModalContextChatEngine.from_defaults(
        SingleNodeRetriever(), memory=memory, multi_modal_llm=llm
    )


def create_multi_modal_condense_engine(memory: Any, llm: Any) -> Any:
    return MultiModalCondensePlusContextChatEngine.from_defaults(
        SingleNodeRetriever(), memory=memory, multi_modal_llm=llm
    )


ENGINES = (
    create_simple_engine,
    create_context_engine,
    create_condense_plus_context_engine,
    create_condense_question_engine,
    create_multi_modal_engine,
    create_multi_modal_condense_engine,
)


async def send(chat: Any, way: str, text: str) -> str:
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
async def test_a_chat_engine_recalls_another_session_of_the_user(
    build: Any, way: str, kind: Any, memory: Any
) -> None:
    await send(build(memory("bob", "his"), kind()), way, STATEMENT_OF_BOB)
    await send(build(memory("ada", "first"), kind()), way, STATEMENT)
    llm = kind()
    chat = build(memory("ada", "second"), llm)
    assert await send(chat, way, QUESTION) == NOTED
    assert FACT in texts(llm.seen[0])
    assert await send(chat, way, SECOND_QUESTION) == NOTED
    assert all("Rufus" not in texts(prompt) for prompt in llm.seen)
    assert list_turns(memory("ada", "first").get_all()) == [("user", STATEMENT), ("assistant", NOTED)]
    assert list_turns(chat.chat_history) == [
        ("user", QUESTION),
        ("assistant", NOTED),
        ("user", SECOND_QUESTION),
        ("assistant", NOTED),
    ]
    chat.reset()
    assert chat.chat_history == []


@pytest.mark.sample(2)
@pytest.mark.parametrize("build", ENGINES)
async def test_a_chat_engine_continues_a_conversation_of_an_agent(build: Any, memory: Any) -> None:
    conversation = memory("ada", "shared")
    await FunctionAgent(tools=[note], llm=ScriptedLLM(reply=AnswerSequence(*USING_A_TOOL))).run(
        STATEMENT, memory=conversation
    )
    llm = ScriptedLLM()
    assert await send(build(conversation, llm), "chat", QUESTION) == NOTED
    assert FACT in texts(llm.seen[0])
    assert roles(conversation.get_all()) == ["user", "assistant", "tool", "assistant", "user", "assistant"]


@pytest.mark.sample(2)
@pytest.mark.parametrize("build", [create_context_engine, create_condense_plus_context_engine])
@pytest.mark.parametrize("way", WAYS)
async def test_a_chat_engine_does_not_fill_in_placeholders_of_messages(
    build: Any, way: str, memory: Any
) -> None:
    template = 'My template says {context_str}: {query_str} and {"json": {existing_answer}}, {other}.'
    await send(build(memory("ada", "first"), ScriptedLLM()), way, template)
    llm = ScriptedLLM()
    chat = build(memory("ada", "second"), llm)
    await send(chat, way, "What does my template say?")
    await send(chat, way, template)
    await send(chat, way, "And now?")
    shown = texts(llm.seen[-1]).replace("\N{WORD JOINER}", "")
    assert "My template says {context_str}: {query_str}" in texts(llm.seen[0]).replace("\N{WORD JOINER}", "")
    assert template in shown
    assert list_turns(chat.chat_history)[2] == ("user", template)


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
async def test_an_agent_recalls_another_session_of_the_user(
    name: str, memory: Any, *, streaming: bool
) -> None:
    build, answers, turn = AGENTS[name]

    def agent_with(llm: Any) -> Any:
        return build(llm=llm, streaming=streaming)

    def model() -> ScriptedLLM:
        return ScriptedLLM(reply=AnswerSequence(*answers))

    await agent_with(model()).run(user_msg=STATEMENT_OF_BOB, memory=memory("bob", "his"))
    await agent_with(model()).run(user_msg=STATEMENT, memory=memory("ada", "first"))
    llm, second = model(), memory("ada", "second")
    assert str(await agent_with(llm).run(user_msg=QUESTION, memory=second)) == NOTED
    assert len(llm.seen) == 2
    for prompt in llm.seen:  # in the steps after the first as well
        assert FACT in texts(prompt)
        assert "Rufus" not in texts(prompt)
        assert texts(prompt).count("Be kind.") == ("bare" not in name)
    assert list_turns(memory("ada", "first").get_all()) == [("user", STATEMENT), *turn]
    assert list_turns(second.get_all()) == [("user", QUESTION), *turn]
    again = model()
    await agent_with(again).run(user_msg=SECOND_QUESTION, memory=second)
    assert QUESTION in texts(again.seen[0])
    assert list_turns(second.get_all()) == [("user", QUESTION), *turn, ("user", SECOND_QUESTION), *turn]


@pytest.mark.parametrize("prompt", [None, "Be kind."], ids=["bare", "with a system prompt"])
async def test_a_react_agent_on_a_completion_model_sees_memories(prompt: str | None, memory: Any) -> None:
    first = CompletionLLM(reply=AnswerSequence(*REASONING))
    await ReActAgent(tools=[note], llm=first, system_prompt=prompt).run(
        user_msg=STATEMENT, memory=memory("ada", "first")
    )
    llm = CompletionLLM(reply=AnswerSequence("", *REASONING))  # asked again, it sees it again
    agent = ReActAgent(tools=[note], llm=llm, system_prompt=prompt)
    assert str(await agent.run(user_msg=QUESTION, memory=memory("ada", "second"))) == NOTED
    assert len(llm.seen) == 3
    assert all(FACT in texts(prompt) for prompt in llm.seen)


HANDOFF = create_tool_calls(("h-1", "handoff", {"to_agent": "second", "reason": "it knows cats"}))


@pytest.mark.sample(4)
@pytest.mark.parametrize("streaming", [True, False], ids=["streaming", "at once"])
@pytest.mark.parametrize("name", AGENTS)
async def test_an_agent_sees_memories_after_a_handoff(name: str, memory: Any, *, streaming: bool) -> None:
    build, answers, turn = AGENTS[name]
    await FunctionAgent(tools=[note], llm=ScriptedLLM()).run(
        user_msg=STATEMENT, memory=memory("ada", "first")
    )
    await FunctionAgent(tools=[note], llm=ScriptedLLM()).run(
        user_msg=STATEMENT_OF_BOB, memory=memory("bob", "his")
    )
    first, second = ScriptedLLM(reply=AnswerSequence(HANDOFF)), ScriptedLLM(reply=AnswerSequence(*answers))
    agents: list[Any] = [
        FunctionAgent(name="first", description="asks", tools=[note], llm=first, streaming=streaming),
        build(name="second", description="knows", llm=second, streaming=streaming),
    ]
    conversation = memory("ada", "second")
    workflow = AgentWorkflow(agents=agents, root_agent="first")
    assert str(await workflow.run(user_msg=QUESTION, memory=conversation)) == NOTED
    for prompt in [*first.seen, *second.seen]:
        assert FACT in texts(prompt)
        assert "Rufus" not in texts(prompt)
    turns = list_turns(conversation.get_all())
    assert turns[:2] == [("user", QUESTION), ("assistant", "handoff")]
    assert turns[2][0] == "tool"
    assert turns[3:] == turn
    later = ScriptedLLM()
    await FunctionAgent(tools=[note], llm=later).run(user_msg=SECOND_QUESTION, memory=conversation)
    check_call_order(later.seen[0])


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", [FunctionAgent, ReActAgent])
@pytest.mark.parametrize("limit", [300, 700, 2000])
async def test_the_question_stays_in_the_prompt_after_many_tool_calls_and_a_handoff(
    limit: int, kind: Any, engine: MemoryEngine, memory: Any
) -> None:
    memory("ada", "first").put(ChatMessage(STATEMENT))
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
    conversation = TieredMemory.from_defaults(
        engine=engine, user_id="ada", session_id="second", token_limit=limit, tokenizer_fn=str.split
    )
    workflow = AgentWorkflow(agents=agents, root_agent="first", initial_state={"mood": "good"})
    await workflow.run(user_msg=QUESTION, memory=conversation)
    (prompt,) = second.seen
    assert texts(prompt).count(QUESTION) == 1
    assert texts(prompt).count("Current state") == 1
    assert FACT in texts(prompt)
    check_call_order(prompt)
    shown = prompt if kind is FunctionAgent else prompt[1:]
    assert len(texts(shown).split()) <= limit
    assert len(conversation.get_all()) == 1 + 5 * 10 + 2 + 1


async def test_calls_without_ids_keep_their_results(memory: Any) -> None:
    # Models of Ollama and Google give none, and what a tool returns is told by the name of the tool.
    answers = (create_tool_calls((None, "note", {"text": "one"}), (None, "note", {"text": "two"})), NOTED)
    conversation = memory("ada", "first")
    agent = FunctionAgent(tools=[note], llm=ScriptedLLM(reply=AnswerSequence(*answers)))
    await agent.run(user_msg=STATEMENT, memory=conversation)
    llm = ScriptedLLM()
    await FunctionAgent(tools=[note], llm=llm).run(user_msg=QUESTION, memory=conversation)
    check_call_order(llm.seen[0])
    assert list_turns(llm.seen[0])[1:4] == [
        ("assistant", "note note"),
        ("tool", "The board has it: one"),
        ("tool", "The board has it: two"),
    ]
    copied_memory = memory("ada", "third")
    for message in conversation.get_all():
        copied_memory.put(message)
    assert list_turns(copied_memory.get()) == list_turns(conversation.get())
    copied_memory.set([*copied_memory.get_all(), ChatMessage("Bye.")])
    assert copied_memory.engine.session("ada", "third").count() == len(conversation.get_all()) + 1


def test_calls_without_ids_in_additional_kwargs_keep_their_results(memory: Any) -> None:
    # As older integrations of models have them.
    calls = [{"name": "note", "args": {"text": text}} for text in ("one", "two")]
    conversation = memory("ada", "first")
    conversation.put_messages(
        [
            ChatMessage(STATEMENT),
            ChatMessage(role="assistant", content="", additional_kwargs={"tool_calls": calls}),
            ChatMessage(
                role="tool", content="The board has one.", additional_kwargs={"tool_call_id": "note"}
            ),
            ChatMessage(
                role="tool", content="The board has two.", additional_kwargs={"tool_call_id": "note"}
            ),
            ChatMessage(role="assistant", content=NOTED),
            ChatMessage(QUESTION),
        ]
    )
    assert conversation.get() == conversation.get_all()


async def test_a_call_without_a_result_does_not_break_later_prompts(memory: Any) -> None:
    # Of parallel calls, one that returns directly ends the turn before the others are written down.
    direct = FunctionTool.from_defaults(run_code, return_direct=True)
    calls = create_tool_calls(("c-1", "run_code", {"code": "1"}), ("c-2", "note", {"text": "two"}))
    conversation = memory("ada", "first")
    agent = FunctionAgent(tools=[note, direct], llm=ScriptedLLM(reply=AnswerSequence(calls)))
    assert str(await agent.run(user_msg=STATEMENT, memory=conversation)) == "ran 1"
    assert roles(conversation.get_all()) == ["user", "assistant", "tool", "assistant"]
    llm = ScriptedLLM()
    await FunctionAgent(tools=[note], llm=llm).run(user_msg=QUESTION, memory=conversation)
    check_call_order(llm.seen[0])
    assert ("tool", "[no result: the call was interrupted]") in list_turns(llm.seen[0])
    assert "[no result" not in texts(conversation.get_all())


async def test_an_agent_that_reaches_max_iterations_leaves_a_valid_conversation(memory: Any) -> None:
    conversation, calls = (
        memory("ada", "first"),
        [create_tool_calls((f"c-{n}", "note", {"text": "x"})) for n in range(3)],
    )
    agent = FunctionAgent(tools=[note], llm=ScriptedLLM(reply=AnswerSequence(*calls, NOTED)))
    handler = agent.run(
        user_msg=STATEMENT, memory=conversation, max_iterations=3, early_stopping_method="generate"
    )
    assert str(await handler) == NOTED
    for question in (QUESTION, SECOND_QUESTION):
        await agent.run(user_msg=question, ctx=handler.ctx)
    llm = ScriptedLLM()
    await FunctionAgent(tools=[note], llm=llm).run(user_msg="Bye.", memory=conversation)
    check_call_order(llm.seen[0])


async def test_concurrent_agents_of_several_users_and_sessions_do_not_mix(memory: Any) -> None:
    users = [f"user-{number}" for number in range(4)]

    async def run_session(user: str, session: str) -> list[str]:
        llm = ScriptedLLM(reply=AnswerSequence(*USING_A_TOOL))
        agent = FunctionAgent(tools=[note], llm=llm)
        conversation = memory(user, session)
        for turn in range(3):
            await agent.run(
                user_msg=f"My secret number {turn} is {user}-{session}-{turn}.", memory=conversation
            )
        return [texts(prompt) for prompt in llm.seen]

    names = [(user, session) for user in users for session in ("one", "two")]
    prompts = await asyncio.gather(*(run_session(*name) for name in names))
    for (user, session), seen in zip(names, prompts, strict=True):
        assert all(other not in text for text in seen for other in users if other != user)
        assert len(memory(user, session).get_all()) == 8
