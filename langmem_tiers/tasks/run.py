"""One task under way: its journal and the parts that are made from it, brought up to date with each cycle."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from langmem_tiers.errors import LangmemTiersError
from langmem_tiers.tasks.cycle_input import (
    build_cycle,
    build_extraction_key,
    find_target_url,
    get_whole_text,
    normalize_page_url,
)
from langmem_tiers.tasks.journal import MAX_OBSERVATION_CHARACTERS, StoredCycle, StoredNote, TaskJournal
from langmem_tiers.tasks.loop_detection.weights import VISITING_TOOLS
from langmem_tiers.tasks.models import OperationMode
from langmem_tiers.tasks.run_state import (
    JournaledGuard,
    JournaledRecentCycles,
    JournaledTaskContext,
    JournaledWorkingState,
    replay_change,
)
from langmem_tiers.tasks.site_exploration import SiteExploration

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Collection, Iterable, Mapping

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.common.ports import TokenCounter
    from langmem_tiers.compression.tool_output.compressor import ContextCompressor
    from langmem_tiers.session import Session
    from langmem_tiers.tasks.cycle_input import CycleInput
    from langmem_tiers.tasks.guard_advice import GuardAdvice
    from langmem_tiers.tasks.models import ExecutionOutcome, LearnedPattern, MemoryEntry
    from langmem_tiers.tasks.pattern_repository import PatternRepository
    from langmem_tiers.tasks.sitemap import LinkReport


LEARNED_NOTE = "learned"
"""The kind of the note that says up to which cycle a task was learned from."""
_MAX_LEARNED_CYCLES = 500  # cycles that are looked at, at once


class TaskLearner:
    """Learns from the cycles of one task, from each of them once.

    Args:
        patterns: Where it is learned to.
        journal: Of the task: how far it was learned from is noted there.
        open_session: Gets a session by its name.
    """

    def __init__(
        self,
        patterns: PatternRepository,
        journal: TaskJournal,
        open_session: Callable[[NamespacePath, str], Session],
    ) -> None:
        self._patterns = patterns
        self._journal = journal
        self._open_session = open_session
        self._cycles: deque[MemoryEntry] = deque(maxlen=_MAX_LEARNED_CYCLES)
        self._has_new_cycles = False

    def add_cycle(self, entry: MemoryEntry) -> None:
        """See a cycle that was written down, now or in another process."""
        self._cycles.append(replace(entry, observation=None))
        self._has_new_cycles = True

    def skip_learned(self, last: object) -> None:
        """Pass over the cycles up to that one: they were learned from."""
        if any(entry.entry_id == last for entry in self._cycles):
            while self._cycles.popleft().entry_id != last:
                pass

    def learn(self) -> list[LearnedPattern]:
        """Learn from what was done since the last time; what is new, or has more placeholders than before.

        What worked last stays in sight until it is part of a pattern or something fails: it may go on.
        """
        if not self._has_new_cycles:
            return []
        cycles = list(self._cycles)
        session = self._open_session(self._patterns.namespace, self._journal.task)
        found = self._patterns.learn_from(cycles, session.info().key)
        settled = [entry.entry_id for entry in cycles if entry.entry_id not in found.open_cycle_ids]
        if settled:
            self._journal.append_note(LEARNED_NOTE, settled[-1])
            self.skip_learned(settled[-1])
        self._has_new_cycles = False
        return list(found.patterns)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSettings:
    """What all tasks of a memory have in common."""

    open_session: Callable[[NamespacePath, str], Session]
    namespace: NamespacePath
    patterns: PatternRepository
    now: Callable[[], float]
    """Seconds since 1970."""
    lock: threading.RLock
    """Changes are made one at a time."""
    unguarded_tools: Collection[str]
    counter: TokenCounter
    compressor: ContextCompressor
    has_model: bool
    """Whether compressing takes as long as a model does."""
    max_entries: int
    working_memory_tokens: int
    max_extraction_chars: int


class TaskRun:
    """A task, gone on with where its journal ends.

    Args:
        settings: What it has in common with others.
        task: What it is called.
    """

    def __init__(self, settings: TaskSettings, task: str) -> None:
        self._settings = settings
        self._replayed_at: float | None = None
        self.journal = TaskJournal(settings.open_session, settings.namespace, task)
        note, lock = self.journal.append_note, settings.lock
        self.learner = TaskLearner(settings.patterns, self.journal, settings.open_session)
        self.short_term = JournaledRecentCycles(settings.max_entries, note, lock)
        self.working = JournaledWorkingState(settings.working_memory_tokens, self._get_time, note, lock)
        self.context_store = JournaledTaskContext(self._get_time, note, lock)
        self.exploration = SiteExploration(self._get_time, note, lock)
        self.guard = JournaledGuard(settings.unguarded_tools, note, lock)
        self.advice: GuardAdvice | None = None
        self.visited_pages: dict[str, None] = {}
        self.outcome_counts: Counter[ExecutionOutcome] = Counter()
        self.current_url = ""
        self.mode = OperationMode.AUTO
        self._has_acted = False  # whether anything was done since the user spoke last

    @property
    def is_begun(self) -> bool:
        """Whether there is a goal, or anything was done."""
        return bool(self.working.current_goal or self.working.cycle_count)

    def resume(self) -> None:
        """Make all parts what they were at the end of the journal."""
        self.journal.is_replaying = True
        try:
            for event in self.journal.iterate_events():
                if isinstance(event, StoredCycle):
                    self._replayed_at = event.entry.timestamp
                    self._apply_cycle(event.entry, event.extraction)
                else:
                    self._replayed_at = event.timestamp
                    self._replay_note(event)
        finally:
            self.journal.is_replaying = False
            self._replayed_at = None

    def record(self, told: CycleInput) -> MemoryEntry:
        """Keep a cycle.

        Raises:
            InvalidInputError: Something in it makes no sense; nothing is kept.
            StorageError: It could not be kept; the guard has seen it.
        """
        settings = self._settings
        with settings.lock:
            entry = build_cycle(told, self._get_time(), self.current_url, self.mode, settings.counter)
            extraction = None if settings.has_model else self._compress_extraction(entry, told.observation)
            try:
                entry = self.journal.append(entry, extraction)
            except LangmemTiersError:
                self.advice = self.guard.observe(entry)  # it was done, and may be a loop, wherever it is kept
                raise
            key = self._apply_cycle(entry, extraction)
        if settings.has_model and key is not None:  # what was done is kept, and nobody waits for the model
            compressed = self._compress_extraction(entry, told.observation)
            if compressed is not None:
                self.context_store.cache_extraction(key, compressed)
        return entry

    def answer_guard(self, reason: str) -> bool:
        """Say why a blocked action is to be done once more; whether that was enough."""
        accepted = self.guard.answer(reason)
        self.advice = None if accepted else self.advice
        return accepted

    def begin_turn(self) -> None:
        """The user asks for something new."""
        if self._has_acted:
            self.journal.append_note("turn", None)
            self._has_acted = False
            self.advice = None
            self.guard.begin_turn()
            self.short_term.begin_turn()

    def mark_visited(self, url: str) -> None:
        """Note that a page was seen."""
        name = normalize_page_url(url)
        if name not in self.visited_pages:
            self.journal.append_note("visited", url)
            self.visited_pages[name] = None

    def add_links(
        self, parent_url: str, links: Iterable[Mapping[str, Any] | str], link_type: str
    ) -> LinkReport:
        """Links that were found on a page, which was seen with that."""
        report = self.exploration.add_links(parent_url, links, link_type)
        self.visited_pages.setdefault(normalize_page_url(parent_url))
        return report

    def set_mode(self, mode: OperationMode) -> None:
        """What the agent is out for."""
        self.journal.append_note("mode", mode.value)
        self.mode = mode

    def build_summary(self) -> str:
        """How it went so far."""
        return self.exploration.build_task_summary(
            self.working, self.outcome_counts, self.short_term, self.current_url, len(self.visited_pages)
        )

    def _replay_note(self, note: StoredNote) -> None:
        if note.kind == "answer":
            self.answer_guard(note.value)
        elif note.kind == "visited":
            self.mark_visited(note.value)
        elif note.kind == "mode":
            self.set_mode(OperationMode(note.value))
        elif note.kind == "turn":
            self.begin_turn()
        elif note.kind == LEARNED_NOTE:
            self.learner.skip_learned(note.value)
        elif note.kind == "no guard":
            self.guard.reset()
        elif note.kind == "no short term":
            self.short_term.clear()
        elif not replay_change(self.working, self.context_store, note.kind, note.value):
            self.exploration.replay_note(note.kind, note.value)
            if note.kind == "links":
                self.visited_pages.setdefault(normalize_page_url(note.value[0]))

    def _apply_cycle(self, entry: MemoryEntry, extraction: str | None) -> str | None:
        """Have all parts know of a cycle; gives the key of the data that it brought, if any."""
        self.short_term.add_checked(entry)
        self.learner.add_cycle(entry)
        self.working.count_cycle()
        self._has_acted = True
        self.outcome_counts[entry.outcome] += 1
        self.advice = self.guard.observe(entry)
        self.current_url = find_target_url(entry) or entry.url
        if entry.action.tool_name in VISITING_TOOLS and not entry.outcome.is_failure and self.current_url:
            self.visited_pages[normalize_page_url(self.current_url)] = None
        key = self._build_extraction_key(entry)
        if entry.observation is not None and key is not None:
            data = entry.observation.raw_output if extraction is None else extraction
            self.context_store.cache_journaled_extraction(key, data)
        return key

    def _build_extraction_key(self, entry: MemoryEntry) -> str | None:
        compressor = self._settings.compressor
        tools = compressor.compressible_tools | compressor.url_critical_tools
        return build_extraction_key(entry, self.outcome_counts.total(), tools)

    def _compress_extraction(self, entry: MemoryEntry, observed: object) -> str | None:
        compressor = self._settings.compressor
        if self._build_extraction_key(entry) is None:
            return None
        data = get_whole_text(observed)  # not what is kept of it: no address in between is lost
        is_too_long = len(data) > MAX_OBSERVATION_CHARACTERS  # cut, it would lose more than compressed
        if not is_too_long and not compressor.should_compress(entry.action.tool_name, data):
            return None
        return compressor.compress(data).format_for_prompt(self._settings.max_extraction_chars)

    def _get_time(self) -> float:
        return self._settings.now() if self._replayed_at is None else self._replayed_at
