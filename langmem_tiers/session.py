"""A session with all that can be done to it."""

from __future__ import annotations

import logging
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
    StorageBusyError,
)
from langmem_tiers.facts.learner import Learner, LearnReport
from langmem_tiers.sessions.compression_plan import (
    Plan,
    PlanDraft,
    PlanReport,
    is_under_pressure,
    plan_analysis,
    plan_tidying,
)
from langmem_tiers.sessions.service import SessionRecord
from langmem_tiers.sessions.transcript import Transcript
from langmem_tiers.telemetry.instruments import TOKENS_SAVED, Operation
from langmem_tiers.tuning.models import TuningParameters

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Set as AbstractSet
    from datetime import datetime

    from langmem_tiers.common.budget import TokenBudget
    from langmem_tiers.common.entries import Chunk
    from langmem_tiers.context.models import Context
    from langmem_tiers.context.preview import Preview
    from langmem_tiers.episodes.models import Episode, NarrativeArc
    from langmem_tiers.services import EngineServices
    from langmem_tiers.sessions.models import DeleteReport, SessionInfo, StoredView

_log = logging.getLogger("langmem_tiers")
_MIN_SUMMARY_OVERLAP = 0.75
_MAX_ATTEMPTS = 20  # far more than two that tidy the same session need


class Session(SessionRecord):
    """One conversation inside a namespace. Get it from ``engine.session(namespace, name)``."""

    def __init__(self, parts: EngineServices, info: SessionInfo) -> None:
        super().__init__(parts.short_term, info)
        self._services = parts

    @property
    def transcript(self) -> Transcript:
        """Its messages as the list that a framework keeps of them."""
        return Transcript(self._dependencies, self)

    def learn(self, *, whole: bool = False) -> LearnReport:
        """Make of its messages what will be remembered: facts, long-term entries, episodes and chunks.

        Each message is read once, however often this is called, and by however many processes.

        Args:
            whole: Whether the newest messages become chunks too, because the session is over.
        """
        return Learner(self._services, self).run(whole=whole)

    def chunks(self) -> tuple[Chunk, ...]:
        """Its older messages as chunks with summary and topics, oldest first; ``learn()`` makes them."""
        return DisplayableTuple(self._services.get_chunks(self).list_all())

    def messages_of(self, chunk: Chunk | Episode) -> tuple[Message, ...]:
        """The messages that a chunk or an episode of this session is made of, as they were said."""
        return DisplayableTuple(
            self._services.get_chunks(self).list_messages(chunk.first_turn, chunk.last_turn)
        )

    def arc(self) -> NarrativeArc:
        """Its story: the episodes by thirds, and the key moments."""
        return self._services.get_episodes(self.namespace).arc(self.name)

    def build_context(
        self,
        query: str | None = None,
        *,
        budget: TokenBudget | None = None,
        recall: bool = True,
        tidy: bool | None = None,
        only: AbstractSet[str] | None = None,
    ) -> Context:
        """What goes to the model: never more than the budget, tool calls with their results.

        Under the engine's own budget a session that has grown too large is tidied first. With a
        budget of your own nothing is changed, unless you say so; it is a view.

        Args:
            query: What memory is asked for; the newest user message, if left out, and if that says nothing
                by itself ("And when was that?"), with what was said before it.
            budget: In place of the engine's.
            recall: Whether what is known and what was said elsewhere comes along.
            tidy: Whether a session that has grown too large for the budget is compressed for good.
            only: Ids of the messages that are shown if there is room; the others of the session are not,
                such as those of a branch of the conversation that was given up.

        Raises:
            BudgetExceededError: Not even the newest message fits.
        """
        if query is not None and not isinstance(query, str):
            raise InvalidInputError(
                f"a query must be a str, got a {type(query).__name__}: use build_context(budget=...) for a budget"
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
    ) -> Context:
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
        """What a context would hold of the session, to look at. Nothing is changed.

        Unlike ``build_context`` it reads only as many of the newest messages as the budget could hold, so that it
        is quick however long the session is.

        Args:
            query: What memory is asked for; the newest user message, if left out.
            budget: In place of ``tuned_budget()``.
            recall: Whether what is known and what was said elsewhere comes along.

        Raises:
            BudgetExceededError: Not even the newest message fits.
        """
        given = self.tuned_budget() if budget is None else check_budget(budget)
        return build_preview(self._services, self, query, given, recall=recall)

    def tuned_budget(self) -> TokenBudget:
        """The engine's budget with what the optimizer has learned of the namespace: that of ``build_context()``."""
        return _tune_budget(self._services.config.budget, self._load_parameters())

    def has_summary_of(self, ids: AbstractSet[str]) -> bool:
        """Whether the summary in force, if there is one, stands for these messages, most of them at least.

        Of two branches of one conversation, each has messages that the other has not. A few do not count: an
        answer that was asked for again leaves one behind.
        """
        view = self._get_view()
        first = view.items[0] if view.items else None
        if first is None or not first.message.is_summary:
            return True
        digest = None if first.override is None else first.override.digest
        behind = view.hidden_count if digest is None else int(digest["count"])
        return len(ids - {item.message.id for item in view.items}) >= behind * _MIN_SUMMARY_OVERLAP

    def _tidy_view(self, memory: EngineServices) -> tuple[StoredView, TokenBudget, tuple[str, ...]]:
        view = self._get_view()
        problems: tuple[str, ...] = ()
        parameters = memory.load_parameters(self.namespace)
        if is_under_pressure(memory, view, parameters):
            done = self._plan_and_apply(lambda seen: plan_tidying(memory, seen, parameters), view)
            memory.tuning.add_savings(self.namespace, done.savings, memory.now())
            view, problems = self._get_view(), tuple(done.problems)
        return view, _tune_budget(memory.config.budget, parameters), problems

    def entries(self) -> tuple[Entry, ...]:
        """What of the session is in view, as entries with their tier, state and scores."""
        items = self._get_view().items
        return DisplayableTuple(
            build_message_entry(self._services, self.namespace, self.name, item) for item in items
        )

    def analyze(self) -> Plan:
        """What the analyzer suggests: compress, drop, promote. Nothing is changed yet."""
        return plan_analysis(self._services, self._get_view(), self._load_parameters())

    def apply(self, plan: Plan) -> PlanReport:
        """Carry a plan out, in one transaction.

        Raises:
            PlanOutdatedError: Somebody compressed the session since the plan was made.
        """
        if not self._is_own_plan(plan):
            raise InvalidInputError(f"this is no plan of {self!r}: apply what its own analyze() gave")
        if not self._write_plan(plan):
            raise PlanOutdatedError(
                f"{self!r} was changed after the plan was made: analyze() again; nothing was changed"
            )
        return PlanReport.of(plan)

    def _is_own_plan(self, plan: object) -> bool:
        if not isinstance(plan, Plan) or plan.view.session != self.key:
            return False
        marked = next((item for item in plan.view.items if item.key in plan.overrides), None)
        if marked is None:
            return True
        found = self._services.entries.get(self.key, marked.message.id)  # keys of two databases may be alike
        return found is not None and found.key == marked.key

    def tidy(self) -> PlanReport:
        """Analyse the session and, if it takes more than it should, bring it back to its target."""
        return self.tidy_with(self._load_parameters())

    def tidy_with(self, parameters: TuningParameters) -> PlanReport:
        """The same with parameters of your own."""
        if not isinstance(parameters, TuningParameters):
            raise InvalidInputError(f"a {type(parameters).__name__} is no TuningParameters: build one")
        return self._plan_and_apply(lambda view: plan_tidying(self._services, view, parameters))

    def promote(self, entry: Entry | Message | str) -> None:
        """Move an entry into the long-term tier by hand; its words stay in the session's summaries."""
        item = self._require_item(entry)
        if item.message.is_summary:
            return
        sketch = PlanDraft([item])
        now = self._services.now()
        score = self._services.analyzer.score(item, now)
        self._services.analyzer.promote(sketch, 0, "by hand", score, now)
        promoted = sketch.items[0].override
        marks = None if promoted is None else replace(promoted, is_pinned=True)
        self._write_overrides({**self._build_unarchive_overrides(item, now), item.key: marks})

    def expand(self, entry: Entry | Message | str) -> Message:
        """The message behind an entry, as it was said, whatever has happened to the entry."""
        return self._require_item(entry).message

    def restore(self, entry: Entry | Message | str) -> Message:
        """Show an entry in full again, as a short-term one: undoes compress, drop and promote.

        Analysis leaves it alone from then on. A tool call comes back with its results. A message
        that stands behind a summary stays there; read it with ``expand()``.
        """
        item, now = self._require_item(entry), self._services.now()
        if item.message.is_summary:
            return item.message  # it stands for others; there is nothing to undo about itself
        kept = EntryOverride(is_pinned=True, reason="restored by hand", changed_at=now)
        self._write_overrides({**self._build_unarchive_overrides(item, now), item.key: kept})
        return item.message

    def _build_unarchive_overrides(self, item: ViewItem, now: datetime) -> dict[int, EntryOverride | None]:
        # What belongs to an archived call or result comes back with it.
        items = self._get_view().items
        groups = group_tool_calls([one.message for one in items])
        mine = next(
            (
                items[start:end]
                for start, end in groups
                if any(one.key == item.key for one in items[start:end])
            ),
            (),
        )
        return {
            one.key: replace(one.override, state=EntryState.FULL, changed_at=now)
            for one in mine
            if one.override is not None and one.state is EntryState.ARCHIVED
        }

    def _require_item(self, entry: Entry | Message | str) -> ViewItem:
        message_id = check_name(entry.id if isinstance(entry, Entry | Message) else entry, "message id")
        found = self._services.entries.get(self.key, message_id)
        if found is None:
            raise MessageNotFoundError(
                f"session {self.name!r} holds no entry {message_id!r}: use an id that entries() gave"
            )
        return found

    def delete(self) -> DeleteReport:
        """Erase the session and all its messages."""
        now = self._dependencies.sessions.get(self.namespace, self.name)
        if now is not None and now.key == self.key:  # not of one that others have made anew under its name
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
            # What goes behind a summary must not have been marked meanwhile either.
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
        for _ in range(_MAX_ATTEMPTS):
            plan = make(self._get_view() if view is None else view)
            if self._write_plan(plan):
                return PlanReport.of(plan)
            view = None  # somebody else compressed it in between: look again
        raise StorageBusyError(f"{self!r} is compressed by others all the time: try again later")

    def _write_overrides(self, marks: dict[int, EntryOverride | None]) -> None:
        for _ in range(_MAX_ATTEMPTS):
            hidden = self._services.entries.get_view(self.key, 1).hidden_count
            if self._services.entries.apply(self.key, marks, roll_up=None, was_hidden=hidden):
                return
        raise StorageBusyError(f"{self!r} is compressed by others all the time: try again later")


def _tune_budget(budget: TokenBudget, parameters: TuningParameters) -> TokenBudget:
    return replace(budget, full_message_window=parameters.full_message_window)


def _list_missing_facts(view: StoredView) -> tuple[str, ...]:
    mark = view.items[0].override if view.items else None
    return () if mark is None or mark.digest is None else tuple(mark.digest["missing"])
