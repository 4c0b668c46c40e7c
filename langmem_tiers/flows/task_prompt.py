"""What an agent is told of its task: goal, warnings, where it is, what it did, what it found, what worked before."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from langmem_tiers.compression.extraction_budget import fit_extractions
from langmem_tiers.compression.extraction_context import ContextSection, SectionKind, handle_large_context
from langmem_tiers.core.tasks import OperationMode, plain_value

if TYPE_CHECKING:
    from langmem_tiers.agent_memory import AgentMemory
    from langmem_tiers.core.tasks import LearnedPattern

HISTORY_SHOWN = {OperationMode.SCRAPE: 5, OperationMode.NAVIGATE: 8, OperationMode.RESEARCH: 8}
"""Cycles in a prompt, by what the agent is out for; 10 otherwise."""
_USUAL_HISTORY = 10
_PATTERNS_SHOWN = 3
_SITEMAP_CHARACTERS = 1500


def prompt_of(memory: AgentMemory, domain: str, max_tokens: int) -> str:
    """The text, never more than so many tokens by the memory's counter.

    Args:
        memory: Whose task.
        domain: The site that the agent is at, for what worked there before.
        max_tokens: What it may take.
    """
    counter = memory.counter
    essential = [
        ContextSection("Goal", memory.working.current_goal or "", SectionKind.ESSENTIAL),
        ContextSection("Warnings", _warnings(memory), SectionKind.ESSENTIAL),
    ]
    working = _without_goal(memory.working.format(memory.working.token_budget, counter.count))
    sections = [
        *essential,
        ContextSection("Working memory", working, SectionKind.OTHER),
        ContextSection("Context", _context(memory), SectionKind.OTHER),
        ContextSection("", _history(memory), SectionKind.HISTORY),
        ContextSection("Known patterns", _patterns(memory, domain), SectionKind.OTHER),
        ContextSection("Site", _site(memory), SectionKind.OTHER),
    ]
    used = counter.count(_text(sections))
    found = [(one.key, _shown(one.data)) for one in reversed(memory.context_store.extractions())]
    fitted = fit_extractions(found, max(0, max_tokens - used), counter, memory.extraction_budget)
    sections.append(ContextSection("Extracted data", fitted.text, SectionKind.EXTRACTION))
    return handle_large_context([one for one in sections if one.text], max_tokens, counter).text


def _warnings(memory: AgentMemory) -> str:
    # Those of the history stand there.
    return "" if memory.advice is None else memory.advice.message


def _without_goal(working: str) -> str:
    return "\n".join(line for line in working.splitlines() if not line.startswith("Goal: "))


def _text(sections: list[ContextSection]) -> str:
    return "\n\n".join(f"{one.name}\n{one.text}" for one in sections if one.text)


def _history(memory: AgentMemory) -> str:
    shown = HISTORY_SHOWN.get(memory.get_operation_mode(), _USUAL_HISTORY)
    return memory.short_term.format_history(last_n=shown)


def _context(memory: AgentMemory) -> str:
    task = memory.working.current_goal or ""
    relevant = memory.context_store.get_relevant_context(task) or memory.context_store.get_all()
    return "\n".join(f"- {key}: {_shown(value)}" for key, value in relevant.items())


def _patterns(memory: AgentMemory, domain: str) -> str:
    if not domain:
        return ""
    known = memory.get_patterns_for_domain(domain)[:_PATTERNS_SHOWN]
    return "\n".join(map(_pattern, known))


def _pattern(one: LearnedPattern) -> str:
    uses = one.success_count + one.failure_count
    steps = _shown([dict(step) for step in one.steps])
    return f"- {one.description} ({one.pattern_type}, worked {one.success_rate:.0%} of {uses}): {steps}"


def _site(memory: AgentMemory) -> str:
    return "" if memory.sitemap is None else memory.sitemap.format_summary(_SITEMAP_CHARACTERS)


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(plain_value(value), ensure_ascii=False)
