"""Memory in LlamaIndex's ``Context``: reused, serialized and restored, also in another process."""

# No annotations from the future: agents find the context among the parameters of a tool by its type.

import asyncio
import gc
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from langmem_tiers import MemoryEngine
from langmem_tiers_llamaindex.memory import TieredMemory
from tests.integrations.llamaindex_agents import (
    AnswerSequence,
    Prompt,
    ScriptedLLM,
    check_call_order,
    create_tool_calls,
    list_turns,
    roles,
    texts,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what the framework warns of as it loads is not ours
    from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent, ReActAgent
    from llama_index.core.llms import ChatMessage
    from llama_index.core.workflow import Context, HumanResponseEvent, InputRequiredEvent
    from workflows.context.serializers import JsonSerializer, PickleSerializer
    from workflows.errors import WorkflowCancelledByUser

# Agents use what pydantic and their own workflows have deprecated.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

ROOT = Path(__file__).parents[2]
STATE = "Current state"


@pytest.fixture(params=["in memory", "on a file"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MemoryEngine]:
    url = "sqlite://" if request.param == "in memory" else f"sqlite:///{tmp_path / 'memory.db'}"
    with MemoryEngine(url) as opened:
        yield opened


@pytest.fixture
def in_memory() -> Iterator[MemoryEngine]:
    with MemoryEngine() as opened:
        yield opened


def look_up(what: str) -> str:
    """Look something up."""
    return f"The {what} is in the attic."


async def count(ctx: Context[Any]) -> str:
    """Count up."""
    async with ctx.store.edit_state() as state:
        state["state"]["counted"] += 1
    return "counted"


async def ask_person(ctx: Context[Any], what: str) -> str:
    """Ask the person in charge."""
    request = InputRequiredEvent.model_validate({"prefix": what})
    answer = await ctx.wait_for_event(HumanResponseEvent, waiter_id="person", waiter_event=request)
    return f"The person says {answer.response}."


def create_response(person: str) -> HumanResponseEvent:
    return HumanResponseEvent.model_validate({"response": person})


def create_agent(llm: Any, **settings: Any) -> FunctionAgent:
    return FunctionAgent(tools=[look_up, count, ask_person], llm=llm, **settings)


def create_react_agent(llm: Any) -> Any:
    return ReActAgent(tools=[look_up], llm=llm)


def create_workflow(llm: Any) -> Any:
    agents = [
        create_agent(llm, name="first", description="first"),
        create_agent(llm, name="second", description="next"),
    ]
    return AgentWorkflow(agents=agents, root_agent="first")  # type: ignore[arg-type]  # a list of one kind of them


@pytest.mark.sample(2)
@pytest.mark.parametrize("build", [create_agent, create_react_agent, create_workflow])
async def test_a_reused_context_keeps_every_turn(build: Any, engine: MemoryEngine) -> None:
    llm = ScriptedLLM(reply=lambda prompt: f"Thought: I can answer.\nAnswer: {len(prompt)}")
    agent = build(llm)
    memory = TieredMemory.from_defaults(engine=engine, user_id="ada", session_id="one")
    context: Any = Context(agent)
    await agent.run(user_msg="Question 0", ctx=context, memory=memory)
    for turn in range(1, 5):
        await agent.run(user_msg=f"Question {turn}", ctx=context)
        assert [f"Question {n}" in texts(llm.seen[-1]) for n in range(turn + 1)] == [True] * (turn + 1)
    context_memory = await context.store.get("memory")
    assert list_turns(context_memory.get_all()) == list_turns(
        memory.get_all()
    )  # the caller's own object is not left behind
    assert roles(memory.get_all()) == ["user", "assistant"] * 5
    memory.put(ChatMessage("By the way, the key is under the mat."))
    await agent.run(user_msg="Where is the key?", ctx=context)
    assert "under the mat" in texts(llm.seen[-1])


@pytest.mark.soak
async def test_a_context_keeps_its_memory_alive() -> None:
    llm = ScriptedLLM()
    agent = create_agent(llm)
    context: Any = Context(agent)
    await agent.run(user_msg="Question 0", ctx=context, memory=TieredMemory.from_defaults())
    for turn in range(1, 4):
        gc.collect()  # nobody else holds the memory or its engine
        await agent.run(user_msg=f"Question {turn}", ctx=context)
    memory = await context.store.get("memory")
    assert roles(memory.get_all()) == ["user", "assistant"] * 4
    assert "Question 0" in texts(llm.seen[-1])
    memory.engine.close()


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "serializer",
    [None, JsonSerializer(), JsonSerializer(allowed_types=[TieredMemory]), PickleSerializer()],
    ids=["default", "json", "of known types", "pickle"],
)
async def test_a_deserialized_context_continues_its_conversation(
    serializer: Any, engine: MemoryEngine
) -> None:
    llm = ScriptedLLM()
    agent = create_agent(llm)
    memory = TieredMemory.from_defaults(engine=engine, user_id="ada", session_id="one", token_limit=5000)
    first: Any = Context(agent)
    await agent.run(user_msg="The key is under the mat.", ctx=first, memory=memory)
    dump = json.dumps(first.to_dict(serializer))
    assert "under the mat" not in json.loads(dump)["state"]["state_data"]["_data"]["memory"]
    again: Any = Context.from_dict(agent, json.loads(dump), serializer)
    await agent.run(user_msg="Where is it?", ctx=again)
    assert "under the mat" in texts(llm.seen[-1])
    context_memory = await again.store.get("memory")
    assert context_memory.engine is engine
    assert context_memory.token_limit == 5000
    assert len(memory.get_all()) == 4


async def test_a_custom_tokenizer_is_kept_within_one_process(in_memory: MemoryEngine) -> None:
    llm = ScriptedLLM()
    agent = create_agent(llm)
    memory = TieredMemory.from_defaults(
        engine=in_memory, session_id="one", token_limit=400, tokenizer_fn=list
    )
    context: Any = Context(agent)
    await agent.run(user_msg="Question 0 " * 9, ctx=context, memory=memory)
    for turn in range(1, 8):
        await agent.run(user_msg=f"Question {turn} " * 9, ctx=context)
        assert len(texts(llm.seen[-1])) <= 400  # by characters


def run_in_child() -> None:
    """Continue a context in another process; write the prompt and the content of the memory."""
    inputs = json.loads(sys.stdin.read())
    warnings.simplefilter("ignore")

    async def continue_run() -> dict[str, Any]:
        llm = ScriptedLLM()
        agent = create_agent(llm)
        context: Any = Context.from_dict(agent, inputs["context"])
        if inputs["answer"] is None:
            handler = agent.run(user_msg="Where is it?", ctx=context)
        else:
            handler = agent.run(ctx=context)
            handler.ctx.send_event(create_response(inputs["answer"]))
        await handler
        memory = await handler.ctx.store.get("memory")
        return {
            "shown": texts(llm.seen[0]),
            "said": list_turns(memory.get_all()),
            "context": handler.ctx.to_dict(),
        }

    sys.stdout.write(json.dumps(asyncio.run(continue_run())))


def run_in_another_process(context: Any, answer: str | None = None) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", f"from {__name__} import run_in_child; run_in_child()"],
        input=json.dumps({"context": context, "answer": answer}),
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.soak
async def test_another_process_continues_with_a_context_on_a_file(file_url: str) -> None:
    llm = ScriptedLLM()
    agent = create_agent(llm)
    with MemoryEngine(file_url) as engine:
        memory = TieredMemory.from_defaults(engine=engine, user_id="ada", session_id="one")
        first: Any = Context(agent)
        await agent.run(user_msg="The key is under the mat.", ctx=first, memory=memory)
        done = run_in_another_process(first.to_dict())
        assert "under the mat" in done["shown"]
        assert [text for _, text in done["said"]][::2] == ["The key is under the mat.", "Where is it?"]
        assert list_turns(memory.get_all()) == [
            tuple(turn) for turn in done["said"]
        ]  # while it is open here as well
        back: Any = Context.from_dict(agent, done["context"])
        await agent.run(user_msg="Thank you.", ctx=back)
        assert texts(llm.seen[-1]).endswith("Where is it?\nI have noted it.\nThank you.")
        assert len(memory.get_all()) == 6


async def run_until_asked(handler: Any) -> Any:
    """Return the serialized context of a run that waits for a person, and cancel the run."""
    async for event in handler.stream_events():
        if isinstance(event, InputRequiredEvent):
            break
    dump = json.loads(json.dumps(handler.ctx.to_dict()))
    await handler.cancel_run()
    with pytest.raises(WorkflowCancelledByUser):
        await handler
    return dump


ASKING = create_tool_calls(("c-1", "ask_person", {"what": "May I?"}))
WITH_A_PERSON = [
    ("user", "Please ask."),
    ("assistant", "ask_person"),
    ("tool", "The person says yes."),
    ("assistant", "I have noted it."),
]


async def test_a_person_answers_after_the_context_was_serialized(engine: MemoryEngine) -> None:
    memory = TieredMemory.from_defaults(engine=engine, user_id="ada", session_id="one")
    agent = create_agent(ScriptedLLM(reply=AnswerSequence(ASKING)), initial_state={"counted": 0})
    dump = await run_until_asked(agent.run(user_msg="Please ask.", memory=memory))
    assert list_turns(memory.get_all()) == [("user", "Please ask.")]
    llm = ScriptedLLM()
    later = create_agent(llm, initial_state={"counted": 0})
    context: Any = Context.from_dict(later, dump)
    handler = later.run(ctx=context)
    handler.ctx.send_event(create_response("yes"))
    assert str(await handler) == "I have noted it."
    assert list_turns(memory.get_all()) == WITH_A_PERSON
    assert [texts(prompt).count(STATE) for prompt in llm.seen] == [1]


@pytest.mark.soak
async def test_a_person_answers_in_another_process(file_url: str) -> None:
    with MemoryEngine(file_url) as engine:
        memory = TieredMemory.from_defaults(engine=engine, user_id="ada", session_id="one")
        agent = create_agent(ScriptedLLM(reply=AnswerSequence(ASKING)))
        dump = await run_until_asked(agent.run(user_msg="Please ask.", memory=memory))
    done = run_in_another_process(dump, "yes")
    assert [tuple(turn) for turn in done["said"]] == WITH_A_PERSON


@pytest.mark.parametrize("serializer", [None, PickleSerializer()], ids=["default", "pickle"])
async def test_a_closed_in_memory_engine_raises_and_is_not_replaced(serializer: Any) -> None:
    llm = ScriptedLLM()
    agent = create_agent(llm)
    context: Any = Context(agent)
    with MemoryEngine() as engine:
        memory = TieredMemory.from_defaults(engine=engine, session_id="one")
        await agent.run(user_msg="The key is under the mat.", ctx=context, memory=memory)
        dump = context.to_dict(serializer)
    for former in (context, Context.from_dict(agent, dump, serializer)):
        with pytest.raises(ValueError, match="the engine of this memory no longer exists.*it was in memory"):
            agent.run(user_msg="Where is it?", ctx=former)
    del memory, engine, context, former
    gc.collect()
    again: Any = Context.from_dict(agent, dump, serializer)
    with pytest.raises(ValueError, match="key memory: the engine of this memory no longer exists"):
        again.store  # noqa: B018 - it reads what was written
    with pytest.raises(ValueError, match="Use a file or a server"):
        agent.run(user_msg="Where is it?", ctx=again)
    assert len(llm.seen) == 1


async def test_a_missing_file_raises_and_a_closed_one_is_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    llm = ScriptedLLM()
    agent = create_agent(llm)
    context: Any = Context(agent)
    with MemoryEngine(path) as engine:
        memory = TieredMemory.from_defaults(engine=engine, user_id="ada", session_id="one")
        await agent.run(user_msg="The key is under the mat.", ctx=context, memory=memory)
    dump = context.to_dict()
    await agent.run(user_msg="Where is it?", ctx=context)
    assert "under the mat" in texts(llm.seen[-1])
    (await context.store.get("memory")).engine.close()
    path.unlink()
    with pytest.raises(ValueError, match="of this memory does not exist: restore it"):
        agent.run(user_msg="Where is it?", ctx=Context.from_dict(agent, dump))
    assert not path.exists()


async def test_tools_that_edit_the_state_do_not_detach_the_memory(engine: MemoryEngine) -> None:
    calls = [create_tool_calls((f"c-{n}", "count", {})) for n in range(3)]
    llm = ScriptedLLM(reply=AnswerSequence(*calls, "Counted."))
    agent = create_agent(llm, initial_state={"counted": 0})
    memory = TieredMemory.from_defaults(engine=engine, session_id="one")
    handler = agent.run(user_msg="Count.", memory=memory)
    await handler
    context_memory = await handler.ctx.store.get("memory")
    assert await handler.ctx.store.get("state") == {"counted": 3}
    assert list_turns(context_memory.get_all()) == list_turns(memory.get_all())
    assert roles(memory.get_all()) == ["user", *["assistant", "tool"] * 3, "assistant"]


@pytest.mark.sample(2)
@pytest.mark.parametrize("insert", ["auto", "system", "user"])
async def test_every_prompt_contains_the_state_once_and_the_record_never(
    insert: Any, engine: MemoryEngine
) -> None:
    other = TieredMemory.from_defaults(engine=engine, user_id="ada", session_id="zero")
    other.put(ChatMessage("I count sheep, and the sheep are in the attic."))
    answers = (create_tool_calls(("c-1", "count", {})), create_tool_calls(("c-2", "count", {})), "Counted.")
    llm = ScriptedLLM(reply=lambda _: answers[(len(llm.seen) - 1) % 3])
    agent = create_agent(llm, initial_state={"counted": 0})
    memory = TieredMemory.from_defaults(engine=engine, user_id="ada", session_id="one", insert_method=insert)
    context: Any = Context(agent)
    for turn in range(3):
        await agent.run(user_msg=f"Count sheep, please: {turn}", ctx=context, memory=memory)
    assert [texts(prompt).count(STATE) for prompt in llm.seen] == [1] * 9
    # As LlamaIndex has it, the state of a run is that of its beginning.
    shown = [texts(prompt).partition(f"{STATE}:\n")[2].partition("\n")[0] for prompt in llm.seen]
    assert shown == [f"{{'counted': {turn * 2}}}" for turn in range(3) for _ in range(3)]
    assert all("in the attic" in texts(prompt) for prompt in llm.seen)
    assert STATE not in texts(memory.get_all())
    assert STATE not in "".join(message.content for message in engine.session("ada", "one").messages())


async def test_prompts_after_a_handoff_contain_the_state_once(engine: MemoryEngine) -> None:
    hand = create_tool_calls(("h-1", "handoff", {"to_agent": "second", "reason": "it counts"}))
    llm = ScriptedLLM(reply=AnswerSequence(hand, create_tool_calls(("c-1", "count", {})), "Counted."))
    workflow = create_workflow(llm)
    workflow.initial_state = {"counted": 0}
    memory = TieredMemory.from_defaults(engine=engine, session_id="one")
    await workflow.run(user_msg="Count.", memory=memory)
    assert [texts(prompt).count(STATE) for prompt in llm.seen] == [1] * 3
    assert STATE not in texts(memory.get_all())


def reply_with_lookup(prompt: Prompt) -> ChatMessage | str:
    number = sum(message.role == "user" for message in prompt)
    if prompt[-1].role == "tool":
        return f"Answer {number}: it is in the attic."
    return create_tool_calls((f"c-{number}", "look_up", {"what": f"thing {number} " * 20}))


@pytest.mark.sample(1)
@pytest.mark.parametrize("token_limit", [700, 30_000])
async def test_passing_the_chat_history_on_each_run_stores_only_new_messages(
    token_limit: int, in_memory: MemoryEngine
) -> None:
    agent = create_agent(ScriptedLLM(reply=reply_with_lookup))
    texts_of_app: list[ChatMessage] = []
    counts: list[int] = []
    for turn in range(24):
        memory = TieredMemory.from_defaults(
            engine=in_memory, user_id="ada", session_id="one", token_limit=token_limit
        )
        question = f"Question {turn}: where is it?"
        answer = str(await agent.run(user_msg=question, chat_history=list(texts_of_app), memory=memory))
        texts_of_app += [ChatMessage(question), ChatMessage(role="assistant", content=answer)]
        record = in_memory.session("ada", "one").messages()
        counts.append(sum(not message.is_summary for message in record))
    assert counts == [4 * turn for turn in range(1, 25)]  # a question, a call, its result and an answer
    assert len(in_memory.namespace("ada").sessions().sessions) == 1
    assert list_turns(memory.get_all())[:-4] == list_turns(texts_of_app)[:-2]


@pytest.mark.parametrize("again", ["the context", "the memory"])
async def test_a_failed_run_leaves_its_question_and_the_next_run_works(
    again: str, engine: MemoryEngine
) -> None:
    def reply(prompt: Prompt) -> ChatMessage | str:
        if len(llm.seen) == 2:
            raise ConnectionError("the model is away")
        return (
            create_tool_calls(("c-1", "look_up", {"what": "key"}))
            if len(llm.seen) == 1
            else "It is in the attic."
        )

    llm = ScriptedLLM(reply=reply)
    agent = create_agent(llm)
    memory = TieredMemory.from_defaults(engine=engine, user_id="ada", session_id="one")
    context: Any = Context(agent)
    with pytest.raises(ConnectionError, match="the model is away"):
        await agent.run(user_msg="Where is the key?", ctx=context, memory=memory)
    assert list_turns(memory.get_all()) == [("user", "Where is the key?")]
    options = {"ctx": context} if again == "the context" else {"memory": memory}
    assert str(await agent.run(user_msg="Are you there?", **options)) == "It is in the attic."
    assert "Where is the key?" in texts(llm.seen[2])
    await agent.run(user_msg="Thank you.", **options)
    for prompt in llm.seen:
        check_call_order(prompt)
    questions = [text for role, text in list_turns(memory.get_all()) if role == "user"]
    assert questions == ["Where is the key?", "Are you there?", "Thank you."]


@pytest.mark.sample(1)
async def test_contexts_of_several_sessions_run_concurrently(engine: MemoryEngine) -> None:
    async def run_session(name: str) -> tuple[ScriptedLLM, TieredMemory]:
        llm = ScriptedLLM(reply=reply_with_lookup)
        agent = create_agent(llm)
        memory = TieredMemory.from_defaults(engine=engine, session_id=name)
        context: Any = Context(agent)
        await agent.run(user_msg=f"{name} asks 0", ctx=context, memory=memory)
        for turn in range(1, 4):
            await agent.run(user_msg=f"{name} asks {turn}", ctx=context)
        return llm, memory

    names = [f"session-{number}" for number in range(6)]
    for name, (llm, memory) in zip(names, await asyncio.gather(*map(run_session, names)), strict=True):
        questions = [text for role, text in list_turns(memory.get_all()) if role == "user"]
        assert questions == [f"{name} asks {turn}" for turn in range(4)]
        assert roles(memory.get_all()) == ["user", "assistant", "tool", "assistant"] * 4
        for prompt in llm.seen:
            check_call_order(prompt)
            assert not any(other in texts(prompt) for other in names if other != name)
