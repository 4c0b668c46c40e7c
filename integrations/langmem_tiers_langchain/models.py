"""LangChain's chat models for the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage
from langgraph.constants import TAG_NOSTREAM

from langmem_tiers.errors import InvalidInputError, LangmemTiersError
from langmem_tiers_langchain.message_source import SOURCE_METADATA

if TYPE_CHECKING:
    from langchain_core.runnables import Runnable, RunnableConfig

_WORDS_PER_TOKEN = 0.75
"""How many words a model is asked for; tokens are nothing that it can count."""


class LangChainModel:
    """A LangChain chat model, or any runnable over messages, as the ``LanguageModel`` of an engine.

    Its calls are memory's own: they are tagged so that none of their tokens appear in a stream of the
    agent that they happen in. How long an answer may be is asked of the model in words, because the
    setting for it has another name with each provider.

    Args:
        model: Takes a list of messages and gives a message or a text.

    Raises:
        InvalidInputError: It is no model.
    """

    def __init__(self, model: Runnable[Any, Any]) -> None:
        self._model = model
        _check_model(model)

    def __repr__(self) -> str:
        return f"LangChainModel({type(self._model).__name__})"  # a model's own may hold its key

    def complete(self, prompt: str, *, system: str = "", max_tokens: int = 500) -> str:
        """The model's answer."""
        limit = f"Answer in at most {max(1, int(max_tokens * _WORDS_PER_TOKEN))} words."
        rules = f"{system}\n\n{limit}" if system else limit
        config: RunnableConfig = {"tags": [TAG_NOSTREAM], "metadata": dict(SOURCE_METADATA)}
        answer = self._model.invoke([SystemMessage(rules), HumanMessage(prompt)], config)
        text = answer.text if isinstance(answer, BaseMessage) else answer
        if not isinstance(text, str):
            raise LangmemTiersError(
                f"the model answered a {type(answer).__name__}: pass a chat model, or a runnable that gives "
                "a message or a text"
            )
        return str(text)


def _check_model(model: object) -> None:
    if isinstance(model, type) or not callable(getattr(model, "invoke", None)):
        raise InvalidInputError(
            f"a {type(model).__name__} is no chat model: pass an object with invoke(messages), "
            "such as init_chat_model(...) gives"
        )
