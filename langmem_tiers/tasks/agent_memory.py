"""Memory of an agent that performs tasks: cycles of thought, action and observation, and a loop guard."""

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
    Cycle,
    ExecutionOutcome,
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
    from langmem_tiers.tasks.guard import GuardAdvice
    from langmem_tiers.tasks.models import LearnedPattern
    from langmem_tiers.tasks.run_state import (
        JournaledGuard,
        JournaledRecentCycles,
        JournaledTaskContext,
        JournaledWorkingState,
    )
    from langmem_tiers.tasks.sitemap import LinkReport, SitemapGraph, SitemapLimits, SitemapPage


class AgentFacade:
    """Accessors and shortcuts to the parts of an agent's memory."""

    long_term: PatternRepository
    _run: TaskRun
    _lock: threading.RLock

    @property
    def short_term(self) -> JournaledRecentCycles:
        """Newest cycles of the task."""
        return self._run.short_term

    @property
    def working(self) -> JournaledWorkingState:
        """Working state: goal, navigation path, scratch values and page maps."""
        return self._run.working

    @property
    def context_store(self) -> JournaledTaskContext:
        """Context of the task: user context, inferred context and extracted data."""
        return self._run.context_store

    @property
    def guard(self) -> JournaledGuard:
        """Guard that detects loops."""
        return self._run.guard

    @property
    def advice(self) -> GuardAdvice | None:
        """Advice of the guard on the last cycle, or None."""
        return self._run.advice

    @property
    def sitemap(self) -> SitemapGraph | None:
        """Map of the explored site, or None."""
        return self._run.exploration.graph

    @property
    def current_url(self) -> str:
        """Address of the current page; empty if unknown."""
        return self._run.current_url

    def mark_url_visited(self, url: str) -> None:
        """Record that a page was visited."""
        with self._lock:
            self._run.mark_visited(url)

    def has_visited_url(self, url: str) -> bool:
        """Return True if a page was visited. Addresses are compared in normalized form."""
        return normalize_page_url(url) in self._run.visited_pages

    @property
    def visited_urls(self) -> list[str]:
        """Visited pages in the order of the first visit."""
        with self._lock:
            return list(self._run.visited_pages)

    def add_inferred_context(self, key: str, value: object, source: str = "") -> None:
        """Store inferred context, such as a fact that the agent discovered."""
        self.context_store.add_inferred(key, value, source)

    def store_page_map(self, url: str, page_map: object) -> None:
        """Store a page map: a description of the layout of a page."""
        self.working.store_page_map(url, page_map)

    def has_page_map(self, url: str) -> bool:
        """Return True if a page map is stored for the address."""
        return self.working.has_page_map(url)

    def get_page_map(self, url: str) -> Any:  # noqa: ANN401 - any object
        """Return the page map of an address, or None."""
        return self.working.get_page_map(url)

    def get_all_page_maps(self) -> dict[str, Any]:
        """Return all page maps by address."""
        return self.working.get_all_page_maps()

    def get_page_summary(self, url: str) -> str | None:
        """Return a one-line summary of a page map, or None if there is none."""
        return self.working.get_page_summary(url)

    def learn_pattern(self, pattern: LearnedPattern) -> None:
        """Store a pattern for all tasks of the namespace."""
        with self._lock:
            self.long_term.learn(pattern)

    def get_patterns_for_domain(self, domain: str) -> list[LearnedPattern]:
        """Return the patterns of a site, best first."""
        return self.long_term.get_patterns_for_domain(domain)

    def init_sitemap_graph(self, homepage_url: str, limits: SitemapLimits | None = None) -> SitemapGraph:
        """Start exploring a site at its homepage."""
        with self._lock:
            return self._run.exploration.begin(homepage_url, limits)

    def add_sitemap_links(
        self, parent_url: str, links: Iterable[Mapping[str, Any] | str], link_type: str = "unknown"
    ) -> LinkReport:
        """Add links that were found on a page; the page counts as visited."""
        with self._lock:
            return self._run.add_links(parent_url, links, link_type)

    def update_sitemap_visited(
        self, url: str, title: str = "", summary: str = "", section_count: int = 0
    ) -> SitemapPage | None:
        """Mark a page of the site as visited and return it."""
        with self._lock:
            self.mark_url_visited(url)
            return self._run.exploration.mark_visited(url, title, summary, section_count)

    def update_sitemap_failed(self, url: str, reason: str = "") -> SitemapPage | None:
        """Mark a page as failed, so that it is not suggested again, and return it."""
        with self._lock:
            return self._run.exploration.mark_failed(url, reason)

    def get_next_page_to_visit(self) -> str | None:
        """Return the next page to visit, or None if the exploration is complete."""
        with self._lock:
            return self._run.exploration.require().next_page()

    def is_sitemap_exploration_complete(self) -> bool:
        """Return True if no page within the limits is left to visit."""
        with self._lock:
            return self._run.exploration.require().is_complete

    def format_site_exploration_summary(self) -> str:
        """Format a summary of the explored site for a prompt."""
        with self._lock:
            return self._run.exploration.require().format_summary()


class AgentMemory(AgentFacade, Closeable):
    """Memory of an agent that performs a task.

    Each cycle is durable when the call returns, and a new process can resume the task. Threads can share an instance.

    Args:
        context_window_budget: Maximum tokens of ``format_for_prompt``.
        short_term_max_entries: Maximum number of recent cycles.
        long_term_max_patterns: Maximum number of learned patterns in the namespace.
        max_extraction_budget_percent: Share of the remaining prompt that extracted data may use, from 0 to 1.
        max_extraction_tokens: Maximum tokens of extracted data in a prompt.
        max_single_extraction_chars: Maximum characters of a single extraction.
        engine: Engine that stores the memory. Default: a new in-memory engine, whose data is lost on ``close``.
        namespace: Namespace of the tasks and patterns.
        task: Name of the task to resume, or of a new task. Default: a new task with a generated name.
        counter: Counts tokens. Default: the counter of the engine.
        model: Compresses large extractions. Default: extractive compression.
        unguarded_tools: Tools that the guard ignores, such as one that polls the status of a job.

    Example::

        memory = AgentMemory(engine=engine, task="checkout")
        memory.resume_or_start("Buy a red kettle")
        memory.record_cycle("The cart is empty.", AgentAction("click", {"selector": "#add"}), "Added to cart")
        prompt = memory.format_for_prompt()
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
        """Name of the task. Pass it as ``task=`` to resume the task in another process."""
        return self._run.journal.task

    def start_task(
        self, goal: str, user_context: Mapping[str, Any] | None = None, *, task: str | None = None
    ) -> str:
        """Start a task. The previous task is hidden from now on; patterns and the operation mode are kept.

        If the current task has not begun, the new task takes over its name and everything that was set in it, such as
        inferred context.

        Args:
            goal: The goal of the task.
            user_context: Information from the user.
            task: Name of the task. Default: the name of the current task if it has not begun, else a generated name.

        Returns:
            The name of the task.

        Raises:
            InvalidInputError: The goal is empty, or a task of that name has already begun.
        """
        goal_value: object = goal
        if not isinstance(goal_value, str) or not goal_value.strip():
            raise InvalidInputError(f"a task needs a goal, got {goal_value!r}: describe what to do")
        if user_context is not None and not isinstance(user_context, Mapping):
            raise InvalidInputError(
                f"user_context must be a mapping, got {type(user_context).__name__}: use a dict"
            )
        if user_context:
            # Validate before anything of the new task is stored.
            TaskContext(self._get_time).set_user_context(user_context)
        with self._lock:
            run = self._start_run(None if task is None else check_task_name(task))
            if user_context:
                run.context_store.set_user_context({**run.context_store.user_context, **user_context})
            run.working.set_goal(goal)
            # Switch only after the goal is stored: if storing fails, the previous task stays current.
            self._run = run
            return self.task

    def resume_or_start(self, goal: str, user_context: Mapping[str, Any] | None = None) -> bool:
        """Resume the task that the memory was opened with, or start it if it has not begun.

        Args:
            goal: The goal of a new task. Ignored when resuming.
            user_context: Information from the user for a new task. Ignored when resuming.

        Returns:
            True if the task was resumed, False if it was started.
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
        **about: Any,  # noqa: ANN401 - fields of the cycle, checked below
    ) -> Cycle:
        """Store a cycle of thought, action and observation.

        Args:
            thought: The reasoning of the agent.
            action: The tool call.
            observation: The result of the action. Default: None, not observed.
            outcome: The outcome of the action. Default: success.
            priority: How long the cycle remains visible. Default: chosen by outcome, tool and operation mode.
            **about: ``url``, ``page_title``, ``duration_ms``, ``retry_count``, ``error_message``, ``tags``.

        Returns:
            The stored cycle. ``memory.advice`` contains the advice of the guard on it.

        Raises:
            InvalidInputError: The action or another argument is invalid. Nothing was stored.
            StorageError: The cycle could not be stored. The guard has observed it.
        """
        return self._run.record(CycleInput(thought, action, observation, outcome, priority, about))

    def format_for_prompt(self, domain: str = "", max_tokens: int | None = None) -> str:
        """Format the task as text for a prompt, within the token budget.

        Args:
            domain: Site whose patterns are included. Default: the site of the current page.
            max_tokens: Maximum tokens, if less than ``context_window_budget``.
        """
        with self._lock:
            requested_tokens = (
                self.context_window_budget if max_tokens is None else check_whole(max_tokens, 0, "max_tokens")
            )
            token_limit = min(requested_tokens, self.context_window_budget)
            return build_task_prompt(self, domain or get_domain(self.current_url), token_limit)

    def is_repeated_failure(self, action: AgentAction, url: str | None = None) -> bool:
        """Return True if the same action failed before on the same page."""
        with self._lock:
            return self.short_term.has_failed(
                compute_action_signature(action, self.current_url if url is None else url)
            )

    def check_action(self, action: AgentAction, url: str | None = None) -> GuardAdvice | None:
        """Return the advice of the guard on a planned action; a block must be answered first."""
        with self._lock:
            return self.guard.check(action, self.current_url if url is None else url)

    def answer_guard(self, reason: str) -> bool:
        """Give a reason to repeat a blocked action; return True if the guard accepted it."""
        with self._lock:
            return self._run.answer_guard(reason)

    def new_turn(self) -> None:
        """Begin a new user request within the task. Actions repeated for it do not count as a loop.

        Failures and action counts of earlier turns are kept.
        """
        with self._lock:
            self._run.begin_turn()

    def warnings(self) -> list[str]:
        """Return the warnings that the agent should see before its next action."""
        with self._lock:
            advice = [] if self.advice is None else [self.advice.message]
            return list(dict.fromkeys([*advice, *self.short_term.get_loop_warnings()]))

    def set_operation_mode(self, mode: OperationMode | str) -> None:
        """Set the kind of work, which determines priorities and the order of the prompt."""
        modes = {known_mode.value: known_mode for known_mode in OperationMode}
        if mode not in modes:
            raise InvalidInputError(f"unknown mode {mode!r}: use one of {', '.join(modes)}")
        with self._lock:
            self._run.set_mode(modes[mode])

    def get_operation_mode(self) -> OperationMode:
        """Return the operation mode."""
        return self._run.mode

    def get_task_summary(self) -> str:
        """Return a summary of the progress so far."""
        with self._lock:
            return self._run.build_summary()

    def learn_from_success(self) -> list[LearnedPattern]:
        """Learn and return patterns from action sequences that succeeded repeatedly in the namespace.

        Performing a known pattern counts as a use of it, successful or not. Ending a task calls this automatically.
        """
        with self._lock:
            return self._run.learner.learn()

    def clear_task(self) -> None:
        """End the task: learn patterns from it and continue with a new, empty task."""
        with self._lock:
            self._run = self._begin_run(self.engine.new_id())

    def clear(self) -> None:
        """End the task without learning, and delete all patterns of the namespace."""
        with self._lock:
            self.long_term.clear()
            self._run = TaskRun(self._settings, self.engine.new_id())

    def close(self) -> None:
        """Close the engine if this memory created it. Everything recorded before is already stored."""
        if self._owns_engine:
            self.engine.close()

    def _start_run(self, task: str | None) -> TaskRun:
        self.long_term.refresh()
        # The current task has no goal and no cycles. Continue with it, so that what was set in it is not lost.
        if task in (None, self.task) and not self._run.is_begun:
            return self._run
        task = self.engine.new_id() if task is None else task
        if not TaskJournal(self.engine.session, self.namespace, task).is_empty:
            raise InvalidInputError(
                f"task {task!r} has already begun: resume it with AgentMemory(task={task!r}), or use another name"
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
