"""Agents of ``langmem-tiers demo``: one without memory and one with memory, otherwise identical."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain.agents import create_agent
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver

from langmem_tiers import ContentAwareCounter
from langmem_tiers.integration_kit import (
    FRAME_TOKENS,
    REPLY_TOKENS,
    Assistants,
    Reply,
    count_draft,
    quote_answer,
)
from langmem_tiers_langchain.convert import to_draft, to_record_messages
from langmem_tiers_langchain.middleware import TieredMemoryMiddleware

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain.agents.middleware.types import AgentMiddleware
    from langchain_core.runnables import Runnable, RunnableConfig

    from langmem_tiers import MemoryEngine
    from langmem_tiers.integration_kit import NamespacePath


class ExtractiveChat(BaseChatModel):
    """Chat model that answers with the sentence of its prompt that shares most words with the newest question.

    Rare words count more than common ones; ties go to the shorter sentence. Without a good match the answer is
    ``I don't know.``; a text without a question mark gets ``Noted.``. The model is stateless and invents nothing,
    so its answers show what the prompt contained. It accepts tools but never calls them.
    """

    @property
    def _llm_type(self) -> str:
        return "extractive"

    def bind_tools(self, tools: Sequence[Any], **_: Any) -> Runnable[Any, Any]:  # noqa: ANN401, ARG002 - the framework's signature
        """Return the model unchanged; it never calls tools."""
        return self

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,  # noqa: ARG002 - the framework's signature
        run_manager: object = None,  # noqa: ARG002 - as above
        **_: object,
    ) -> ChatResult:
        text, counter = quote_from_prompt(messages), ContentAwareCounter()
        message_tokens = sum(count_draft(counter, to_draft(message)) + FRAME_TOKENS for message in messages)
        prompt, answer = message_tokens + REPLY_TOKENS, counter.count(text)
        usage = UsageMetadata(input_tokens=prompt, output_tokens=answer, total_tokens=prompt + answer)
        return ChatResult(generations=[ChatGeneration(message=AIMessage(text, usage_metadata=usage))])


def quote_from_prompt(messages: Sequence[BaseMessage]) -> str:
    """Return the sentence of the prompt that best answers its newest question."""
    questions = (str(message.text) for message in reversed(messages) if isinstance(message, HumanMessage))
    return quote_answer([str(message.text) for message in messages], next(questions, None))


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
