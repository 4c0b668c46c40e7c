"""What an agent is told of its task: goal, warnings, where it is, what it did, what it found, what worked before."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from langmem_tiers.common.plain_values import to_plain_value
from langmem_tiers.compression.tool_output.budget import fit_extractions
from langmem_tiers.compression.tool_output.context_window import (
    ContextSection,
    SectionKind,
    handle_large_context,
)
from langmem_tiers.tasks.cycles import to_one_line
from langmem_tiers.tasks.models import OperationMode

if TYPE_CHECKING:
    from langmem_tiers.tasks.agent_memory import AgentMemory
    from langmem_tiers.tasks.models import LearnedPattern

SHOWN_CYCLES = {OperationMode.SCRAPE: 5, OperationMode.NAVIGATE: 8, OperationMode.RESEARCH: 8}
"""Cycles in a prompt, by what the agent is out for; 10 otherwise."""
DATA_MODES = frozenset({OperationMode.SCRAPE, OperationMode.RESEARCH})
"""Modes in which extracted data stands above history, and is cut after it."""
_MAX_LABEL_CHARACTERS = 200
_MAX_PAGE_CHARACTERS = 2_000
_HEADING = re.compile(r"(?m)^([ \t]{0,3})(#{1,6})(?=\s|$)")
"""What a page says must not look like a section of the prompt."""
_DEFAULT_SHOWN_CYCLES = 10
_MAX_SHOWN_PATTERNS = 3
_MAX_SITEMAP_CHARACTERS = 1500


def build_task_prompt(memory: AgentMemory, domain: str, max_tokens: int) -> str:
    """The text, never more than so many tokens by the memory's counter.

    Args:
        memory: Whose task.
        domain: The site that the agent is at, for what worked there before.
        max_tokens: What it may take.
    """
    counter, mode = memory.counter, memory.get_operation_mode()
    essential = [
        ContextSection("Goal", _escape_headings(memory.working.current_goal or ""), SectionKind.ESSENTIAL),
        ContextSection("Warnings", "\n".join(memory.warnings()), SectionKind.ESSENTIAL),
        ContextSection(
            "Current page", to_one_line(memory.current_url, _MAX_PAGE_CHARACTERS), SectionKind.ESSENTIAL
        ),
    ]
    room = min(memory.working.token_budget, max_tokens // 4)
    working = _remove_goal_line(memory.working.format(room, counter.count))
    about = [
        ContextSection("Working memory", working, SectionKind.OTHER),
        ContextSection("Context", _format_context(memory), SectionKind.OTHER),
    ]
    actions = memory.short_term.format_actions(SHOWN_CYCLES.get(mode, _DEFAULT_SHOWN_CYCLES))
    history = ContextSection("Recent Actions", actions, SectionKind.HISTORY)
    known = [
        ContextSection("Known patterns", _format_patterns(memory, domain), SectionKind.OTHER),
        ContextSection("Site", _format_site(memory), SectionKind.OTHER),
    ]
    used = counter.count(_join_sections([*essential, *about, history, *known]))
    held = reversed(memory.context_store.extractions())
    found = [(to_one_line(one.key, _MAX_LABEL_CHARACTERS), _format_value(one.data)) for one in held]
    fitted = fit_extractions(found, max(0, max_tokens - used), counter, memory.extraction_budget)
    data = ContextSection("Extracted data", fitted.text, SectionKind.EXTRACTION)
    is_for_data = mode in DATA_MODES
    told = [data, history, *known] if is_for_data else [history, *known, data]
    if mode is OperationMode.NAVIGATE:  # where there is to go, above where it was
        told = [*known, history, data]
    sections = [one for one in (*essential, *about, *told) if one.text]
    return handle_large_context(sections, max_tokens, counter, history_first=is_for_data).text


def _remove_goal_line(working: str) -> str:
    return "\n".join(line for line in working.splitlines() if not line.startswith("Goal: "))


def _join_sections(sections: list[ContextSection]) -> str:
    return "\n\n".join(f"{one.name}\n{one.text}" for one in sections if one.text)


def _format_context(memory: AgentMemory) -> str:
    store = memory.context_store
    relevant = store.get_relevant_context(memory.working.current_goal or "")
    told = {**relevant, **store.get_all()}  # what has to do with the task comes first
    return "\n".join(
        f"- {to_one_line(key, _MAX_LABEL_CHARACTERS)}: {_format_value(value)}" for key, value in told.items()
    )


def _format_patterns(memory: AgentMemory, domain: str) -> str:
    known = memory.get_patterns_for_domain(domain)[:_MAX_SHOWN_PATTERNS]
    return "\n".join(map(_format_pattern, known))


def _format_pattern(one: LearnedPattern) -> str:
    uses = one.success_count + one.failure_count
    steps = _format_value([dict(step) for step in one.steps])
    told, kind = (
        to_one_line(one.description, _MAX_SITEMAP_CHARACTERS),
        to_one_line(one.pattern_type, _MAX_LABEL_CHARACTERS),
    )
    return f"- {told} ({kind}, worked {one.success_rate:.0%} of {uses}): {steps}"


def _format_site(memory: AgentMemory) -> str:
    return "" if memory.sitemap is None else memory.sitemap.format_summary(_MAX_SITEMAP_CHARACTERS)


def _format_value(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(to_plain_value(value), ensure_ascii=False)
    return _escape_headings(text)


def _escape_headings(text: str) -> str:
    # Every kind of line end counts: a model may read any of them as one.
    return _HEADING.sub(r"\1\\\2", "\n".join(text.splitlines()))
