"""Known defects of the memories that LlamaIndex ships, which TieredMemory does not have."""

from __future__ import annotations

import asyncio
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from langmem_tiers import MemoryEngine
from langmem_tiers_llamaindex.convert import message_tokens
from langmem_tiers_llamaindex.memory import TieredMemory
from tests.integrations.llamaindex_agents import (
    AnswerSequence,
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
    from llama_index.core.agent.workflow import FunctionAgent, ReActAgent
    from llama_index.core.base.llms.types import ImageBlock, TextBlock, ThinkingBlock
    from llama_index.core.chat_engine import CondensePlusContextChatEngine, SimpleChatEngine
    from llama_index.core.llms import ChatMessage
    from llama_index.core.memory import Memory, StaticMemoryBlock
    from llama_index.core.utils import get_tokenizer
    from llama_index.core.workflow import Context

    from langmem_tiers_llamaindex.block import TieredMemoryBlock
    from langmem_tiers_llamaindex.chat_store import TieredChatStore

if TYPE_CHECKING:
    from collections.abc import Iterator

# Agents use what pydantic and their own workflows have deprecated.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def engine() -> Iterator[MemoryEngine]:
    with MemoryEngine() as opened:
        yield opened


def count_tokens(messages: list[ChatMessage]) -> int:
    tokenizer = get_tokenizer()
    return sum(message_tokens(message, lambda text: len(tokenizer(text))) for message in messages)


def look_up(what: str) -> str:
    """Look something up."""
    return f"The {what} is in the attic."


async def test_memory_is_kept_when_a_context_is_reused(engine: MemoryEngine) -> None:
    # run-llama/llama_index#19228, #18475: it is written down between two runs, and theirs does not come back.
    llm = ScriptedLLM()
    agent = FunctionAgent(tools=[look_up], llm=llm)
    memory = TieredMemory.from_defaults(engine=engine, session_id="one")
    context: Any = Context(agent)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # such as that of a key that was skipped
        warnings.simplefilter("ignore", DeprecationWarning)
        await agent.run(user_msg="My name is Ada.", ctx=context, memory=memory)
        await agent.run(user_msg="What is my name?", ctx=context)
    assert texts(llm.seen[-1]) == "My name is Ada.\nI have noted it.\nWhat is my name?"
    assert len(memory.get_all()) == 4


async def test_a_block_with_a_priority_is_truncated_and_not_dropped(engine: MemoryEngine) -> None:
    # run-llama/llama_index#23090: blocks are dropped whole, and the first priority first.
    other = TieredMemory.from_defaults(engine=engine, user_id="ada", session_id="zero")
    other.put_messages([ChatMessage(f"Garden report {n}: the roses are well today.") for n in range(40)])
    other.put(ChatMessage("The roses in the garden have black spots: spray them with milk."))
    block = TieredMemoryBlock(engine, user_id="ada", priority=1, token_limit=1500)
    question = ChatMessage("What helps against black spots on the roses?")
    whole = await block.aget([question], session_id="one")
    rules = StaticMemoryBlock(name="rules", static_content=[TextBlock(text="Be kind. " * 20)], priority=0)
    memory = Memory.from_defaults(
        session_id="one",
        token_limit=300,
        token_flush_size=100,
        memory_blocks=[block, rules],
        chat_store=TieredChatStore(engine),
    )
    await memory.aput(question)
    shown = texts(await memory.aget())
    count = get_tokenizer()
    assert len(count(whole)) > 300
    assert "spray them with milk" in shown  # the most relevant
    assert 0 < shown.count("Garden report") < whole.count("Garden report")
    assert "Be kind." in shown
    assert len(count(shown)) <= 300 + 40  # beside the tags that Memory puts around its blocks


def test_thoughts_and_tool_calls_count_as_tokens(engine: MemoryEngine) -> None:
    # run-llama/llama_index#21950: they count as nothing, until a provider says that the prompt is too long.
    call = create_tool_calls(("c-1", "look_up", {"what": "the key to the old shed, " * 30}))
    call.blocks.insert(0, ThinkingBlock(content="First I have to find out where the key is. " * 30))
    call.blocks.append(ImageBlock(image=b"\x89PNG\r\n\x1a\n", image_mimetype="image/png"))
    result = ChatMessage(role="tool", content="In the attic.", additional_kwargs={"tool_call_id": "c-1"})
    assert count_tokens([call]) > 1000
    memory = TieredMemory.from_defaults(engine=engine, session_id="one", token_limit=600)
    for turn in range(3):
        memory.put_messages([ChatMessage(f"Question {turn}"), call, result])
        memory.put(ChatMessage(role="assistant", content=f"Answer {turn}"))
    memory.put(ChatMessage("And now?"))
    shown = memory.get()
    check_call_order(shown)
    assert count_tokens(shown) <= 600
    assert len(memory.get_all()) == 13


def test_the_system_message_is_always_shown(engine: MemoryEngine) -> None:
    # run-llama/llama_index#23144: the oldest message is the first to go.
    memory = TieredMemory.from_defaults(engine=engine, session_id="one", token_limit=300)
    memory.put(ChatMessage(role="system", content="You are a pirate. Say arr."))
    for turn in range(40):
        memory.put(ChatMessage(f"Question {turn}: where is the treasure of island {turn}?"))
        memory.put(ChatMessage(role="assistant", content=f"Arr, on the beach number {turn}."))
        shown = memory.get()
        assert (shown[0].role, (shown[0].content or "").splitlines()[0]) == (
            "system",
            "You are a pirate. Say arr.",
        )
        assert count_tokens(shown) <= 300
    assert roles(memory.get()).count("system") == 1


@pytest.mark.parametrize("insert", ["auto", "user"])
async def test_an_agent_that_discards_system_messages_sees_memories(
    engine: MemoryEngine, insert: Any
) -> None:
    TieredMemory.from_defaults(engine=engine, user_id="ada", session_id="zero").put(
        ChatMessage("The treasure is on the third island.")
    )
    memory = TieredMemory.from_defaults(engine=engine, user_id="ada", session_id="one", insert_method=insert)
    llm = ScriptedLLM(reply=AnswerSequence("Thought: I know.\nAnswer: The third."))
    await ReActAgent(tools=[look_up], llm=llm).run(user_msg="On which island is the treasure?", memory=memory)
    assert "on the third island" in texts(llm.seen[0])


async def test_one_block_for_two_users_is_not_pinned_to_the_first_session(engine: MemoryEngine) -> None:
    # run-llama/llama_index#22701: the filter of the first session stays.
    block = TieredMemoryBlock(engine)

    def create_memory(session: str) -> Memory:
        store = TieredChatStore(engine)
        return Memory.from_defaults(
            session_id=session,
            token_limit=120,
            token_flush_size=20,
            memory_blocks=[block],
            chat_store=store,
        )

    memories = {name: create_memory(name) for name in ("ada", "bob")}
    for name, memory in memories.items():
        await memory.aput(ChatMessage(f"My boat is called the {name.title()} Star, and it is blue."))
        for turn in range(12):
            await memory.aput(ChatMessage(f"Today the wind blows with {turn} knots from the west."))
            await memory.aput(ChatMessage(role="assistant", content="A good wind."))
    for name, other in (("ada", "Bob"), ("bob", "Ada"), ("ada", "Bob")):
        await memories[name].aput(ChatMessage("What is my boat called?"))
        shown = texts(await memories[name].aget())
        assert f"{name.title()} Star" in shown
        assert f"{other} Star" not in shown


def test_threads_that_open_a_new_database_together_all_succeed(file_url: str) -> None:
    # run-llama/llama_index#23184: some find no such table.
    def use_memory(number: int) -> int:
        with MemoryEngine(file_url, embedder=None) as engine:
            memory = TieredMemory.from_defaults(engine=engine, user_id="ada", session_id="one")
            assert not memory.failures
            memory.get()
            memory.put(ChatMessage(f"I am number {number}."))
            assert memory.unsaved == []
            return len(memory.get_all())

    with ThreadPoolExecutor(8) as threads:
        assert max(threads.map(use_memory, range(8))) == 8


async def test_async_tasks_that_open_a_new_database_together_all_succeed(file_url: str) -> None:
    with MemoryEngine(file_url) as engine:
        memories = [
            TieredMemory.from_defaults(engine=engine, user_id="ada", session_id=f"session {number % 4}")
            for number in range(32)
        ]
        await asyncio.gather(*(memory.aget() for memory in memories))
        await asyncio.gather(*(memory.aput(ChatMessage(f"{n}")) for n, memory in enumerate(memories)))
        await asyncio.gather(*(memory.aget("Which number?") for memory in memories))
        assert [len(await memory.aget_all()) for memory in memories[:4]] == [8] * 4
        assert not any(memory.failures for memory in memories)


async def test_an_empty_batch_is_accepted(engine: MemoryEngine) -> None:
    # run-llama/llama_index#23185: it is an IntegrityError.
    memory = TieredMemory.from_defaults(engine=engine, session_id="one")
    memory.put_messages([])
    await memory.aput_messages([])
    assert (memory.get(), await memory.aget(), memory.get_all()) == ([], [], [])
    store = TieredChatStore(engine)
    await store.add_messages("one", [])
    block = TieredMemoryBlock(engine)
    await block.aput([], session_id="one")
    assert await block.aget([], session_id="one") == ""


async def test_an_empty_memory_is_truthy(engine: MemoryEngine) -> None:
    # ``memory or default`` is what chat engines and agents say.
    memory = TieredMemory.from_defaults(engine=engine, session_id="one")
    assert bool(memory) is bool(TieredChatStore(engine)) is True
    assert not hasattr(memory, "__len__")
    SimpleChatEngine.from_defaults(memory=memory, llm=ScriptedLLM()).chat("Hello.")
    await FunctionAgent(tools=[look_up], llm=ScriptedLLM()).run(user_msg="Hello again.", memory=memory)
    assert len(memory.get_all()) == 4


async def test_shared_messages_are_not_modified(engine: MemoryEngine) -> None:
    # Blocks of Memory find their session in the messages themselves, and so does the model.
    block = TieredMemoryBlock(engine, user_id="ada")
    messages = [ChatMessage("The key is under the mat."), ChatMessage(role="assistant", content="Noted.")]
    before = [message.model_copy(deep=True) for message in messages]
    await block.aput(messages, from_short_term_memory=True, session_id="one")
    assert messages == before
    memory = TieredMemory.from_defaults(engine=engine, user_id="ada", session_id="two")
    memory.put_messages(messages)
    memory.set([*messages, ChatMessage("Where is the key?")])
    shown = memory.get()
    assert messages == before
    assert not any(message.additional_kwargs for message in [*shown, *memory.get_all()])
    own_messages = [ChatMessage("It rains.", additional_kwargs={"session_id": "three", "mood": "sad"})]
    await block.aput(own_messages, session_id="three")
    assert own_messages[0].additional_kwargs == {"session_id": "three", "mood": "sad"}
    (stored,) = engine.session("ada", "three").messages()
    assert '"session_id"' not in (stored.payload_json or "")


def test_trimming_does_not_separate_a_call_from_its_result(engine: MemoryEngine) -> None:
    # run-llama/llama_index#13715: "messages with role 'tool' must be a response to a preceding message".
    for limit in range(70, 400, 30):
        memory = TieredMemory.from_defaults(engine=engine, session_id=f"with {limit}", token_limit=limit)
        for turn in range(6):
            calls = [(f"c-{turn}-{n}", "look_up", {"what": f"thing {n}"}) for n in range(turn % 3 + 1)]
            memory.put(ChatMessage(f"Question {turn}: where are all my things?"))
            memory.put(create_tool_calls(*calls))
            for call, _, _ in calls:
                memory.put(
                    ChatMessage(
                        role="tool", content="In the attic. " * 9, additional_kwargs={"tool_call_id": call}
                    )
                )
            memory.put(ChatMessage(role="assistant", content="They are in the attic."))
        memory.put(ChatMessage("Really?"))
        check_call_order(memory.get())
        assert count_tokens(memory.get()) <= limit


async def test_a_question_passed_as_a_message_is_used_for_recall(engine: MemoryEngine) -> None:
    # run-llama/llama_index#23180: blocks do not see it.
    TieredMemory.from_defaults(engine=engine, user_id="ada", session_id="zero").put(
        ChatMessage("The treasure is on the third island.")
    )
    memory = TieredMemory.from_defaults(engine=engine, user_id="ada", session_id="one")
    question = ChatMessage("On which island is the treasure?")
    assert "on the third island" in texts(memory.get(question))
    assert "on the third island" in texts(await memory.aget(input=question))


def test_an_empty_recall_causes_no_model_call(engine: MemoryEngine) -> None:
    # A history that is not empty makes the engine ask the model for a question that stands alone.
    llm = ScriptedLLM()
    memory = TieredMemory.from_defaults(engine=engine, user_id="ada", session_id="one")
    CondensePlusContextChatEngine.from_defaults(SingleNodeRetriever(), memory=memory, llm=llm).chat("Hello.")
    assert len(llm.seen) == 1


def test_a_prompt_that_is_too_long_raises_with_the_reason(engine: MemoryEngine) -> None:
    # run-llama/llama_index#9371, #15320
    memory = TieredMemory.from_defaults(engine=engine, session_id="one", token_limit=100)
    chat = SimpleChatEngine.from_defaults(memory=memory, llm=ScriptedLLM(), system_prompt="Be kind. " * 100)
    with pytest.raises(ValueError, match="Initial token count exceeds token limit") as raised:
        chat.chat("Hello.")
    assert "of 100 tokens are already used: raise token_limit or shorten the prompt" in "".join(
        raised.value.__notes__
    )


def test_images_in_additional_kwargs_do_not_make_a_session_unreadable(engine: MemoryEngine) -> None:
    message = ChatMessage(role="user", content="Look.", additional_kwargs={"mood": "good"})
    message.additional_kwargs["images"] = [{"image": "gone"}]
    memory = TieredMemory.from_defaults(engine=engine, session_id="one")
    memory.put(message)
    (restored,) = memory.get_all()
    assert (restored.content, restored.additional_kwargs) == ("Look.", {"mood": "good"})
    assert restored.blocks == [TextBlock(text="Look.")]


def test_recalled_messages_of_one_moment_keep_their_order(engine: MemoryEngine) -> None:
    memory = TieredMemory.from_defaults(engine=engine, user_id="ada", session_id="one")
    lines = [f"Step {number} of the recipe for the soup of leek." for number in range(8)]
    memory.put_messages([ChatMessage(line) for line in lines])
    other = TieredMemory.from_defaults(engine=engine, user_id="ada", session_id="two")
    shown = texts(other.get("How does the recipe for the soup of leek go, step by step?"))
    assert [line for line in shown.splitlines() if "Step" in line] == [f"user: {line}" for line in lines]


def test_a_copy_with_another_session_id_is_a_separate_memory(engine: MemoryEngine) -> None:
    memory = TieredMemory.from_defaults(engine=engine, session_id="one", token_limit=500)
    other = memory.model_copy(update={"session_id": "two"})
    other.put(ChatMessage("Hello."))
    assert (memory.get_all(), list_turns(other.get_all())) == ([], [("user", "Hello.")])
    assert (other.token_limit, other.namespace) == (500, ["chat", "two"])
    with pytest.raises(ValueError, match="session_id"):
        memory.session_id = "three"
