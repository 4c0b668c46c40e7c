"""Contents of a context file: state, facts, recent history, tasks and statistics of a session.

All classes are frozen. Each ``with_...`` method returns a changed copy. Fields that this release does not know are
collected in ``extra`` and are written back unchanged.
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
    """Estimate the tokens of an entry: one for every four characters, rounded down."""
    return len(text) // 4


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """A turn of the recent history."""

    timestamp: float
    """Seconds since 1970; an integer if fractions are not known."""
    role: str
    content: str
    token_count: int | None = None
    """Number of tokens, or None if unknown."""
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
    """A task that the agent works on or completed recently."""

    id: str
    description: str
    status: str = RUNNING
    """``Running``, ``Completed`` or a custom status."""
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
            raise InvalidInputError(f"progress must be in [0, 1], got {self.progress!r}: scale it first")
        set_field(self, "created_at", check_unix_seconds(self.created_at, "created_at"))
        set_field(self, "updated_at", check_unix_seconds(self.updated_at, "updated_at"))
        set_extra(self)

    @property
    def is_completed(self) -> bool:
        """True if the status is ``Completed``, ignoring case."""
        return self.status.casefold() == COMPLETED.casefold()


@dataclass(frozen=True, slots=True)
class ToolStats:
    """Counts of tool calls and failures."""

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
    """The agent's environment when it was last inspected."""

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
    """Tokens used by the session."""

    total_input: int = 0
    total_output: int = 0
    by_session: int = 0
    """Sum of input and output tokens."""
    extra: Mapping[str, JsonValue] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("total_input", "total_output", "by_session"):
            check_count(getattr(self, name), name)
        set_extra(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """Report about a damaged context that was replaced by an earlier version."""

    reason: str
    """Reason why the context could not be read."""
    set_aside: str
    """Present location of the damaged context. Its content is unchanged."""
    restored_version: int
    """Number of the version that replaced it: the newest readable one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextData:
    """State of a session that is kept between two runs.

    ``based_on`` is the revision that the context was loaded from. A store refuses a save that is based on an outdated
    revision. ``recovery`` is set if the stored context was damaged and an earlier version was loaded instead.
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
        """Tokens of the recent history; entries without a count are not included."""
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
        """Return a copy with another turn; without ``token_count`` its tokens are estimated."""
        count = estimate_tokens(content) if token_count is None and isinstance(content, str) else token_count
        entry = HistoryEntry(_to_seconds(at), role, content, count, extra)
        return replace(self, recent_history=(*self.recent_history, entry))

    def with_fact(self, *facts: str) -> ContextData:
        """Return a copy with these facts added; facts that it already contains are not repeated."""
        return replace(self, facts=tuple(dict.fromkeys((*self.facts, *facts))))

    def keep_facts(self, is_relevant: Callable[[str], bool]) -> ContextData:
        """Return a copy with only the facts for which ``is_relevant`` returns True."""
        return replace(self, facts=tuple(fact for fact in self.facts if is_relevant(fact)))

    def with_task(
        self,
        id: str,  # noqa: A002 - the field name in the file
        description: str | None = None,
        *,
        at: datetime | float,
        status: str | None = None,
        progress: float | None = None,
    ) -> ContextData:
        """Return a copy with a new or changed task; None leaves the value of an existing task unchanged."""
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
        """Return a copy that counts another call of a tool."""
        stats, name = self.tool_stats, check_not_empty(tool, "tool")
        counted = replace(
            stats,
            total_calls=stats.total_calls + 1,
            by_tool={**stats.by_tool, name: stats.by_tool.get(name, 0) + 1},
            failures=stats.failures + bool(failed),
        )
        return replace(self, tool_stats=counted)

    def with_token_usage(self, *, input_tokens: int = 0, output_tokens: int = 0) -> ContextData:
        """Return a copy with the tokens of another model response added."""
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
        """Return a copy with a new environment; without ``system_snapshot``, the snapshot is cleared."""
        known = replace(
            self.last_known_environment,
            workspace=workspace,
            last_update=_to_seconds(at),
            system_snapshot={} if system_snapshot is None else system_snapshot,
        )
        return replace(self, last_known_environment=known)


def _to_seconds(at: datetime | float) -> float:
    # A datetime is cut to whole seconds, the usual precision in context files. Pass a number to keep fractions.
    return (
        to_microseconds(check_time(at)) // 1_000_000
        if isinstance(at, datetime)
        else check_unix_seconds(at, "at")
    )
