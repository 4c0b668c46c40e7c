"""Agents of ``langmem-tiers demo --framework llama-index``: one with memory and one without."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from llama_index.core.agent.workflow import AgentInput, FunctionAgent
from llama_index.core.memory import ChatMemoryBuffer

from langmem_tiers.integration_kit import Assistants, Reply
from langmem_tiers_llamaindex.convert import to_message
from langmem_tiers_llamaindex.extractive import ExtractiveLLM, count_prompt_tokens
from langmem_tiers_llamaindex.memory import TieredMemory

if TYPE_CHECKING:
    from collections.abc import Callable

    from llama_index.core.memory.types import BaseMemory

    from langmem_tiers import MemoryEngine
    from langmem_tiers.integration_kit import NamespacePath


class _DemoAgent:
    """LlamaIndex agent with an offline model.

    Args:
        memory_of: Function that creates the memory of a thread by its name.
    """

    def __init__(self, memory_of: Callable[[str], BaseMemory]) -> None:
        self._create_memory = memory_of
        self._threads: dict[str, BaseMemory] = {}

    def ask(self, question: str, thread: str) -> Reply:
        """Ask a question in a thread and return the answer with its prompt."""
        return asyncio.run(self._ask(question, thread))

    async def _ask(self, question: str, thread: str) -> Reply:
        memory = self._threads.setdefault(thread, self._create_memory(thread))
        run = FunctionAgent(llm=ExtractiveLLM()).run(user_msg=question, memory=memory)
        shown: list[Any] = []
        async for event in run.stream_events():
            shown = event.input if isinstance(event, AgentInput) else shown
        answer: Any = await run
        prompt = "\n\n".join(message.content or "" for message in shown)
        return Reply(answer.response.content or "", prompt, count_prompt_tokens(shown))


def make_assistants(engine: MemoryEngine, namespace: NamespacePath, budget: int) -> Assistants:
    """Create both agents, with the sessions of a namespace as their existing threads.

    Args:
        engine: Memory engine of one of the agents.
        namespace: Namespace with the sessions.
        budget: Maximum size of a prompt in tokens.
    """

    def plain(thread: str) -> BaseMemory:
        session = engine.namespace(namespace).find_session(thread)
        messages = [] if session is None else session.transcript.messages()
        # The whole thread, to be comparable with a LangChain agent, which has it in its checkpoints.
        return ChatMemoryBuffer.from_defaults(chat_history=[*map(to_message, messages)], token_limit=2**31)

    def remembering(thread: str) -> BaseMemory:
        return TieredMemory.from_defaults(
            engine=engine, namespace=namespace, session_id=thread, token_limit=budget
        )

    return Assistants(without_memory=_DemoAgent(plain), with_memory=_DemoAgent(remembering))
