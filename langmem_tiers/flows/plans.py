"""Plans: what is going to happen to the entries of a session, before it happens."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from langmem_tiers.core.sheets import Sheet
from langmem_tiers.core.showing import Told, table_of
from langmem_tiers.core.tuning import Savings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from langmem_tiers.core.entries import Mark, Shown
    from langmem_tiers.core.records import RollUp, View
    from langmem_tiers.scoring.facts import Fact
    from langmem_tiers.scoring.signals import Score


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
