"""Memory for the chains of ``langchain_classic``."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, get_buffer_string
from pydantic import ConfigDict, Field, PrivateAttr

from langmem_tiers import (
    InvalidInputError,
    MemoryEngine,
    MissingExtraError,
    TokenBudget,
)
from langmem_tiers_langchain.history import TieredChatMessageHistory

try:
    from langchain_classic.base_memory import BaseMemory
except ImportError as error:
    raise MissingExtraError(
        "TieredConversationMemory needs langchain-classic: pip install 'langmem-tiers[classic]'"
    ) from error

if TYPE_CHECKING:
    from collections.abc import Mapping


class TieredConversationMemory(BaseMemory):
    """Memory of one session for ``ConversationChain``, ``LLMChain`` and other classic chains.

    The chain receives a history that fits the budget for the current question: the summary and recalled
    memories, fenced as data, then the conversation. If the store fails, the chain continues; see
    ``history.unsaved`` and ``history.failures``.

    Args:
        engine: Engine that stores the messages.
        session_id: Name of the session.
        namespace: Owner of the session, such as ``("acme", user_id)``; recall covers all its sessions. Default:
            a separate namespace for this session id.
        memory_key: Variable of the chain for the history.
        input_key: Variable of the chain with the user's input. Default: the only input variable.
        output_key: Variable of the chain with the answer. Default: the only output variable, or ``output``.
        return_messages: True to return messages instead of a text.
        human_prefix: Name of the user in a text.
        ai_prefix: Name of the model in a text.
        budget: Tokens for the history. Default: the engine's budget.
        recall: True to include knowledge and memories from other sessions.

    Raises:
        ValidationError: The session id is empty, the engine is not a MemoryEngine, or a field is unknown.
            This is pydantic's error, a ``ValueError``.
    """

    engine: MemoryEngine = Field(repr=False, exclude=True)
    session_id: str
    namespace: str | tuple[str, ...] | None = None
    memory_key: str = "history"
    input_key: str | None = None
    output_key: str | None = None
    return_messages: bool = False
    human_prefix: str = "Human"
    ai_prefix: str = "AI"
    budget: TokenBudget | int | None = None
    recall: bool = True

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")
    _history: TieredChatMessageHistory = PrivateAttr()

    def model_post_init(self, _: object, /) -> None:
        """Create the history, which validates the names."""
        self._history = TieredChatMessageHistory(
            self.engine, self.session_id, namespace=self.namespace, view="budget", budget=self.budget
        )

    @property
    def history(self) -> TieredChatMessageHistory:
        """Chat history of the session."""
        return self._history

    @property
    def memory_variables(self) -> list[str]:
        """Name of the variable that the chain receives."""
        return [self.memory_key]

    def load_memory_variables(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Return the history for the current input, as a text or as messages.

        Args:
            inputs: Inputs of the chain; the user's input is the recall query.
        """
        messages = self._history.context(self._find_question(inputs), recall=self.recall)
        if self.return_messages:
            return {self.memory_key: messages}
        return {self.memory_key: get_buffer_string(messages, self.human_prefix, self.ai_prefix)}

    def save_context(self, inputs: dict[str, Any], outputs: Mapping[str, Any]) -> None:
        """Store the user's input and the answer in one transaction.

        Raises:
            InvalidInputError: The input or the answer is ambiguous, missing, or not a text or message.
        """
        question = self._require_value(inputs, self.input_key or self._require_only_input(inputs), "input")
        answer = self._require_value(outputs, self.output_key or _require_only_output(outputs), "output")
        self._history.add_messages(
            [
                question if isinstance(question, BaseMessage) else HumanMessage(question),
                answer if isinstance(answer, BaseMessage) else AIMessage(answer),
            ]
        )

    def clear(self) -> None:
        """Erase the session with all its messages."""
        self._history.clear()

    async def aload_memory_variables(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Run ``load_memory_variables`` in a thread."""
        return await asyncio.to_thread(self.load_memory_variables, inputs)

    async def asave_context(self, inputs: dict[str, Any], outputs: Mapping[str, Any]) -> None:
        """Run ``save_context`` in a thread."""
        await asyncio.to_thread(self.save_context, inputs, outputs)

    async def aclear(self) -> None:
        """Run ``clear`` in a thread."""
        await asyncio.to_thread(self.clear)

    def _find_question(self, inputs: Mapping[str, Any]) -> str | None:
        # Chains pass all their inputs, so the user's input may be ambiguous. None then selects the newest stored
        # question as the query.
        input_keys = self._list_input_keys(inputs)
        key = self.input_key or (input_keys[0] if len(input_keys) == 1 else None)
        value = None if key is None else inputs.get(key)
        text = str(value.text) if isinstance(value, BaseMessage) else value
        return text if isinstance(text, str) and text.strip() else None

    def _list_input_keys(self, inputs: Mapping[str, Any]) -> list[str]:
        return [key for key in inputs if key not in (self.memory_key, "stop")]

    def _require_only_input(self, inputs: Mapping[str, Any]) -> str:
        keys = self._list_input_keys(inputs)
        if len(keys) != 1:
            # The wording of LangChain's own memory classes, as in _require_only_output.
            raise InvalidInputError(f"One input key expected got {keys!r}: set input_key to one of them")
        return keys[0]

    @staticmethod
    def _require_value(values: Mapping[str, Any], key: str, what: str) -> str | BaseMessage:
        if key not in values:
            raise InvalidInputError(
                f"no {what} {key!r} among {list(values)!r}: set {what}_key to one of them"
            )
        value = values[key]
        if not isinstance(value, str | BaseMessage):
            raise InvalidInputError(
                f"the {what} {key!r} must be a text or a message, got {type(value).__name__}: set {what}_key to "
                "another key"
            )
        return value


def _require_only_output(outputs: Mapping[str, Any]) -> str:
    if len(outputs) == 1:
        return next(iter(outputs))
    if "output" in outputs:
        return "output"
    raise InvalidInputError(
        f"Got multiple output keys: {list(outputs)!r}, cannot determine which to store in memory: set output_key"
    )
