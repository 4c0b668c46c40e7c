"""Request parameters and bodies, as documented in the OpenAPI document."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Path, Query
from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field

from langmem_tiers.common.clock import reject_numeric_time
from langmem_tiers.common.recall_strategy import Strategy  # noqa: TC001 - as above
from langmem_tiers.config import MAX_LIMIT

MAX_QUESTION_CHARACTERS = 20_000
"""Maximum length of a question."""
_DEFAULT_NAMESPACE_HELP = "the namespace of the token, or the only one that exists"
_MAX_BUDGET_TOKENS = 2_000_000
_MAX_MESSAGES = 1_000
_MAX_NAME_CHARACTERS = 1_024
LimitQuery = Annotated[int, Query(ge=1, le=200, description="Maximum number of items.")]
CursorQuery = Annotated[
    str | None, Query(description="`next` of the previous page. Default: the first page.")
]
NamespaceQuery = Annotated[
    str | None,
    Query(
        description="Labels separated by slashes, for example acme/alice. "
        f"Default: {_DEFAULT_NAMESPACE_HELP}."
    ),
]
BudgetQuery = Annotated[
    int | None, Query(ge=1, le=_MAX_BUDGET_TOKENS, description="Tokens. Default: the budget of the engine.")
]
PathText = Annotated[str, Path(min_length=1)]
SessionQuery = Annotated[
    str | None, Query(description="Session of a message. Default: all sessions are searched.")
]


Timestamp = Annotated[
    Annotated[AwareDatetime, Field(strict=False)] | None, BeforeValidator(reject_numeric_time)
]


class NamespaceRequest(BaseModel):
    """Base of all request bodies."""

    model_config = ConfigDict(extra="forbid", strict=True)

    namespace: str | None = Field(
        None, description=f"Labels separated by slashes. Default: {_DEFAULT_NAMESPACE_HELP}."
    )


class AddedMessage(BaseModel):
    """A message to store."""

    model_config = ConfigDict(extra="forbid", strict=True)

    role: Literal["user", "assistant", "system", "tool"]
    content: str
    name: str | None = Field(None, max_length=_MAX_NAME_CHARACTERS)
    id: str | None = Field(None, description="A message that is added again with the same id is stored once.")


class AddMessagesRequest(NamespaceRequest):
    """Messages to store: all of them or none."""

    messages: list[AddedMessage] = Field(min_length=1, max_length=_MAX_MESSAGES)


class RecallMemoriesRequest(NamespaceRequest):
    """A query for recall."""

    query: str = Field(max_length=MAX_QUESTION_CHARACTERS)
    # The engine may have a lower maximum, which it checks itself; the OpenAPI document shows that one.
    limit: int | None = Field(None, ge=1, le=MAX_LIMIT)
    strategy: Annotated[Strategy | None, Field(strict=False)] = None
    session: str | None = None
    since: Timestamp = None
    until: Timestamp = None


class PreviewContextRequest(NamespaceRequest):
    """Parameters of a context to preview."""

    session: str
    question: str | None = Field(None, max_length=MAX_QUESTION_CHARACTERS)
    budget: int | None = Field(None, ge=1, le=_MAX_BUDGET_TOKENS)
    system: str | None = None


class StoreKnowledgeRequest(NamespaceRequest):
    """Knowledge to store."""

    category: str
    key: str
    value: str
    confidence: float = Field(0.5, ge=0, le=1, allow_inf_nan=False)
    source: str | None = Field(None, max_length=_MAX_NAME_CHARACTERS)


class PromoteMessageRequest(NamespaceRequest):
    """A message to promote."""

    session: str | None = Field(None, description="Session of the message.")


class KnowledgeKey(BaseModel):
    """Category and key of an item of knowledge."""

    model_config = ConfigDict(extra="forbid", strict=True)

    category: str
    key: str


class ForgetMemoryRequest(NamespaceRequest):
    """Data to erase: exactly one of entry, session, knowledge and whole."""

    entry: str | None = Field(
        None, description="Id of an entry or a message; the session of a message is optional."
    )
    session: str | None = None
    knowledge: KnowledgeKey | None = None
    whole: bool = Field(default=False, description="The whole namespace; the namespaces below it are kept.")
    confirm: bool = Field(
        default=False, description="If false, nothing is erased and the response says what would be."
    )
