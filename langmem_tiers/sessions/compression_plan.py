"""From the view of a session to a plan."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from langmem_tiers.common.entries import Tier
from langmem_tiers.common.messages import SUMMARY_PREFIX, MessageDraft, Role
from langmem_tiers.common.prompt_fences import without_fences
from langmem_tiers.compression.digest import Digest
from langmem_tiers.compression.selection import cut
from langmem_tiers.display.displayable import Told, table_of
from langmem_tiers.display.tables import Sheet
from langmem_tiers.sessions.compression_target import Goal, Load, fit
from langmem_tiers.sessions.models import RollUp, Savings
from langmem_tiers.sessions.service import seal
from langmem_tiers.sessions.session_view import Standing, window_within
from langmem_tiers.text.facts import Fact
from langmem_tiers.text.token_counting import count_framed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from langmem_tiers.common.entries import Mark, Shown
    from langmem_tiers.common.messages import Message
    from langmem_tiers.common.scorer import Score
    from langmem_tiers.services import MemoryParts
    from langmem_tiers.sessions.models import View
    from langmem_tiers.tuning.models import TuningParameters


class ActionKind(StrEnum):
    """What a plan does to an entry."""

    COMPRESS = "compress"
    """Shown in fewer words, with its facts."""
    DROP = "drop"
    """Archived: no longer shown, still in the record."""
    PROMOTE = "promote"
    """Into the long-term tier, with a relevance of 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Action(Told):
    """One step of a plan."""

    kind: ActionKind
    message_id: str
    reason: str
    score: Score
    """The entry's relevance, with what it is made of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Told):
    """What is going to happen. Nothing has, until it is applied."""

    actions: tuple[Action, ...]
    tokens_before: int
    """What the session takes in a prompt now."""
    tokens_after: int
    """What it will take."""
    view: View
    """The session as it was when the plan was made."""
    marks: Mapping[int, Mark | None] = field(repr=False)
    roll_up: RollUp | None = None
    """A summary for the oldest messages, where compressing them one by one does not save enough."""
    missing: tuple[Fact, ...] = ()
    """Facts that the summary has no room for; the record keeps them."""
    problems: tuple[str, ...] = ()
    """Why the summary was made without the model, where there is one."""

    def count(self, kind: ActionKind) -> int:
        """How many actions of that kind there are."""
        return Counter(action.kind for action in self.actions)[kind]

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not self.marks and self.roll_up is None

    def _sheet(self) -> Sheet:
        facts: dict[str, object] = {
            "tokens before": self.tokens_before,
            "tokens after": self.tokens_after,
            "facts without room": len(self.missing),
        }
        if self.problems:
            facts["problems"] = self.problems
        steps = (table_of(self.actions),) if self.actions else ()
        return Sheet(f"Plan: {len(self.actions):,} steps", facts, steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanReport(Told):
    """What was done to a session, in one transaction."""

    compressed: int
    dropped: int
    promoted: int
    rolled_up: int
    """Messages that newly stand behind a summary."""
    tokens_before: int
    tokens_after: int
    missing: tuple[Fact, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def savings(self) -> Savings:
        """What it saved, and how."""
        return Savings(
            tokens=self.tokens_before - self.tokens_after,
            compressed=self.compressed,
            dropped=self.dropped,
            promoted=self.promoted,
        )

    @classmethod
    def of(cls, plan: Plan) -> PlanReport:
        """What applying the plan did."""
        return cls(
            compressed=plan.count(ActionKind.COMPRESS),
            dropped=plan.count(ActionKind.DROP),
            promoted=plan.count(ActionKind.PROMOTE),
            rolled_up=0 if plan.roll_up is None else plan.roll_up.hidden,
            tokens_before=plan.tokens_before,
            tokens_after=plan.tokens_after,
            missing=plan.missing,
            problems=plan.problems,
        )


@dataclass(slots=True)
class Sketch:
    """A plan in the making: the entries as they will stand."""

    items: list[Shown]
    actions: list[Action] = field(default_factory=list)
    marks: dict[int, Mark | None] = field(default_factory=dict)

    def mark(self, index: int, mark: Mark, action: Action) -> None:
        """Note what happens to the entry with that index."""
        item = self.items[index]
        self.items[index] = type(item)(item.key, item.message, mark)
        self.marks[item.key] = mark
        self.actions.append(action)


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
