"""Response bodies, as documented in the OpenAPI document."""

from __future__ import annotations

from datetime import date, datetime  # noqa: TC003 - pydantic reads the annotations at run time
from typing import Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict

T = TypeVar("T")
TimelineState = Literal["full", "compressed", "recalled", "dropped"]


class ResponseModel(BaseModel):
    """Base of all response bodies."""

    model_config = ConfigDict(extra="forbid")


class ProblemDetails(ResponseModel):
    """Code and message of an error."""

    kind: str
    message: str


class ProblemResponse(ResponseModel):
    """Response to a request that was rejected or failed."""

    error: ProblemDetails


class PageResponse(ResponseModel, Generic[T]):
    """Page of a list; ``next`` is the cursor of the next page."""

    items: list[T]
    next: str | None = None


class HealthResponse(ResponseModel):
    """Response of a server that works and whose database answers."""

    status: Literal["ok"]
    version: str
    database: Literal["sqlite", "postgresql"]


class NamespaceItem(ResponseModel):
    """A namespace."""

    namespace: str


class TierUsageItem(ResponseModel):
    """Contents of a tier."""

    tier: str
    entries: int
    tokens: int


class DailyUsageItem(ResponseModel):
    """Messages of one day."""

    day: date
    messages: int
    tokens: int


class OptimizerParameters(ResponseModel):
    """Parameters that the optimizer tunes."""

    compressionTrigger: float  # noqa: N815 - the same keys as EfficiencyReport.as_dict()
    fullMessageWindow: int  # noqa: N815
    minRelevance: float  # noqa: N815
    targetUsageRatio: float  # noqa: N815


class OptimizerStatus(ResponseModel):
    """Results of the optimizer so far."""

    totalOptimizations: int  # noqa: N815
    totalTokensSaved: int  # noqa: N815
    avgSavingsPerRun: int  # noqa: N815
    currentParameters: OptimizerParameters  # noqa: N815


class OptimizerRun(ResponseModel):
    """Result of one run of the optimizer."""

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
    """Contents of a namespace."""

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
    """Token budget that a run of the optimizer on this server adapts the parameters to."""


class SessionItem(ResponseModel):
    """A session."""

    session: str
    messages: int
    tokens: int
    created_at: datetime
    updated_at: datetime
    summary: bool


class ToolCallItem(ResponseModel):
    """Tool call of a message; ``cut`` is true if the arguments were truncated."""

    id: str
    name: str
    arguments: str
    """Arguments as the model wrote them: JSON, possibly invalid."""
    cut: bool


class MessageItem(ResponseModel):
    """A message; ``cut`` is true if the text was truncated."""

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
    """A message with its state in a context; the position is only set if the order is oldest first."""

    position: int | None  # type: ignore[assignment]
    state: TimelineState
    reason: str


class EntryResponse(ResponseModel):
    """A memory with its complete content."""

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
    """Complete result of a step of a task; ``text`` only contains the part that recall searches."""
    tier: str
    state: str
    reason: str
    relevance: float
    importance: float
    category: str | None
    source: str | None
    uses: int


class AddResponse(ResponseModel):
    """Result of adding messages, by their ids."""

    ids: list[str]
    """Messages that were stored."""
    known: list[str]
    """Messages that were already stored under the same id."""
    echoes: int
    """Number of messages not stored, because they only repeat content that the memory returned."""


class HitItem(ResponseModel):
    """A memory that answers a query, with the reason."""

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
    """Result of a query."""

    hits: list[HitItem]
    strategy: str
    candidates: int
    problems: list[str]
    seconds: float


class SectionItem(ResponseModel):
    """Section of a context with its size and its maximum size."""

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
    """A memory that is not in a context, or only in shortened form: then its origin is ``compressed``."""

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
    """Context that the model would receive."""

    budget: int
    used: int
    sections: list[SectionItem]
    messages: list[ContextMessageItem]
    left_out: list[LeftOutItem]
    """Recalled memories and knowledge that were not included, then the newest messages that did not fit."""
    left_out_count: int
    """Total number of memories left out; ``left_out`` may list fewer."""
    warnings: list[str]
    problems: list[str]


class KnowledgeItem(ResponseModel):
    """An item of knowledge."""

    id: str
    category: str
    key: str
    value: str
    cut: bool
    """True if the value was truncated."""
    confidence: float
    created_at: datetime
    updated_at: datetime
    uses: int
    source: str | None


class TaskItem(ResponseModel):
    """A recorded task of an agent."""

    task: str
    cycles: int
    started_at: datetime
    updated_at: datetime


class CycleItem(ResponseModel):
    """One step of a task."""

    id: str
    number: int
    thought: str
    action: str
    parameters: str
    """Parameters as JSON, truncated like every text in a list."""
    result: str
    cut: bool
    """True if the thought, the parameters or the result were truncated."""
    outcome: str
    success: bool
    url: str
    time: datetime
    loop: str | None


class ErasureResponse(ResponseModel):
    """Receipt of an erasure."""

    id: str
    erased_at: datetime
    counts: dict[str, int]
    remade: int
    elsewhere: dict[str, int]
    is_complete: bool
    is_scrubbed: bool
    left: list[str]
    notes: list[str]
