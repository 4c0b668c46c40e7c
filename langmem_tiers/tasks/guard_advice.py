"""What a guard says, and how it gets firmer each time the same loop goes on."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from langmem_tiers.display.displayable import Displayable
from langmem_tiers.tasks.loop_detection.detector import Loop, LoopKind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from langmem_tiers.tasks.loop_detection.step_keys import StepKey

_REPEATS_BEFORE_ESCALATION = 2
"""Repeats after a warning until the next, firmer word."""
_MAX_ACTIONS = 12
"""Of a loop that are remembered."""
_MAX_NAMED_ACTIONS = 5
"""Of them that are named."""
_MAX_LIFTS = 3
_CALM, _WARNED, _URGED, _BLOCKED = range(4)


class AdviceLevel(StrEnum):
    """How firm it is."""

    NOTE = "note"
    WARNING = "warning"
    BLOCK = "block"


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardAdvice(Displayable):
    """A word to the agent."""

    level: AdviceLevel
    message: str
    loop: Loop | None = None
    must_answer: bool = False
    """Whether the action waits until the agent says why it should be done once more; a block that no answer lifts any
    more does not."""


@dataclass(slots=True)
class LoopWatch:
    """One loop under watch, and how far the guard has gone with it."""

    first: int
    """The step at which it was noticed."""
    level: int = _CALM
    since: int = 0
    """Steps of the loop since the last word on it."""
    noted: bool = False
    tool: str = ""
    """Of a loop of actions that are only alike, else empty."""
    began: int = -1
    """The first step of the loop."""
    chain: str = ""
    """Its tool: actions that are only alike and fail are one loop too."""
    period: int = 1
    """The longest that the loop had."""
    actions: dict[str, list[str]] = field(default_factory=dict)
    """Each action of the loop by its key: as a person reads it, and where it was done last."""
    pages: list[str] = field(default_factory=list)
    """What was observed with them last."""
    reason: str = ""
    """The agent's last answer."""
    lifts: int = 0
    """Answers that lifted the block."""
    message: str = ""

    @property
    def is_blocked(self) -> bool:
        """Whether its actions wait for an answer."""
        return self.level == _BLOCKED

    def covers_action(self, mark: StepKey) -> bool:
        """Whether it is about exactly this action at this place."""
        _, url = self.actions.get(mark.action, ("", ""))
        return mark.action in self.actions and (
            not mark.url or not url or _strip_query(mark.url) == _strip_query(url)
        )

    def matches_loop(self, mark: StepKey, loop: Loop) -> bool:
        """Whether the loop is the one under watch."""
        is_same_chain = loop.period == 1 and (loop.first, loop.tool) == (self.began, self.chain)
        return (
            mark.action in self.actions
            or is_same_chain
            or (loop.kind is LoopKind.NEAR and bool(self.tool) and mark.tool == self.tool)
        )

    def lift_on_progress(self, mark: StepKey, last_time: int) -> None:
        """Lifts the block when something else, not done since the loop began, succeeded and the page is another."""
        if not self.is_blocked or mark.failed or mark.action in self.actions or last_time >= self.first:
            return
        urls = {url for _, url in self.actions.values() if url}
        moved = bool(urls and mark.url) and mark.url not in urls
        if moved or (bool(self.pages and mark.page) and mark.page not in self.pages):
            self.level, self.since = _CALM, 0

    @property
    def can_be_lifted(self) -> bool:
        """Whether an answer helps: after three of them it does not any more."""
        return self.is_blocked and self.lifts < _MAX_LIFTS

    def would_lift(self, reason: str) -> bool:
        """Whether a reason lifts the block: the one that was given before does not."""
        return self.can_be_lifted and reason.casefold() != self.reason.casefold()

    def lift(self, reason: str) -> None:
        """Lifts the block for a reason: two more repeats bring it back."""
        self.level, self.since, self.reason, self.lifts = _URGED, 0, reason, self.lifts + 1

    def build_block_advice(self, shown: str, loop: Loop | None = None) -> GuardAdvice:
        """The word of a block.

        Args:
            shown: The action.
            loop: What it has just gone on with; the next such action is blocked then, not this one.
        """
        start = "Blocked" if loop is None else "Blocked from now on"
        before = f' Your answer last time was: "{self.reason}".' if self.reason else ""
        ways = ": no answer lifts this block any more"
        if self.can_be_lifted:
            ways = ", or answer why it should be done once more"
        message = f"{start}: {shown} is going in circles: {self.message}.{before} Do something else{ways}."
        return GuardAdvice(
            level=AdviceLevel.BLOCK, message=message, loop=loop, must_answer=self.can_be_lifted
        )

    def to_state(self) -> dict[str, Any]:
        """As plain JSON."""
        return asdict(self)

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> LoopWatch:
        """The watch of which this is the state."""
        watch = cls(**{one.name: state[one.name] for one in fields(cls)})
        watch.actions = {str(key): [str(shown), str(url)] for key, (shown, url) in watch.actions.items()}
        watch.pages = [str(page) for page in watch.pages]
        return watch


def advise_on_loop(
    watch: LoopWatch, mark: StepKey, loop: Loop, around: Sequence[StepKey], *, is_sure: bool
) -> GuardAdvice | None:
    """What is to be said now that the loop went on by a step, if anything.

    Args:
        watch: The loop under watch; it is brought up to date.
        mark: The step.
        loop: The loop as it is now.
        around: The steps of its last round.
        is_sure: Whether the loop is one beyond doubt.
    """
    _update_watch(watch, mark, loop, around)
    if not is_sure:
        is_new, watch.noted = not watch.noted, True
        return (
            GuardAdvice(level=AdviceLevel.NOTE, message=f"Note: {loop.message}", loop=loop)
            if is_new
            else None
        )
    if watch.is_blocked:
        return watch.build_block_advice(mark.shown, loop)
    watch.since += 1
    if watch.level != _CALM and watch.since < _REPEATS_BEFORE_ESCALATION * watch.period:
        return None
    watch.level, watch.since = watch.level + 1, 0
    if watch.level == _BLOCKED:
        return watch.build_block_advice(mark.shown, loop)
    return GuardAdvice(level=AdviceLevel.WARNING, message=_format_warning(watch, loop), loop=loop)


def _update_watch(watch: LoopWatch, mark: StepKey, loop: Loop, around: Sequence[StepKey]) -> None:
    for one in around if loop.period > 1 else [mark]:
        watch.actions.pop(one.action, None)
        watch.actions[one.action] = [one.shown, one.url]
    while len(watch.actions) > _MAX_ACTIONS:
        del watch.actions[next(iter(watch.actions))]
    watch.tool = mark.tool if loop.kind is LoopKind.NEAR else watch.tool
    watch.began, watch.chain = loop.first, loop.tool
    watch.period = max(watch.period, loop.period)
    watch.pages = (
        [*(page for page in watch.pages if page != mark.page), mark.page][-_MAX_ACTIONS:] if mark.page else []
    )
    watch.message = loop.message


def _format_warning(watch: LoopWatch, loop: Loop) -> str:
    if watch.level == _WARNED:
        return f"Warning: {loop.message}. Make sure that it still brings you forward."
    tried = ", ".join([shown for shown, _ in watch.actions.values()][-_MAX_NAMED_ACTIONS:])
    return (
        f"Warning: {loop.message}, and it went on after a warning. Tried so far: {tried}. Take a different "
        "approach: another element or way to the same end, or tell the user what stands in the way."
    )


def _strip_query(url: str) -> str:
    # What is asked of a page may hold a time or a token that differs each time.
    return url.partition("?")[0].rstrip("/")
