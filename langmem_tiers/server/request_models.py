"""What is asked, as it is told in the OpenAPI document."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Path, Query
from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field

from langmem_tiers.common.recall_strategy import Strategy  # noqa: TC001 - as above
from langmem_tiers.common.time_formats import reject_numeric_time
from langmem_tiers.config import MAX_LIMIT

MAX_QUESTION_CHARACTERS = 20_000
"""Of a question."""
_DEFAULT_NAMESPACE_HELP = "the token's own, or the only one there is"
_MAX_BUDGET_TOKENS = 2_000_000
_MAX_MESSAGES = 1_000
_MAX_NAME_CHARACTERS = 1_024
LimitQuery = Annotated[int, Query(ge=1, le=200, description="How many at most.")]
CursorQuery = Annotated[
    str | None, Query(description="`next` of the page before; the first page, if left out.")
]
NamespaceQuery = Annotated[
    str | None,
    Query(description=f"Labels parted by slashes, as acme/alice; {_DEFAULT_NAMESPACE_HELP}, if left out."),
]
BudgetQuery = Annotated[
    int | None, Query(ge=1, le=_MAX_BUDGET_TOKENS, description="Tokens; the engine's, if left out.")
]
PathText = Annotated[str, Path(min_length=1)]
SessionQuery = Annotated[
    str | None, Query(description="The session of a message; all are searched, if left out.")
]


Timestamp = Annotated[
    Annotated[AwareDatetime, Field(strict=False)] | None, BeforeValidator(reject_numeric_time)
]


class NamespaceRequest(BaseModel):
    """What all have in common."""

    model_config = ConfigDict(extra="forbid", strict=True)

    namespace: str | None = Field(
        None, description=f"Labels parted by slashes; {_DEFAULT_NAMESPACE_HELP}, if left out."
    )


class AddedMessage(BaseModel):
    """A message on its way in."""

    model_config = ConfigDict(extra="forbid", strict=True)

    role: Literal["user", "assistant", "system", "tool"]
    content: str
    name: str | None = Field(None, max_length=_MAX_NAME_CHARACTERS)
    id: str | None = Field(None, description="Adding the same id to a session twice stores it once.")


class AddMessagesRequest(NamespaceRequest):
    """Messages to be stored, all or none."""

    messages: list[AddedMessage] = Field(min_length=1, max_length=_MAX_MESSAGES)


class RecallMemoriesRequest(NamespaceRequest):
    """A question to memory."""

    query: str = Field(max_length=MAX_QUESTION_CHARACTERS)
    limit: int | None = Field(None, ge=1, le=MAX_LIMIT)  # the engine's own most holds, and is documented
    strategy: Annotated[Strategy | None, Field(strict=False)] = None
    session: str | None = None
    since: Timestamp = None
    until: Timestamp = None


class PreviewContextRequest(NamespaceRequest):
    """What a context is to be built of."""

    session: str
    question: str | None = Field(None, max_length=MAX_QUESTION_CHARACTERS)
    budget: int | None = Field(None, ge=1, le=_MAX_BUDGET_TOKENS)
    system: str | None = None


class StoreKnowledgeRequest(NamespaceRequest):
    """Something to be known."""

    category: str
    key: str
    value: str
    confidence: float = Field(0.5, ge=0, le=1, allow_inf_nan=False)
    source: str | None = Field(None, max_length=_MAX_NAME_CHARACTERS)


class PromoteMessageRequest(NamespaceRequest):
    """A memory that is to be changed."""

    session: str | None = Field(None, description="The session of a message.")


class KnowledgeKey(BaseModel):
    """What something known is called."""

    model_config = ConfigDict(extra="forbid", strict=True)

    category: str
    key: str


class ForgetMemoryRequest(NamespaceRequest):
    """What is to be erased: one of these."""

    entry: str | None = Field(None, description="An entry, or a message, with its session or without.")
    session: str | None = None
    knowledge: KnowledgeKey | None = None
    whole: bool = Field(
        default=False, description="The namespace with all that it holds; those below it stay."
    )
    confirm: bool = Field(
        default=False, description="Without it nothing is erased, and the answer says what would be."
    )
