"""Advice of the guard, and its escalation while a loop continues."""

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
"""Number of repeats from one level of advice to the next."""
_MAX_ACTIONS = 12
"""Maximum number of actions remembered per loop."""
_MAX_NAMED_ACTIONS = 5
"""Maximum number of actions named in a warning."""
_MAX_LIFTS = 3
# Levels of escalation, stored in LoopWatch.level.
_CALM, _WARNED, _URGED, _BLOCKED = range(4)


class AdviceLevel(StrEnum):
    """Level of an advice."""

    NOTE = "note"
    WARNING = "warning"
    BLOCK = "block"


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardAdvice(Displayable):
    """Advice to the agent."""

    level: AdviceLevel
    message: str
    loop: Loop | None = None
    must_answer: bool = False
    """True if the agent must give a reason before it repeats the action. False if no answer helps."""


@dataclass(slots=True)
class LoopWatch:
    """A watched loop and the level of advice given on it."""

    first: int
    """Number of the step at which the loop was detected."""
    level: int = _CALM
    since: int = 0
    """Number of steps of the loop since the last advice."""
    noted: bool = False
    """True if a note was given."""
    tool: str = ""
    """Tool of a loop of similar actions; empty for other loops."""
    began: int = -1
    """Number of the first step of the loop."""
    chain: str = ""
    """Tool of the loop. Together with ``began`` it identifies a chain of different actions that fail."""
    period: int = 1
    """Longest period of the loop so far."""
    actions: dict[str, list[str]] = field(default_factory=dict)
    """Display text and latest address of each action in the loop, by action key."""
    pages: list[str] = field(default_factory=list)
    """Digests of the latest observations in the loop."""
    reason: str = ""
    """Last accepted answer of the agent."""
    lifts: int = 0
    """Number of answers that lifted the block."""
    message: str = ""

    @property
    def is_blocked(self) -> bool:
        """True if the actions of the loop are blocked."""
        return self.level == _BLOCKED

    def covers_action(self, step_key: StepKey) -> bool:
        """Return True if the loop contains exactly this action on this page."""
        _, url = self.actions.get(step_key.action, ("", ""))
        return step_key.action in self.actions and (
            not step_key.url or not url or _strip_query(step_key.url) == _strip_query(url)
        )

    def matches_loop(self, step_key: StepKey, loop: Loop) -> bool:
        """Return True if the loop is the watched one."""
        is_same_chain = loop.period == 1 and (loop.first, loop.tool) == (self.began, self.chain)
        return (
            step_key.action in self.actions
            or is_same_chain
            or (loop.kind is LoopKind.NEAR and bool(self.tool) and step_key.tool == self.tool)
        )

    def lift_on_progress(self, step_key: StepKey, last_time: int) -> None:
        """Lift the block after a successful new action that led to another page or page content.

        An action is new if it is not part of the loop and was not performed since the loop was detected.
        """
        if (
            not self.is_blocked
            or step_key.failed
            or step_key.action in self.actions
            or last_time >= self.first
        ):
            return
        urls = {url for _, url in self.actions.values() if url}
        moved = bool(urls and step_key.url) and step_key.url not in urls
        if moved or (bool(self.pages and step_key.page) and step_key.page not in self.pages):
            self.level, self.since = _CALM, 0

    @property
    def can_be_lifted(self) -> bool:
        """True if an answer can lift the block: at most three answers can."""
        return self.is_blocked and self.lifts < _MAX_LIFTS

    def would_lift(self, reason: str) -> bool:
        """Return True if the reason lifts the block; repeating the previous reason does not."""
        return self.can_be_lifted and reason.casefold() != self.reason.casefold()

    def lift(self, reason: str) -> None:
        """Lift the block for a reason; two more repeats restore it."""
        self.level, self.since, self.reason, self.lifts = _URGED, 0, reason, self.lifts + 1

    def build_block_advice(self, shown: str, loop: Loop | None = None) -> GuardAdvice:
        """Build the advice for a block.

        Args:
            shown: Display text of the action.
            loop: The loop that an already performed action continued; the advice then blocks the next repeat. None
                if the action itself is blocked.
        """
        start = "Blocked" if loop is None else "Blocked from now on"
        previous = f' Your answer last time was: "{self.reason}".' if self.reason else ""
        alternative = ": no answer lifts this block any more"
        if self.can_be_lifted:
            alternative = ", or answer why it should be done once more"
        message = (
            f"{start}: {shown} is going in circles: {self.message}.{previous} Do something else{alternative}."
        )
        return GuardAdvice(
            level=AdviceLevel.BLOCK, message=message, loop=loop, must_answer=self.can_be_lifted
        )

    def to_state(self) -> dict[str, Any]:
        """Convert the watch to plain JSON values."""
        return asdict(self)

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> LoopWatch:
        """Restore a watch from ``to_state``."""
        watch = cls(**{attribute.name: state[attribute.name] for attribute in fields(cls)})
        watch.actions = {str(key): [str(shown), str(url)] for key, (shown, url) in watch.actions.items()}
        watch.pages = [str(page) for page in watch.pages]
        return watch


def advise_on_loop(
    watch: LoopWatch, step_key: StepKey, loop: Loop, around: Sequence[StepKey], *, is_sure: bool
) -> GuardAdvice | None:
    """Update the watch after another step of the loop and return new advice, or None.

    Args:
        watch: The watched loop. It is updated.
        step_key: The step.
        loop: The present state of the loop.
        around: The steps of the last round of the loop.
        is_sure: True if the score reaches the threshold for warnings. Otherwise at most one note is given.
    """
    _update_watch(watch, step_key, loop, around)
    if not is_sure:
        is_new, watch.noted = not watch.noted, True
        return (
            GuardAdvice(level=AdviceLevel.NOTE, message=f"Note: {loop.message}", loop=loop)
            if is_new
            else None
        )
    if watch.is_blocked:
        return watch.build_block_advice(step_key.shown, loop)
    watch.since += 1
    # In a loop of several actions, one repeat takes ``period`` steps.
    if watch.level != _CALM and watch.since < _REPEATS_BEFORE_ESCALATION * watch.period:
        return None
    watch.level, watch.since = watch.level + 1, 0
    if watch.level == _BLOCKED:
        return watch.build_block_advice(step_key.shown, loop)
    return GuardAdvice(level=AdviceLevel.WARNING, message=_format_warning(watch, loop), loop=loop)


def _update_watch(watch: LoopWatch, step_key: StepKey, loop: Loop, around: Sequence[StepKey]) -> None:
    # Remove and add again, so that the dict is ordered by the last occurrence and the oldest action is dropped first.
    for step in around if loop.period > 1 else [step_key]:
        watch.actions.pop(step.action, None)
        watch.actions[step.action] = [step.shown, step.url]
    while len(watch.actions) > _MAX_ACTIONS:
        del watch.actions[next(iter(watch.actions))]
    watch.tool = step_key.tool if loop.kind is LoopKind.NEAR else watch.tool
    watch.began, watch.chain = loop.first, loop.tool
    watch.period = max(watch.period, loop.period)
    watch.pages = (
        [*(page for page in watch.pages if page != step_key.page), step_key.page][-_MAX_ACTIONS:]
        if step_key.page
        else []
    )
    watch.message = loop.message


def _format_warning(watch: LoopWatch, loop: Loop) -> str:
    if watch.level == _WARNED:
        return f"Warning: {loop.message}. Make sure that it still brings you forward."
    tried = ", ".join([shown for shown, _ in watch.actions.values()][-_MAX_NAMED_ACTIONS:])
    return (
        f"Warning: {loop.message}, and it went on after a warning. Tried so far: {tried}. Take a different "
        "approach: another element or way to the same end, or tell the user what the obstacle is."
    )


def _strip_query(url: str) -> str:
    # The query may contain a timestamp or token that differs on every visit.
    return url.partition("?")[0].rstrip("/")
