"""LlamaIndex's language models for the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llama_index.core.base.llms.base import BaseLLM
from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index_instrumentation.dispatcher import active_instrument_tags, instrument_tags

from langmem_tiers.errors import InvalidInputError

if TYPE_CHECKING:
    from typing import Any

_WORDS_PER_TOKEN = 0.75
"""How many words a model is asked for; tokens are nothing that it can count."""
INSTRUMENT_TAGS = {"source": "langmem_tiers"}
"""The tag on events of memory's own calls, beside the tags of whoever caused them."""


class LlamaIndexModel:
    """Any LlamaIndex ``LLM``, of chats or of completions, as the ``LanguageModel`` of an engine.

    Its calls are memory's own: their instrumentation events carry the tag ``source: langmem_tiers``, and the
    model's own ``system_prompt`` is left out of them. How long an answer may be is asked of the model in
    words, because the setting for it has another name with each provider.

    Args:
        llm: The model, such as ``Settings.llm``.

    Raises:
        InvalidInputError: It is no model.
    """

    def __init__(self, llm: BaseLLM) -> None:
        self._llm = _check_model(llm)

    def __repr__(self) -> str:
        return f"LlamaIndexModel({type(self._llm).__name__})"  # a model's own may hold its key

    def complete(self, prompt: str, *, system: str = "", max_tokens: int = 500) -> str:
        """The model's answer; an answer without any text is the empty one."""
        limit = f"Answer in at most {max(1, int(max_tokens * _WORDS_PER_TOKEN))} words."
        rules = f"{system}\n\n{limit}" if system else limit
        tags: dict[str, Any] = {**active_instrument_tags.get(), **INSTRUMENT_TAGS}
        with instrument_tags(tags):
            return self._answer(rules, prompt)

    def _answer(self, rules: str, prompt: str) -> str:
        about = self._llm.metadata
        if not about.is_chat_model:
            return self._llm.complete(f"{rules}\n\n{prompt}").text
        asked = [
            ChatMessage(content=rules, role=about.system_role),
            ChatMessage(content=prompt, role=MessageRole.USER),
        ]
        return self._llm.chat(asked).message.content or ""


def _check_model(llm: object) -> BaseLLM:
    if not isinstance(llm, BaseLLM):
        raise InvalidInputError(
            f"a {type(llm).__name__} is no LlamaIndex model: pass an LLM object, such as Settings.llm"
        )
    return llm
