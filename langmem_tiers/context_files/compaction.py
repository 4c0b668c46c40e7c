"""Compaction of contexts: summarizes old history, removes duplicate facts and completed tasks.

The functions have no side effects; callers pass the time, the counter and the model.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from langmem_tiers.common.clock import to_microseconds
from langmem_tiers.common.messages import check_time
from langmem_tiers.common.tool_call_groups import find_safe_cut
from langmem_tiers.compression.fact_finder import FactFinder, contains_fact
from langmem_tiers.compression.summarizer import Summarizer
from langmem_tiers.config import SummaryStrategy
from langmem_tiers.context_files.models import HistoryEntry, estimate_tokens
from langmem_tiers.context_files.serializer import entry_to_message
from langmem_tiers.context_files.store_models import CompactionConfig
from langmem_tiers.display.displayable import Displayable
from langmem_tiers.text.sentences import truncate_with_ellipsis
from langmem_tiers.text.token_counting import CharCounter

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from langmem_tiers.common.ports import TokenCounter
    from langmem_tiers.context_files.models import ActiveTask, ContextData

SUMMARY_HEADING = "Previous conversation summary:"
"""First line of each part of the long-term summary."""
_MAX_FACTS_PER_LINE = 10
# A line "- role: content" that _summarize_in_lines() wrote.
_SUMMARY_LINE = re.compile(r"- (\w{1,20}): (.*)", re.DOTALL)
# The header that Summarizer puts above its text; SUMMARY_HEADING replaces it.
_SUMMARY_HEADER = re.compile(r"\A\[Summary of \d+ messages\]\n?")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionReport(Displayable):
    """Result of a compaction."""

    context: ContextData
    by_length: int = 0
    """Number of entries summarized because the history had too many."""
    by_tokens: int = 0
    """Number of entries summarized because the history had too many tokens."""
    tokens_before: int = 0
    """Known tokens of the history before compaction."""
    tokens_after: int = 0
    duplicate_facts: int = 0
    pruned_tasks: tuple[str, ...] = ()
    """Ids of completed tasks that were removed."""
    summary: str = ""
    """Text appended to the long-term summary."""
    strategy: SummaryStrategy = SummaryStrategy.EXTRACTIVE
    """Strategy that produced the summary: extractive without a model or if the model failed."""
    problems: tuple[str, ...] = ()
    """Reasons why the text of the model was not used."""
    missing_facts: tuple[str, ...] = ()
    """Facts of summarized entries that did not fit into the summary. Earlier versions still contain them."""
    is_condensed: bool = False
    """True if the long-term summary was condensed because it exceeded its limit."""

    @property
    def summarized(self) -> int:
        """Number of entries removed from the history."""
        return self.by_length + self.by_tokens

    @property
    def is_compacted(self) -> bool:
        """True if anything was removed or condensed."""
        return bool(self.summarized or self.duplicate_facts or self.pruned_tasks or self.is_condensed)


@dataclass(frozen=True, slots=True, kw_only=True)
class _SummaryPart:
    text: str
    strategy: SummaryStrategy = SummaryStrategy.EXTRACTIVE
    problems: tuple[str, ...] = ()
    missing_facts: tuple[str, ...] = ()


def compact(
    context: ContextData,
    *,
    now: datetime,
    config: CompactionConfig | None = None,
    counter: TokenCounter | None = None,
    summarizer: Summarizer | None = None,
    force: bool = False,
) -> CompactionReport:
    """Shrink a context that exceeds its limits.

    A history of more than ``max_history`` entries keeps the newest ``keep_history``. If it still has more than
    ``max_tokens``, its older half is summarized too. A tool call and its result stay together if both name their id.

    Args:
        context: The context to shrink. It is not changed.
        now: Current time. Tasks completed more than ``completed_hours`` before it are removed.
        config: Limits. Default: `CompactionConfig()`.
        counter: Counts the tokens of entries without a count. Default: such entries count as zero.
        summarizer: Summarizer with a model. Default: a summary contains shortened lines of the conversation.
        force: Keep only the newest ``keep_history`` entries even if the history is within its limits.
    """
    limits = CompactionConfig() if config is None else config
    work = _Compaction(context.recent_history, context.long_term_summary, limits, counter, summarizer)
    before = work.count_tokens()
    by_length = by_tokens = 0
    count = len(work.history)
    if count > limits.max_history or (force and count > limits.keep_history):
        by_length = work.summarize_oldest(count - limits.keep_history)
    if work.count_tokens() > limits.max_tokens:
        by_tokens = work.summarize_oldest(len(work.history) // 2)
    facts = tuple(sorted(set(context.facts)))
    tasks = _keep_unexpired_tasks(context.active_tasks, now, limits)
    # Compare identities: two tasks may have the same id, and one of them may be kept.
    kept = {id(task) for task in tasks}
    return CompactionReport(
        context=replace(
            context,
            recent_history=work.history,
            long_term_summary=work.summary,
            facts=facts,
            active_tasks=tasks,
        ),
        by_length=by_length,
        by_tokens=by_tokens,
        tokens_before=before,
        tokens_after=work.count_tokens(),
        duplicate_facts=len(context.facts) - len(facts),
        pruned_tasks=tuple(task.id for task in context.active_tasks if id(task) not in kept),
        summary="\n\n".join(part.text for part in work.summary_parts),
        strategy=next((part.strategy for part in work.summary_parts), SummaryStrategy.EXTRACTIVE),
        problems=tuple(dict.fromkeys(problem for part in work.summary_parts for problem in part.problems)),
        missing_facts=tuple(
            dict.fromkeys(fact for part in work.summary_parts for fact in part.missing_facts)
        ),
        is_condensed=work.is_condensed,
    )


class _Compaction:
    """Working state of a compaction: the remaining history and the growing summary."""

    def __init__(
        self,
        history: tuple[HistoryEntry, ...],
        summary: str,
        limits: CompactionConfig,
        counter: TokenCounter | None,
        summarizer: Summarizer | None,
    ) -> None:
        self.history = history
        self.summary = summary
        self.summary_parts: list[_SummaryPart] = []
        self.is_condensed = False
        self._limits = limits
        self._counter = counter
        self._summarizer = summarizer

    def count_tokens(self) -> int:
        """Count the tokens of the history; without a counter, entries without a count are zero."""
        counter = self._counter
        return sum(
            (0 if counter is None else counter.count(entry.content))
            if entry.token_count is None
            else entry.token_count
            for entry in self.history
        )

    def summarize_oldest(self, count: int) -> int:
        """Move up to ``count`` of the oldest entries into the summary and return their number.

        The number is smaller if a tool call would otherwise be separated from its result.
        """
        count = find_safe_cut(
            [entry_to_message(entry, number) for number, entry in enumerate(self.history)], count
        )
        if count <= 0:
            return 0
        part = self._summarize(self.history[:count])
        self.history = self.history[count:]
        self.summary_parts.append(part)
        self._append_summary(part.text)
        return count

    def _summarize(self, entries: Sequence[HistoryEntry]) -> _SummaryPart:
        fallback = _summarize_in_lines(entries, self._limits.line_characters)
        if self._summarizer is None:
            return fallback
        report = self._summarizer.summarize(
            [entry_to_message(entry, number) for number, entry in enumerate(entries)]
        )
        # The summarizer fell back to extraction because the model failed. Use the shortened lines instead, so that
        # the summary has the same form as without a model.
        if report.strategy is SummaryStrategy.EXTRACTIVE:
            return replace(fallback, problems=report.problems)
        return _SummaryPart(
            text=f"{SUMMARY_HEADING}\n{_SUMMARY_HEADER.sub('', report.text)}",
            strategy=report.strategy,
            problems=report.problems,
            missing_facts=tuple(fact.text for fact in report.missing),
        )

    def _append_summary(self, text: str) -> None:
        # Condense to half of the limit, so that the next compactions can append without condensing again. The new
        # part is condensed only if it is too long even next to the condensed older part.
        max_tokens = self._limits.max_summary_tokens
        older = self.summary
        if older and estimate_tokens(older) + estimate_tokens(text) > max_tokens:
            older, self.is_condensed = _condense(older, max_tokens // 2), True
        if estimate_tokens(older) + estimate_tokens(text) > max_tokens:
            text, self.is_condensed = _condense(text, max_tokens // 2), True
        self.summary = f"{older}\n\n{text}" if older else text


def _summarize_in_lines(entries: Sequence[HistoryEntry], width: int) -> _SummaryPart:
    finder = FactFinder()
    lines, missing = [SUMMARY_HEADING], list[str]()
    for entry in entries:
        words = " ".join(entry.content.split())
        line = truncate_with_ellipsis(words, width)
        if len(words) > width:
            # Append the facts of the part that was cut off; report those that are too long or too many.
            lost = [fact.text for fact in finder.find_outermost(words) if not contains_fact(line, fact)]
            appended = [fact for fact in lost if len(fact) <= width][:_MAX_FACTS_PER_LINE]
            missing += [fact for fact in lost if fact not in appended]
            line = f"{line} [{'; '.join(appended)}]" if appended else line
        lines.append(f"- {entry.role}: {line}".rstrip())
    return _SummaryPart(text="\n".join(lines), missing_facts=tuple(missing))


def _condense(summary: str, max_tokens: int) -> str:
    # Parse the lines of the summary back into messages and summarize those extractively. No model is used, so
    # condensing cannot fail. Lines without a role, such as those that a model wrote, become system messages.
    lines = [line for line in summary.split("\n") if line and line != SUMMARY_HEADING]
    matches = (_SUMMARY_LINE.fullmatch(line) for line in lines)
    entries = [
        HistoryEntry(0, "system", line) if match is None else HistoryEntry(0, match[1], match[2] or " ")
        for line, match in zip(lines, matches, strict=True)
    ]
    report = Summarizer(CharCounter()).summarize(
        [entry_to_message(entry, number) for number, entry in enumerate(entries)],
        strategy=SummaryStrategy.EXTRACTIVE,
        target_tokens=max(16, max_tokens),
    )
    return f"{SUMMARY_HEADING}\n{_SUMMARY_HEADER.sub('', report.text)}"


def _keep_unexpired_tasks(
    tasks: Sequence[ActiveTask], now: datetime, limits: CompactionConfig
) -> tuple[ActiveTask, ...]:
    cutoff = to_microseconds(check_time(now) - timedelta(hours=limits.completed_hours)) / 1_000_000
    return tuple(task for task in tasks if not task.is_completed or task.updated_at > cutoff)
