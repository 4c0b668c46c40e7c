"""Offline chat model for demonstrations that only quotes its prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration, ChatResult

from langmem_tiers import ContentAwareCounter
from langmem_tiers.integration_kit import FRAME_TOKENS, REPLY_TOKENS, count_draft, quote_answer
from langmem_tiers_langchain.convert import to_draft

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_core.runnables import Runnable


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
