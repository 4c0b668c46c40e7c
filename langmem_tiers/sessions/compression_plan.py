"""From the view of a session to a plan."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from langmem_tiers.common.entries import Tier
from langmem_tiers.common.messages import SUMMARY_PREFIX, MessageDraft, Role
from langmem_tiers.common.prompt_fences import strip_fences
from langmem_tiers.compression.digest import Digest
from langmem_tiers.compression.selection import truncate_with_ellipsis
from langmem_tiers.display.displayable import Displayable, build_table
from langmem_tiers.display.tables import DisplayContent
from langmem_tiers.sessions.compression_target import CompressionTarget, SessionLoad, compress_to_target
from langmem_tiers.sessions.models import RollUp, Savings
from langmem_tiers.sessions.service import complete_drafts
from langmem_tiers.sessions.session_view import SessionView, fit_window_to_budget
from langmem_tiers.text.facts import Fact
from langmem_tiers.text.token_counting import count_framed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from langmem_tiers.common.entries import EntryOverride, ViewItem
    from langmem_tiers.common.messages import Message
    from langmem_tiers.common.scorer import Score
    from langmem_tiers.services import EngineServices
    from langmem_tiers.sessions.models import StoredView
    from langmem_tiers.tuning.models import TuningParameters


class PlanActionKind(StrEnum):
    """What a plan does to an entry."""

    COMPRESS = "compress"
    """Shown in fewer words, with its facts."""
    DROP = "drop"
    """Archived: no longer shown, still in the record."""
    PROMOTE = "promote"
    """Into the long-term tier, with a relevance of 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanAction(Displayable):
    """One step of a plan."""

    kind: PlanActionKind
    message_id: str
    reason: str
    score: Score
    """The entry's relevance, with what it is made of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Displayable):
    """What is going to happen. Nothing has, until it is applied."""

    actions: tuple[PlanAction, ...]
    tokens_before: int
    """What the session takes in a prompt now."""
    tokens_after: int
    """What it will take."""
    view: StoredView
    """The session as it was when the plan was made."""
    overrides: Mapping[int, EntryOverride | None] = field(repr=False)
    roll_up: RollUp | None = None
    """A summary for the oldest messages, where compressing them one by one does not save enough."""
    missing: tuple[Fact, ...] = ()
    """Facts that the summary has no room for; the record keeps them."""
    problems: tuple[str, ...] = ()
    """Why the summary was made without the model, where there is one."""

    def count(self, kind: PlanActionKind) -> int:
        """How many actions of that kind there are."""
        return Counter(action.kind for action in self.actions)[kind]

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not self.overrides and self.roll_up is None

    def _to_display(self) -> DisplayContent:
        facts: dict[str, object] = {
            "tokens before": self.tokens_before,
            "tokens after": self.tokens_after,
            "facts without room": len(self.missing),
        }
        if self.problems:
            facts["problems"] = self.problems
        steps = (build_table(self.actions),) if self.actions else ()
        return DisplayContent(f"Plan: {len(self.actions):,} steps", facts, steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanReport(Displayable):
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
            compressed=plan.count(PlanActionKind.COMPRESS),
            dropped=plan.count(PlanActionKind.DROP),
            promoted=plan.count(PlanActionKind.PROMOTE),
            rolled_up=0 if plan.roll_up is None else plan.roll_up.hidden_count,
            tokens_before=plan.tokens_before,
            tokens_after=plan.tokens_after,
            missing=plan.missing,
            problems=plan.problems,
        )


@dataclass(slots=True)
class PlanDraft:
    """A plan in the making: the entries as they will stand."""

    items: list[ViewItem]
    actions: list[PlanAction] = field(default_factory=list)
    overrides: dict[int, EntryOverride | None] = field(default_factory=dict)

    def set_override(self, index: int, mark: EntryOverride, action: PlanAction) -> None:
        """Note what happens to the entry with that index."""
        item = self.items[index]
        self.items[index] = type(item)(item.key, item.message, mark)
        self.overrides[item.key] = mark
        self.actions.append(action)


_REMEMBERED_PRIORITY = 1000  # before all that was found by patterns
_SUMMARY_PREFIX_TOKENS = 16  # of the summary's mark and frame, with some to spare


def plan_analysis(parts: EngineServices, view: StoredView, parameters: TuningParameters) -> Plan:
    """What the analyzer suggests: compress, drop, promote."""
    sketch = parts.analyzer.draft_plan(view.items, parts.now(), parameters.min_relevance)
    return Planner(parts, view, parameters).plan(sketch)


def plan_tidying(parts: EngineServices, view: StoredView, parameters: TuningParameters) -> Plan:
    """What the analyzer suggests, and what brings the session back to its target."""
    planner, now = Planner(parts, view, parameters), parts.now()
    sketch = parts.analyzer.draft_plan(view.items, now, parameters.min_relevance)
    hidden = compress_to_target(sketch, parts.analyzer, planner.target, planner.window, now)
    return planner.plan(sketch, hidden)


def is_under_pressure(parts: EngineServices, view: StoredView, parameters: TuningParameters) -> bool:
    """Whether a session takes more than it should."""
    planner = Planner(parts, view, parameters)
    return SessionLoad(SessionView.from_view(view, planner.window), parts.counter).needs_compression(
        planner.target
    )


def collect_hidden(items: Sequence[ViewItem], hidden: int) -> tuple[list[Message], Digest]:
    """The messages that go behind a summary, and what the summary before it was made of.

    Args:
        items: The oldest of a view.
        hidden: How many stand behind the summary before it.
    """
    first, noted = items[0], _build_remembered_digest(items)
    if first.override is not None and first.override.digest is not None:
        earlier = Digest.from_dict(first.override.digest)
        return [item.message for item in items[1:]], Digest.merge([earlier, noted])
    # A summary that somebody wrote is a message like others; those behind it count all the same.
    behind = max(0, hidden - 1) if first.message.is_summary else 0
    return [item.message for item in items], Digest.merge([Digest(count=behind), noted])


def _build_remembered_digest(items: Sequence[ViewItem]) -> Digest:
    # What somebody promoted by hand, and how the system began, is told in every summary.
    facts = tuple(
        Fact("remember", truncate_with_ellipsis(said, characters), _REMEMBERED_PRIORITY)
        for item in items
        if (characters := _get_remembered_characters(item))
        and (said := " ".join(strip_fences(item.message.content).split()))
    )
    return Digest(facts=facts)


def _get_remembered_characters(item: ViewItem) -> int:
    if item.override is not None and item.override.is_pinned and item.tier is Tier.LONG_TERM:
        return 1000
    return 200 if item.message.role is Role.SYSTEM and not item.message.is_summary else 0


class Planner:
    """Makes plans for one view under one set of parameters."""

    def __init__(self, parts: EngineServices, view: StoredView, parameters: TuningParameters) -> None:
        self._services = parts
        self._view = view
        self._requested_window = parameters.full_message_window
        budget, counter = parts.config.budget, parts.counter
        self.window = fit_window_to_budget(view.items, self._requested_window, budget, counter)
        self.target = CompressionTarget.from_budget(budget, parameters, parts.config.summary.target_tokens)

    def plan(self, sketch: PlanDraft, hidden: int = 0) -> Plan:
        """The plan of a sketch, with a summary for its oldest entries where they are to be hidden."""
        counter = self._services.counter
        # Before: with the window that was asked for, so that one that is too large shows as usage.
        before = SessionView.from_view(self._view, self._requested_window).count_tokens(counter)
        left = SessionLoad(SessionView.from_items(sketch.items[hidden:], self.window), counter)
        plan = Plan(
            actions=tuple(sketch.actions),
            tokens_before=before,
            tokens_after=left.tokens,
            view=self._view,
            overrides=sketch.overrides,
        )
        if not hidden:
            return plan
        behind, earlier = collect_hidden(sketch.items[:hidden], self._view.hidden_count)
        rolled = self._services.summarizer.roll_up(
            behind,
            max(1, self.target.compute_summary_tokens_beside(left) - _SUMMARY_PREFIX_TOKENS),
            earlier=earlier,
        )
        draft = MessageDraft(Role.SYSTEM, f"{SUMMARY_PREFIX}\n{rolled.text}")
        (summary,) = complete_drafts(self._services.short_term, [draft])
        promoted = {item.key for item in sketch.items[:hidden] if item.tier is Tier.LONG_TERM}
        shown = {item.key for item in sketch.items[hidden:]} | promoted  # hidden ones need no other mark
        shown_ids = {item.message.id for item in sketch.items if item.key in shown}
        return replace(
            plan,
            tokens_after=left.tokens + count_framed(counter, summary),
            overrides={key: mark for key, mark in sketch.overrides.items() if key in shown},
            actions=tuple(action for action in sketch.actions if action.message_id in shown_ids),
            roll_up=RollUp(
                summary=summary,
                first_visible_id=sketch.items[hidden].message.id,
                hidden_count=hidden,
                digest=rolled.digest,
            ),
            missing=rolled.missing,
            problems=rolled.problems,
        )
