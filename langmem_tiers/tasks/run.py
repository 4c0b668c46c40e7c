"""Runtime state of a task: its journal, and the parts that are built from it and updated with each cycle."""

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
    from langmem_tiers.tasks.guard import GuardAdvice
    from langmem_tiers.tasks.models import Cycle, ExecutionOutcome, LearnedPattern
    from langmem_tiers.tasks.pattern_repository import PatternRepository
    from langmem_tiers.tasks.sitemap import LinkReport


LEARNED_NOTE = "learned"
"""Kind of the note that contains the last cycle from which patterns were learned."""
# Maximum number of cycles that are analyzed together.
_MAX_LEARNED_CYCLES = 500


class TaskLearner:
    """Learns patterns from the cycles of a task, from each cycle once.

    Args:
        patterns: Repository of the patterns.
        journal: Journal of the task, which records the last learned cycle.
        open_session: Returns a session by its name.
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
        self._cycles: deque[Cycle] = deque(maxlen=_MAX_LEARNED_CYCLES)
        self._has_new_cycles = False

    def add_cycle(self, cycle: Cycle) -> None:
        """Add a cycle that was stored, now or before a restart."""
        # Observations are not needed for learning and may be large.
        self._cycles.append(replace(cycle, observation=None))
        self._has_new_cycles = True

    def skip_learned(self, last: object) -> None:
        """Remove the cycles up to the given id, from which patterns were learned before."""
        # The id may be unknown: the deque keeps only the newest cycles.
        if any(cycle.entry_id == last for cycle in self._cycles):
            while self._cycles.popleft().entry_id != last:
                pass

    def learn(self) -> list[LearnedPattern]:
        """Learn from the cycles since the last call and return new and widened patterns.

        Open cycles at the end are kept for the next call, because later cycles may complete a pattern with them.
        """
        if not self._has_new_cycles:
            return []
        cycles = list(self._cycles)
        session = self._open_session(self._patterns.namespace, self._journal.task)
        result = self._patterns.learn_from(cycles, session.info().key)
        finished_ids = [cycle.entry_id for cycle in cycles if cycle.entry_id not in result.open_cycle_ids]
        if finished_ids:
            self._journal.append_note(LEARNED_NOTE, finished_ids[-1])
            self.skip_learned(finished_ids[-1])
        self._has_new_cycles = False
        return list(result.patterns)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSettings:
    """Settings and services that all tasks of an agent memory share."""

    open_session: Callable[[NamespacePath, str], Session]
    namespace: NamespacePath
    patterns: PatternRepository
    now: Callable[[], float]
    """Returns the current time in seconds since 1970."""
    lock: threading.RLock
    """Lock for all changes of a task."""
    unguarded_tools: Collection[str]
    counter: TokenCounter
    compressor: ContextCompressor
    has_model: bool
    """True if the compressor calls a model, so that compression may be slow."""
    max_entries: int
    working_memory_tokens: int
    max_extraction_chars: int


class TaskRun:
    """A task and its state. The journal is the source of truth; ``resume`` rebuilds all other parts from it.

    Args:
        settings: Shared settings and services.
        task: Name of the task.
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
        # True if a cycle was recorded since the last user request.
        self._has_acted = False

    @property
    def is_begun(self) -> bool:
        """True if the task has a goal or a cycle."""
        return bool(self.working.current_goal or self.working.cycle_count)

    def resume(self) -> None:
        """Rebuild all parts by replaying the journal."""
        self.journal.is_replaying = True
        try:
            # During the replay, _get_time() returns the time of the event, so that ages and times come out the same.
            for event in self.journal.iterate_events():
                if isinstance(event, StoredCycle):
                    self._replayed_at = event.cycle.timestamp
                    self._apply_cycle(event.cycle, event.extraction)
                else:
                    self._replayed_at = event.timestamp
                    self._replay_note(event)
        finally:
            self.journal.is_replaying = False
            self._replayed_at = None

    def record(self, cycle_input: CycleInput) -> Cycle:
        """Validate and store a cycle, and apply it to all parts.

        Raises:
            InvalidInputError: A value is invalid. Nothing was stored.
            StorageError: The cycle could not be stored. The guard has observed it.
        """
        settings = self._settings
        with settings.lock:
            cycle = build_cycle(cycle_input, self._get_time(), self.current_url, self.mode, settings.counter)
            extraction = (
                None if settings.has_model else self._compress_extraction(cycle, cycle_input.observation)
            )
            try:
                cycle = self.journal.append(cycle, extraction)
            except LangmemTiersError:
                # The agent has performed the action even if it could not be stored, so the guard must count it.
                self.advice = self.guard.observe(cycle)
                raise
            key = self._apply_cycle(cycle, extraction)
        # Compress with a model outside the lock: the cycle is stored, and other threads need not wait for the model.
        if settings.has_model and key is not None:
            compressed = self._compress_extraction(cycle, cycle_input.observation)
            if compressed is not None:
                self.context_store.cache_extraction(key, compressed)
        return cycle

    def answer_guard(self, reason: str) -> bool:
        """Give a reason to repeat a blocked action; return True if the guard accepted it."""
        accepted = self.guard.answer(reason)
        self.advice = None if accepted else self.advice
        return accepted

    def begin_turn(self) -> None:
        """Begin a new user request. Without any action since the last one, nothing changes."""
        if self._has_acted:
            self.journal.append_note("turn", None)
            self._has_acted = False
            self.advice = None
            self.guard.begin_turn()
            self.short_term.begin_turn()

    def mark_visited(self, url: str) -> None:
        """Record that a page was visited."""
        name = normalize_page_url(url)
        if name not in self.visited_pages:
            self.journal.append_note("visited", url)
            self.visited_pages[name] = None

    def add_links(
        self, parent_url: str, links: Iterable[Mapping[str, Any] | str], link_type: str
    ) -> LinkReport:
        """Add links that were found on a page; the page counts as visited."""
        report = self.exploration.add_links(parent_url, links, link_type)
        self.visited_pages.setdefault(normalize_page_url(parent_url))
        return report

    def set_mode(self, mode: OperationMode) -> None:
        """Set the operation mode."""
        self.journal.append_note("mode", mode.value)
        self.mode = mode

    def build_summary(self) -> str:
        """Build a summary of the progress so far."""
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
        # All other kinds belong to the working state or the context; what those do not know belongs to the site map.
        elif not replay_change(self.working, self.context_store, note.kind, note.value):
            self.exploration.replay_note(note.kind, note.value)
            if note.kind == "links":
                self.visited_pages.setdefault(normalize_page_url(note.value[0]))

    def _apply_cycle(self, cycle: Cycle, extraction: str | None) -> str | None:
        """Update all parts with a stored cycle and return the key of its extracted data, if any."""
        # Runs again when the journal is replayed, so nothing here may record a change of its own.
        self.short_term.add_checked(cycle)
        self.learner.add_cycle(cycle)
        self.working.count_cycle()
        self._has_acted = True
        self.outcome_counts[cycle.outcome] += 1
        self.advice = self.guard.observe(cycle)
        self.current_url = find_target_url(cycle) or cycle.url
        if cycle.action.tool_name in VISITING_TOOLS and not cycle.outcome.is_failure and self.current_url:
            self.visited_pages[normalize_page_url(self.current_url)] = None
        key = self._build_extraction_key(cycle)
        if cycle.observation is not None and key is not None:
            data = cycle.observation.raw_output if extraction is None else extraction
            self.context_store.cache_journaled_extraction(key, data)
        return key

    def _build_extraction_key(self, cycle: Cycle) -> str | None:
        compressor = self._settings.compressor
        tools = compressor.compressible_tools | compressor.url_critical_tools
        return build_extraction_key(cycle, self.outcome_counts.total(), tools)

    def _compress_extraction(self, cycle: Cycle, observed: object) -> str | None:
        compressor = self._settings.compressor
        if self._build_extraction_key(cycle) is None:
            return None
        # Compress the complete observation, not the truncated one in the cycle, so that URLs in the middle are kept.
        data = get_whole_text(observed)
        # An observation that will be truncated for storage is always compressed: compression loses less.
        is_too_long = len(data) > MAX_OBSERVATION_CHARACTERS
        if not is_too_long and not compressor.should_compress(cycle.action.tool_name, data):
            return None
        return compressor.compress(data).format_for_prompt(self._settings.max_extraction_chars)

    def _get_time(self) -> float:
        return self._settings.now() if self._replayed_at is None else self._replayed_at
