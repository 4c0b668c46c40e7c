"""Guard against loops: observes the actions of an agent and escalates from a warning to a block."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from langmem_tiers.common.checks import check_fraction
from langmem_tiers.display.displayable import Displayable
from langmem_tiers.errors import InvalidInputError
from langmem_tiers.tasks.loop_detection.detector import (
    DEFAULT_LOOP_THRESHOLD,
    Loop,
    LoopKind,
    LoopReport,
    LoopTracker,
    Step,
)
from langmem_tiers.tasks.loop_detection.step_keys import StepKey, build_step_key, compare_actions
from langmem_tiers.tasks.loop_detection.weights import StepKind
from langmem_tiers.tasks.models import AgentAction, compute_action_signature

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from langmem_tiers.tasks.models import Cycle


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
        previous = f' Your previous reason was: "{self.reason}".' if self.reason else ""
        alternative = ": this block cannot be lifted again"
        if self.can_be_lifted:
            alternative = ", or explain why it must be repeated"
        message = (
            f"{start}: {shown} is stuck in a loop: {self.message}.{previous} Do something else{alternative}."
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
        return f"Warning: {loop.message}. Check that it still makes progress."
    tried_actions = ", ".join([shown for shown, _ in watch.actions.values()][-_MAX_NAMED_ACTIONS:])
    return (
        f"Warning: {loop.message}, and it continued after a warning. Tried so far: {tried_actions}. Take a different "
        "approach: another element or another way to the goal, or tell the user what the obstacle is."
    )


def _strip_query(url: str) -> str:
    # The query may contain a timestamp or token that differs on every visit.
    return url.partition("?")[0].rstrip("/")


__all__ = ["AdviceLevel", "Guard", "GuardAdvice"]

_WARNING_WINDOW_ACTIONS = 10
"""Number of latest actions that ``warnings`` considers."""
_MAX_KEPT_STEPS = 200
"""Number of steps kept in the state. Earlier steps count only in frequencies and failures."""
_MAX_COUNTED_ACTIONS = 10_000
"""Maximum number of counted actions, and of failed signatures. The oldest are dropped first."""
_MAX_WATCHES = 64
_MIN_REASON_WORDS = 3
_NOTE_THRESHOLD = 0.4
"""Minimum score for a note."""
_STATE_VERSION = 1


class Guard:
    """Guard of a task. ``observe`` and ``check`` never raise, whatever the agent does or observes.

    Args:
        threshold: Minimum loop score, from 0 to 1, for a warning. Default: 0.5.
        exempt: Tools that the guard ignores, such as one that polls the status of a job.

    Example::

        guard = Guard()
        advice = guard.check(action, url)
        if advice is not None and advice.level is AdviceLevel.BLOCK:
            ...  # choose another action, or call guard.answer("The first attempt timed out.")
    """

    def __init__(self, *, threshold: float = DEFAULT_LOOP_THRESHOLD, exempt: Collection[str] = ()) -> None:
        self._threshold = check_fraction(threshold, "threshold")
        self._exempt = frozenset([exempt] if isinstance(exempt, str) else exempt)
        self.reset()

    def reset(self) -> None:
        """Clear all state for a new task."""
        self._step_count = 0
        self._counts: OrderedDict[str, list[int]] = OrderedDict()
        self._failures: OrderedDict[str, int] = OrderedDict()
        self.begin_turn()

    def begin_turn(self) -> None:
        """Begin a new user request: earlier steps no longer count as repeats, and blocks are lifted."""
        self._tracker = LoopTracker()
        self._step_keys: deque[StepKey] = deque(maxlen=_MAX_KEPT_STEPS)
        self._watches: list[LoopWatch] = []

    def observe(self, cycle: Cycle) -> GuardAdvice | None:
        """Record a finished cycle and return advice on it, or None."""
        try:
            if cycle.action.tool_name in self._exempt:
                return None
            observation = cycle.observation
            step = Step(
                tool=cycle.action.tool_name,
                parameters=cycle.action.parameters,
                url=cycle.url,
                observation="" if observation is None else observation.raw_output or observation.text,
                failed=cycle.outcome.is_failure,
            )
            return self._observe_step(build_step_key(step), cycle.action_signature)
        except Exception:  # noqa: BLE001 - a defect in loop detection must not stop the agent
            return None

    def check(self, action: AgentAction, url: str = "") -> GuardAdvice | None:
        """Return advice against an action before it is performed, or None.

        After a block, the agent must perform another action or give a reason with `answer`.

        Args:
            action: The planned action.
            url: Address of the current page. The same action on another page is not blocked.
        """
        try:
            step_key = build_step_key(Step(tool=action.tool_name, parameters=action.parameters, url=url))
            for watch in self._watches:
                if watch.is_blocked and (
                    watch.covers_action(step_key) or self._continues_loop(watch, step_key)
                ):
                    return watch.build_block_advice(step_key.shown)
            failed = self.failures(compute_action_signature(action, url))
        except Exception:  # noqa: BLE001 - as above
            return None
        if not failed:
            return None
        level = AdviceLevel.NOTE if failed == 1 else AdviceLevel.WARNING
        times = "once" if failed == 1 else f"{failed} times"
        return GuardAdvice(level=level, message=f"{step_key.shown} failed {times} before: try something else")

    def answer(self, reason: str) -> bool:
        """Lift the blocks for a reason of at least three words. A later block quotes the reason.

        A block can be lifted three times, each time for a different reason. After that, only another action helps.

        Returns:
            True if the reason was accepted. False without a block.
        """
        if not self.would_accept(reason):
            return False
        normalized_reason = " ".join(str(reason).split())
        for watch in self._watches:
            if watch.would_lift(normalized_reason):
                watch.lift(normalized_reason)
        return True

    def would_accept(self, reason: str) -> bool:
        """Return True if this reason would lift a block."""
        words = str(reason).split()
        is_long_enough = len(words) >= _MIN_REASON_WORDS
        return is_long_enough and any(watch.would_lift(" ".join(words)) for watch in self._watches)

    def warnings(self, threshold: int = 3) -> list[str]:
        """Return a warning per action repeated ``threshold`` times in the last ten, most frequent first."""
        recent = list(self._step_keys)[-_WARNING_WINDOW_ACTIONS:]
        shown = {step_key.action: step_key.shown for step_key in recent}
        return [
            f"Warning: {shown[action]} repeated {count} times in last {len(recent)} actions!"
            for action, count in Counter(step_key.action for step_key in recent).most_common()
            if count >= threshold
        ]

    def report(self) -> LoopReport:
        """Return a report of all loops up to now."""
        return self._tracker.report()

    def has_failed(self, signature: str) -> bool:
        """Return True if an action with this signature failed in this task."""
        return self.failures(signature) > 0

    def failures(self, signature: str) -> int:
        """Return how often an action with this signature failed."""
        return self._failures.get(signature, 0)

    def frequency(self, tool: str, parameters: Mapping[str, Any]) -> int:
        """Return how often the tool was called with these parameters, on any page."""
        try:
            return self._counts.get(build_step_key(Step(tool=tool, parameters=parameters)).action, [0])[0]
        except Exception:  # noqa: BLE001 - as above
            return 0

    def state(self) -> dict[str, Any]:
        """Return the state as plain JSON: counts, and the last 200 steps without their observations.

        Steps contain shortened calls as shown in warnings, including words of their parameters.
        """
        return {
            "version": _STATE_VERSION,
            "steps": self._step_count,
            "marks": [
                [list(part) if isinstance(part, tuple) else part for part in parts]
                for parts in self._step_keys
            ],
            "counts": {action: list(count) for action, count in self._counts.items()},
            "failures": dict(self._failures),
            "watches": [watch.to_state() for watch in self._watches],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the guard from ``state()``.

        Raises:
            InvalidInputError: The state is invalid. Nothing was changed.
        """
        # Parse everything before the first change, so that an invalid state leaves the guard unchanged.
        try:
            if state["version"] != _STATE_VERSION:
                raise ValueError(f"version {state['version']!r}")  # noqa: TRY301 - reported like other defects
            step_keys = [_parse_step_key(parts) for parts in state["marks"]]
            counts = OrderedDict(
                (str(key), [int(number) for number in numbers]) for key, numbers in state["counts"].items()
            )
            failures = OrderedDict((str(key), int(value)) for key, value in state["failures"].items())
            watches = [LoopWatch.from_state(watch) for watch in state["watches"]]
            steps = int(state["steps"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InvalidInputError(
                f"state is not a valid guard state ({error!r}): pass what state() returned"
            ) from error
        self.reset()
        self._step_keys.extend(step_keys)
        for step_key in step_keys:
            self._tracker.add_step_key(step_key)
        self._step_count, self._counts, self._failures, self._watches = steps, counts, failures, watches

    def _continues_loop(self, watch: LoopWatch, step_key: StepKey) -> bool:
        """Return True if the action continues a watched loop of similar actions, such as clicks in a list."""
        latest = next((key for key in reversed(self._step_keys) if key.action in watch.actions), None)
        # An oscillation, or a loop of one exact action, is blocked only for the actions in it.
        if watch.period > 1 or len(watch.actions) < 2 or latest is None:
            return False
        is_elsewhere = bool(step_key.url and latest.url) and step_key.url != latest.url
        return not is_elsewhere and compare_actions(step_key, latest) is not None

    def _observe_step(self, step_key: StepKey, signature: str) -> GuardAdvice | None:
        loop = self._tracker.add_step_key(step_key)
        self._step_keys.append(step_key)
        last_time = self._count_action(step_key)
        if step_key.failed:
            # pop() and insert move the signature to the end, so that _limit_size() drops the oldest one.
            self._failures[signature] = self._failures.pop(signature, 0) + 1
            _limit_size(self._failures)
        # Lift blocks before escalating: a step that made progress must not be blocked for its past.
        for watch in self._watches:
            watch.lift_on_progress(step_key, last_time)
        advice = None if loop is None else self._escalate(step_key, loop)
        self._step_count += 1
        return advice

    def _count_action(self, step_key: StepKey) -> int:
        """Count the action and return the number of the step that performed it before, or -1."""
        count, last_time = self._counts.pop(step_key.action, [0, -1])
        self._counts[step_key.action] = [count + 1, self._step_count]
        _limit_size(self._counts)
        return last_time

    def _escalate(self, step_key: StepKey, loop: Loop) -> GuardAdvice | None:
        watch = next((watch for watch in self._watches if watch.matches_loop(step_key, loop)), None)
        if watch is None:
            # Scrolling and waiting are often repeated for good reason; they get no note, only a warning.
            if loop.score < _NOTE_THRESHOLD or (
                step_key.kind is StepKind.EXPLORE and loop.score < self._threshold
            ):
                return None
            watch = LoopWatch(first=self._step_count)
            self._watches = [*self._watches, watch][-_MAX_WATCHES:]
        around = list(self._step_keys)[-max(loop.period, 1) :]
        return advise_on_loop(watch, step_key, loop, around, is_sure=loop.score >= self._threshold)


def _parse_step_key(parts: list[Any]) -> StepKey:
    fields: list[Any] = [tuple(part) if isinstance(part, list) else part for part in parts]
    step_key = StepKey(*fields)
    return step_key._replace(kind=StepKind(step_key.kind))


def _limit_size(counted: OrderedDict[str, Any]) -> None:
    if len(counted) > _MAX_COUNTED_ACTIONS:
        counted.popitem(last=False)
