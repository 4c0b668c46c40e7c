"""Memory for the chains of ``langchain_classic``."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, get_buffer_string
from pydantic import ConfigDict, Field, PrivateAttr

from langmem_tiers.common.budget import TokenBudget  # noqa: TC001 - pydantic reads it
from langmem_tiers.engine import MemoryEngine  # noqa: TC001 - as above
from langmem_tiers.errors import InvalidInputError, MissingExtraError
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

    What the chain is given is what fits the budget for the question at hand: the summary and what was
    recalled, fenced as data, then the conversation. If the store fails, the chain goes on; see
    ``history.unsaved`` and ``history.failures``.

    Args:
        engine: Where the messages are.
        session_id: The conversation.
        namespace: Whose it is, such as ``("acme", user_id)``; recall reaches all its sessions. A session
            without one has a namespace of its own.
        memory_key: The chain's variable for the history.
        input_key: The chain's variable with what the user says; the only one there is, if left out.
        output_key: The chain's variable with the answer; the only one there is, or ``output``, if left out.
        return_messages: Whether the history is messages and not a text.
        human_prefix: Who the user is in a text.
        ai_prefix: Who the model is in a text.
        budget: Tokens for the history; the engine's budget, if left out.
        recall: Whether what is known and what was said in other sessions comes along.

    Raises:
        ValidationError: Pydantic's, a ``ValueError``: the session id is empty, it is no engine, or a field
            is misspelled.
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
        """Check the names where the memory is built."""
        self._history = TieredChatMessageHistory(
            self.engine, self.session_id, namespace=self.namespace, view="budget", budget=self.budget
        )

    @property
    def history(self) -> TieredChatMessageHistory:
        """The session as a chat history."""
        return self._history

    @property
    def memory_variables(self) -> list[str]:
        """The one variable that the chain is given."""
        return [self.memory_key]

    def load_memory_variables(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """The history for what is asked, as a text or as messages.

        Args:
            inputs: The chain's; what the user says is what memory is asked for.
        """
        messages = self._history.context(self._find_question(inputs), recall=self.recall)
        if self.return_messages:
            return {self.memory_key: messages}
        return {self.memory_key: get_buffer_string(messages, self.human_prefix, self.ai_prefix)}

    def save_context(self, inputs: dict[str, Any], outputs: Mapping[str, Any]) -> None:
        """Store what the user said and the answer, in one write.

        Raises:
            InvalidInputError: The keys leave open which of the values was said.
        """
        said = self._require_value(inputs, self.input_key or self._require_only_input(inputs), "input")
        answer = self._require_value(outputs, self.output_key or _require_only_output(outputs), "output")
        self._history.add_messages(
            [
                said if isinstance(said, BaseMessage) else HumanMessage(said),
                answer if isinstance(answer, BaseMessage) else AIMessage(answer),
            ]
        )

    def clear(self) -> None:
        """Erase the session with all its messages."""
        self._history.clear()

    async def aload_memory_variables(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """The history for what is asked; see ``load_memory_variables``."""
        return await asyncio.to_thread(self.load_memory_variables, inputs)

    async def asave_context(self, inputs: dict[str, Any], outputs: Mapping[str, Any]) -> None:
        """Store what the user said and the answer; see ``save_context``."""
        await asyncio.to_thread(self.save_context, inputs, outputs)

    async def aclear(self) -> None:
        """Erase the session with all its messages."""
        await asyncio.to_thread(self.clear)

    def _find_question(self, inputs: Mapping[str, Any]) -> str | None:
        # Chains ask with all their inputs, which may leave open what the user says: then the newest
        # stored question is what memory is asked for.
        open_keys = self._list_input_keys(inputs)
        key = self.input_key or (open_keys[0] if len(open_keys) == 1 else None)
        said = None if key is None else inputs.get(key)
        text = str(said.text) if isinstance(said, BaseMessage) else said
        return text if isinstance(text, str) and text.strip() else None

    def _list_input_keys(self, inputs: Mapping[str, Any]) -> list[str]:
        return [key for key in inputs if key not in (self.memory_key, "stop")]

    def _require_only_input(self, inputs: Mapping[str, Any]) -> str:
        keys = self._list_input_keys(inputs)
        if len(keys) != 1:
            raise InvalidInputError(f"One input key expected got {keys!r}: set input_key to one of them")
        return keys[0]

    @staticmethod
    def _require_value(values: Mapping[str, Any], key: str, what: str) -> str | BaseMessage:
        if key not in values:
            raise InvalidInputError(f"there is no {what} {key!r} among {list(values)!r}: set {what}_key")
        value = values[key]
        if not isinstance(value, str | BaseMessage):
            raise InvalidInputError(
                f"the {what} {key!r} is a {type(value).__name__}: a text or a message can be stored, "
                f"set {what}_key to one"
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
