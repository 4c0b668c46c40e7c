"""The answers, as they are told in the OpenAPI document."""

from __future__ import annotations

from datetime import date, datetime  # noqa: TC003 - pydantic reads the annotations at run time
from typing import Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict

T = TypeVar("T")
State = Literal["full", "compressed", "recalled", "dropped"]


class Answer(BaseModel):
    """What all have in common."""

    model_config = ConfigDict(extra="forbid")


class ProblemDetails(Answer):
    """What is wrong."""

    kind: str
    message: str


class ProblemAnswer(Answer):
    """An answer to a request that was refused, or that failed."""

    error: ProblemDetails


class Page(Answer, Generic[T]):
    """Part of a list; ``next`` is the cursor of the part behind it."""

    items: list[T]
    next: str | None = None


class Health(Answer):
    """That it answers, and its database too."""

    status: Literal["ok"]
    version: str
    database: Literal["sqlite", "postgresql"]


class NamespaceItem(Answer):
    """A namespace."""

    namespace: str


class TierItem(Answer):
    """What a tier holds."""

    tier: str
    entries: int
    tokens: int


class DayItem(Answer):
    """What was said on a day."""

    day: date
    messages: int
    tokens: int


class Parameters(Answer):
    """What the optimizer tunes."""

    compressionTrigger: float  # noqa: N815 - as the status report of the design names them
    fullMessageWindow: int  # noqa: N815
    minRelevance: float  # noqa: N815
    targetUsageRatio: float  # noqa: N815


class OptimizerStatus(Answer):
    """What the optimizer achieved."""

    totalOptimizations: int  # noqa: N815
    totalTokensSaved: int  # noqa: N815
    avgSavingsPerRun: int  # noqa: N815
    currentParameters: Parameters  # noqa: N815


class OptimizerRun(Answer):
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
    parameters: Parameters


class Overview(Answer):
    """What a namespace holds."""

    namespace: str
    sessions: int
    messages: int
    tokens: int
    tiers: list[TierItem]
    knowledge: int
    growth: list[DayItem]
    growth_is_whole: bool
    optimizer: OptimizerStatus
    budget: int
    """Tokens for memory that a run of the optimizer here adapts the parameters to."""


class SessionItem(Answer):
    """A session."""

    session: str
    messages: int
    tokens: int
    created_at: datetime
    updated_at: datetime
    summary: bool


class CallItem(Answer):
    """A call of a tool that a message makes; ``cut`` says that its arguments go on."""

    id: str
    name: str
    arguments: str
    """As the model wrote them: JSON, valid or not."""
    cut: bool


class MessageItem(Answer):
    """A message; ``cut`` says that its text goes on."""

    id: str
    position: int
    role: str
    name: str | None
    time: datetime
    tokens: int
    text: str
    cut: bool
    calls: list[CallItem]


class TimelineItem(MessageItem):
    """A message, and what would become of it in a context; its position is told where they come oldest first."""

    position: int | None  # type: ignore[assignment]
    state: State
    reason: str


class EntryAnswer(Answer):
    """A memory, whole."""

    id: str
    kind: str
    session: str | None
    role: str | None
    name: str | None
    time: datetime
    tokens: int
    text: str
    calls: list[CallItem]
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


class Added(Answer):
    """What became of the messages that were handed in, by their ids."""

    ids: list[str]
    """Stored."""
    known: list[str]
    """There before, under the same id."""
    echoes: int
    """Not stored: they were nothing but what memory had told."""


class HitItem(Answer):
    """A memory that answers a query, and why."""

    id: str
    kind: str
    tier: str
    session: str | None
    role: str | None
    time: datetime
    text: str
    cut: bool
    calls: list[CallItem]
    score: float
    signals: dict[str, float]
    found_by: str
    why: str


class RecallAnswer(Answer):
    """What a query brought back."""

    hits: list[HitItem]
    strategy: str
    candidates: int
    problems: list[str]
    seconds: float


class SectionItem(Answer):
    """A part of a context, and what it may take at most."""

    name: str
    tokens: int
    limit: int


class PartItem(Answer):
    """A message of a context."""

    id: str | None
    role: str
    name: str | None
    text: str
    calls: list[CallItem]
    tokens: int
    origin: Literal["full", "compressed", "recalled", "knowledge", "system"]
    reason: str


class LeftOutItem(Answer):
    """What is not in a context, or only in a few words: then it is ``compressed``."""

    id: str
    session: str | None
    role: str | None
    text: str
    cut: bool
    calls: list[CallItem]
    tokens: int
    origin: Literal["compressed", "dropped"]
    reason: str


class ContextAnswer(Answer):
    """What would go to the model."""

    budget: int
    used: int
    sections: list[SectionItem]
    messages: list[PartItem]
    left_out: list[LeftOutItem]
    """What was recalled or is known and is not told, then the newest messages without room."""
    left_out_count: int
    """How many there are of them all."""
    warnings: list[str]
    problems: list[str]


class KnowledgeItem(Answer):
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


class TaskItem(Answer):
    """A recorded run of an agent."""

    task: str
    cycles: int
    started_at: datetime
    updated_at: datetime


class CycleItem(Answer):
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


class Erasure(Answer):
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
