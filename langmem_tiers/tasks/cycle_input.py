"""Validation of cycles before they are stored: converts, checks and truncates what an agent passes."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from langmem_tiers.common.json_values import to_plain_value
from langmem_tiers.compression.tool_output.budget import keep_head_and_tail
from langmem_tiers.compression.tool_output.compressor import COMPRESSIBLE_TOOLS, URL_CRITICAL_TOOLS
from langmem_tiers.errors import InvalidInputError
from langmem_tiers.tasks.cycles import cycle_from_dict
from langmem_tiers.tasks.journal import MAX_OBSERVATION_CHARACTERS, truncate_observation
from langmem_tiers.tasks.loop_detection.weights import VISITING_TOOLS
from langmem_tiers.tasks.models import AgentAction, MemoryPriority, Observation, OperationMode, Thought
from langmem_tiers.text.urls import normalize_url
from langmem_tiers.text.word_lists import load_words

if TYPE_CHECKING:
    from langmem_tiers.common.ports import TokenCounter
    from langmem_tiers.tasks.models import Cycle, ExecutionOutcome

ACTING_TOOLS = frozenset(load_words(__name__, "tool_calls", "acting tools"))
ROUTINE_TOOLS = frozenset({"scroll", "scroll_page", "wait", "noop", "hover", "sleep"})
_TOOLS_BY_MODE = {
    OperationMode.SCRAPE: COMPRESSIBLE_TOOLS,
    OperationMode.NAVIGATE: VISITING_TOOLS,
    OperationMode.EXECUTE: ACTING_TOOLS,
    OperationMode.RESEARCH: COMPRESSIBLE_TOOLS | URL_CRITICAL_TOOLS,
}
"""Tools that get high priority in a mode: those that serve its purpose."""
_PAGE_SCHEMES = frozenset({"http", "https", "file", "ftp"})
"""URL schemes that lead to a page, unlike ``javascript:`` or ``data:``."""
_PAGE_STATE_TOOL = "get_page_state"
_CYCLE_FIELDS = frozenset({"url", "page_title", "duration_ms", "retry_count", "error_message", "tags"})


@dataclass(frozen=True, slots=True)
class CycleInput:
    """Arguments of ``AgentMemory.record_cycle``, not validated."""

    thought: object
    action: object
    observation: object
    outcome: object
    priority: object
    extra_fields: dict[str, Any]


def build_cycle(
    cycle_input: CycleInput, at: float, url: str, mode: OperationMode, counter: TokenCounter
) -> Cycle:
    """Validate the input and build the cycle to store. An invalid cycle could be stored but never read again.

    Args:
        cycle_input: The arguments of the agent.
        at: Time in seconds since 1970.
        url: Address of the current page, used if the agent does not pass ``url``.
        mode: Operation mode, which determines the default priority.
        counter: Counts the tokens of the cycle.

    Raises:
        InvalidInputError: A value is invalid; the message names it.
    """
    action, about = cycle_input.action, cycle_input.extra_fields
    if not isinstance(action, AgentAction):
        raise InvalidInputError(
            f"an action must be an AgentAction, got {type(action).__name__}: use AgentAction(tool, {{...}})"
        )
    if unknown := about.keys() - _CYCLE_FIELDS:
        raise InvalidInputError(
            f"a cycle has no field {min(unknown)!r}: use one of {', '.join(sorted(_CYCLE_FIELDS))}"
        )
    thought = cycle_input.thought
    thought_text = thought.content if isinstance(thought, Thought) else thought
    error, observation = about.get("error_message"), _to_observation(cycle_input.observation)
    # Build the cycle through the same parser that reads it back from storage, so both accept the same values.
    cycle = cycle_from_dict(
        {
            **about,
            "entry_id": "new",
            "timestamp": at,
            "thought": keep_head_and_tail(_to_text(thought_text), MAX_OBSERVATION_CHARACTERS),
            "action": {"tool_name": action.tool_name, "parameters": to_plain_value(action.parameters)},
            "observation": None
            if observation is None
            else {"raw_output": observation.raw_output, "summary": observation.summary},
            "outcome": cycle_input.outcome,
            "priority": MemoryPriority.NORMAL if cycle_input.priority is None else cycle_input.priority,
            "url": url if about.get("url") is None else about["url"],
            "error_message": None if error is None else _to_text(error),
            "tags": _to_tags(about.get("tags")),
        },
        "cycle",
    )
    # The cycle is frozen, but nobody else has a reference to it yet. Its outcome and text exist only now.
    if cycle_input.priority is None:
        object.__setattr__(cycle, "priority", _choose_priority(action, cycle.outcome, mode))
    object.__setattr__(cycle, "estimated_tokens", _count_tokens(cycle.format_for_prompt(), counter))
    return cycle


def _count_tokens(text: str, counter: TokenCounter) -> int:
    try:
        return counter.count(text)
    except Exception:  # noqa: BLE001 - a failing counter must not prevent recording; an estimate is enough
        return len(text) // 4


def _choose_priority(action: AgentAction, outcome: ExecutionOutcome, mode: OperationMode) -> MemoryPriority:
    if outcome.is_failure or action.tool_name in _TOOLS_BY_MODE.get(mode, frozenset()):
        return MemoryPriority.HIGH
    return MemoryPriority.LOW if action.tool_name in ROUTINE_TOOLS else MemoryPriority.NORMAL


def build_extraction_key(cycle: Cycle, number: int, tools: Container[str]) -> str | None:
    """Return the prompt label for the data that a cycle extracted, or None if it extracted none.

    Args:
        cycle: The cycle.
        number: Number of the cycle in the task.
        tools: Names of the tools that extract data.
    """
    tool, observation = cycle.action.tool_name, cycle.observation
    if tool not in tools or cycle.outcome.is_failure or observation is None or not observation.raw_output:
        return None
    # The label of a page state has no number, so a newer state of the same page replaces the older one.
    return f"{tool} of {cycle.url}" if tool == _PAGE_STATE_TOOL and cycle.url else f"{tool} (cycle {number})"


def get_whole_text(observation: object) -> str:
    """Return the complete text of an observation, before truncation."""
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


def _to_tags(tags: object) -> list[object]:
    if tags is None:
        return []
    # A single string is a tag, not an iterable of one-letter tags.
    if isinstance(tags, str):
        return [tags]
    if not isinstance(tags, Iterable):
        raise InvalidInputError(f"tags must be a set of strings, got {type(tags).__name__}: use a set")
    return list(tags)


def normalize_page_url(url: object) -> str:
    """Return the normalized address of a page, or the text itself if it is not a URL."""
    text = to_plain_value(url)
    return normalize_url(text) or text if isinstance(text, str) else str(text)


def find_target_url(cycle: Cycle) -> str:
    """Return the page that a navigation leads to; empty if the action did not navigate to an address."""
    url = cycle.action.parameters.get("url")
    if cycle.action.tool_name not in VISITING_TOOLS or cycle.outcome.is_failure or not isinstance(url, str):
        return ""
    try:
        target = urljoin(cycle.url, url.strip())
        return target if urlsplit(target).scheme.lower() in _PAGE_SCHEMES else ""
    except ValueError:
        # Not a valid URL, for example an unclosed bracket of an IPv6 address.
        return ""
