"""Prompt text of a task: goal, warnings, current page, recent actions, extracted data and known patterns."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from langmem_tiers.common.json_values import to_plain_value
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
"""Number of cycles in a prompt by operation mode; 10 in all other modes."""
DATA_MODES = frozenset({OperationMode.SCRAPE, OperationMode.RESEARCH})
"""Modes in which extracted data precedes the history and is truncated after it."""
_MAX_LABEL_CHARACTERS = 200
_MAX_PAGE_CHARACTERS = 2_000
_HEADING = re.compile(r"(?m)^([ \t]{0,3})(#{1,6})(?=\s|$)")
"""Markdown headings. They are escaped, so that page content cannot imitate a section of the prompt."""
_DEFAULT_SHOWN_CYCLES = 10
_MAX_SHOWN_PATTERNS = 3
_MAX_SITEMAP_CHARACTERS = 1500


def build_task_prompt(memory: AgentMemory, domain: str, max_tokens: int) -> str:
    """Build the prompt text of the current task within a token limit.

    Args:
        memory: Memory of the agent.
        domain: Site whose patterns are included.
        max_tokens: Maximum tokens, counted by the counter of the memory.
    """
    counter, mode = memory.counter, memory.get_operation_mode()
    essential = [
        ContextSection("Goal", _escape_headings(memory.working.current_goal or ""), SectionKind.ESSENTIAL),
        ContextSection("Warnings", "\n".join(memory.warnings()), SectionKind.ESSENTIAL),
        ContextSection(
            "Current page", to_one_line(memory.current_url, _MAX_PAGE_CHARACTERS), SectionKind.ESSENTIAL
        ),
    ]
    # The working state gets at most a quarter of the prompt. Its goal line is removed, because the prompt has its own
    # section for the goal.
    working_tokens = min(memory.working.token_budget, max_tokens // 4)
    working = _remove_goal_line(memory.working.format(working_tokens, counter.count))
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
    # Extracted data gets a share of the tokens that all other sections leave.
    used = counter.count(_join_sections([*essential, *about, history, *known]))
    oldest_first = reversed(memory.context_store.extractions())
    extractions = [
        (to_one_line(extraction.key, _MAX_LABEL_CHARACTERS), _format_value(extraction.data))
        for extraction in oldest_first
    ]
    fitted = fit_extractions(extractions, max(0, max_tokens - used), counter, memory.extraction_budget)
    data = ContextSection("Extracted data", fitted.text, SectionKind.EXTRACTION)
    is_data_mode = mode in DATA_MODES
    ordered = [data, history, *known] if is_data_mode else [history, *known, data]
    # When navigating, patterns and the site map matter more than past actions.
    if mode is OperationMode.NAVIGATE:
        ordered = [*known, history, data]
    sections = [section for section in (*essential, *about, *ordered) if section.text]
    return handle_large_context(sections, max_tokens, counter, history_first=is_data_mode).text


def _remove_goal_line(working: str) -> str:
    return "\n".join(line for line in working.splitlines() if not line.startswith("Goal: "))


def _join_sections(sections: list[ContextSection]) -> str:
    return "\n\n".join(f"{section.name}\n{section.text}" for section in sections if section.text)


def _format_context(memory: AgentMemory) -> str:
    store = memory.context_store
    relevant = store.get_relevant_context(memory.working.current_goal or "")
    # Relevant values come first: a dict keeps the position of a key that is set again.
    values = {**relevant, **store.get_all()}
    return "\n".join(
        f"- {to_one_line(key, _MAX_LABEL_CHARACTERS)}: {_format_value(value)}"
        for key, value in values.items()
    )


def _format_patterns(memory: AgentMemory, domain: str) -> str:
    known = memory.get_patterns_for_domain(domain)[:_MAX_SHOWN_PATTERNS]
    return "\n".join(map(_format_pattern, known))


def _format_pattern(pattern: LearnedPattern) -> str:
    uses = pattern.success_count + pattern.failure_count
    steps = _format_value([dict(step) for step in pattern.steps])
    description, kind = (
        to_one_line(pattern.description, _MAX_SITEMAP_CHARACTERS),
        to_one_line(pattern.pattern_type, _MAX_LABEL_CHARACTERS),
    )
    return f"- {description} ({kind}, worked {pattern.success_rate:.0%} of {uses}): {steps}"


def _format_site(memory: AgentMemory) -> str:
    return "" if memory.sitemap is None else memory.sitemap.format_summary(_MAX_SITEMAP_CHARACTERS)


def _format_value(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(to_plain_value(value), ensure_ascii=False)
    return _escape_headings(text)


def _escape_headings(text: str) -> str:
    # splitlines() also splits at Unicode line separators, which a model may read as line breaks.
    return _HEADING.sub(r"\1\\\2", "\n".join(text.splitlines()))
