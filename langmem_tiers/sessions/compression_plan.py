"""Plans: what to compress, drop, promote and summarize in the view of a session."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from langmem_tiers.common.entries import Tier
from langmem_tiers.common.messages import SUMMARY_PREFIX, MessageDraft, Role
from langmem_tiers.common.prompt_fences import strip_fences
from langmem_tiers.compression.digest import Digest
from langmem_tiers.display.displayable import Displayable, build_table
from langmem_tiers.display.tables import DisplayContent
from langmem_tiers.sessions.compression_target import CompressionTarget, SessionLoad, compress_to_target
from langmem_tiers.sessions.models import RollUp, Savings
from langmem_tiers.sessions.service import complete_drafts
from langmem_tiers.sessions.session_view import SessionView, fit_window_to_budget
from langmem_tiers.text.facts import Fact
from langmem_tiers.text.sentences import truncate_with_ellipsis
from langmem_tiers.text.token_counting import count_framed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from langmem_tiers.common.entries import EntryOverride, ViewItem
    from langmem_tiers.common.messages import Message
    from langmem_tiers.common.scorer import Score
    from langmem_tiers.compression.summarizer import Summarizer
    from langmem_tiers.config import EngineConfig
    from langmem_tiers.sessions.analysis import Analyzer
    from langmem_tiers.sessions.models import StoredView
    from langmem_tiers.sessions.service import SessionDependencies
    from langmem_tiers.tuning.models import TuningParameters


class PlanActionKind(StrEnum):
    """Kind of action on an entry."""

    COMPRESS = "compress"
    """Show a shorter text that keeps the facts."""
    DROP = "drop"
    """Archive: no longer visible, but still in the record."""
    PROMOTE = "promote"
    """Move to the long-term tier with a relevance of 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanAction(Displayable):
    """One action of a plan."""

    kind: PlanActionKind
    message_id: str
    reason: str
    score: Score
    """Relevance of the entry, with its breakdown by signal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Displayable):
    """Planned changes of a session. Nothing changes until the plan is applied."""

    actions: tuple[PlanAction, ...]
    tokens_before: int
    """Tokens of the session in a prompt before the plan."""
    tokens_after: int
    """Tokens of the session in a prompt after the plan."""
    view: StoredView
    """View of the session when the plan was made."""
    overrides: Mapping[int, EntryOverride | None] = field(repr=False)
    """New override of each changed message, by its key."""
    roll_up: RollUp | None = None
    """Summary of the oldest messages, if compressing single messages does not save enough."""
    missing: tuple[Fact, ...] = ()
    """Facts that do not fit into the summary; the record keeps them."""
    problems: tuple[str, ...] = ()
    """Reasons why the configured model did not write the summary."""

    def count(self, kind: PlanActionKind) -> int:
        """Return the number of actions of a kind."""
        return Counter(action.kind for action in self.actions)[kind]

    @property
    def is_empty(self) -> bool:
        """True if the plan changes nothing."""
        return not self.overrides and self.roll_up is None

    def _to_display(self) -> DisplayContent:
        facts: dict[str, object] = {
            "tokens before": self.tokens_before,
            "tokens after": self.tokens_after,
            "facts missing in the summary": len(self.missing),
        }
        if self.problems:
            facts["problems"] = self.problems
        steps = (build_table(self.actions),) if self.actions else ()
        noun = "step" if len(self.actions) == 1 else "steps"
        return DisplayContent(f"Plan: {len(self.actions):,} {noun}", facts, steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanReport(Displayable):
    """Changes applied to a session in one transaction, as numbers of messages."""

    compressed: int
    dropped: int
    promoted: int
    rolled_up: int
    """Messages that the new summary replaces."""
    tokens_before: int
    tokens_after: int
    missing: tuple[Fact, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def savings(self) -> Savings:
        """Saved tokens, with the number of actions by kind."""
        return Savings(
            tokens=self.tokens_before - self.tokens_after,
            compressed=self.compressed,
            dropped=self.dropped,
            promoted=self.promoted,
        )

    @classmethod
    def of(cls, plan: Plan) -> PlanReport:
        """Return the report of an applied plan."""
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
    """A plan under construction: the entries with their future state, and the actions so far."""

    items: list[ViewItem]
    actions: list[PlanAction] = field(default_factory=list)
    overrides: dict[int, EntryOverride | None] = field(default_factory=dict)

    def set_override(self, index: int, mark: EntryOverride, action: PlanAction) -> None:
        """Set the new override of the entry at an index, and record the action."""
        item = self.items[index]
        self.items[index] = type(item)(item.key, item.message, mark)
        self.overrides[item.key] = mark
        self.actions.append(action)


# Higher than the priority of any fact found by patterns.
_REMEMBERED_PRIORITY = 1000
# Reserve for the summary's prefix line and message frame, rounded up.
_SUMMARY_PREFIX_TOKENS = 16


def collect_hidden(items: Sequence[ViewItem], hidden: int) -> tuple[list[Message], Digest]:
    """Return the messages for a new summary, and the digest of the summary before it.

    Args:
        items: The oldest items of a view, which the new summary replaces.
        hidden: Number of messages covered by the summary before it.
    """
    first, remembered = items[0], _build_remembered_digest(items)
    if first.override is not None and first.override.digest is not None:
        earlier = Digest.from_dict(first.override.digest)
        return [item.message for item in items[1:]], Digest.merge([earlier, remembered])
    # A summary passed to session.compress() has no digest, so its text is summarized like any message. The messages
    # that it covers are counted too, less one, because the summary itself is counted as a message.
    covered = max(0, hidden - 1) if first.message.is_summary else 0
    return [item.message for item in items], Digest.merge([Digest(count=covered), remembered])


def _build_remembered_digest(items: Sequence[ViewItem]) -> Digest:
    # Manually promoted messages and system messages are included in every summary.
    facts = tuple(
        Fact("remember", truncate_with_ellipsis(text, characters), _REMEMBERED_PRIORITY)
        for item in items
        if (characters := _get_remembered_characters(item))
        and (text := " ".join(strip_fences(item.message.content).split()))
    )
    return Digest(facts=facts)


def _get_remembered_characters(item: ViewItem) -> int:
    # Maximum length of the text that summaries keep of an item; 0 for none.
    if item.override is not None and item.override.is_pinned and item.tier is Tier.LONG_TERM:
        return 1000
    return 200 if item.message.role is Role.SYSTEM and not item.message.is_summary else 0


class Planner:
    """Builds plans for one view with one set of parameters."""

    def __init__(
        self,
        view: StoredView,
        parameters: TuningParameters,
        *,
        dependencies: SessionDependencies,
        analyzer: Analyzer,
        summarizer: Summarizer,
        config: EngineConfig,
    ) -> None:
        self._view = view
        self._parameters = parameters
        self._dependencies = dependencies
        self._analyzer = analyzer
        self._summarizer = summarizer
        budget, counter = config.budget, dependencies.counter
        self.window = fit_window_to_budget(view.items, parameters.full_message_window, budget, counter)
        self.target = CompressionTarget.from_budget(budget, parameters, config.summary.target_tokens)

    def is_under_pressure(self) -> bool:
        """Return True if the session is too large for its budget and should be compressed."""
        load = SessionLoad(SessionView.from_view(self._view, self.window), self._dependencies.counter)
        return load.needs_compression(self.target)

    def plan_analysis(self) -> Plan:
        """Plan the actions that the analyzer suggests: compress, drop, promote."""
        now = self._dependencies.now()
        return self._build_plan(
            self._analyzer.draft_plan(self._view.items, now, self._parameters.min_relevance), 0
        )

    def plan_tidying(self) -> Plan:
        """Plan the analyzer's suggestions and everything needed to reach the target size."""
        return self._build_plan(*self.draft_tidying(self._dependencies.now()))

    def draft_tidying(self, now: datetime) -> tuple[PlanDraft, int]:
        """Return the draft that reaches the target size, and how many of its oldest entries a summary replaces."""
        plan_draft = self._analyzer.draft_plan(self._view.items, now, self._parameters.min_relevance)
        return plan_draft, compress_to_target(plan_draft, self._analyzer, self.target, self.window, now)

    def _build_plan(self, plan_draft: PlanDraft, hidden: int) -> Plan:
        # The ``hidden`` oldest entries are replaced by a summary.
        counter = self._dependencies.counter
        # Tokens before the plan are counted with the requested window, not with the one trimmed to the budget: so a
        # window that is too large shows in the usage.
        before = SessionView.from_view(self._view, self._parameters.full_message_window).count_tokens(counter)
        left = SessionLoad(SessionView.from_items(plan_draft.items[hidden:], self.window), counter)
        plan = Plan(
            actions=tuple(plan_draft.actions),
            tokens_before=before,
            tokens_after=left.tokens,
            view=self._view,
            overrides=plan_draft.overrides,
        )
        if not hidden:
            return plan
        to_summarize, earlier = collect_hidden(plan_draft.items[:hidden], self._view.hidden_count)
        rolled = self._summarizer.roll_up(
            to_summarize,
            max(1, self.target.compute_summary_tokens_beside(left) - _SUMMARY_PREFIX_TOKENS),
            earlier=earlier,
        )
        draft = MessageDraft(Role.SYSTEM, f"{SUMMARY_PREFIX}\n{rolled.text}")
        (summary,) = complete_drafts(self._dependencies, [draft])
        # Hidden entries need no override, except promoted ones, which stay in the long-term tier.
        promoted = {item.key for item in plan_draft.items[:hidden] if item.tier is Tier.LONG_TERM}
        kept = {item.key for item in plan_draft.items[hidden:]} | promoted
        kept_ids = {item.message.id for item in plan_draft.items if item.key in kept}
        return replace(
            plan,
            tokens_after=left.tokens + count_framed(counter, summary),
            overrides={key: override for key, override in plan_draft.overrides.items() if key in kept},
            actions=tuple(action for action in plan_draft.actions if action.message_id in kept_ids),
            roll_up=RollUp(
                summary=summary,
                first_visible_id=plan_draft.items[hidden].message.id,
                hidden_count=hidden,
                digest=rolled.digest,
            ),
            missing=rolled.missing,
            problems=rolled.problems,
        )
