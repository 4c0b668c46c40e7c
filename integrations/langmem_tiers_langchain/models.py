"""Adapter for LangChain chat models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage
from langgraph.constants import TAG_NOSTREAM

from langmem_tiers import InvalidInputError, LangmemTiersError
from langmem_tiers_langchain.message_source import SOURCE_METADATA

if TYPE_CHECKING:
    from langchain_core.runnables import Runnable, RunnableConfig

_WORDS_PER_TOKEN = 0.75
"""Words per token, because a model cannot count tokens."""


class LangChainModel:
    """LangChain chat model, or any runnable over messages, as the ``LanguageModel`` of an engine.

    Its calls are tagged, so that their tokens do not appear in the stream of the surrounding agent. The maximum
    length is part of the prompt, in words, because the corresponding setting differs between providers.

    Args:
        model: Runnable that accepts a list of messages and returns a message or a text.

    Raises:
        InvalidInputError: The object is not a chat model.
    """

    def __init__(self, model: Runnable[Any, Any]) -> None:
        self._model = model
        _check_model(model)

    def __repr__(self) -> str:
        return f"LangChainModel({type(self._model).__name__})"  # the repr of a model may contain its API key

    def complete(self, prompt: str, *, system: str = "", max_tokens: int = 500) -> str:
        """Return the answer of the model."""
        limit = f"Answer in at most {max(1, int(max_tokens * _WORDS_PER_TOKEN))} words."
        rules = f"{system}\n\n{limit}" if system else limit
        config: RunnableConfig = {"tags": [TAG_NOSTREAM], "metadata": dict(SOURCE_METADATA)}
        answer = self._model.invoke([SystemMessage(rules), HumanMessage(prompt)], config)
        text = answer.text if isinstance(answer, BaseMessage) else answer
        if not isinstance(text, str):
            raise LangmemTiersError(
                f"expected a message or a text from the model, got {type(answer).__name__}: pass a chat model, or "
                "a runnable that returns a message or a text"
            )
        return str(text)


def _check_model(model: object) -> None:
    if isinstance(model, type) or not callable(getattr(model, "invoke", None)):
        raise InvalidInputError(
            f"expected a chat model, got {type(model).__name__}: pass an object with invoke(messages), such as "
            "the result of init_chat_model(...)"
        )
