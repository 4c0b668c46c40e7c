"""One task under way: its journal and the parts that are made from it, brought up to date with each cycle."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from langmem_tiers.errors import LangmemTiersError
from langmem_tiers.tasks.cycle_input import cycle_of, extraction_key, leads_to, page_name, whole_text
from langmem_tiers.tasks.journal import KEPT_CHARACTERS, KeptCycle, KeptNote, TaskJournal
from langmem_tiers.tasks.loop_detection.weights import VISITING
from langmem_tiers.tasks.models import OperationMode
from langmem_tiers.tasks.run_state import (
    TaskContextStore,
    TaskGuard,
    TaskShortTerm,
    TaskWorkingMemory,
    replay,
)
from langmem_tiers.tasks.site_exploration import TaskSites

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Collection, Iterable, Mapping

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.common.ports import TokenCounter
    from langmem_tiers.compression.tool_output.compressor import ContextCompressor
    from langmem_tiers.session import Session
    from langmem_tiers.tasks.cycle_input import Told
    from langmem_tiers.tasks.guard_advice import GuardAdvice
    from langmem_tiers.tasks.models import ExecutionOutcome, LearnedPattern, MemoryEntry
    from langmem_tiers.tasks.pattern_repository import TaskPatterns
    from langmem_tiers.tasks.sitemap import LinkReport


LEARNED_NOTE = "learned"
"""The kind of the note that says up to which cycle a task was learned from."""
_LEARNED_FROM = 500  # cycles that are looked at, at once


class TaskLearning:
    """Learns from the cycles of one task, from each of them once.

    Args:
        patterns: Where it is learned to.
        journal: Of the task: how far it was learned from is noted there.
        open_session: Gets a session by its name.
    """

    def __init__(
        self,
        patterns: TaskPatterns,
        journal: TaskJournal,
        open_session: Callable[[NamespacePath, str], Session],
    ) -> None:
        self._patterns = patterns
        self._journal = journal
        self._open_session = open_session
        self._cycles: deque[MemoryEntry] = deque(maxlen=_LEARNED_FROM)
        self._is_news = False

    def take(self, entry: MemoryEntry) -> None:
        """See a cycle that was written down, now or in another process."""
        self._cycles.append(replace(entry, observation=None))
        self._is_news = True

    def replay(self, last: object) -> None:
        """Pass over the cycles up to that one: they were learned from."""
        if any(entry.entry_id == last for entry in self._cycles):
            while self._cycles.popleft().entry_id != last:
                pass

    def learn(self) -> list[LearnedPattern]:
        """Learn from what was done since the last time; what is new, or has more placeholders than before.

        What worked last stays in sight until it is part of a pattern or something fails: it may go on.
        """
        if not self._is_news:
            return []
        cycles = list(self._cycles)
        session = self._open_session(self._patterns.namespace, self._journal.task)
        found = self._patterns.learn_from(cycles, session.info().key)
        settled = [entry.entry_id for entry in cycles if entry.entry_id not in found.open_cycles]
        if settled:
            self._journal.note(LEARNED_NOTE, settled[-1])
            self.replay(settled[-1])
        self._is_news = False
        return list(found.patterns)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSettings:
    """What all tasks of a memory have in common."""

    open_session: Callable[[NamespacePath, str], Session]
    namespace: NamespacePath
    patterns: TaskPatterns
    now: Callable[[], float]
    """Seconds since 1970."""
    lock: threading.RLock
    """Changes are made one at a time."""
    unguarded_tools: Collection[str]
    counter: TokenCounter
    compressor: ContextCompressor
    asks_model: bool
    """Whether compressing takes as long as a model does."""
    max_entries: int
    working_tokens: int
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
        note, lock = self.journal.note, settings.lock
        self.learning = TaskLearning(settings.patterns, self.journal, settings.open_session)
        self.short_term = TaskShortTerm(settings.max_entries, note, lock)
        self.working = TaskWorkingMemory(settings.working_tokens, self._seconds, note, lock)
        self.context_store = TaskContextStore(self._seconds, note, lock)
        self.sites = TaskSites(self._seconds, note, lock)
        self.guard = TaskGuard(settings.unguarded_tools, note, lock)
        self.advice: GuardAdvice | None = None
        self.visited: dict[str, None] = {}
        self.counts: Counter[ExecutionOutcome] = Counter()
        self.url = ""
        self.mode = OperationMode.AUTO
        self._acts = False  # whether anything was done since the user spoke last

    @property
    def is_begun(self) -> bool:
        """Whether there is a goal, or anything was done."""
        return bool(self.working.current_goal or self.working.cycle_count)

    def go_on(self) -> None:
        """Make all parts what they were at the end of the journal."""
        self.journal.is_replaying = True
        try:
            for event in self.journal.events():
                if isinstance(event, KeptCycle):
                    self._replayed_at = event.entry.timestamp
                    self._take(event.entry, event.extraction)
                else:
                    self._replayed_at = event.at
                    self._replay(event)
        finally:
            self.journal.is_replaying = False
            self._replayed_at = None

    def record(self, told: Told) -> MemoryEntry:
        """Keep a cycle.

        Raises:
            InvalidInputError: Something in it makes no sense; nothing is kept.
            StorageError: It could not be kept; the guard has seen it.
        """
        settings = self._settings
        with settings.lock:
            entry = cycle_of(told, self._seconds(), self.url, self.mode, settings.counter)
            extraction = None if settings.asks_model else self._compressed(entry, told.observation)
            try:
                entry = self.journal.append(entry, extraction)
            except LangmemTiersError:
                self.advice = self.guard.observe(entry)  # it was done, and may be a loop, wherever it is kept
                raise
            key = self._take(entry, extraction)
        if settings.asks_model and key is not None:  # what was done is kept, and nobody waits for the model
            compressed = self._compressed(entry, told.observation)
            if compressed is not None:
                self.context_store.cache_extraction(key, compressed)
        return entry

    def answer(self, reason: str) -> bool:
        """Say why a blocked action is to be done once more; whether that was enough."""
        accepted = self.guard.answer(reason)
        self.advice = None if accepted else self.advice
        return accepted

    def new_turn(self) -> None:
        """The user asks for something new."""
        if self._acts:
            self.journal.note("turn", None)
            self._acts = False
            self.advice = None
            self.guard.begin_turn()
            self.short_term.begin_turn()

    def visit(self, url: str) -> None:
        """Note that a page was seen."""
        name = page_name(url)
        if name not in self.visited:
            self.journal.note("visited", url)
            self.visited[name] = None

    def add_links(
        self, parent_url: str, links: Iterable[Mapping[str, Any] | str], link_type: str
    ) -> LinkReport:
        """Links that were found on a page, which was seen with that."""
        report = self.sites.add_links(parent_url, links, link_type)
        self.visited.setdefault(page_name(parent_url))
        return report

    def set_mode(self, mode: OperationMode) -> None:
        """What the agent is out for."""
        self.journal.note("mode", mode.value)
        self.mode = mode

    def summary(self) -> str:
        """How it went so far."""
        return self.sites.task_summary(
            self.working, self.counts, self.short_term, self.url, len(self.visited)
        )

    def _replay(self, note: KeptNote) -> None:
        if note.kind == "answer":
            self.answer(note.value)
        elif note.kind == "visited":
            self.visit(note.value)
        elif note.kind == "mode":
            self.set_mode(OperationMode(note.value))
        elif note.kind == "turn":
            self.new_turn()
        elif note.kind == LEARNED_NOTE:
            self.learning.replay(note.value)
        elif note.kind == "no guard":
            self.guard.reset()
        elif note.kind == "no short term":
            self.short_term.clear()
        elif not replay(self.working, self.context_store, note.kind, note.value):
            self.sites.replay(note.kind, note.value)
            if note.kind == "links":
                self.visited.setdefault(page_name(note.value[0]))

    def _take(self, entry: MemoryEntry, extraction: str | None) -> str | None:
        """Have all parts know of a cycle; gives the key of the data that it brought, if any."""
        self.short_term.hold(entry)
        self.learning.take(entry)
        self.working.count_cycle()
        self._acts = True
        self.counts[entry.outcome] += 1
        self.advice = self.guard.observe(entry)
        self.url = leads_to(entry) or entry.url
        if entry.action.tool_name in VISITING and not entry.outcome.is_failure and self.url:
            self.visited[page_name(self.url)] = None
        key = self._extraction_key(entry)
        if entry.observation is not None and key is not None:
            data = entry.observation.raw_output if extraction is None else extraction
            self.context_store.hold_extraction(key, data)
        return key

    def _extraction_key(self, entry: MemoryEntry) -> str | None:
        compressor = self._settings.compressor
        tools = compressor.compressible_tools | compressor.url_critical_tools
        return extraction_key(entry, self.counts.total(), tools)

    def _compressed(self, entry: MemoryEntry, observed: object) -> str | None:
        compressor = self._settings.compressor
        if self._extraction_key(entry) is None:
            return None
        data = whole_text(observed)  # not what is kept of it: no address in between is lost
        is_too_long = len(data) > KEPT_CHARACTERS  # cut, it would lose more than compressed
        if not is_too_long and not compressor.should_compress(entry.action.tool_name, data):
            return None
        return compressor.compress(data).format_for_prompt(self._settings.max_extraction_chars)

    def _seconds(self) -> float:
        return self._settings.now() if self._replayed_at is None else self._replayed_at
