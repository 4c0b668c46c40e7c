"""A session with all that can be done to it."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from langmem_tiers.common.entries import Entry, EntryState, Mark, Shown
from langmem_tiers.common.messages import Message
from langmem_tiers.common.namespaces import check_name
from langmem_tiers.common.tool_call_groups import groups_of
from langmem_tiers.context.entry_lookup import entry_from
from langmem_tiers.context.preview import preview
from langmem_tiers.context.recall_context import check_budget
from langmem_tiers.context.session_context import SessionContext
from langmem_tiers.display.displayable import Listed
from langmem_tiers.errors import (
    InvalidInputError,
    MessageNotFoundError,
    PlanOutdatedError,
    StorageBusyError,
)
from langmem_tiers.facts.learner import Learner, LearnReport
from langmem_tiers.sessions.compression_plan import (
    Plan,
    PlanReport,
    Sketch,
    is_under_pressure,
    plan_analysis,
    plan_tidying,
)
from langmem_tiers.sessions.service import ShortTerm
from langmem_tiers.sessions.transcript import Transcript
from langmem_tiers.telemetry.instruments import TOKENS_SAVED, Verb
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
    from langmem_tiers.services import MemoryParts
    from langmem_tiers.sessions.models import DeleteReport, SessionInfo, View

_log = logging.getLogger("langmem_tiers")
_MOSTLY = 0.75
_TRIES = 20  # far more than two that tidy the same session need


class Session(ShortTerm):
    """One conversation inside a namespace. Get it from ``engine.session(namespace, name)``."""

    def __init__(self, parts: MemoryParts, info: SessionInfo) -> None:
        super().__init__(parts.short_term, info)
        self._memory = parts

    @property
    def transcript(self) -> Transcript:
        """Its messages as the list that a framework keeps of them."""
        return Transcript(self._parts, self)

    def learn(self, *, whole: bool = False) -> LearnReport:
        """Make of its messages what will be remembered: facts, long-term entries, episodes and chunks.

        Each message is read once, however often this is called, and by however many processes.

        Args:
            whole: Whether the newest messages become chunks too, because the session is over.
        """
        return Learner(self._memory, self).run(whole=whole)

    def chunks(self) -> tuple[Chunk, ...]:
        """Its older messages as chunks with summary and topics, oldest first; ``learn()`` makes them."""
        return Listed(self._memory.chunks_of(self).all())

    def messages_of(self, chunk: Chunk | Episode) -> tuple[Message, ...]:
        """The messages that a chunk or an episode of this session is made of, as they were said."""
        return Listed(self._memory.chunks_of(self).messages(chunk.first_turn, chunk.last_turn))

    def arc(self) -> NarrativeArc:
        """Its story: the episodes by thirds, and the key moments."""
        return self._memory.episodes_of(self.namespace).arc(self.name)

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
        with self._memory.instruments.watch(Verb.BUILD_CONTEXT) as watch:
            context = self._built(
                query, budget, only, recall=recall, tidy=budget is None if tidy is None else tidy
            )
            watch.note(
                messages=len(context.messages), tokens=context.token_count, recalled=len(context.recalled)
            )
            return context

    def _built(
        self,
        query: str | None,
        budget: TokenBudget | None,
        only: AbstractSet[str] | None,
        *,
        recall: bool,
        tidy: bool,
    ) -> Context:
        memory = self._memory if budget is None else self._memory.within(check_budget(budget))
        view, budget, problems = self._tidied(memory) if tidy else (self._view(), memory.config.budget, ())
        shown = view if only is None else view.only(only)
        builder = SessionContext(memory, self, shown, budget, query)
        context = builder.with_memories(counts=tidy) if recall else builder.alone()
        return replace(context, missing=_missing(view), problems=(*context.problems, *problems))

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
        return preview(self._memory, self, query, given, recall=recall)

    def tuned_budget(self) -> TokenBudget:
        """The engine's budget with what the optimizer has learned of the namespace: that of ``build_context()``."""
        return _tuned(self._memory.config.budget, self._parameters())

    def sums_up(self, ids: AbstractSet[str]) -> bool:
        """Whether the summary in force, if there is one, stands for these messages, most of them at least.

        Of two branches of one conversation, each has messages that the other has not. A few do not count: an
        answer that was asked for again leaves one behind.
        """
        view = self._view()
        first = view.items[0] if view.items else None
        if first is None or not first.message.is_summary:
            return True
        digest = None if first.mark is None else first.mark.digest
        behind = view.hidden if digest is None else int(digest["count"])
        return len(ids - {item.message.id for item in view.items}) >= behind * _MOSTLY

    def _tidied(self, memory: MemoryParts) -> tuple[View, TokenBudget, tuple[str, ...]]:
        view = self._view()
        problems: tuple[str, ...] = ()
        parameters = memory.parameters_of(self.namespace)
        if is_under_pressure(memory, view, parameters):
            done = self._carry_out(lambda seen: plan_tidying(memory, seen, parameters), view)
            memory.tuning.add_savings(self.namespace, done.savings, memory.now())
            view, problems = self._view(), tuple(done.problems)
        return view, _tuned(memory.config.budget, parameters), problems

    def entries(self) -> tuple[Entry, ...]:
        """What of the session is in view, as entries with their tier, state and scores."""
        items = self._view().items
        return Listed(entry_from(self._memory, self.namespace, self.name, item) for item in items)

    def analyze(self) -> Plan:
        """What the analyzer suggests: compress, drop, promote. Nothing is changed yet."""
        return plan_analysis(self._memory, self._view(), self._parameters())

    def apply(self, plan: Plan) -> PlanReport:
        """Carry a plan out, in one transaction.

        Raises:
            PlanOutdatedError: Somebody compressed the session since the plan was made.
        """
        if not self._is_ours(plan):
            raise InvalidInputError(f"this is no plan of {self!r}: apply what its own analyze() gave")
        if not self._written(plan):
            raise PlanOutdatedError(
                f"{self!r} was changed after the plan was made: analyze() again; nothing was changed"
            )
        return PlanReport.of(plan)

    def _is_ours(self, plan: object) -> bool:
        if not isinstance(plan, Plan) or plan.view.session != self.key:
            return False
        marked = next((item for item in plan.view.items if item.key in plan.marks), None)
        if marked is None:
            return True
        found = self._memory.entries.find(self.key, marked.message.id)  # keys of two databases may be alike
        return found is not None and found.key == marked.key

    def tidy(self) -> PlanReport:
        """Analyse the session and, if it takes more than it should, bring it back to its target."""
        return self.tidy_with(self._parameters())

    def tidy_with(self, parameters: TuningParameters) -> PlanReport:
        """The same with parameters of your own."""
        if not isinstance(parameters, TuningParameters):
            raise InvalidInputError(f"a {type(parameters).__name__} is no TuningParameters: build one")
        return self._carry_out(lambda view: plan_tidying(self._memory, view, parameters))

    def promote(self, entry: Entry | Message | str) -> None:
        """Move an entry into the long-term tier by hand; its words stay in the session's summaries."""
        item = self._find(entry)
        if item.message.is_summary:
            return
        sketch = Sketch([item])
        now = self._memory.now()
        score = self._memory.analyzer.score(item, now)
        self._memory.analyzer.promote(sketch, 0, "by hand", score, now)
        promoted = sketch.items[0].mark
        marks = None if promoted is None else replace(promoted, is_kept=True)
        self._mark({**self._shown_again(item, now), item.key: marks})

    def expand(self, entry: Entry | Message | str) -> Message:
        """The message behind an entry, as it was said, whatever has happened to the entry."""
        return self._find(entry).message

    def restore(self, entry: Entry | Message | str) -> Message:
        """Show an entry in full again, as a short-term one: undoes compress, drop and promote.

        Analysis leaves it alone from then on. A tool call comes back with its results. A message
        that stands behind a summary stays there; read it with ``expand()``.
        """
        item, now = self._find(entry), self._memory.now()
        if item.message.is_summary:
            return item.message  # it stands for others; there is nothing to undo about itself
        kept = Mark(is_kept=True, reason="restored by hand", changed_at=now)
        self._mark({**self._shown_again(item, now), item.key: kept})
        return item.message

    def _shown_again(self, item: Shown, now: datetime) -> dict[int, Mark | None]:
        # What belongs to an archived call or result comes back with it.
        items = self._view().items
        groups = groups_of([one.message for one in items])
        mine = next(
            (
                items[start:end]
                for start, end in groups
                if any(one.key == item.key for one in items[start:end])
            ),
            (),
        )
        return {
            one.key: replace(one.mark, state=EntryState.FULL, changed_at=now)
            for one in mine
            if one.mark is not None and one.state is EntryState.ARCHIVED
        }

    def _find(self, entry: Entry | Message | str) -> Shown:
        message_id = check_name(entry.id if isinstance(entry, Entry | Message) else entry, "message id")
        found = self._memory.entries.find(self.key, message_id)
        if found is None:
            raise MessageNotFoundError(
                f"session {self.name!r} holds no entry {message_id!r}: use an id that entries() gave"
            )
        return found

    def delete(self) -> DeleteReport:
        """Erase the session and all its messages."""
        now = self._parts.sessions.find(self.namespace, self.name)
        if now is not None and now.key == self.key:  # not of one that others have made anew under its name
            self._memory.working.forget(self.namespace, self.name)
        self._memory.views.drop(self.key)
        return super().delete()

    def _view(self) -> View:
        return self._memory.views.read(self.key)

    def _parameters(self) -> TuningParameters:
        return self._memory.parameters_of(self.namespace)

    def _written(self, plan: Plan) -> bool:
        is_written = plan.is_empty or self._apply(plan)
        if is_written:
            self._memory.instruments.count(TOKENS_SAVED, plan.tokens_before - plan.tokens_after)
        return is_written

    def _apply(self, plan: Plan) -> bool:
        return self._memory.entries.apply(
            self.key,
            plan.marks,
            roll_up=plan.roll_up,
            was_hidden=plan.view.hidden,
            # What goes behind a summary must not have been marked meanwhile either.
            seen={
                item.key: item.mark
                for index, item in enumerate(plan.view.items)
                if item.key in plan.marks or (plan.roll_up is not None and index < plan.roll_up.hidden)
            },
        )

    def _carry_out(self, make: Callable[[View], Plan], view: View | None = None) -> PlanReport:
        for _ in range(_TRIES):
            plan = make(self._view() if view is None else view)
            if self._written(plan):
                return PlanReport.of(plan)
            view = None  # somebody else compressed it in between: look again
        raise StorageBusyError(f"{self!r} is compressed by others all the time: try again later")

    def _mark(self, marks: dict[int, Mark | None]) -> None:
        for _ in range(_TRIES):
            hidden = self._memory.entries.view(self.key, 1).hidden
            if self._memory.entries.apply(self.key, marks, roll_up=None, was_hidden=hidden):
                return
        raise StorageBusyError(f"{self!r} is compressed by others all the time: try again later")


def _tuned(budget: TokenBudget, parameters: TuningParameters) -> TokenBudget:
    return replace(budget, full_message_window=parameters.full_message_window)


def _missing(view: View) -> tuple[str, ...]:
    mark = view.items[0].mark if view.items else None
    return () if mark is None or mark.digest is None else tuple(mark.digest["missing"])
