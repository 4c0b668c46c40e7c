"""A session with all that can be done to it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from langmem_tiers.core.budget import TokenBudget
from langmem_tiers.core.config import MAX_LIMIT
from langmem_tiers.core.entries import Entry, Shown
from langmem_tiers.core.errors import (
    InvalidInputError,
    MessageNotFoundError,
    PlanOutdatedError,
    StorageBusyError,
)
from langmem_tiers.core.messages import Message, Role
from langmem_tiers.core.names import check_name
from langmem_tiers.flows.analyze import subject_of
from langmem_tiers.flows.context import ContextBuilder
from langmem_tiers.flows.planning import is_under_pressure, plan_analysis, plan_tidying
from langmem_tiers.flows.plans import Plan, PlanReport, Sketch
from langmem_tiers.flows.recalled import recalled_message
from langmem_tiers.tiers.short_term import ShortTerm

if TYPE_CHECKING:
    from collections.abc import Callable

    from langmem_tiers.core.context import Context
    from langmem_tiers.core.ports import View
    from langmem_tiers.core.reports import SessionInfo
    from langmem_tiers.core.tuning import TuningParameters
    from langmem_tiers.flows.parts import MemoryParts

_TRIES = 20  # far more than two that tidy the same session need
KNOWLEDGE_SHARE = 0.1
"""What knowledge from other sessions may take of a context."""


class Session(ShortTerm):
    """One conversation inside a namespace. Get it from ``engine.session(namespace, name)``."""

    def __init__(self, parts: MemoryParts, info: SessionInfo) -> None:
        super().__init__(parts.short_term, info)
        self._memory = parts

    def context(self, budget: TokenBudget | None = None, *, recall: bool = True) -> Context:
        """What goes to the model: never more than the budget, tool calls with their results.

        Under the engine's own budget a session that has grown too large is tidied first. With a
        budget of your own nothing is changed; it is a view.

        Args:
            budget: In place of the engine's.
            recall: Whether knowledge from other sessions is looked up for the newest user message.

        Raises:
            BudgetExceededError: Not even the newest message fits.
        """
        memory = self._memory
        parameters = memory.parameters_of(self.namespace)
        view = self._view()
        if budget is None:
            if is_under_pressure(memory, view, parameters):
                done = self._carry_out(lambda seen: plan_tidying(memory, seen, parameters), view)
                memory.tuning.add_savings(self.namespace, done.savings, memory.now())
                view = self._view()
            budget = replace(memory.config.budget, full_message_window=parameters.full_message_window)
        elif not isinstance(budget, TokenBudget):
            raise InvalidInputError(
                f"a budget must be a TokenBudget, got {budget!r}: use TokenBudget.of(8000)"
            )
        question = next(
            (item.message for item in reversed(view.items) if item.message.role is Role.USER), None
        )
        if not recall or question is None:
            return ContextBuilder(view.items, budget, memory.analyzer.compressor).build()
        return self._context_with_knowledge(view, budget, question)

    def _context_with_knowledge(self, view: View, budget: TokenBudget, question: Message) -> Context:
        known = self._memory.knowledge_of(self.namespace)
        hits = known.recall(question.content, use=False)
        message, hits = recalled_message(self._memory.short_term, hits, budget.share(KNOWLEDGE_SHARE))
        beside = [] if message is None else [message]
        context = ContextBuilder(view.items, budget, self._memory.analyzer.compressor, beside).build()
        # Once for each question, however often the context for it is built.
        known.use([hit.knowledge for hit in hits], since=question.created_at)
        return replace(context, knowledge=hits)

    def entries(self) -> tuple[Entry, ...]:
        """What of the session is in view, as entries with their tier, state and scores."""
        now, analyzer = self._memory.now(), self._memory.analyzer
        return tuple(
            Entry(
                id=item.message.id,
                namespace=self.namespace,
                session=self.name,
                tier=item.tier,
                state=item.state,
                kind="message",
                role=item.message.role,
                content=item.as_marked().content,
                created_at=item.message.created_at,
                relevance=analyzer.score(item, now).value,
                importance=analyzer.importance.score(subject_of(item.message, now)).value,
                token_count=item.as_marked().token_count,
                reason="" if item.mark is None else item.mark.reason,
            )
            for item in self._view().items
        )

    def analyze(self) -> Plan:
        """What the analyzer suggests: compress, drop, promote. Nothing is changed yet."""
        return plan_analysis(self._memory, self._view(), self._parameters())

    def apply(self, plan: Plan) -> PlanReport:
        """Carry a plan out, in one transaction.

        Raises:
            PlanOutdatedError: Somebody compressed the session since the plan was made.
        """
        if plan.view.session != self.key:
            raise InvalidInputError(f"the plan is not of {self!r}: apply what its own analyze() gave")
        if not self._written(plan):
            raise PlanOutdatedError(
                f"{self!r} was compressed after the plan was made: analyze() again; nothing was changed"
            )
        return PlanReport.of(plan)

    def tidy(self) -> PlanReport:
        """Analyse the session and, if it takes more than it should, bring it back to its target."""
        return self.tidy_with(self._parameters())

    def tidy_with(self, parameters: TuningParameters) -> PlanReport:
        """The same with parameters of your own."""
        return self._carry_out(lambda view: plan_tidying(self._memory, view, parameters))

    def promote(self, entry: Entry | str) -> None:
        """Move an entry into the long-term tier by hand."""
        item = self._find(entry)
        sketch = Sketch([item])
        now = self._memory.now()
        score = self._memory.analyzer.score(item, now)
        self._memory.analyzer.promote(sketch, 0, "by hand", score, now)
        self._carry_out_marks(sketch)

    def expand(self, entry: Entry | str) -> Message:
        """The message behind an entry, as it was said, whatever has happened to the entry."""
        return self._find(entry).message

    def restore(self, entry: Entry | str) -> Message:
        """Show an entry in full again, as a short-term one: undoes compress, drop and promote.

        A message that stands behind a summary stays there; read it with ``expand()``.
        """
        item = self._find(entry)
        sketch = Sketch([item])
        sketch.marks[item.key] = None
        self._carry_out_marks(sketch)
        return item.message

    def _find(self, entry: Entry | str) -> Shown:
        message_id = check_name(entry.id if isinstance(entry, Entry) else entry, "entry id")
        found = self._memory.entries.find(self.key, message_id)
        if found is None:
            raise MessageNotFoundError(
                f"session {self.name!r} holds no entry {message_id!r}: use an id that entries() gave"
            )
        return found

    def _view(self) -> View:
        return self._memory.entries.view(self.key, MAX_LIMIT)

    def _parameters(self) -> TuningParameters:
        return self._memory.parameters_of(self.namespace)

    def _written(self, plan: Plan) -> bool:
        return plan.is_empty or self._memory.entries.apply(
            self.key, plan.marks, roll_up=plan.roll_up, was_hidden=plan.view.hidden
        )

    def _carry_out(self, make: Callable[[View], Plan], view: View | None = None) -> PlanReport:
        for _ in range(_TRIES):
            plan = make(self._view() if view is None else view)
            if self._written(plan):
                return PlanReport.of(plan)
            view = None  # somebody else compressed it in between: look again
        raise StorageBusyError(f"{self!r} is compressed by others all the time: try again later")

    def _carry_out_marks(self, sketch: Sketch) -> None:
        for _ in range(_TRIES):
            hidden = self._memory.entries.view(self.key, 1).hidden
            if self._memory.entries.apply(self.key, sketch.marks, roll_up=None, was_hidden=hidden):
                return
        raise StorageBusyError(f"{self!r} is compressed by others all the time: try again later")
