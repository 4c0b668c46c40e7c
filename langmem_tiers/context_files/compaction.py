"""Making a context smaller: old history into the summary, facts once, tasks that are done gone.

Pure: the time, the counter and the model are handed in.
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
from langmem_tiers.compression.selection import truncate_with_ellipsis
from langmem_tiers.compression.summarizer import Summarizer
from langmem_tiers.config import SummaryStrategy
from langmem_tiers.context_files.message_conversion import entry_to_message
from langmem_tiers.context_files.models import HistoryEntry, estimate_tokens
from langmem_tiers.context_files.store_models import CompactionConfig
from langmem_tiers.display.displayable import Displayable
from langmem_tiers.text.token_counting import CharCounter

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from langmem_tiers.common.ports import TokenCounter
    from langmem_tiers.context_files.models import ActiveTask, ContextData

SUMMARY_HEADING = "Previous conversation summary:"
"""The first line of what is appended to the long-term summary."""
_MAX_FACTS_PER_LINE = 10
_SUMMARY_LINE = re.compile(r"- (\w{1,20}): (.*)", re.DOTALL)
_SUMMARY_HEADER = re.compile(r"\A\[Summary of \d+ messages\]\n?")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionReport(Displayable):
    """A smaller context, and what became of the rest."""

    context: ContextData
    by_length: int = 0
    """Entries that were summarised because there were too many."""
    by_tokens: int = 0
    """Entries that were summarised because the history took too many tokens."""
    tokens_before: int = 0
    """Of the history, as far as they are counted."""
    tokens_after: int = 0
    duplicate_facts: int = 0
    pruned_tasks: tuple[str, ...] = ()
    """Ids of tasks that were completed long enough ago."""
    summary: str = ""
    """What was appended to the long-term summary."""
    strategy: SummaryStrategy = SummaryStrategy.EXTRACTIVE
    """Who wrote it: extractive, where there was no model or it failed."""
    problems: tuple[str, ...] = ()
    """Why a model's words were not used."""
    missing_facts: tuple[str, ...] = ()
    """Facts of summarised entries that had no room; versions before this one hold them."""
    is_condensed: bool = False
    """Whether the older part of the long-term summary was summarised again."""

    @property
    def summarized(self) -> int:
        """Entries that are no longer in the history."""
        return self.by_length + self.by_tokens

    @property
    def is_compacted(self) -> bool:
        """Whether anything was taken out."""
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
    """The context made smaller, where it has grown beyond its limits.

    A history of more than ``max_history`` entries keeps the newest ``keep_history``; one that still takes more than
    ``max_tokens`` loses the older half. Tool calls and their results, as far as entries name them, stay together.

    Args:
        context: As it is.
        now: Tasks that were completed more than ``completed_hours`` before are pruned.
        config: The limits.
        counter: Counts entries that have no count of their own; they count nothing, if left out.
        summarizer: With a model; without one, summaries are lines of what was said.
        force: Keep only the newest ``keep_history`` entries, also where there are not too many.
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
        summary="\n\n".join(told.text for told in work.summary_parts),
        strategy=next((told.strategy for told in work.summary_parts), SummaryStrategy.EXTRACTIVE),
        problems=tuple(dict.fromkeys(problem for told in work.summary_parts for problem in told.problems)),
        missing_facts=tuple(
            dict.fromkeys(fact for told in work.summary_parts for fact in told.missing_facts)
        ),
        is_condensed=work.is_condensed,
    )


class _Compaction:
    """A history and a summary between which entries move."""

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
        """Of the history: counts that entries have, and of the others what the counter says, if there is one."""
        counter = self._counter
        return sum(
            (0 if counter is None else counter.count(entry.content))
            if entry.token_count is None
            else entry.token_count
            for entry in self.history
        )

    def summarize_oldest(self, count: int) -> int:
        """Put so many of the oldest entries behind the summary, or fewer, so as to part no call from its result."""
        count = find_safe_cut(
            [entry_to_message(entry, number) for number, entry in enumerate(self.history)], count
        )
        if count <= 0:
            return 0
        told = self._summarize(self.history[:count])
        self.history = self.history[count:]
        self.summary_parts.append(told)
        self._append_summary(told.text)
        return count

    def _summarize(self, entries: Sequence[HistoryEntry]) -> _SummaryPart:
        told = _summarize_in_lines(entries, self._limits.line_characters)
        if self._summarizer is None:
            return told
        report = self._summarizer.summarize([entry_to_message(entry, at) for at, entry in enumerate(entries)])
        if report.strategy is SummaryStrategy.EXTRACTIVE:
            return replace(told, problems=report.problems)
        return _SummaryPart(
            text=f"{SUMMARY_HEADING}\n{_SUMMARY_HEADER.sub('', report.text)}",
            strategy=report.strategy,
            problems=report.problems,
            missing_facts=tuple(fact.text for fact in report.missing),
        )

    def _append_summary(self, text: str) -> None:
        most = self._limits.max_summary_tokens
        older = self.summary
        if older and estimate_tokens(older) + estimate_tokens(text) > most:
            older, self.is_condensed = _condense(older, most // 2), True
        if estimate_tokens(older) + estimate_tokens(text) > most:
            text, self.is_condensed = _condense(text, most // 2), True
        self.summary = f"{older}\n\n{text}" if older else text


def _summarize_in_lines(entries: Sequence[HistoryEntry], width: int) -> _SummaryPart:
    finder = FactFinder()
    lines, missing = [SUMMARY_HEADING], list[str]()
    for entry in entries:
        words = " ".join(entry.content.split())
        line = truncate_with_ellipsis(words, width)
        if len(words) > width:  # what is cut off loses its words and keeps its facts
            lost = [fact.text for fact in finder.find_outermost(words) if not contains_fact(line, fact)]
            named = [fact for fact in lost if len(fact) <= width][:_MAX_FACTS_PER_LINE]
            missing += [fact for fact in lost if fact not in named]
            line = f"{line} [{'; '.join(named)}]" if named else line
        lines.append(f"- {entry.role}: {line}".rstrip())
    return _SummaryPart(text="\n".join(lines), missing_facts=tuple(missing))


def _condense(summary: str, max_tokens: int) -> str:
    # Without a model: its lines are read again as what was said, and those that say most stay, with all facts first.
    lines = [line for line in summary.split("\n") if line and line != SUMMARY_HEADING]
    spoken = (_SUMMARY_LINE.fullmatch(line) for line in lines)
    entries = [
        HistoryEntry(0, "system", line) if match is None else HistoryEntry(0, match[1], match[2] or " ")
        for line, match in zip(lines, spoken, strict=True)
    ]
    done = Summarizer(CharCounter()).summarize(
        [entry_to_message(entry, number) for number, entry in enumerate(entries)],
        strategy=SummaryStrategy.EXTRACTIVE,
        target_tokens=max(16, max_tokens),
    )
    return f"{SUMMARY_HEADING}\n{_SUMMARY_HEADER.sub('', done.text)}"


def _keep_unexpired_tasks(
    tasks: Sequence[ActiveTask], now: datetime, limits: CompactionConfig
) -> tuple[ActiveTask, ...]:
    cutoff = to_microseconds(check_time(now) - timedelta(hours=limits.completed_hours)) / 1_000_000
    return tuple(task for task in tasks if not task.is_completed or task.updated_at > cutoff)
