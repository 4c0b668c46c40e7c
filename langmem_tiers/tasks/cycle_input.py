"""A cycle as it is recorded: whatever an agent hands in, checked and cut before it is written down."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from langmem_tiers.common.plain_values import to_plain_value
from langmem_tiers.compression.tool_output.budget import keep_head_and_tail
from langmem_tiers.compression.tool_output.compressor import COMPRESSIBLE_TOOLS, URL_CRITICAL_TOOLS
from langmem_tiers.errors import InvalidInputError
from langmem_tiers.tasks.cycles import entry_from_dict
from langmem_tiers.tasks.journal import MAX_OBSERVATION_CHARACTERS, truncate_observation
from langmem_tiers.tasks.loop_detection.weights import VISITING_TOOLS
from langmem_tiers.tasks.models import AgentAction, MemoryPriority, Observation, OperationMode, Thought
from langmem_tiers.text.urls import normalize_url

if TYPE_CHECKING:
    from langmem_tiers.common.ports import TokenCounter
    from langmem_tiers.tasks.models import ExecutionOutcome, MemoryEntry

ACTING_TOOLS = frozenset(
    {"click", "type", "fill", "select", "submit", "press", "press_key", "check", "upload", "drag"}
)
ROUTINE_TOOLS = frozenset({"scroll", "scroll_page", "wait", "noop", "hover", "sleep"})
_TOOLS_BY_MODE = {
    OperationMode.SCRAPE: COMPRESSIBLE_TOOLS,
    OperationMode.NAVIGATE: VISITING_TOOLS,
    OperationMode.EXECUTE: ACTING_TOOLS,
    OperationMode.RESEARCH: COMPRESSIBLE_TOOLS | URL_CRITICAL_TOOLS,
}
"""What the agent is out for, which is pruned last."""
_PAGE_SCHEMES = frozenset({"http", "https", "file", "ftp"})
"""Schemes that lead to a page; a script or data does not."""
_PAGE_STATE_TOOL = "get_page_state"
_CYCLE_FIELDS = frozenset({"url", "page_title", "duration_ms", "retry_count", "error_message", "tags"})


@dataclass(frozen=True, slots=True)
class CycleInput:
    """What an agent says of a cycle, unchecked."""

    thought: object
    action: object
    observation: object
    outcome: object
    priority: object
    extra_fields: dict[str, Any]


def build_cycle(
    told: CycleInput, at: float, url: str, mode: OperationMode, counter: TokenCounter
) -> MemoryEntry:
    """The cycle, checked before it is written down, or nobody could ever read it again.

    Args:
        told: What the agent says of it.
        at: When, in seconds since 1970.
        url: The page that it is at, if it does not say.
        mode: What it is out for: it decides how long the cycle stays in sight.
        counter: Counts tokens.

    Raises:
        InvalidInputError: Something in it makes no sense.
    """
    action, about = told.action, told.extra_fields
    if not isinstance(action, AgentAction):
        raise InvalidInputError(
            f"an action must be an AgentAction, got a {type(action).__name__}: use AgentAction(tool, {{...}})"
        )
    if unknown := about.keys() - _CYCLE_FIELDS:
        raise InvalidInputError(
            f"a cycle has no {min(unknown)!r}: use one of {', '.join(sorted(_CYCLE_FIELDS))}"
        )
    said = told.thought.content if isinstance(told.thought, Thought) else told.thought
    error, seen = about.get("error_message"), _to_observation(told.observation)
    entry = entry_from_dict(
        {
            **about,
            "entry_id": "new",
            "timestamp": at,
            "thought": keep_head_and_tail(_to_text(said), MAX_OBSERVATION_CHARACTERS),
            "action": {"tool_name": action.tool_name, "parameters": to_plain_value(action.parameters)},
            "observation": None if seen is None else {"raw_output": seen.raw_output, "summary": seen.summary},
            "outcome": told.outcome,
            "priority": MemoryPriority.NORMAL if told.priority is None else told.priority,
            "url": url if about.get("url") is None else about["url"],
            "error_message": None if error is None else _to_text(error),
            "tags": _to_tags(about.get("tags")),
        },
        "cycle",
    )
    if told.priority is None:
        object.__setattr__(entry, "priority", _choose_priority(action, entry.outcome, mode))
    object.__setattr__(entry, "estimated_tokens", _count_tokens(entry.format_for_prompt(), counter))
    return entry


def _count_tokens(text: str, counter: TokenCounter) -> int:
    try:
        return counter.count(text)
    except Exception:  # noqa: BLE001 - an estimate will do, and what was done is recorded
        return len(text) // 4


def _choose_priority(action: AgentAction, outcome: ExecutionOutcome, mode: OperationMode) -> MemoryPriority:
    if outcome.is_failure or action.tool_name in _TOOLS_BY_MODE.get(mode, frozenset()):
        return MemoryPriority.HIGH
    return MemoryPriority.LOW if action.tool_name in ROUTINE_TOOLS else MemoryPriority.NORMAL


def build_extraction_key(entry: MemoryEntry, number: int, tools: Container[str]) -> str | None:
    """What the data that a cycle brought is called in the prompt; None if it brought none.

    Args:
        entry: The cycle.
        number: The how many-eth of the task.
        tools: Those that bring data.
    """
    tool, seen = entry.action.tool_name, entry.observation
    if tool not in tools or entry.outcome.is_failure or seen is None or not seen.raw_output:
        return None
    # Of a page only the latest state counts.
    return f"{tool} of {entry.url}" if tool == _PAGE_STATE_TOOL and entry.url else f"{tool} (cycle {number})"


def get_whole_text(observation: object) -> str:
    """All that was observed, also what is too long to be kept."""
    return _to_text(observation.raw_output if isinstance(observation, Observation) else observation)


def _to_observation(observation: object) -> Observation | None:
    if observation is None:
        return None
    if not isinstance(observation, Observation):
        return truncate_observation(Observation(_to_text(observation)))
    summary = None if observation.summary is None else _to_text(observation.summary)
    return truncate_observation(Observation(_to_text(observation.raw_output), summary))


def _to_text(value: object) -> str:
    plain = "" if value is None else to_plain_value(value)
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def _to_tags(given: object) -> list[object]:
    if given is None:
        return []
    if isinstance(given, str):
        return [given]
    if not isinstance(given, Iterable):
        raise InvalidInputError(f"tags must be texts, got a {type(given).__name__}: use a set")
    return list(given)


def normalize_page_url(url: object) -> str:
    """A page's address in one form, however it is written."""
    text = to_plain_value(url)
    return normalize_url(text) or text if isinstance(text, str) else str(text)


def find_target_url(entry: MemoryEntry) -> str:
    """Where an action leads that names an address; empty if it names none."""
    url = entry.action.parameters.get("url")
    if entry.action.tool_name not in VISITING_TOOLS or entry.outcome.is_failure or not isinstance(url, str):
        return ""
    try:
        target = urljoin(entry.url, url.strip())
        return target if urlsplit(target).scheme.lower() in _PAGE_SCHEMES else ""
    except ValueError:  # no address
        return ""
