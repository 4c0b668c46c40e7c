"""A long run of a LlamaIndex agent with parallel calls and failing tools under a small limit."""

from __future__ import annotations

import random
import warnings
from typing import TYPE_CHECKING, Any

import pytest

from langmem_tiers import MemoryEngine
from langmem_tiers_llamaindex.convert import message_tokens
from langmem_tiers_llamaindex.memory import TieredMemory
from tests.integrations.llamaindex_agents import (
    ScriptedLLM,
    check_call_order,
    create_tool_calls,
    list_turns,
    roles,
    texts,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what the framework warns of as it loads is not ours
    from llama_index.core.agent.workflow import FunctionAgent
    from llama_index.core.base.llms.types import ToolCallBlock
    from llama_index.core.llms import ChatMessage
    from llama_index.core.utils import get_tokenizer
    from llama_index.core.workflow import Context

if TYPE_CHECKING:
    from collections.abc import Sequence

# Agents use what pydantic and their own workflows have deprecated.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

LIMIT = 800
KINDS = ("look_up", "fall_over")
GUARDS = {
    "amber": "Ann", "blue": "Bert", "cyan": "Cleo", "dun": "Dora", "emerald": "Emil", "fawn": "Fred", "green": "Gina",
    "hazel": "Hans", "indigo": "Ines", "jade": "Jack", "khaki": "Kate", "lilac": "Lars", "mauve": "Mona",
    "navy": "Nils", "orange": "Olga", "pink": "Paul", "quartz": "Quin", "red": "Rosa", "silver": "Sven", "teal": "Tina",
}  # fmt: skip


def look_up(what: str) -> str:
    """Look something up in the book of gates."""
    line = f"The {what} is at https://gate.example/{what.replace(' ', '-')}, open from 9:00. "
    return line * random.Random(what).randint(1, 8)


def fall_over(what: str) -> str:
    """A tool that fails."""
    raise RuntimeError(f"no {what} today")


class Script:
    """Choose the answer by turn and step only, and record all answers."""

    def __init__(self) -> None:
        self.turn = 0
        self.step = 0
        self.answers: list[ChatMessage] = []

    def begin(self, turn: int) -> str:
        self.turn, self.step = turn, 0
        if turn % 10 == 9:
            return f"Question {turn}: who is the guard of the {list(GUARDS)[turn // 10]} gate?"
        return f"Question {turn}: where is thing {turn % 50}?"

    def __call__(self, _: Sequence[ChatMessage]) -> ChatMessage:
        self.step += 1
        chance = random.Random(f"{self.turn} {self.step}")
        self.answers.append(self._answer(chance))
        return self.answers[-1].model_copy(deep=True)

    def _answer(self, chance: random.Random) -> ChatMessage:
        if self.step > chance.randint(1, 2):
            text = f"The answer to question {self.turn}. " * chance.randint(1, 8)
            return ChatMessage(role="assistant", content=text)
        calls = [
            (f"c-{self.turn}-{self.step}-{n}", name, {"what": f"thing {self.turn} {self.step} {n}"})
            for n, name in enumerate(chance.choices(KINDS, [8, 2], k=chance.choice([1, 1, 2, 3])))
        ]
        return create_tool_calls(*calls, text="Let me see." if chance.random() < 0.5 else "")


def get_history(prompt: Sequence[ChatMessage]) -> Sequence[ChatMessage]:
    """Return the messages between the system prompt and the steps of the current turn."""
    newest = max(index for index, message in enumerate(prompt) if message.role == "user")
    return prompt[1 : newest + 1]


@pytest.mark.parametrize("turns", [30, pytest.param(200, marks=pytest.mark.soak)])
async def test_a_long_run_stays_within_the_limit_and_loses_nothing(turns: int) -> None:
    script, tokenizer = Script(), get_tokenizer()
    llm = ScriptedLLM(reply=script)
    agent = FunctionAgent(tools=[look_up, fall_over], llm=llm, system_prompt="Be brief.")
    questions: list[str] = []
    with MemoryEngine() as engine:
        other = TieredMemory.from_defaults(engine=engine, user_id="ada", session_id="before")
        other.put_messages(
            [ChatMessage(f"The guard of the {gate} gate is {name}.") for gate, name in GUARDS.items()]
        )
        memory = TieredMemory.from_defaults(
            engine=engine, user_id="ada", session_id="long", token_limit=LIMIT
        )
        context: Any = Context(agent)
        for turn in range(turns):
            questions.append(script.begin(turn))
            if turn % 3:
                await agent.run(user_msg=questions[-1], ctx=context)
            else:  # a new context on the same memory
                context = Context(agent)
                await agent.run(user_msg=questions[-1], ctx=context, memory=memory)
        found = memory.get_all()
        assert not memory.failures
    for prompt in llm.seen:
        check_call_order(prompt)
        assert texts(prompt).startswith("Be brief.")
        shown = get_history(prompt)
        assert sum(message_tokens(message, lambda text: len(tokenizer(text))) for message in shown) <= LIMIT
    first = [texts(prompt) for prompt in llm.seen if prompt[-1].role == "user"]
    assert len(first) == turns
    for text, name in zip(first[9::10], GUARDS.values(), strict=False):
        assert f"gate is {name}." in text  # recalled from another session
    assert [text for role, text in list_turns(found) if role == "user"] == questions
    assert list_turns([message for message in found if message.role == "assistant"]) == list_turns(
        script.answers
    )
    calls = sum(isinstance(block, ToolCallBlock) for answer in script.answers for block in answer.blocks)
    assert roles(found).count("tool") == calls > turns
    assert "today" in texts([message for message in found if message.role == "tool"])
    check_call_order(found)
