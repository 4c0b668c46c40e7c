"""Adapter for LlamaIndex language models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llama_index.core.base.llms.base import BaseLLM
from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index_instrumentation.dispatcher import active_instrument_tags, instrument_tags

from langmem_tiers import InvalidInputError

if TYPE_CHECKING:
    from typing import Any

_WORDS_PER_TOKEN = 0.75
"""Words per token, because a model cannot count tokens."""
INSTRUMENT_TAGS = {"source": "langmem_tiers"}
"""Tag on instrumentation events of memory's own model calls, in addition to the caller's tags."""


class LlamaIndexModel:
    """Any LlamaIndex ``LLM``, for chat or completion, as the ``LanguageModel`` of an engine.

    The instrumentation events of its calls have the tag ``source: langmem_tiers``, and the ``system_prompt`` of the
    model is not used. The maximum length is part of the prompt, in words, because the corresponding setting differs
    between providers.

    Args:
        llm: The model, such as ``Settings.llm``.

    Raises:
        InvalidInputError: The object is not a LlamaIndex model.
    """

    def __init__(self, llm: BaseLLM) -> None:
        self._llm = _check_model(llm)

    def __repr__(self) -> str:
        return f"LlamaIndexModel({type(self._llm).__name__})"  # the repr of a model may contain its API key

    def complete(self, prompt: str, *, system: str = "", max_tokens: int = 500) -> str:
        """Return the answer of the model; empty if it has no text."""
        limit = f"Answer in at most {max(1, int(max_tokens * _WORDS_PER_TOKEN))} words."
        rules = f"{system}\n\n{limit}" if system else limit
        tags: dict[str, Any] = {**active_instrument_tags.get(), **INSTRUMENT_TAGS}
        with instrument_tags(tags):
            return self._answer(rules, prompt)

    def _answer(self, rules: str, prompt: str) -> str:
        metadata = self._llm.metadata
        if not metadata.is_chat_model:
            return self._llm.complete(f"{rules}\n\n{prompt}").text
        messages = [
            ChatMessage(content=rules, role=metadata.system_role),
            ChatMessage(content=prompt, role=MessageRole.USER),
        ]
        return self._llm.chat(messages).message.content or ""


def _check_model(llm: object) -> BaseLLM:
    if not isinstance(llm, BaseLLM):
        raise InvalidInputError(
            f"expected a LlamaIndex model, got {type(llm).__name__}: pass an LLM object, such as Settings.llm"
        )
    return llm
