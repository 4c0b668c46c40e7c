"""Data classes of agent tasks: thoughts, actions, observations, cycles and learned patterns."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from langmem_tiers.common.json_values import to_plain_value
from langmem_tiers.display.displayable import Displayable
from langmem_tiers.errors import InvalidInputError

_MAX_SHOWN_CHARACTERS = 500
"""Maximum length of an observation in a prompt."""


class ExecutionOutcome(StrEnum):
    """Outcome of an action."""

    SUCCESS = "success"
    FAILURE = "failure"
    PARTIAL = "partial"
    TIMEOUT = "timeout"
    SKIPPED = "skipped"
    UNKNOWN = "unknown"

    @property
    def is_failure(self) -> bool:
        """True for outcomes that count as failures: failure and timeout."""
        return self in (ExecutionOutcome.FAILURE, ExecutionOutcome.TIMEOUT)


class MemoryPriority(StrEnum):
    """Priority of a cycle when recent cycles are pruned."""

    CRITICAL = "critical"
    """Never pruned, for example a key discovery. Only set by the caller."""
    HIGH = "high"
    """Pruned last. Default for failures and for actions that serve the operation mode."""
    NORMAL = "normal"
    LOW = "low"
    """Pruned first. Default for routine actions."""

    @property
    def rank(self) -> int:
        """Rank of the priority: 0 is pruned first."""
        return ("low", "normal", "high", "critical").index(self.value)


class OperationMode(StrEnum):
    """Kind of work. It determines default priorities and the order of the prompt."""

    AUTO = "auto"
    NAVIGATE = "navigate"
    EXECUTE = "execute"
    SCRAPE = "scrape"
    RESEARCH = "research"


@dataclass(frozen=True, slots=True)
class Thought:
    """Reasoning of the agent before an action."""

    content: str = ""


@dataclass(frozen=True, slots=True)
class AgentAction:
    """A tool call."""

    tool_name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    _json: str | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        name: object = self.tool_name
        if not isinstance(name, str) or not name:
            raise InvalidInputError(f"an action needs the name of its tool, got {name!r}: pass a string")
        parameters: object = self.parameters
        if not isinstance(parameters, Mapping):
            raise InvalidInputError(
                f"the parameters of {self.tool_name!r} must be a mapping, got {type(parameters).__name__}: "
                "use a dict"
            )

    @property
    def parameters_json(self) -> str:
        """The parameters as JSON with sorted keys. Objects that are not JSON are converted to text."""
        return _dump_sorted_json(to_plain_value(self.parameters)) if self._json is None else self._json

    @classmethod
    def from_plain_json(cls, tool_name: str, parameters: dict[str, Any]) -> AgentAction:
        """Create an action from plain, immutable JSON parameters; their JSON text is cached."""
        action = cls(tool_name, parameters)
        object.__setattr__(action, "_json", _dump_sorted_json(parameters))
        return action


@dataclass(frozen=True, slots=True)
class Observation:
    """Result of an action."""

    raw_output: str = ""
    summary: str | None = None

    @property
    def text(self) -> str:
        """The summary, or the raw output without a summary."""
        return self.summary or self.raw_output


def compute_action_signature(action: AgentAction, url: str = "") -> str:
    """Return a digest of tool, parameters and address that does not depend on the order of keys."""
    whole = "\n".join([action.tool_name, action.parameters_json, url])
    return hashlib.blake2b(whole.encode("utf-8", "replace"), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycle(Displayable):
    """A cycle of thought, action and observation."""

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
    """Digest of tool, parameters and address; equal for equal actions."""

    def __post_init__(self) -> None:
        if not self.action_signature:
            object.__setattr__(self, "action_signature", compute_action_signature(self.action, self.url))

    def format_for_prompt(self, include_observation: bool = True) -> str:  # noqa: FBT001, FBT002 - as in the design
        """Format the cycle as lines for a prompt.

        Args:
            include_observation: Include up to 500 characters of the observation. Default: True.
        """
        lines = [f"**Thought**: {self.thought.content}"] if self.thought.content else []
        lines.append(f"**Action**: {self.action.tool_name}({dict(self.action.parameters)})")
        if include_observation and self.observation is not None and self.observation.text:
            text = self.observation.text
            shown = text if len(text) <= _MAX_SHOWN_CHARACTERS else text[:_MAX_SHOWN_CHARACTERS] + "..."
            lines.append(f"**Observation**: {shown}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class NavigationSnapshot:
    """A browser state in the navigation path."""

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
    """Steps that succeeded at a site, with placeholders such as ``{email}`` for values that differ."""

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
        """Share of successful uses; 0 without any use."""
        total = self.success_count + self.failure_count
        return self.success_count / total if total > 0 else 0.0


def _dump_sorted_json(plain: object) -> str:
    return json.dumps(plain, ensure_ascii=False, sort_keys=True)
