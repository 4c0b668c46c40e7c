"""What the tools take: the shapes that clients are shown, and that calls are held to."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)

from langmem_tiers.core.names import MAX_ENTRY_ID_BYTES
from langmem_tiers.integration_kit.time_formats import written_time
from langmem_tiers.tiers.confidence import INITIAL_CONFIDENCE

MAX_TEXT = 100_000
"""Characters of a message or a value."""
MAX_QUERY = 4_000
MAX_NAME = 1_024
MAX_MEMORIES = 50
MAX_KNOWN = 100
MAX_ANSWER = 200_000
"""Characters of all memories in an answer; one alone may be as long as what ``remember`` takes."""


def _with_words(text: str) -> str:
    if not text.strip():
        raise ValueError("must say something, got only spaces")
    return text


_Text = Annotated[str, Field(min_length=1, max_length=MAX_TEXT), AfterValidator(_with_words)]
_Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME)]
_Id = Annotated[str, Field(min_length=1, max_length=MAX_ENTRY_ID_BYTES)]
_Query = Annotated[str, Field(min_length=1, max_length=MAX_QUERY), AfterValidator(_with_words)]
_Moment = Annotated[AwareDatetime | None, BeforeValidator(written_time)]
_Shown = Annotated[
    int,
    Field(
        ge=100,
        le=MAX_TEXT,
        description="How many characters of each are shown; is_cut says where there are more.",
    ),
]


class Arguments(BaseModel):
    """Arguments of a tool. Those that it does not know are refused."""

    model_config = ConfigDict(extra="forbid")


class _Listing(Arguments):
    limit: int
    max_characters: _Shown = 2_000

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.limit * self.max_characters > MAX_ANSWER:
            raise ValueError(
                f"limit times max_characters must not exceed {MAX_ANSWER}: ask for fewer, or for less of each"
            )
        return self


class Remember(Arguments):
    """What ``remember`` takes."""

    text: _Text = Field(description="What to remember, as it was said.")
    session: _Name = Field("notes", description="The conversation that it belongs to, by any name.")
    role: Literal["user", "assistant"] = Field("user", description="Who said it.")
    speaker: _Name | None = Field(None, description="The name of who said it.")
    id: _Name | None = Field(
        None, description="An id of your own: what is sent again under the same id is stored once."
    )


class _Filtered(Arguments):
    query: _Query = Field(description="A question, or words.")
    session: _Name | None = Field(None, description="Only from this session.")
    since: _Moment = Field(
        None, description="Only what was said then or later: ISO 8601 with the offset, 2025-03-01T00:00:00Z."
    )
    until: _Moment = Field(None, description="Only what was said before then.")


class Recall(_Filtered, _Listing):
    """What ``recall`` takes."""

    limit: int = Field(10, ge=1, le=MAX_MEMORIES, description="How many memories at most.")


class BuildContext(_Filtered):
    """What ``build_context`` takes."""

    max_tokens: int = Field(2_000, ge=100, le=100_000, description="What the text may take at most.")


class LookUp(_Listing):
    """What ``look_up_knowledge`` takes: words, a category with a key, or neither for a list."""

    query: _Query | None = Field(None, description="A question, or words; left out, all are listed.")
    category: _Name | None = Field(None, description="Only of this category.")
    key: _Name | None = Field(None, description="Exactly what is known under this key of the category.")
    after: _Id | None = Field(None, description="Of a list: next_after of the answer before.")
    limit: int = Field(20, ge=1, le=MAX_KNOWN, description="How many at most.")

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        ways = [name for name in ("query", "key", "after") if getattr(self, name) is not None]
        if len(ways) > 1:
            raise ValueError(f"{' and '.join(ways)} exclude each other: pass one of them")
        if self.key is not None and self.category is None:
            raise ValueError("a key is of a category: pass the category as well")
        return self


class StoreKnowledge(Arguments):
    """What ``store_knowledge`` takes."""

    category: _Name = Field(
        description="domain, user_preference, execution_pattern, website_knowledge, error_pattern, or another."
    )
    key: _Name = Field(description="What it is about, such as 'payment provider'.")
    value: _Text = Field(description="What is known.")
    confidence: float = Field(INITIAL_CONFIDENCE, ge=0, le=1, description="How sure a new value is.")
    source: _Name | None = Field(None, description="Where it comes from.")


class Forget(Arguments):
    """What ``forget`` takes."""

    id: _Id = Field(description="The id of one memory, as an answer gave it.")
    session: _Name | None = Field(
        None,
        description="Of a message: the session that the answer gave with it; it is needed where several have such an "
        "id. Left out for all else.",
    )
