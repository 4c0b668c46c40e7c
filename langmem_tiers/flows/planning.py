"""From the view of a session to a plan."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from langmem_tiers.compression.digest import Digest
from langmem_tiers.compression.fitting import cut
from langmem_tiers.core.entries import Tier
from langmem_tiers.core.fences import without_fences
from langmem_tiers.core.messages import SUMMARY_PREFIX, MessageDraft, Role
from langmem_tiers.core.records import RollUp
from langmem_tiers.flows.fit import Goal, Load, fit
from langmem_tiers.flows.plans import Plan, Sketch
from langmem_tiers.flows.standing import Standing, window_within
from langmem_tiers.scoring.facts import Fact
from langmem_tiers.scoring.tokens import count_framed
from langmem_tiers.tiers.short_term import seal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langmem_tiers.core.entries import Shown
    from langmem_tiers.core.messages import Message
    from langmem_tiers.core.records import View
    from langmem_tiers.core.tuning import TuningParameters
    from langmem_tiers.flows.parts import MemoryParts

_REMEMBERED_PRIORITY = 1000  # before all that was found by patterns
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
    return Load(Standing.of(view, planner.window), parts.counter).is_pressed(planner.goal)


def hidden_of(items: Sequence[Shown], hidden: int) -> tuple[list[Message], Digest]:
    """The messages that go behind a summary, and what the summary before it was made of.

    Args:
        items: The oldest of a view.
        hidden: How many stand behind the summary before it.
    """
    first, noted = items[0], _remembered(items)
    if first.mark is not None and first.mark.digest is not None:
        earlier = Digest.from_carried(first.mark.digest)
        return [item.message for item in items[1:]], Digest.sum([earlier, noted])
    # A summary that somebody wrote is a message like others; those behind it count all the same.
    behind = max(0, hidden - 1) if first.message.is_summary else 0
    return [item.message for item in items], Digest.sum([Digest(count=behind), noted])


def _remembered(items: Sequence[Shown]) -> Digest:
    # What somebody promoted by hand, and how the system began, is told in every summary.
    facts = tuple(
        Fact("remember", cut(said, characters), _REMEMBERED_PRIORITY)
        for item in items
        if (characters := _remembered_characters(item))
        and (said := " ".join(without_fences(item.message.content).split()))
    )
    return Digest(facts=facts)


def _remembered_characters(item: Shown) -> int:
    if item.mark is not None and item.mark.is_kept and item.tier is Tier.LONG_TERM:
        return 1000
    return 200 if item.message.role is Role.SYSTEM and not item.message.is_summary else 0


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
        before = Standing.of(self._view, self._asked_window).tokens(counter)
        left = Load(Standing.of_items(sketch.items[hidden:], self.window), counter)
        plan = Plan(
            actions=tuple(sketch.actions),
            tokens_before=before,
            tokens_after=left.tokens,
            view=self._view,
            marks=sketch.marks,
        )
        if not hidden:
            return plan
        behind, earlier = hidden_of(sketch.items[:hidden], self._view.hidden)
        rolled = self._parts.summarizer.roll_up(
            behind, max(1, self.goal.summary_beside(left) - _PREFIX_TOKENS), earlier=earlier
        )
        draft = MessageDraft(Role.SYSTEM, f"{SUMMARY_PREFIX}\n{rolled.text}")
        (summary,) = seal(self._parts.short_term, [draft])
        promoted = {item.key for item in sketch.items[:hidden] if item.tier is Tier.LONG_TERM}
        shown = {item.key for item in sketch.items[hidden:]} | promoted  # hidden ones need no other mark
        shown_ids = {item.message.id for item in sketch.items if item.key in shown}
        return replace(
            plan,
            tokens_after=left.tokens + count_framed(counter, summary),
            marks={key: mark for key, mark in sketch.marks.items() if key in shown},
            actions=tuple(action for action in sketch.actions if action.message_id in shown_ids),
            roll_up=RollUp(
                summary=summary,
                before=sketch.items[hidden].message.id,
                hidden=hidden,
                digest=rolled.digest,
            ),
            missing=rolled.missing,
            problems=rolled.problems,
        )
