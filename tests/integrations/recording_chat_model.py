"""Chat models without network access."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage

if TYPE_CHECKING:
    from langchain_core.outputs import ChatResult


class RecordingChatModel(GenericFakeChatModel):
    """Chat model that answers ``answer 1``, ``answer 2`` ... and records its prompts."""

    seen: list[list[BaseMessage]] = []  # noqa: RUF012 - pydantic copies it
    fails: list[bool] = [False]  # noqa: RUF012 - as above

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        self.seen.append(list(messages))
        if self.fails[0]:
            raise ConnectionError("the model is not there")
        return super()._generate(messages, *args, **kwargs)


def create_answering_model(answers: int = 500) -> RecordingChatModel:
    return RecordingChatModel(
        messages=(AIMessage(f"answer {count}") for count in range(1, answers)), seen=[], fails=[False]
    )
