"""One conversation with all its operations."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from langmem_tiers.common.entries import Entry, EntryOverride, EntryState, ViewItem
from langmem_tiers.common.messages import Message
from langmem_tiers.common.namespaces import check_name
from langmem_tiers.common.tool_call_groups import group_tool_calls
from langmem_tiers.context.entry_lookup import build_message_entry
from langmem_tiers.context.preview import build_preview
from langmem_tiers.context.recall_context import check_budget
from langmem_tiers.context.session_context import SessionContextBuilder
from langmem_tiers.display.displayable import DisplayableTuple
from langmem_tiers.errors import (
    InvalidInputError,
    MessageNotFoundError,
    PlanOutdatedError,
)
from langmem_tiers.facts.learner import Learner, LearnReport
from langmem_tiers.sessions.compression_plan import Plan, PlanDraft, PlanReport
from langmem_tiers.sessions.service import SessionRecord
from langmem_tiers.sessions.transcript import Transcript
from langmem_tiers.storage.retry_write import retry_on_conflict
from langmem_tiers.telemetry.instruments import TOKENS_SAVED, Operation
from langmem_tiers.tuning.models import TuningParameters

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Set as AbstractSet
    from datetime import datetime

    from langmem_tiers.common.budget import TokenBudget
    from langmem_tiers.common.entries import Chunk
    from langmem_tiers.context.models import MemoryContext
    from langmem_tiers.context.preview import Preview
    from langmem_tiers.episodes.models import Episode, NarrativeArc
    from langmem_tiers.services import EngineServices
    from langmem_tiers.sessions.models import DeleteReport, SessionInfo, StoredView

# Share of the summarized messages that must belong to a branch for the summary to count as its own.
_MIN_SUMMARY_OVERLAP = 0.75


class Session(SessionRecord):
    """One conversation inside a namespace. Get it from ``engine.session(namespace, name)``."""

    def __init__(self, services: EngineServices, info: SessionInfo) -> None:
        super().__init__(services.short_term, info)
        self._services = services

    @property
    def transcript(self) -> Transcript:
        """Message list as a framework maintains it: add, archive, remove, replace."""
        return Transcript(self._dependencies, self)

    def learn(self, *, whole: bool = False) -> LearnReport:
        """Derive facts, long-term entries, episodes and chunks from the messages.

        Each message is processed once, no matter how often this is called and by how many processes.

        Args:
            whole: Also put the newest messages into chunks, because the session has ended.
        """
        return Learner(self._services, self).run(whole=whole)

    def chunks(self) -> tuple[Chunk, ...]:
        """List the chunks of older messages with summary and topics, oldest first; ``learn()`` creates them."""
        return DisplayableTuple(self._services.get_chunks(self).list_all())

    def messages_of(self, chunk: Chunk | Episode) -> tuple[Message, ...]:
        """List the original messages of a chunk or an episode of this session."""
        return DisplayableTuple(
            self._services.get_chunks(self).list_messages(chunk.first_turn, chunk.last_turn)
        )

    def arc(self) -> NarrativeArc:
        """Return the narrative arc of the session: its episodes by thirds, and the key moments."""
        return self._services.get_episodes(self.namespace).arc(self.name)

    def build_context(
        self,
        query: str | None = None,
        *,
        budget: TokenBudget | None = None,
        recall: bool = True,
        tidy: bool | None = None,
        only: AbstractSet[str] | None = None,
    ) -> MemoryContext:
        """Build the messages for the model, within the budget; tool calls and results stay together.

        With the engine's budget, a session that has grown too large is compressed first. With a budget of your
        own, the session is not changed unless you pass ``tidy=True``.

        Args:
            query: Question for recall. Default: the newest user message, extended by the messages before it if
                it is not meaningful alone ("And when was that?").
            budget: Token budget. Default: the budget of the engine.
            recall: Include knowledge and memories of earlier messages and other sessions.
            tidy: Permanently compress the session if it has grown too large for the budget. Default: only
                with the engine's budget.
            only: Ids of the messages that may be included. Use it to leave out other messages of the session,
                such as those of an abandoned branch of the conversation.

        Raises:
            BudgetExceededError: Not even the newest message fits.
        """
        if query is not None and not isinstance(query, str):
            raise InvalidInputError(
                f"query must be a str, got {type(query).__name__}: use build_context(budget=...) to pass a budget"
            )
        with self._services.instruments.measure(Operation.BUILD_CONTEXT) as watch:
            context = self._build_context(
                query, budget, only, recall=recall, tidy=budget is None if tidy is None else tidy
            )
            watch.record(
                messages=len(context.messages), tokens=context.token_count, recalled=len(context.recalled)
            )
            return context

    def _build_context(
        self,
        query: str | None,
        budget: TokenBudget | None,
        only: AbstractSet[str] | None,
        *,
        recall: bool,
        tidy: bool,
    ) -> MemoryContext:
        memory = self._services if budget is None else self._services.with_budget(check_budget(budget))
        view, budget, problems = (
            self._tidy_view(memory) if tidy else (self._get_view(), memory.config.budget, ())
        )
        shown = view if only is None else view.restrict_to(only)
        builder = SessionContextBuilder(memory, self, shown, budget, query)
        context = builder.build_with_memories(counts=tidy) if recall else builder.build_without_memories()
        return replace(context, missing=_list_missing_facts(view), problems=(*context.problems, *problems))

    def preview(
        self, query: str | None = None, *, budget: TokenBudget | None = None, recall: bool = True
    ) -> Preview:
        """Preview the context of the session for display. Nothing is changed.

        Unlike ``build_context``, it reads only as many of the newest messages as the budget could hold, so it is
        fast for sessions of any length.

        Args:
            query: Question for recall. Default: the newest user message.
            budget: Token budget. Default: ``tuned_budget()``.
            recall: Include knowledge and memories of earlier messages and other sessions.

        Raises:
            BudgetExceededError: Not even the newest message fits.
        """
        checked = self.tuned_budget() if budget is None else check_budget(budget)
        return build_preview(self._services, self, query, checked, recall=recall)

    def tuned_budget(self) -> TokenBudget:
        """Return the engine's budget with the optimizer's settings, as ``build_context()`` uses it."""
        return _tune_budget(self._services.config.budget, self._load_parameters())

    def has_summary_of(self, ids: AbstractSet[str]) -> bool:
        """Return True if the active summary covers mostly these messages, or if the session has none.

        Use it to find out to which branch of a conversation the summary belongs. A few other messages are
        tolerated: an answer that was generated again leaves the earlier one behind.

        Args:
            ids: Ids of all messages of the branch, including those that are not summarized.
        """
        view = self._get_view()
        first = view.items[0] if view.items else None
        if first is None or not first.message.is_summary:
            return True
        digest = None if first.override is None else first.override.digest
        summarized = view.hidden_count if digest is None else int(digest["count"])
        # Messages of the branch that are not visible must be the summarized ones.
        return len(ids - {item.message.id for item in view.items}) >= summarized * _MIN_SUMMARY_OVERLAP

    def _tidy_view(self, memory: EngineServices) -> tuple[StoredView, TokenBudget, tuple[str, ...]]:
        view = self._get_view()
        problems: tuple[str, ...] = ()
        parameters = memory.load_parameters(self.namespace)
        if memory.get_planner(view, parameters).is_under_pressure():
            report = self._plan_and_apply(
                lambda current: memory.get_planner(current, parameters).plan_tidying(), view
            )
            memory.tuning.add_savings(self.namespace, report.savings, memory.now())
            view, problems = self._get_view(), tuple(report.problems)
        return view, _tune_budget(memory.config.budget, parameters), problems

    def entries(self) -> tuple[Entry, ...]:
        """List the visible messages of the session as entries with tier, state and scores."""
        items = self._get_view().items
        return DisplayableTuple(
            build_message_entry(self._services, self.namespace, self.name, item) for item in items
        )

    def analyze(self) -> Plan:
        """Plan which entries to compress, drop or promote. Nothing is changed until you ``apply()`` the plan."""
        return self._services.get_planner(self._get_view(), self._load_parameters()).plan_analysis()

    def apply(self, plan: Plan) -> PlanReport:
        """Apply a plan in one transaction.

        Raises:
            InvalidInputError: The plan belongs to another session.
            PlanOutdatedError: The session was compressed after the plan was made. Nothing was changed.
        """
        if not self._is_own_plan(plan):
            raise InvalidInputError(f"the plan does not belong to {self!r}: pass the result of its analyze()")
        if not self._write_plan(plan):
            raise PlanOutdatedError(
                f"{self!r} was changed after the plan was made: call analyze() again; nothing was changed"
            )
        return PlanReport.of(plan)

    def _is_own_plan(self, plan: object) -> bool:
        if not isinstance(plan, Plan) or plan.view.session != self.key:
            return False
        marked = next((item for item in plan.view.items if item.key in plan.overrides), None)
        if marked is None:
            return True
        # Sessions of two databases may have the same key, so compare the key of a message as well.
        found = self._services.entries.get(self.key, marked.message.id)
        return found is not None and found.key == marked.key

    def tidy(self) -> PlanReport:
        """Analyze the session and, if it is too large, compress it to its target size."""
        return self.tidy_with(self._load_parameters())

    def tidy_with(self, parameters: TuningParameters) -> PlanReport:
        """Compress like ``tidy()``, with parameters of your own instead of the optimizer's."""
        if not isinstance(parameters, TuningParameters):
            raise InvalidInputError(
                f"parameters must be TuningParameters, got {type(parameters).__name__}: pass TuningParameters(...)"
            )
        return self._plan_and_apply(lambda view: self._services.get_planner(view, parameters).plan_tidying())

    def promote(self, entry: Entry | Message | str) -> None:
        """Move an entry to the long-term tier manually; summaries of the session keep its text.

        Args:
            entry: The entry, its message or its id. Summaries are ignored.
        """
        item = self._require_item(entry)
        if item.message.is_summary:
            return
        draft_plan = PlanDraft([item])
        now = self._services.now()
        score = self._services.analyzer.score(item, now)
        self._services.analyzer.promote(draft_plan, 0, "manually", score, now)
        promoted = draft_plan.items[0].override
        override = None if promoted is None else replace(promoted, is_pinned=True)
        self._write_overrides({**self._build_unarchive_overrides(item, now), item.key: override})

    def expand(self, entry: Entry | Message | str) -> Message:
        """Return the original message of an entry, even if the entry is compressed or archived."""
        return self._require_item(entry).message

    def restore(self, entry: Entry | Message | str) -> Message:
        """Show an entry in full again, as a short-term entry: undo compress, drop and promote.

        Later analyses leave the entry unchanged. A tool call is restored with its results. A message that is
        covered by a summary stays hidden; read it with ``expand()``.

        Args:
            entry: The entry, its message or its id.

        Returns:
            The original message.
        """
        item, now = self._require_item(entry), self._services.now()
        if item.message.is_summary:
            # A summary itself is never compressed, dropped or promoted.
            return item.message
        override = EntryOverride(is_pinned=True, reason="restored manually", changed_at=now)
        self._write_overrides({**self._build_unarchive_overrides(item, now), item.key: override})
        return item.message

    def _build_unarchive_overrides(self, item: ViewItem, now: datetime) -> dict[int, EntryOverride | None]:
        # A tool call and its results are archived together, so they come back together: models reject one
        # without the other.
        items = self._get_view().items
        groups = group_tool_calls([view_item.message for view_item in items])
        group = next(
            (
                items[start:end]
                for start, end in groups
                if any(member.key == item.key for member in items[start:end])
            ),
            (),
        )
        return {
            member.key: replace(member.override, state=EntryState.FULL, changed_at=now)
            for member in group
            if member.override is not None and member.state is EntryState.ARCHIVED
        }

    def _require_item(self, entry: Entry | Message | str) -> ViewItem:
        message_id = check_name(entry.id if isinstance(entry, Entry | Message) else entry, "message id")
        found = self._services.entries.get(self.key, message_id)
        if found is None:
            raise MessageNotFoundError(
                f"session {self.name!r} has no entry {message_id!r}: use an id returned by entries()"
            )
        return found

    def delete(self) -> DeleteReport:
        """Erase the session and all its messages."""
        info = self._dependencies.sessions.get(self.namespace, self.name)
        # Working memory is stored by name. Another process may have deleted this session and created a new one
        # under the same name; the working memory of that one must stay.
        if info is not None and info.key == self.key:
            self._services.working.delete(self.namespace, self.name)
        self._services.views.invalidate(self.key)
        return super().delete()

    def _get_view(self) -> StoredView:
        return self._services.views.get(self.key)

    def _load_parameters(self) -> TuningParameters:
        return self._services.load_parameters(self.namespace)

    def _write_plan(self, plan: Plan) -> bool:
        is_written = plan.is_empty or self._apply_plan(plan)
        if is_written:
            self._services.instruments.count(TOKENS_SAVED, plan.tokens_before - plan.tokens_after)
        return is_written

    def _apply_plan(self, plan: Plan) -> bool:
        return self._services.entries.apply(
            self.key,
            plan.overrides,
            roll_up=plan.roll_up,
            was_hidden=plan.view.hidden_count,
            # Apply only if these entries are as they were when the plan was made. That includes the entries that
            # the summary will hide: a change since then would be lost behind it.
            seen={
                item.key: item.override
                for index, item in enumerate(plan.view.items)
                if item.key in plan.overrides
                or (plan.roll_up is not None and index < plan.roll_up.hidden_count)
            },
        )

    def _plan_and_apply(
        self, make: Callable[[StoredView], Plan], view: StoredView | None = None
    ) -> PlanReport:
        def attempt() -> PlanReport | None:
            nonlocal view
            plan = make(self._get_view() if view is None else view)
            # If the write fails, another process compressed the session in between: read the view again.
            view = None
            return PlanReport.of(plan) if self._write_plan(plan) else None

        return retry_on_conflict(attempt, f"{self!r} is being compressed concurrently; try again later")

    def _write_overrides(self, overrides: dict[int, EntryOverride | None]) -> None:
        def attempt() -> bool | None:
            hidden = self._services.entries.get_view(self.key, 1).hidden_count
            return self._services.entries.apply(self.key, overrides, roll_up=None, was_hidden=hidden) or None

        retry_on_conflict(attempt, f"{self!r} is being compressed concurrently; try again later")


def _tune_budget(budget: TokenBudget, parameters: TuningParameters) -> TokenBudget:
    return replace(budget, full_message_window=parameters.full_message_window)


def _list_missing_facts(view: StoredView) -> tuple[str, ...]:
    # The active summary is the first item; its digest lists the facts that did not fit.
    override = view.items[0].override if view.items else None
    return () if override is None or override.digest is None else tuple(override.digest["missing"])
