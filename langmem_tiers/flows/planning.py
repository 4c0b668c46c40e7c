"""From the view of a session to a plan."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from langmem_tiers.core.messages import SUMMARY_PREFIX, MessageDraft, Role
from langmem_tiers.core.ports import RollUp
from langmem_tiers.flows.fit import Goal, Load, fit
from langmem_tiers.flows.plans import Plan, Sketch
from langmem_tiers.flows.standing import Standing, window_within
from langmem_tiers.scoring.tokens import count_framed
from langmem_tiers.tiers.short_term import seal

if TYPE_CHECKING:
    from langmem_tiers.core.ports import View
    from langmem_tiers.core.tuning import TuningParameters
    from langmem_tiers.flows.parts import MemoryParts

_PREFIX_TOKENS = 16  # of the summary's mark and frame, with some to spare


def plan_analysis(parts: MemoryParts, view: View, parameters: TuningParameters) -> Plan:
    """What the analyzer suggests: compress, drop, promote."""
    sketch = parts.analyzer.sketch(view.items, parts.now(), parameters.min_relevance)
    return Planner(parts, view, parameters).plan(sketch)


def plan_tidying(parts: MemoryParts, view: View, parameters: TuningParameters) -> Plan:
    """What the analyzer suggests, and what brings the session back to its target."""
    planner, now = Planner(parts, view, parameters), parts.now()
    sketch = parts.analyzer.sketch(view.items, now, parameters.min_relevance)
    hidden = fit(sketch, parts.analyzer, planner.goal, planner.window, now)
    return planner.plan(sketch, hidden)


def is_under_pressure(parts: MemoryParts, view: View, parameters: TuningParameters) -> bool:
    """Whether a session takes more than it should."""
    planner = Planner(parts, view, parameters)
    return Load(Standing.of(view.items, planner.window), parts.counter).is_pressed(planner.goal)


class Planner:
    """Makes plans for one view under one set of parameters."""

    def __init__(self, parts: MemoryParts, view: View, parameters: TuningParameters) -> None:
        self._parts = parts
        self._view = view
        self._asked_window = parameters.full_message_window
        budget, counter = parts.config.budget, parts.counter
        self.window = window_within(view.items, self._asked_window, budget, counter)
        self.goal = Goal.of(budget, parameters, parts.config.summary.target_tokens)

    def plan(self, sketch: Sketch, hidden: int = 0) -> Plan:
        """The plan of a sketch, with a summary for its oldest entries where they are to be hidden."""
        counter = self._parts.counter
        # Before: with the window that was asked for, so that one that is too large shows as usage.
        before = Standing.of(self._view.items, self._asked_window).tokens(counter)
        left = Load(Standing.of(sketch.items[hidden:], self.window), counter)
        plan = Plan(
            actions=tuple(sketch.actions),
            tokens_before=before,
            tokens_after=left.tokens,
            view=self._view,
            marks=sketch.marks,
        )
        if not hidden:
            return plan
        rolled = self._parts.summarizer.roll_up(
            [item.message for item in sketch.items[:hidden]],
            max(1, self.goal.summary_for(left.window) - _PREFIX_TOKENS),
        )
        draft = MessageDraft(Role.SYSTEM, f"{SUMMARY_PREFIX}\n{rolled.text}", payload=rolled.payload)
        (summary,) = seal(self._parts.short_term, [draft])
        return replace(
            plan,
            tokens_after=left.tokens + count_framed(counter, summary),
            roll_up=RollUp(summary=summary, before=sketch.items[hidden].message.id, hidden=hidden),
            missing=rolled.missing,
            problems=rolled.problems,
        )
