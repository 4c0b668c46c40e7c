"""A chat model for demonstrations: offline, and it knows nothing but its prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration, ChatResult

from langmem_tiers.integration_kit.extractive_answers import quote_answer
from langmem_tiers.text.token_counting import FRAME_TOKENS, REPLY_TOKENS, ContentAwareCounter, count_draft
from langmem_tiers_langchain.convert import to_draft

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_core.runnables import Runnable


class ExtractiveChat(BaseChatModel):
    """Answers with the sentence of its prompt that shares most words with the newest question.

    Rare words count more than common ones, and of two sentences that share as much the shorter one is told. Where
    none shares enough, it says ``I don't know.``, and to what has no question mark ``Noted.``. It makes nothing up and
    keeps nothing from one call to the next, so its answers show what the prompt held. It takes tools and never
    calls one.
    """

    @property
    def _llm_type(self) -> str:
        return "extractive"

    def bind_tools(self, tools: Sequence[Any], **_: Any) -> Runnable[Any, Any]:  # noqa: ANN401, ARG002 - the framework's signature
        """The same model: it answers in words alone."""
        return self

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,  # noqa: ARG002 - the framework's signature
        run_manager: object = None,  # noqa: ARG002 - as above
        **_: object,
    ) -> ChatResult:
        text, counter = quote_from_prompt(messages), ContentAwareCounter()
        shown = sum(count_draft(counter, to_draft(message)) + FRAME_TOKENS for message in messages)
        prompt, told = shown + REPLY_TOKENS, counter.count(text)
        usage = UsageMetadata(input_tokens=prompt, output_tokens=told, total_tokens=prompt + told)
        return ChatResult(generations=[ChatGeneration(message=AIMessage(text, usage_metadata=usage))])


def quote_from_prompt(messages: Sequence[BaseMessage]) -> str:
    """The sentence of a prompt that answers its newest question, or that it is not known."""
    asked = (str(one.text) for one in reversed(messages) if isinstance(one, HumanMessage))
    return quote_answer([str(message.text) for message in messages], next(asked, None))
