"""Agents of ``langmem-tiers demo``: one without memory and one with memory, otherwise identical."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain.agents import create_agent
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver

from langmem_tiers.integration_kit import Assistants, Reply
from langmem_tiers_langchain.convert import to_record_messages
from langmem_tiers_langchain.extractive import ExtractiveChat
from langmem_tiers_langchain.middleware import TieredMemoryMiddleware

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain.agents.middleware.types import AgentMiddleware
    from langchain_core.messages import BaseMessage
    from langchain_core.runnables import RunnableConfig

    from langmem_tiers import MemoryEngine
    from langmem_tiers.integration_kit import NamespacePath


class _DemoAgent:
    """LangChain agent with an offline model and a checkpointer.

    Args:
        middleware: Middleware of the agent.
    """

    def __init__(self, *middleware: AgentMiddleware[Any, Any, Any]) -> None:
        self._agent = create_agent(ExtractiveChat(), [], middleware=middleware, checkpointer=InMemorySaver())

    def load_thread(self, thread: str, messages: Sequence[BaseMessage]) -> None:
        """Set the history of a thread."""
        self._agent.update_state(_build_thread_config(thread), {"messages": list(messages)}, as_node="model")

    def ask(self, question: str, thread: str) -> Reply:
        """Ask a question in a thread and return the answer with its prompt."""
        recorder = _PromptRecorder()
        state = self._agent.invoke(
            {"messages": [HumanMessage(question)]}, {**_build_thread_config(thread), "callbacks": [recorder]}
        )
        answer = state["messages"][-1]
        return Reply(str(answer.text), recorder.text, answer.usage_metadata["input_tokens"])


def make_assistants(engine: MemoryEngine, namespace: NamespacePath, budget: int) -> Assistants:
    """Create both agents, with the sessions of a namespace as their existing threads.

    Args:
        engine: Memory engine of one of the agents.
        namespace: Namespace with the sessions.
        budget: Maximum size of a prompt in tokens.
    """
    memory = TieredMemoryMiddleware(engine, namespace=namespace, budget=budget)
    plain, remembering = _DemoAgent(), _DemoAgent(memory)
    tenant = engine.namespace(namespace)
    for session in tenant.sessions().sessions:
        messages = to_record_messages(tenant.session(session.name).messages())
        plain.load_thread(session.name, messages)
        remembering.load_thread(session.name, messages)
    return Assistants(without_memory=plain, with_memory=remembering)


class _PromptRecorder(BaseCallbackHandler):
    """Callback that records the text of the latest prompt."""

    def __init__(self) -> None:
        self.text = ""

    def on_chat_model_start(self, serialized: Any, messages: list[list[BaseMessage]], **_: Any) -> None:  # noqa: ANN401, ARG002 - the framework's signature
        self.text = "\n\n".join(str(message.text) for prompt in messages for message in prompt)


def _build_thread_config(name: str) -> RunnableConfig:
    return {"configurable": {"thread_id": name}}
