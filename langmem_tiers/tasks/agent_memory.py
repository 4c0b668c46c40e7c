"""The memory of an agent that acts: cycles of thought, action and observation, and a guard against going in circles."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from langmem_tiers.common.checks import check_fraction, check_whole
from langmem_tiers.common.closeable import Closeable
from langmem_tiers.common.namespaces import check_namespace
from langmem_tiers.compression.tool_output.budget import ExtractionBudget
from langmem_tiers.compression.tool_output.compressor import ContextCompressor
from langmem_tiers.engine import MemoryEngine
from langmem_tiers.errors import InvalidInputError
from langmem_tiers.tasks.context_store import TaskContext
from langmem_tiers.tasks.cycle_input import CycleInput, normalize_page_url
from langmem_tiers.tasks.journal import TaskJournal, check_task_name
from langmem_tiers.tasks.models import (
    AgentAction,
    ExecutionOutcome,
    MemoryEntry,
    MemoryPriority,
    Observation,
    OperationMode,
    Thought,
    compute_action_signature,
)
from langmem_tiers.tasks.pattern_repository import PatternRepository
from langmem_tiers.tasks.prompt import build_task_prompt
from langmem_tiers.tasks.run import TaskRun, TaskSettings
from langmem_tiers.text.urls import get_domain

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from langmem_tiers.common.ports import LanguageModel, TokenCounter
    from langmem_tiers.tasks.guard_advice import GuardAdvice
    from langmem_tiers.tasks.models import LearnedPattern
    from langmem_tiers.tasks.run_state import (
        JournaledGuard,
        JournaledRecentCycles,
        JournaledTaskContext,
        JournaledWorkingState,
    )
    from langmem_tiers.tasks.sitemap import LinkReport, SitemapGraph, SitemapLimits, SitemapPage


class AgentFacade:
    """The parts of an agent's memory, and the short ways to them."""

    long_term: PatternRepository
    _run: TaskRun
    _lock: threading.RLock

    @property
    def short_term(self) -> JournaledRecentCycles:
        """The newest cycles."""
        return self._run.short_term

    @property
    def working(self) -> JournaledWorkingState:
        """Goal, path, scratch pad and page maps."""
        return self._run.working

    @property
    def context_store(self) -> JournaledTaskContext:
        """What the user said, what was found out, and what was extracted."""
        return self._run.context_store

    @property
    def guard(self) -> JournaledGuard:
        """Notices when the agent goes in circles."""
        return self._run.guard

    @property
    def advice(self) -> GuardAdvice | None:
        """What the guard has to say to the last cycle."""
        return self._run.advice

    @property
    def sitemap(self) -> SitemapGraph | None:
        """The site that is explored."""
        return self._run.exploration.graph

    @property
    def current_url(self) -> str:
        """The page that the agent is at; empty if none was named."""
        return self._run.current_url

    def mark_url_visited(self, url: str) -> None:
        """Note that a page was seen."""
        with self._lock:
            self._run.mark_visited(url)

    def has_visited_url(self, url: str) -> bool:
        """Whether a page was seen, in whatever form its address is written."""
        return normalize_page_url(url) in self._run.visited_pages

    @property
    def visited_urls(self) -> list[str]:
        """The pages that were seen, in that order."""
        with self._lock:
            return list(self._run.visited_pages)

    def add_inferred_context(self, key: str, value: object, source: str = "") -> None:
        """Keep what was found out on the way."""
        self.context_store.add_inferred(key, value, source)

    def store_page_map(self, url: str, page_map: object) -> None:
        """Keep what is where on a page."""
        self.working.store_page_map(url, page_map)

    def has_page_map(self, url: str) -> bool:
        """Whether a page is known."""
        return self.working.has_page_map(url)

    def get_page_map(self, url: str) -> Any:  # noqa: ANN401 - whatever was handed in
        """What is where on a page."""
        return self.working.get_page_map(url)

    def get_all_page_maps(self) -> dict[str, Any]:
        """All pages that are known."""
        return self.working.get_all_page_maps()

    def get_page_summary(self, url: str) -> str | None:
        """A page in one line."""
        return self.working.get_page_summary(url)

    def learn_pattern(self, pattern: LearnedPattern) -> None:
        """Keep steps that worked, for all tasks of the namespace."""
        with self._lock:
            self.long_term.learn(pattern)

    def get_patterns_for_domain(self, domain: str) -> list[LearnedPattern]:
        """What worked at a site, the best first."""
        return self.long_term.get_patterns_for_domain(domain)

    def init_sitemap_graph(self, homepage_url: str, limits: SitemapLimits | None = None) -> SitemapGraph:
        """Begin to explore a site; its first page is being looked at."""
        with self._lock:
            return self._run.exploration.begin(homepage_url, limits)

    def add_sitemap_links(
        self, parent_url: str, links: Iterable[Mapping[str, Any] | str], link_type: str = "unknown"
    ) -> LinkReport:
        """Links that were found on a page."""
        with self._lock:
            return self._run.add_links(parent_url, links, link_type)

    def update_sitemap_visited(
        self, url: str, title: str = "", summary: str = "", section_count: int = 0
    ) -> SitemapPage | None:
        """A page that was looked at."""
        with self._lock:
            self.mark_url_visited(url)
            return self._run.exploration.mark_visited(url, title, summary, section_count)

    def update_sitemap_failed(self, url: str, reason: str = "") -> SitemapPage | None:
        """A page that cannot be looked at, so that it is not offered again."""
        with self._lock:
            return self._run.exploration.mark_failed(url, reason)

    def get_next_page_to_visit(self) -> str | None:
        """Where to go next; None when all within the limits was seen."""
        with self._lock:
            return self._run.exploration.require().next_page()

    def is_sitemap_exploration_complete(self) -> bool:
        """Whether all within the limits was seen."""
        with self._lock:
            return self._run.exploration.require().is_complete

    def format_site_exploration_summary(self) -> str:
        """What was found at the site."""
        with self._lock:
            return self._run.exploration.require().format_summary()


class AgentMemory(AgentFacade, Closeable):
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
        unguarded_tools: Tools that may be called as often as one likes, such as one that asks whether a job is done.
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
        unguarded_tools: Collection[str] = (),
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
        max_entries = check_whole(short_term_max_entries, 1, "short_term_max_entries")
        check_whole(long_term_max_patterns, 1, "long_term_max_patterns")
        self.engine = MemoryEngine(embedder=None) if engine is None else engine
        self._owns_engine = engine is None
        self.namespace = check_namespace(namespace)
        self.counter = self.engine.counter if counter is None else counter
        self.compressor = ContextCompressor(self.counter, model)
        self._lock = threading.RLock()
        self.long_term = PatternRepository(
            long_term_max_patterns, self._get_time, self.engine.services.long_term, self.namespace
        )
        self._settings = TaskSettings(
            open_session=self.engine.session,
            namespace=self.namespace,
            patterns=self.long_term,
            now=self._get_time,
            lock=self._lock,
            unguarded_tools=unguarded_tools,
            counter=self.counter,
            compressor=self.compressor,
            has_model=model is not None,
            max_entries=max_entries,
            working_memory_tokens=context_window_budget // 4,
            max_extraction_chars=max_single_extraction_chars,
        )
        self._run = TaskRun(self._settings, self.engine.new_id() if task is None else check_task_name(task))
        if task is not None:
            self._run.resume()

    def __repr__(self) -> str:
        return f"AgentMemory(task={self.task!r})"

    @property
    def task(self) -> str:
        """What the task is called: pass it as ``task=`` to go on with it in another process."""
        return self._run.journal.task

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
            TaskContext(self._get_time).set_user_context(user_context)  # refused before anything is begun
        with self._lock:
            run = self._start_run(None if task is None else check_task_name(task))
            if user_context:
                run.context_store.set_user_context({**run.context_store.user_context, **user_context})
            run.working.set_goal(goal)
            self._run = run  # only now: until it is kept, the task before goes on
            return self.task

    def resume_or_start(self, goal: str, user_context: Mapping[str, Any] | None = None) -> bool:
        """Go on with the task that the memory was opened with, or begin it if there is none yet.

        Args:
            goal: What is to be done, if it is begun.
            user_context: What the user said about it, if it is begun.

        Returns:
            Whether it was under way.
        """
        with self._lock:
            is_begun = self._run.is_begun
            if not is_begun:
                self.start_task(goal, user_context)
            return is_begun

    def record_cycle(
        self,
        thought: Thought | str,
        action: AgentAction,
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
        return self._run.record(CycleInput(thought, action, observation, outcome, priority, about))

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
            return build_task_prompt(self, domain or get_domain(self.current_url), most)

    def is_repeated_failure(self, action: AgentAction, url: str | None = None) -> bool:
        """Whether exactly this failed before, at this page."""
        with self._lock:
            return self.short_term.has_failed(
                compute_action_signature(action, self.current_url if url is None else url)
            )

    def check_action(self, action: AgentAction, url: str | None = None) -> GuardAdvice | None:
        """What the guard says to an action before it is taken; a block must be answered first."""
        with self._lock:
            return self.guard.check(action, self.current_url if url is None else url)

    def answer_guard(self, reason: str) -> bool:
        """Say why a blocked action is to be done once more; whether that was enough."""
        with self._lock:
            return self._run.answer_guard(reason)

    def new_turn(self) -> None:
        """The user asks for something new at the same task: what is done again for that is no loop.

        That something failed, and how often it was done, stays known.
        """
        with self._lock:
            self._run.begin_turn()

    def warnings(self) -> list[str]:
        """What the agent should know before it acts again."""
        with self._lock:
            said = [] if self.advice is None else [self.advice.message]
            return list(dict.fromkeys([*said, *self.short_term.get_loop_warnings()]))

    def set_operation_mode(self, mode: OperationMode | str) -> None:
        """What the agent is out for: it decides what is kept and shown."""
        known = {one.value: one for one in OperationMode}
        if mode not in known:
            raise InvalidInputError(f"unknown mode {mode!r}: use one of {', '.join(known)}")
        with self._lock:
            self._run.set_mode(known[mode])

    def get_operation_mode(self) -> OperationMode:
        """What the agent is out for."""
        return self._run.mode

    def get_task_summary(self) -> str:
        """How the task went so far."""
        with self._lock:
            return self._run.build_summary()

    def learn_from_success(self) -> list[LearnedPattern]:
        """Learn steps that worked more than once, in this task or in others of the namespace; what was learned.

        Doing what was learned before counts as a use of it, well or badly. The end of a task learns by itself.
        """
        with self._lock:
            return self._run.learner.learn()

    def clear_task(self) -> None:
        """End the task: what worked more than once is learned, and nothing of it is in sight any more."""
        with self._lock:
            self._run = self._begin_run(self.engine.new_id())

    def clear(self) -> None:
        """End the task and forget the patterns of the namespace as well."""
        with self._lock:
            self.long_term.clear()
            self._run = TaskRun(self._settings, self.engine.new_id())

    def close(self) -> None:
        """Give the engine back, if it is its own. Everything recorded is there already."""
        if self._owns_engine:
            self.engine.close()

    def _start_run(self, task: str | None) -> TaskRun:
        self.long_term.refresh()
        if task in (None, self.task) and not self._run.is_begun:
            return self._run  # what was set until now was set for it
        task = self.engine.new_id() if task is None else task
        if not TaskJournal(self.engine.session, self.namespace, task).is_empty:
            raise InvalidInputError(
                f"task {task!r} is under way: go on with AgentMemory(task={task!r}), or name the new one otherwise"
            )
        return self._begin_run(task)

    def _begin_run(self, task: str) -> TaskRun:
        self._run.learner.learn()
        run = TaskRun(self._settings, task)
        if self._run.mode is not OperationMode.AUTO:
            run.set_mode(self._run.mode)
        return run

    def _get_time(self) -> float:
        return self.engine.services.now().timestamp()
