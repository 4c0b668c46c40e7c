"""The memory of an agent that acts: cycles of thought, action and observation, and a guard against going in circles."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from langmem_tiers.compression.extraction import ContextCompressor
from langmem_tiers.compression.extraction_budget import ExtractionBudget
from langmem_tiers.core.checks import check_fraction, check_whole
from langmem_tiers.core.closing import Closing
from langmem_tiers.core.errors import InvalidInputError, LangmemTiersError
from langmem_tiers.core.names import check_name, check_namespace
from langmem_tiers.core.tasks import (
    Action,
    ExecutionOutcome,
    MemoryEntry,
    MemoryPriority,
    Observation,
    OperationMode,
    Thought,
    action_signature,
)
from langmem_tiers.engine import MemoryEngine
from langmem_tiers.flows.task_cycles import (
    NAVIGATION,
    Told,
    cycle_of,
    extraction_key,
    leads_to,
    page_name,
    whole_text,
)
from langmem_tiers.flows.task_journal import KeptCycle, KeptNote, TaskJournal
from langmem_tiers.flows.task_parts import TaskContextStore, TaskPatterns, TaskWorkingMemory, replay
from langmem_tiers.flows.task_prompt import prompt_of
from langmem_tiers.flows.task_sites import TaskSites
from langmem_tiers.flows.task_surface import TaskSurface
from langmem_tiers.scoring.web_addresses import domain_of
from langmem_tiers.tiers.task.context_store import ContextStore
from langmem_tiers.tiers.task.cycles import ShortTermMemory
from langmem_tiers.tiers.task.guard import Guard
from langmem_tiers.tiers.task.pattern_learning import propose_patterns

if TYPE_CHECKING:
    from collections.abc import Iterable

    from langmem_tiers.core.ports import LanguageModel, TokenCounter
    from langmem_tiers.core.tasks import LearnedPattern
    from langmem_tiers.tiers.task.guard_advice import GuardAdvice
    from langmem_tiers.tiers.task.sitemap import SitemapGraph

_LEARNED_FROM = 500  # cycles of a task that patterns are looked for in


class AgentMemory(TaskSurface, Closing):
    """Memory of a task under way. Every cycle is on the disk when the call returns, and a new process goes on there.

    Safe to share between threads.

    Args:
        context_window_budget: Tokens that ``format_for_prompt`` may take.
        short_term_max_entries: Cycles that are held in sight.
        long_term_max_patterns: Learned patterns of the namespace.
        max_extraction_budget_percent: What extracted data may take of what is left of a prompt.
        max_extraction_tokens: What it may take in any case.
        max_single_extraction_chars: Characters of one extraction.
        engine: Where it is kept; in memory, and gone with it, if left out.
        namespace: Whose.
        task: The task to go on with; a new one, if there is none of that name.
        counter: Counts tokens; the engine's, if left out.
        model: Compresses large extractions; without one they are put together from what they say.
    """

    def __init__(  # noqa: PLR0913 - as in the design, the rest by keyword
        self,
        context_window_budget: int = 64_000,
        short_term_max_entries: int = 50,
        long_term_max_patterns: int = 100,
        max_extraction_budget_percent: float = 0.20,
        max_extraction_tokens: int = 4_000,
        max_single_extraction_chars: int = 8_000,
        *,
        engine: MemoryEngine | None = None,
        namespace: str | Iterable[str] = "agent",
        task: str | None = None,
        counter: TokenCounter | None = None,
        model: LanguageModel | None = None,
    ) -> None:
        self.context_window_budget = check_whole(context_window_budget, 1, "context_window_budget")
        self.max_extraction_budget_percent = check_fraction(
            max_extraction_budget_percent, "max_extraction_budget_percent"
        )
        self.max_extraction_tokens = check_whole(max_extraction_tokens, 0, "max_extraction_tokens")
        self.max_single_extraction_chars = check_whole(
            max_single_extraction_chars, 0, "max_single_extraction_chars"
        )
        self.extraction_budget = ExtractionBudget(
            max_percent=max_extraction_budget_percent,
            max_tokens=max_extraction_tokens,
            max_single_chars=max_single_extraction_chars,
        )
        self._max_entries = check_whole(short_term_max_entries, 1, "short_term_max_entries")
        check_whole(long_term_max_patterns, 1, "long_term_max_patterns")
        self.engine = MemoryEngine(embedder=None) if engine is None else engine
        self._owns_engine = engine is None
        self.namespace = check_namespace(namespace)
        self.counter = self.engine.counter if counter is None else counter
        self.compressor = ContextCompressor(self.counter, model)
        self._lock = threading.RLock()
        self._replayed_at: float | None = None
        self.advice: GuardAdvice | None = None
        self._acts = False  # whether anything was done since the user spoke last
        self.long_term = TaskPatterns(
            long_term_max_patterns, self._seconds, self.engine.parts.lasting, self.namespace
        )
        self._begin(self.engine.new_id() if task is None else check_name(task, "task"))
        if task is not None:
            self._go_on()

    def __repr__(self) -> str:
        return f"AgentMemory(task={self.task!r})"

    @property
    def task(self) -> str:
        """What the task is called: pass it as ``task=`` to go on with it in another process."""
        return self._journal.task

    @property
    def current_url(self) -> str:
        """The page that the agent is at; empty if none was named."""
        return self._url

    @property
    def sitemap(self) -> SitemapGraph | None:
        """The site that is explored."""
        return self._sites.graph

    def start_task(
        self, goal: str, user_context: Mapping[str, Any] | None = None, *, task: str | None = None
    ) -> str:
        """Begin a task: nothing of the one before is in sight any more, learned patterns and the mode stay.

        What was set since the memory was opened or the last task cleared belongs to the new task, and so does the
        name that the memory was opened with.

        Args:
            goal: What is to be done.
            user_context: What the user said about it.
            task: What it is called; a new id, if left out.

        Returns:
            What it is called.

        Raises:
            InvalidInputError: There is no goal, or a task of that name is under way.
        """
        told: object = goal
        if not isinstance(told, str) or not told.strip():
            raise InvalidInputError(f"a task needs a goal, got {told!r}: say what is to be done")
        if user_context is not None and not isinstance(user_context, Mapping):
            raise InvalidInputError(f"user context must be a mapping, got a {type(user_context).__name__}")
        if user_context:
            ContextStore(self._seconds).set_user_context(user_context)  # refused before anything is begun
        with self._lock:
            self._start(None if task is None else check_name(task, "task"))
            self.working.set_goal(goal)
            if user_context:
                self.context_store.set_user_context({**self.context_store.user_context, **user_context})
            return self.task

    def record_cycle(
        self,
        thought: Thought | str,
        action: Action,
        observation: Observation | str | None = None,
        outcome: ExecutionOutcome | str = ExecutionOutcome.SUCCESS,
        priority: MemoryPriority | str | None = None,
        **about: Any,  # noqa: ANN401 - fields of the entry, checked below
    ) -> MemoryEntry:
        """Keep a cycle of thought, action and observation.

        Args:
            thought: What the agent reasoned.
            action: What it did.
            observation: What came of it.
            outcome: How it went.
            priority: How long it stays in sight; by the action and the mode, if left out.
            **about: ``url``, ``page_title``, ``duration_ms``, ``retry_count``, ``error_message``, ``tags``.

        Returns:
            The cycle. ``memory.advice`` is what the guard has to say to it.

        Raises:
            InvalidInputError: The action is none, or something else in it makes no sense; nothing is kept.
            StorageError: It could not be kept; the guard has seen it.
        """
        with self._lock:
            told = Told(thought, action, observation, outcome, priority, about)
            entry = cycle_of(told, self._seconds(), self._url, self._mode, self.counter)
            extraction = self._extraction(entry, observation)
            try:
                entry = self._journal.append(entry, extraction)
            except LangmemTiersError:
                self.advice = self.guard.observe(entry)  # it was done, and may be a loop, wherever it is kept
                raise
            self._take(entry, extraction)
            return entry

    def format_for_prompt(self, domain: str = "", max_tokens: int | None = None) -> str:
        """What the agent is told of its task, never more than the budget.

        Args:
            domain: The site that it is at; by the current page, if left out.
            max_tokens: In place of the budget, if that is less.
        """
        with self._lock:
            asked = (
                self.context_window_budget if max_tokens is None else check_whole(max_tokens, 0, "max_tokens")
            )
            most = min(asked, self.context_window_budget)
            return prompt_of(self, domain or domain_of(self._url), most)

    def is_repeated_failure(self, action: Action, url: str | None = None) -> bool:
        """Whether exactly this failed before, at this page."""
        with self._lock:
            return self.short_term.has_failed(action_signature(action, self._url if url is None else url))

    def check_action(self, action: Action, url: str | None = None) -> GuardAdvice | None:
        """What the guard says to an action before it is taken; a block must be answered first."""
        with self._lock:
            return self.guard.check(action, self._url if url is None else url)

    def answer_guard(self, reason: str) -> bool:
        """Say why a blocked action is to be done once more; whether that was enough."""
        with self._lock:
            if not self.guard.would_accept(reason):
                return False
            self._journal.note("answer", reason)
            self.advice = None
            return self.guard.answer(reason)

    def new_turn(self) -> None:
        """The user asks for something new at the same task: what is done again for that is no loop.

        That something failed, and how often it was done, stays known.
        """
        with self._lock:
            if self._acts:
                self._journal.note("turn", None)
                self._acts = False
                self.advice = None
                self.guard.begin_turn()
                self.short_term.begin_turn()

    def warnings(self) -> list[str]:
        """What the agent should know before it acts again."""
        with self._lock:
            said = [] if self.advice is None else [self.advice.message]
            return list(dict.fromkeys([*said, *self.short_term.get_loop_warnings()]))

    def mark_url_visited(self, url: str) -> None:
        """Note that a page was seen."""
        with self._lock:
            name = page_name(url)
            if name not in self._visited:
                self._visited[name] = None
                self._journal.note("visited", url)

    def has_visited_url(self, url: str) -> bool:
        """Whether a page was seen, in whatever form its address is written."""
        return page_name(url) in self._visited

    @property
    def visited_urls(self) -> list[str]:
        """The pages that were seen, in that order."""
        return list(self._visited)

    def set_operation_mode(self, mode: OperationMode | str) -> None:
        """What the agent is out for: it decides what is kept and shown."""
        known = {one.value: one for one in OperationMode}
        if mode not in known:
            raise InvalidInputError(f"unknown mode {mode!r}: use one of {', '.join(known)}")
        with self._lock:
            self._mode = known[mode]
            self._journal.note("mode", self._mode.value)

    def get_operation_mode(self) -> OperationMode:
        """What the agent is out for."""
        return self._mode

    def get_task_summary(self) -> str:
        """How the task went so far."""
        with self._lock:
            return self._sites.task_summary(
                self.working, self._counts, self.short_term, self._url, len(self._visited)
            )

    def learn_from_success(self) -> list[LearnedPattern]:
        """Learn steps that worked more than once in this task; what was learned."""
        with self._lock:
            found = propose_patterns(
                list(self._journal.cycles())[-_LEARNED_FROM:], known=self.long_term.patterns
            )
            for pattern in found:
                self.long_term.learn(pattern)
            return found

    def clear_task(self) -> None:
        """End the task: what worked more than once is learned, and nothing of it is in sight any more."""
        with self._lock:
            self.learn_from_success()
            self._next(self.engine.new_id())

    def clear(self) -> None:
        """End the task and forget the patterns of the namespace as well."""
        with self._lock:
            self._begin(self.engine.new_id())
            self.long_term.clear()

    def close(self) -> None:
        """Give the engine back, if it is its own. Everything recorded is there already."""
        if self._owns_engine:
            self.engine.close()

    def _start(self, task: str | None) -> None:
        self.long_term.refresh()
        is_begun = bool(self.working.current_goal or self.working.cycle_count)
        if task in (None, self.task) and not is_begun:
            return  # what was set until now was set for it
        task = self.engine.new_id() if task is None else task
        if not TaskJournal(self.engine.session, self.namespace, task).is_empty:
            raise InvalidInputError(
                f"task {task!r} is under way: go on with AgentMemory(task={task!r}), or name the new one otherwise"
            )
        self._next(task)

    def _next(self, task: str) -> None:
        mode = self._mode
        self._begin(task)
        if mode is not OperationMode.AUTO:
            self.set_operation_mode(mode)

    def _begin(self, task: str) -> None:
        self._journal = TaskJournal(self.engine.session, self.namespace, task)
        self.short_term = ShortTermMemory(max_entries=self._max_entries)
        note = self._journal.note
        self.working = TaskWorkingMemory(self.context_window_budget // 4, self._seconds, note, self._lock)
        self.context_store = TaskContextStore(self._seconds, note, self._lock)
        self.guard = Guard()
        self.advice = None
        self._acts = False
        self._sites = TaskSites(self._seconds, note)
        self._visited: dict[str, None] = {}
        self._counts: Counter[ExecutionOutcome] = Counter()
        self._url = ""
        self._mode = OperationMode.AUTO

    def _go_on(self) -> None:
        self._journal.is_replaying = True
        try:
            for event in self._journal.events():
                if isinstance(event, KeptCycle):
                    self._replayed_at = event.entry.timestamp
                    self._take(event.entry, event.extraction)
                else:
                    self._replayed_at = event.at
                    self._replay(event)
        finally:
            self._journal.is_replaying = False
            self._replayed_at = None

    def _replay(self, note: KeptNote) -> None:
        if note.kind == "answer":
            self.answer_guard(note.value)
        elif note.kind == "visited":
            self.mark_url_visited(note.value)
        elif note.kind == "mode":
            self.set_operation_mode(note.value)
        elif note.kind == "turn":
            self.new_turn()
        elif not replay(self.working, self.context_store, note.kind, note.value):
            self._sites.replay(note.kind, note.value)

    def _take(self, entry: MemoryEntry, extraction: str | None) -> None:
        self.short_term.add(entry)
        self.working.count_cycle()
        self._acts = True
        self._counts[entry.outcome] += 1
        self.advice = self.guard.observe(entry)
        self._url = leads_to(entry) or entry.url
        if entry.action.tool_name in NAVIGATION and not entry.outcome.is_failure and self._url:
            self._visited[page_name(self._url)] = None
        if entry.observation is not None and (key := self._extraction_key(entry)) is not None:
            data = entry.observation.raw_output if extraction is None else extraction
            self.context_store.hold_extraction(key, data)

    def _extraction_key(self, entry: MemoryEntry) -> str | None:
        tools = self.compressor.compressible_tools | self.compressor.url_critical_tools
        return extraction_key(entry, self._counts.total(), tools)

    def _extraction(self, entry: MemoryEntry, observed: object) -> str | None:
        if self._extraction_key(entry) is None:
            return None
        data = whole_text(observed)  # not what is kept of it: no address in between is lost
        if not self.compressor.should_compress(entry.action.tool_name, data):
            return None
        return self.compressor.compress(data).format_for_prompt(self.max_single_extraction_chars)

    def _seconds(self) -> float:
        return self.engine.parts.now().timestamp() if self._replayed_at is None else self._replayed_at
