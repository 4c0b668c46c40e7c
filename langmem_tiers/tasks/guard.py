"""Watches an agent at a task and speaks up when it goes in circles: a warning, a stronger one, a block."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from typing import TYPE_CHECKING, Any

from langmem_tiers.common.checks import check_fraction
from langmem_tiers.errors import InvalidInputError
from langmem_tiers.tasks.guard_advice import AdviceLevel, GuardAdvice, LoopWatch, advise_on_loop
from langmem_tiers.tasks.loop_detection.detector import (
    DEFAULT_LOOP_THRESHOLD,
    Loop,
    LoopReport,
    LoopTracker,
    Step,
)
from langmem_tiers.tasks.loop_detection.step_keys import StepKey, build_step_key, compare_actions
from langmem_tiers.tasks.loop_detection.weights import StepKind
from langmem_tiers.tasks.models import AgentAction, compute_action_signature

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from langmem_tiers.tasks.models import MemoryEntry

__all__ = ["AdviceLevel", "Guard", "GuardAdvice"]

_WARNING_WINDOW_ACTIONS = 10
"""Actions that the warnings in the form of the design look at."""
_MAX_KEPT_STEPS = 200
"""Steps that are kept in the state; what came before counts only in frequencies and failures."""
_MAX_COUNTED_ACTIONS = 10_000
"""Actions, and failed signatures, that are counted: the latest ones."""
_MAX_WATCHES = 64
_MIN_REASON_WORDS = 3
_NOTE_THRESHOLD = 0.4
"""The score from which on a repeat is worth a note."""
_STATE_VERSION = 1


class Guard:
    """The guard of one task. Nothing that an agent does or sees makes it raise.

    Args:
        threshold: The score from 0 to 1 from which on a loop is warned of.
        exempt: Tools that may be called as often as one likes, such as one that asks whether a job is done.
    """

    def __init__(self, *, threshold: float = DEFAULT_LOOP_THRESHOLD, exempt: Collection[str] = ()) -> None:
        self._threshold = check_fraction(threshold, "threshold")
        self._exempt = frozenset([exempt] if isinstance(exempt, str) else exempt)
        self.reset()

    def reset(self) -> None:
        """Forgets everything: a new task."""
        self._step_count = 0
        self._counts: OrderedDict[str, list[int]] = OrderedDict()
        self._failures: OrderedDict[str, int] = OrderedDict()
        self.begin_turn()

    def begin_turn(self) -> None:
        """The user asks for something: doing again what was done before is no loop, and no block holds any more."""
        self._tracker = LoopTracker()
        self._step_keys: deque[StepKey] = deque(maxlen=_MAX_KEPT_STEPS)
        self._watches: list[LoopWatch] = []

    def observe(self, entry: MemoryEntry) -> GuardAdvice | None:
        """Takes in a cycle that is over, and says what there is to say about it."""
        try:
            if entry.action.tool_name in self._exempt:
                return None
            seen = entry.observation
            step = Step(
                tool=entry.action.tool_name,
                parameters=entry.action.parameters,
                url=entry.url,
                observation="" if seen is None else seen.raw_output or seen.text,
                failed=entry.outcome.is_failure,
            )
            return self._observe_step(build_step_key(step), entry.action_signature)
        except Exception:  # noqa: BLE001 - whatever is wrong with a cycle, the agent's loop goes on
            return None

    def check(self, action: AgentAction, url: str = "") -> GuardAdvice | None:
        """What there is to say against an action before it is taken; `None` for nothing.

        A block must be answered with `answer`, unless the agent does something else.

        Args:
            action: What the agent is about to do.
            url: Where; the same action somewhere else is not blocked.
        """
        try:
            mark = build_step_key(Step(tool=action.tool_name, parameters=action.parameters, url=url))
            for watch in self._watches:
                if watch.is_blocked and (watch.covers_action(mark) or self._continues_loop(watch, mark)):
                    return watch.build_block_advice(mark.shown)
            failed = self.failures(compute_action_signature(action, url))
        except Exception:  # noqa: BLE001 - as above
            return None
        if not failed:
            return None
        level = AdviceLevel.NOTE if failed == 1 else AdviceLevel.WARNING
        times = "once" if failed == 1 else f"{failed} times"
        return GuardAdvice(level=level, message=f"{mark.shown} failed {times} before: try something else")

    def answer(self, reason: str) -> bool:
        """Lifts the blocks for a reason of at least three words; it is quoted should a block come again.

        A block can be lifted three times, each time for another reason: then only doing something else helps.

        Returns:
            Whether the reason was accepted. Without any block there is nothing to answer, and it is not.
        """
        if not self.would_accept(reason):
            return False
        said = " ".join(str(reason).split())
        for watch in self._watches:
            if watch.would_lift(said):
                watch.lift(said)
        return True

    def would_accept(self, reason: str) -> bool:
        """Whether something is blocked that this reason lifts."""
        words = str(reason).split()
        is_one = len(words) >= _MIN_REASON_WORDS
        return is_one and any(watch.would_lift(" ".join(words)) for watch in self._watches)

    def warnings(self, threshold: int = 3) -> list[str]:
        """A line for each action that came so often in the last ten, the most frequent first."""
        recent = list(self._step_keys)[-_WARNING_WINDOW_ACTIONS:]
        shown = {mark.action: mark.shown for mark in recent}
        return [
            f"Warning: {shown[action]} repeated {count} times in last {len(recent)} actions!"
            for action, count in Counter(mark.action for mark in recent).most_common()
            if count >= threshold
        ]

    def report(self) -> LoopReport:
        """What the task holds in loops up to here, as one looks back at it."""
        return self._tracker.report()

    def has_failed(self, signature: str) -> bool:
        """Whether an action with this signature failed in this task."""
        return self.failures(signature) > 0

    def failures(self, signature: str) -> int:
        """How often it failed."""
        return self._failures.get(signature, 0)

    def frequency(self, tool: str, parameters: Mapping[str, Any]) -> int:
        """How often the tool was called with these parameters, at any address."""
        try:
            return self._counts.get(build_step_key(Step(tool=tool, parameters=parameters)).action, [0])[0]
        except Exception:  # noqa: BLE001 - as above
            return 0

    def state(self) -> dict[str, Any]:
        """All that a restart needs, as plain JSON: the last 200 steps without what was observed, and the counts.

        Calls are in it as they are shown in warnings, with the words of their parameters.
        """
        return {
            "version": _STATE_VERSION,
            "steps": self._step_count,
            "marks": [
                [list(part) if isinstance(part, tuple) else part for part in one] for one in self._step_keys
            ],
            "counts": {action: list(count) for action, count in self._counts.items()},
            "failures": dict(self._failures),
            "watches": [watch.to_state() for watch in self._watches],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes over from a guard whose `state` this is.

        Raises:
            InvalidInputError: If it is no state of a guard; nothing is changed then.
        """
        try:
            if state["version"] != _STATE_VERSION:
                raise ValueError(f"version {state['version']!r}")  # noqa: TRY301 - told as all else that is wrong
            marks = [_parse_step_key(one) for one in state["marks"]]
            counts = OrderedDict(
                (str(key), [int(one) for one in value]) for key, value in state["counts"].items()
            )
            failures = OrderedDict((str(key), int(value)) for key, value in state["failures"].items())
            watches = [LoopWatch.from_state(one) for one in state["watches"]]
            steps = int(state["steps"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InvalidInputError(
                f"this is no state of a guard ({error!r}): pass what state() gave"
            ) from error
        self.reset()
        self._step_keys.extend(marks)
        for mark in marks:
            self._tracker.add_step_key(mark)
        self._step_count, self._counts, self._failures, self._watches = steps, counts, failures, watches

    def _continues_loop(self, watch: LoopWatch, mark: StepKey) -> bool:
        """Whether a loop of actions that are only alike would go on with this one."""
        latest = next((one for one in reversed(self._step_keys) if one.action in watch.actions), None)
        if watch.period > 1 or len(watch.actions) < 2 or latest is None:
            return False
        is_elsewhere = bool(mark.url and latest.url) and mark.url != latest.url
        return not is_elsewhere and compare_actions(mark, latest) is not None

    def _observe_step(self, mark: StepKey, signature: str) -> GuardAdvice | None:
        loop = self._tracker.add_step_key(mark)
        self._step_keys.append(mark)
        last_time = self._count_action(mark)
        if mark.failed:
            self._failures[signature] = self._failures.pop(signature, 0) + 1
            _limit_size(self._failures)
        for watch in self._watches:
            watch.lift_on_progress(mark, last_time)
        advice = None if loop is None else self._escalate(mark, loop)
        self._step_count += 1
        return advice

    def _count_action(self, mark: StepKey) -> int:
        """Counts the action and gives the number of the step at which it was done before, or -1."""
        count, last_time = self._counts.pop(mark.action, [0, -1])
        self._counts[mark.action] = [count + 1, self._step_count]
        _limit_size(self._counts)
        return last_time

    def _escalate(self, mark: StepKey, loop: Loop) -> GuardAdvice | None:
        watch = next((one for one in self._watches if one.matches_loop(mark, loop)), None)
        if watch is None:
            if loop.score < _NOTE_THRESHOLD or (
                mark.kind is StepKind.EXPLORE and loop.score < self._threshold
            ):
                return None
            watch = LoopWatch(first=self._step_count)
            self._watches = [*self._watches, watch][-_MAX_WATCHES:]
        around = list(self._step_keys)[-max(loop.period, 1) :]
        return advise_on_loop(watch, mark, loop, around, is_sure=loop.score >= self._threshold)


def _parse_step_key(parts: list[Any]) -> StepKey:
    whole: list[Any] = [tuple(part) if isinstance(part, list) else part for part in parts]
    mark = StepKey(*whole)
    return mark._replace(kind=StepKind(mark.kind))


def _limit_size(counted: OrderedDict[str, Any]) -> None:
    if len(counted) > _MAX_COUNTED_ACTIONS:
        counted.popitem(last=False)
