"""What an agent does at a task: thought, action and observation, and what becomes of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from langmem_tiers.common.plain_values import to_plain_value
from langmem_tiers.display.displayable import Displayable
from langmem_tiers.errors import InvalidInputError

_MAX_SHOWN_CHARACTERS = 500
"""Of an observation in a prompt."""


class ExecutionOutcome(StrEnum):
    """How an action went."""

    SUCCESS = "success"
    FAILURE = "failure"
    PARTIAL = "partial"
    TIMEOUT = "timeout"
    SKIPPED = "skipped"
    UNKNOWN = "unknown"

    @property
    def is_failure(self) -> bool:
        """Whether it counts as a failure of the action."""
        return self in (ExecutionOutcome.FAILURE, ExecutionOutcome.TIMEOUT)


class MemoryPriority(StrEnum):
    """How long a cycle is kept in sight."""

    CRITICAL = "critical"
    """Never pruned: for what must not be forgotten, such as errors and key discoveries. Given by the caller alone."""
    HIGH = "high"
    """Pruned last: for what brought the task forward. Left out, that is what failed and what the mode is out for."""
    NORMAL = "normal"
    LOW = "low"
    """Pruned first: routine actions."""

    @property
    def rank(self) -> int:
        """0 for what is pruned first."""
        return ("low", "normal", "high", "critical").index(self.value)


class OperationMode(StrEnum):
    """What the agent is out for; it decides what is kept and shown."""

    AUTO = "auto"
    NAVIGATE = "navigate"
    EXECUTE = "execute"
    SCRAPE = "scrape"
    RESEARCH = "research"


@dataclass(frozen=True, slots=True)
class Thought:
    """What the agent reasoned before it acted."""

    content: str = ""


@dataclass(frozen=True, slots=True)
class AgentAction:
    """A call of a tool."""

    tool_name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    _json: str | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        name: object = self.tool_name
        if not isinstance(name, str) or not name:
            raise InvalidInputError(f"an action needs the name of its tool, got {name!r}")
        parameters: object = self.parameters
        if not isinstance(parameters, Mapping):
            raise InvalidInputError(
                f"the parameters of {self.tool_name!r} must be a mapping, got a {type(parameters).__name__}"
            )

    @property
    def parameters_json(self) -> str:
        """The parameters as JSON with sorted keys; what is no JSON by its text, so that no call is refused."""
        return _dump_sorted_json(to_plain_value(self.parameters)) if self._json is None else self._json

    @classmethod
    def from_plain_json(cls, tool_name: str, parameters: dict[str, Any]) -> AgentAction:
        """A call whose parameters are plain JSON that nobody changes any more: it is written but once."""
        action = cls(tool_name, parameters)
        object.__setattr__(action, "_json", _dump_sorted_json(parameters))
        return action


@dataclass(frozen=True, slots=True)
class Observation:
    """What came of an action."""

    raw_output: str = ""
    summary: str | None = None

    @property
    def text(self) -> str:
        """The summary, or all of it."""
        return self.summary or self.raw_output


def compute_action_signature(action: AgentAction, url: str = "") -> str:
    """The same for the same tool with the same parameters at the same address, whatever the order of keys."""
    whole = "\n".join([action.tool_name, action.parameters_json, url])
    return hashlib.blake2b(whole.encode("utf-8", "replace"), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEntry(Displayable):
    """One cycle of thought, action and observation."""

    entry_id: str
    timestamp: float
    """Seconds since 1970."""
    thought: Thought
    action: AgentAction
    observation: Observation | None = None
    outcome: ExecutionOutcome = ExecutionOutcome.SUCCESS
    priority: MemoryPriority = MemoryPriority.NORMAL
    url: str = ""
    page_title: str = ""
    duration_ms: float = 0.0
    retry_count: int = 0
    error_message: str | None = None
    estimated_tokens: int = 0
    tags: frozenset[str] = frozenset()
    action_signature: str = ""
    """The same for the same tool, parameters and address."""

    def __post_init__(self) -> None:
        if not self.action_signature:
            object.__setattr__(self, "action_signature", compute_action_signature(self.action, self.url))

    def format_for_prompt(self, include_observation: bool = True) -> str:  # noqa: FBT001, FBT002 - as in the design
        """The cycle as lines of a prompt.

        Args:
            include_observation: Whether what came of the action is told, up to 500 characters of it.
        """
        lines = [f"**Thought**: {self.thought.content}"] if self.thought.content else []
        lines.append(f"**Action**: {self.action.tool_name}({dict(self.action.parameters)})")
        if include_observation and self.observation is not None and self.observation.text:
            text = self.observation.text
            shown = text if len(text) <= _MAX_SHOWN_CHARACTERS else text[:_MAX_SHOWN_CHARACTERS] + "..."
            lines.append(f"**Observation**: {shown}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSnapshot:
    """A state of the browser to go back to."""

    snapshot_id: str
    timestamp: float
    url: str
    page_title: str = ""
    visible_elements_summary: str = ""
    form_state: Mapping[str, Any] = field(default_factory=dict)
    scroll_position: tuple[int, int] = (0, 0)
    associated_entry_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedPattern(Displayable):
    """Steps that worked at a site, with placeholders such as ``{email}`` for what differs each time."""

    pattern_id: str
    domain: str
    description: str
    pattern_type: str
    steps: tuple[Mapping[str, Any], ...]
    success_count: int = 0
    failure_count: int = 0
    last_used: float = 0.0
    """Seconds since 1970."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", tuple(self.steps))

    @property
    def success_rate(self) -> float:
        """Successes of all uses; 0 if there was none."""
        total = self.success_count + self.failure_count
        return self.success_count / total if total > 0 else 0.0


def _dump_sorted_json(plain: object) -> str:
    return json.dumps(plain, ensure_ascii=False, sort_keys=True)
