"""What a context file holds of a session: state, facts, recent history, tasks, statistics.

Values are frozen. Each verb gives a new context and leaves the one it was called on as it is. Fields that this
release does not know stay in ``extra`` and go back into the file as they came.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING

from langmem_tiers.common.clock import to_microseconds
from langmem_tiers.common.messages import check_time
from langmem_tiers.common.namespaces import check_name
from langmem_tiers.context_files.checks import (
    check_count,
    check_list,
    check_not_empty,
    check_number,
    check_object,
    check_part,
    check_parts,
    check_text,
    check_unix_seconds,
    set_extra,
    set_field,
)
from langmem_tiers.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from langmem_tiers.common.json_values import JsonValue

RUNNING = "Running"
COMPLETED = "Completed"


def estimate_tokens(text: str) -> int:
    """A quarter of the characters, rounded down: the quick estimate that entries are counted by."""
    return len(text) // 4


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One turn of the recent history."""

    timestamp: float
    """Seconds since 1970; a whole number, unless the moment is known more exactly."""
    role: str
    content: str
    token_count: int | None = None
    """None if nobody counted."""
    extra: Mapping[str, JsonValue] = field(default_factory=dict)

    def __post_init__(self) -> None:
        set_field(self, "timestamp", check_unix_seconds(self.timestamp, "timestamp"))
        set_field(self, "role", check_not_empty(self.role, "role"))
        set_field(self, "content", check_text(self.content, "content"))
        if self.token_count is not None:
            check_count(self.token_count, "token_count")
        set_extra(self)


@dataclass(frozen=True, slots=True)
class ActiveTask:
    """Something that the agent is at, or was until a short time ago."""

    id: str
    description: str
    status: str = RUNNING
    """``Running``, ``Completed`` or a word of your own."""
    progress: float = 0.0
    created_at: float = 0
    """Seconds since 1970."""
    updated_at: float = 0
    extra: Mapping[str, JsonValue] = field(default_factory=dict)

    def __post_init__(self) -> None:
        set_field(self, "id", check_not_empty(self.id, "id"))
        set_field(self, "description", check_text(self.description, "description"))
        set_field(self, "status", check_not_empty(self.status, "status"))
        if not 0 <= check_number(self.progress, "progress") <= 1:
            raise InvalidInputError(f"progress must lie in [0, 1], got {self.progress!r}: scale it first")
        set_field(self, "created_at", check_unix_seconds(self.created_at, "created_at"))
        set_field(self, "updated_at", check_unix_seconds(self.updated_at, "updated_at"))
        set_extra(self)

    @property
    def is_completed(self) -> bool:
        """Whether it is done, however the word is written."""
        return self.status.casefold() == COMPLETED.casefold()


@dataclass(frozen=True, slots=True)
class ToolStats:
    """How often tools were called, and how often that failed."""

    total_calls: int = 0
    by_tool: Mapping[str, int] = field(default_factory=dict)
    failures: int = 0
    extra: Mapping[str, JsonValue] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_count(self.total_calls, "total_calls")
        check_count(self.failures, "failures")
        set_field(self, "by_tool", check_object(self.by_tool, "by_tool"))
        for count in self.by_tool.values():
            check_count(count, "each count in by_tool")
        set_extra(self)


@dataclass(frozen=True, slots=True)
class KnownEnvironment:
    """Where the agent worked when it last looked around."""

    workspace: str = ""
    last_update: float = 0
    """Seconds since 1970."""
    system_snapshot: Mapping[str, JsonValue] = field(default_factory=dict)
    extra: Mapping[str, JsonValue] = field(default_factory=dict)

    def __post_init__(self) -> None:
        set_field(self, "workspace", check_text(self.workspace, "workspace"))
        set_field(self, "last_update", check_unix_seconds(self.last_update, "last_update"))
        set_field(self, "system_snapshot", check_object(self.system_snapshot, "system_snapshot"))
        set_extra(self)


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """What the session has cost."""

    total_input: int = 0
    total_output: int = 0
    by_session: int = 0
    """Input and output together."""
    extra: Mapping[str, JsonValue] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("total_input", "total_output", "by_session"):
            check_count(getattr(self, name), name)
        set_extra(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What was done about a file that could not be read."""

    reason: str
    """What was wrong with it."""
    set_aside: str
    """Where it is now; nothing of it was changed."""
    restored_version: int
    """The version that took its place: the last good one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextData:
    """All that is kept of a session between two runs.

    ``based_on`` names the stored version that the context was made from, for the store: a save that is based on
    an older one than the stored is refused. ``recovery`` says what was done if the file was damaged.
    """

    session_id: str
    system_state: Mapping[str, JsonValue] = field(default_factory=dict)
    facts: tuple[str, ...] = ()
    recent_history: tuple[HistoryEntry, ...] = ()
    long_term_summary: str = ""
    active_tasks: tuple[ActiveTask, ...] = ()
    tool_stats: ToolStats = field(default_factory=ToolStats)
    last_known_environment: KnownEnvironment = field(default_factory=KnownEnvironment)
    token_usage: TokenUsage = field(default_factory=TokenUsage)
    extra: Mapping[str, JsonValue] = field(default_factory=dict)
    based_on: str = field(default="", compare=False)
    recovery: Recovery | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        set_field(self, "session_id", check_name(check_text(self.session_id, "session_id"), "session id"))
        set_field(self, "system_state", check_object(self.system_state, "system_state"))
        set_field(
            self, "facts", tuple(check_text(fact, "a fact") for fact in check_list(self.facts, "facts"))
        )
        set_field(self, "recent_history", check_parts(self.recent_history, HistoryEntry, "recent_history"))
        set_field(self, "long_term_summary", check_text(self.long_term_summary, "long_term_summary"))
        set_field(self, "active_tasks", check_parts(self.active_tasks, ActiveTask, "active_tasks"))
        check_part(self.tool_stats, ToolStats, "tool_stats")
        check_part(self.last_known_environment, KnownEnvironment, "last_known_environment")
        check_part(self.token_usage, TokenUsage, "token_usage")
        set_extra(self, hidden=("based_on", "recovery"))

    @property
    def tracked_tokens(self) -> int:
        """Of the recent history, as far as they were counted."""
        return sum(entry.token_count for entry in self.recent_history if entry.token_count is not None)

    def with_message(
        self,
        role: str,
        content: str,
        *,
        at: datetime | float,
        token_count: int | None = None,
        **extra: JsonValue,
    ) -> ContextData:
        """The context with one more turn, counted as a quarter of its characters if you have no count."""
        count = estimate_tokens(content) if token_count is None and isinstance(content, str) else token_count
        entry = HistoryEntry(_to_seconds(at), role, content, count, extra)
        return replace(self, recent_history=(*self.recent_history, entry))

    def with_fact(self, *facts: str) -> ContextData:
        """The context with these facts, each once; those that it has stay where they are."""
        return replace(self, facts=tuple(dict.fromkeys((*self.facts, *facts))))

    def keep_facts(self, is_relevant: Callable[[str], bool]) -> ContextData:
        """The context with no other facts than the relevant ones."""
        return replace(self, facts=tuple(fact for fact in self.facts if is_relevant(fact)))

    def with_task(
        self,
        id: str,  # noqa: A002 - the word of the file
        description: str | None = None,
        *,
        at: datetime | float,
        status: str | None = None,
        progress: float | None = None,
    ) -> ContextData:
        """The context with a task begun, or one that it has changed; what is left out stays as it is."""
        now, known = _to_seconds(at), next((task for task in self.active_tasks if task.id == id), None)
        if known is None:
            task = ActiveTask(id, description or "", status or RUNNING, progress or 0.0, now, now)
            return replace(self, active_tasks=(*self.active_tasks, task))
        changed = replace(
            known,
            description=known.description if description is None else description,
            status=known.status if status is None else status,
            progress=known.progress if progress is None else progress,
            updated_at=now,
        )
        return replace(
            self, active_tasks=tuple(changed if task is known else task for task in self.active_tasks)
        )

    def with_tool_call(self, tool: str, *, failed: bool = False) -> ContextData:
        """The context with one more call of a tool counted."""
        stats, name = self.tool_stats, check_not_empty(tool, "tool")
        counted = replace(
            stats,
            total_calls=stats.total_calls + 1,
            by_tool={**stats.by_tool, name: stats.by_tool.get(name, 0) + 1},
            failures=stats.failures + bool(failed),
        )
        return replace(self, tool_stats=counted)

    def with_token_usage(self, *, input_tokens: int = 0, output_tokens: int = 0) -> ContextData:
        """The context with the tokens of one more answer added."""
        usage = self.token_usage
        both = check_count(input_tokens, "input_tokens") + check_count(output_tokens, "output_tokens")
        added = replace(
            usage,
            total_input=usage.total_input + input_tokens,
            total_output=usage.total_output + output_tokens,
            by_session=usage.by_session + both,
        )
        return replace(self, token_usage=added)

    def with_environment(
        self,
        workspace: str,
        system_snapshot: Mapping[str, JsonValue] | None = None,
        *,
        at: datetime | float,
    ) -> ContextData:
        """The context with what the agent sees around it now."""
        known = replace(
            self.last_known_environment,
            workspace=workspace,
            last_update=_to_seconds(at),
            system_snapshot={} if system_snapshot is None else system_snapshot,
        )
        return replace(self, last_known_environment=known)


def _to_seconds(at: datetime | float) -> float:
    # Whole seconds, as files of this form have; a moment that is known more exactly is given as a number.
    return (
        to_microseconds(check_time(at)) // 1_000_000
        if isinstance(at, datetime)
        else check_unix_seconds(at, "at")
    )
