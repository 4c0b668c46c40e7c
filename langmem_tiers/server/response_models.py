"""The answers, as they are told in the OpenAPI document."""

from __future__ import annotations

from datetime import date, datetime  # noqa: TC003 - pydantic reads the annotations at run time
from typing import Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict

T = TypeVar("T")
TimelineState = Literal["full", "compressed", "recalled", "dropped"]


class ResponseModel(BaseModel):
    """What all have in common."""

    model_config = ConfigDict(extra="forbid")


class ProblemDetails(ResponseModel):
    """What is wrong."""

    kind: str
    message: str


class ProblemResponse(ResponseModel):
    """An answer to a request that was refused, or that failed."""

    error: ProblemDetails


class PageResponse(ResponseModel, Generic[T]):
    """Part of a list; ``next`` is the cursor of the part behind it."""

    items: list[T]
    next: str | None = None


class HealthResponse(ResponseModel):
    """That it answers, and its database too."""

    status: Literal["ok"]
    version: str
    database: Literal["sqlite", "postgresql"]


class NamespaceItem(ResponseModel):
    """A namespace."""

    namespace: str


class TierUsageItem(ResponseModel):
    """What a tier holds."""

    tier: str
    entries: int
    tokens: int


class DailyUsageItem(ResponseModel):
    """What was said on a day."""

    day: date
    messages: int
    tokens: int


class OptimizerParameters(ResponseModel):
    """What the optimizer tunes."""

    compressionTrigger: float  # noqa: N815 - as the status report of the design names them
    fullMessageWindow: int  # noqa: N815
    minRelevance: float  # noqa: N815
    targetUsageRatio: float  # noqa: N815


class OptimizerStatus(ResponseModel):
    """What the optimizer achieved."""

    totalOptimizations: int  # noqa: N815
    totalTokensSaved: int  # noqa: N815
    avgSavingsPerRun: int  # noqa: N815
    currentParameters: OptimizerParameters  # noqa: N815


class OptimizerRun(ResponseModel):
    """What a run of the optimizer did."""

    at: datetime
    reason: str
    tokens_before: int
    tokens_after: int
    tokens_saved: int
    usage_before: float
    usage_after: float
    entries_compressed: int
    entries_dropped: int
    entries_promoted: int
    is_reverted: bool
    parameters: OptimizerParameters


class OverviewResponse(ResponseModel):
    """What a namespace holds."""

    namespace: str
    sessions: int
    messages: int
    tokens: int
    tiers: list[TierUsageItem]
    knowledge: int
    growth: list[DailyUsageItem]
    growth_is_whole: bool
    optimizer: OptimizerStatus
    budget: int
    """Tokens for memory that a run of the optimizer here adapts the parameters to."""


class SessionItem(ResponseModel):
    """A session."""

    session: str
    messages: int
    tokens: int
    created_at: datetime
    updated_at: datetime
    summary: bool


class ToolCallItem(ResponseModel):
    """A call of a tool that a message makes; ``cut`` says that its arguments go on."""

    id: str
    name: str
    arguments: str
    """As the model wrote them: JSON, valid or not."""
    cut: bool


class MessageItem(ResponseModel):
    """A message; ``cut`` says that its text goes on."""

    id: str
    position: int
    role: str
    name: str | None
    time: datetime
    tokens: int
    text: str
    cut: bool
    calls: list[ToolCallItem]


class TimelineItem(MessageItem):
    """A message, and what would become of it in a context; its position is told where they come oldest first."""

    position: int | None  # type: ignore[assignment]
    state: TimelineState
    reason: str


class EntryResponse(ResponseModel):
    """A memory, whole."""

    id: str
    kind: str
    session: str | None
    role: str | None
    name: str | None
    time: datetime
    tokens: int
    text: str
    calls: list[ToolCallItem]
    result: str | None
    """What came of a step of a run, whole; its text holds no more of it than recall looks at."""
    tier: str
    state: str
    reason: str
    relevance: float
    importance: float
    category: str | None
    source: str | None
    uses: int


class AddResponse(ResponseModel):
    """What became of the messages that were handed in, by their ids."""

    ids: list[str]
    """Stored."""
    known: list[str]
    """There before, under the same id."""
    echoes: int
    """Not stored: they were nothing but what memory had told."""


class HitItem(ResponseModel):
    """A memory that answers a query, and why."""

    id: str
    kind: str
    tier: str
    session: str | None
    role: str | None
    time: datetime
    text: str
    cut: bool
    calls: list[ToolCallItem]
    score: float
    signals: dict[str, float]
    found_by: str
    why: str


class RecallResponse(ResponseModel):
    """What a query brought back."""

    hits: list[HitItem]
    strategy: str
    candidates: int
    problems: list[str]
    seconds: float


class SectionItem(ResponseModel):
    """A part of a context, and what it may take at most."""

    name: str
    tokens: int
    limit: int


class ContextMessageItem(ResponseModel):
    """A message of a context."""

    id: str | None
    role: str
    name: str | None
    text: str
    calls: list[ToolCallItem]
    tokens: int
    origin: Literal["full", "compressed", "recalled", "knowledge", "system"]
    reason: str


class LeftOutItem(ResponseModel):
    """What is not in a context, or only in a few words: then it is ``compressed``."""

    id: str
    session: str | None
    role: str | None
    text: str
    cut: bool
    calls: list[ToolCallItem]
    tokens: int
    origin: Literal["compressed", "dropped"]
    reason: str


class ContextResponse(ResponseModel):
    """What would go to the model."""

    budget: int
    used: int
    sections: list[SectionItem]
    messages: list[ContextMessageItem]
    left_out: list[LeftOutItem]
    """What was recalled or is known and is not told, then the newest messages without room."""
    left_out_count: int
    """How many there are of them all."""
    warnings: list[str]
    problems: list[str]


class KnowledgeItem(ResponseModel):
    """Something known."""

    id: str
    category: str
    key: str
    value: str
    cut: bool
    """Whether the value goes on."""
    confidence: float
    created_at: datetime
    updated_at: datetime
    uses: int
    source: str | None


class TaskItem(ResponseModel):
    """A recorded run of an agent."""

    task: str
    cycles: int
    started_at: datetime
    updated_at: datetime


class CycleItem(ResponseModel):
    """One step of a run."""

    id: str
    number: int
    thought: str
    action: str
    parameters: str
    """As JSON, cut like every text in a list."""
    result: str
    cut: bool
    """Whether thought, parameters or result go on."""
    outcome: str
    success: bool
    url: str
    time: datetime
    loop: str | None


class ErasureResponse(ResponseModel):
    """What was erased."""

    id: str
    erased_at: datetime
    counts: dict[str, int]
    remade: int
    elsewhere: dict[str, int]
    is_complete: bool
    is_scrubbed: bool
    left: list[str]
    notes: list[str]
