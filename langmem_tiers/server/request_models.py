"""What is asked, as it is told in the OpenAPI document."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Path, Query
from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field

from langmem_tiers.common.recall_strategy import Strategy  # noqa: TC001 - as above
from langmem_tiers.common.time_formats import written_time
from langmem_tiers.config import MAX_LIMIT

MOST_CHARACTERS = 20_000
"""Of a question."""
_OWN = "the token's own, or the only one there is"
_MOST_TOKENS = 2_000_000
_MOST_MESSAGES = 1_000
_MOST_NAME = 1_024
Limit = Annotated[int, Query(ge=1, le=200, description="How many at most.")]
Cursor = Annotated[str | None, Query(description="`next` of the page before; the first page, if left out.")]
InNamespace = Annotated[
    str | None,
    Query(description=f"Labels parted by slashes, as acme/alice; {_OWN}, if left out."),
]
Budget = Annotated[int | None, Query(ge=1, le=_MOST_TOKENS, description="Tokens; the engine's, if left out.")]
InPath = Annotated[str, Path(min_length=1)]
InSession = Annotated[
    str | None, Query(description="The session of a message; all are searched, if left out.")
]


Moment = Annotated[Annotated[AwareDatetime, Field(strict=False)] | None, BeforeValidator(written_time)]


class Ask(BaseModel):
    """What all have in common."""

    model_config = ConfigDict(extra="forbid", strict=True)

    namespace: str | None = Field(None, description=f"Labels parted by slashes; {_OWN}, if left out.")


class NewMessage(BaseModel):
    """A message on its way in."""

    model_config = ConfigDict(extra="forbid", strict=True)

    role: Literal["user", "assistant", "system", "tool"]
    content: str
    name: str | None = Field(None, max_length=_MOST_NAME)
    id: str | None = Field(None, description="Adding the same id to a session twice stores it once.")


class AskAdd(Ask):
    """Messages to be stored, all or none."""

    messages: list[NewMessage] = Field(min_length=1, max_length=_MOST_MESSAGES)


class AskRecall(Ask):
    """A question to memory."""

    query: str = Field(max_length=MOST_CHARACTERS)
    limit: int | None = Field(None, ge=1, le=MAX_LIMIT)  # the engine's own most holds, and is documented
    strategy: Annotated[Strategy | None, Field(strict=False)] = None
    session: str | None = None
    since: Moment = None
    until: Moment = None


class AskContext(Ask):
    """What a context is to be built of."""

    session: str
    question: str | None = Field(None, max_length=MOST_CHARACTERS)
    budget: int | None = Field(None, ge=1, le=_MOST_TOKENS)
    system: str | None = None


class AskKnow(Ask):
    """Something to be known."""

    category: str
    key: str
    value: str
    confidence: float = Field(0.5, ge=0, le=1, allow_inf_nan=False)
    source: str | None = Field(None, max_length=_MOST_NAME)


class AskEntry(Ask):
    """A memory that is to be changed."""

    session: str | None = Field(None, description="The session of a message.")


class KnownName(BaseModel):
    """What something known is called."""

    model_config = ConfigDict(extra="forbid", strict=True)

    category: str
    key: str


class AskForget(Ask):
    """What is to be erased: one of these."""

    entry: str | None = Field(None, description="An entry, or a message, with its session or without.")
    session: str | None = None
    knowledge: KnownName | None = None
    whole: bool = Field(
        default=False, description="The namespace with all that it holds; those below it stay."
    )
    confirm: bool = Field(
        default=False, description="Without it nothing is erased, and the answer says what would be."
    )
