"""Watches an agent at a task and speaks up when it goes in circles: a warning, a stronger one, a block."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from typing import TYPE_CHECKING, Any

from langmem_tiers.common.checks import check_fraction
from langmem_tiers.errors import InvalidInputError
from langmem_tiers.tasks.guard_advice import AdviceLevel, GuardAdvice, Watch, advice_on
from langmem_tiers.tasks.loop_detection.detector import DEFAULT_THRESHOLD, Loop, LoopReport, LoopTracker, Step
from langmem_tiers.tasks.loop_detection.step_keys import Mark, difference, mark_of
from langmem_tiers.tasks.loop_detection.weights import ActionKind
from langmem_tiers.tasks.models import Action, action_signature

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from langmem_tiers.tasks.models import MemoryEntry

__all__ = ["AdviceLevel", "Guard", "GuardAdvice"]

_WINDOW = 10
"""Actions that the warnings in the form of the design look at."""
_KEPT = 200
"""Steps that are kept in the state; what came before counts only in frequencies and failures."""
_COUNTED = 10_000
"""Actions, and failed signatures, that are counted: the latest ones."""
_WATCHES = 64
_WORDS_OF_A_REASON = 3
_NOTED = 0.4
"""The score from which on a repeat is worth a note."""
_VERSION = 1


class Guard:
    """The guard of one task. Nothing that an agent does or sees makes it raise.

    Args:
        threshold: The score from 0 to 1 from which on a loop is warned of.
        exempt: Tools that may be called as often as one likes, such as one that asks whether a job is done.
    """

    def __init__(self, *, threshold: float = DEFAULT_THRESHOLD, exempt: Collection[str] = ()) -> None:
        self._threshold = check_fraction(threshold, "threshold")
        self._exempt = frozenset([exempt] if isinstance(exempt, str) else exempt)
        self.reset()

    def reset(self) -> None:
        """Forgets everything: a new task."""
        self._steps = 0
        self._counts: OrderedDict[str, list[int]] = OrderedDict()
        self._failures: OrderedDict[str, int] = OrderedDict()
        self.begin_turn()

    def begin_turn(self) -> None:
        """The user asks for something: doing again what was done before is no loop, and no block holds any more."""
        self._tracker = LoopTracker()
        self._marks: deque[Mark] = deque(maxlen=_KEPT)
        self._watches: list[Watch] = []

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
            return self._observe(mark_of(step), entry.action_signature)
        except Exception:  # noqa: BLE001 - whatever is wrong with a cycle, the agent's loop goes on
            return None

    def check(self, action: Action, url: str = "") -> GuardAdvice | None:
        """What there is to say against an action before it is taken; `None` for nothing.

        A block must be answered with `answer`, unless the agent does something else.

        Args:
            action: What the agent is about to do.
            url: Where; the same action somewhere else is not blocked.
        """
        try:
            mark = mark_of(Step(tool=action.tool_name, parameters=action.parameters, url=url))
            for watch in self._watches:
                if watch.is_blocked and (watch.holds(mark) or self._goes_on(watch, mark)):
                    return watch.block(mark.shown)
            failed = self.failures(action_signature(action, url))
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
        is_one = len(words) >= _WORDS_OF_A_REASON
        return is_one and any(watch.would_lift(" ".join(words)) for watch in self._watches)

    def warnings(self, threshold: int = 3) -> list[str]:
        """A line for each action that came so often in the last ten, the most frequent first."""
        recent = list(self._marks)[-_WINDOW:]
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
            return self._counts.get(mark_of(Step(tool=tool, parameters=parameters)).action, [0])[0]
        except Exception:  # noqa: BLE001 - as above
            return 0

    def state(self) -> dict[str, Any]:
        """All that a restart needs, as plain JSON: the last 200 steps without what was observed, and the counts.

        Calls are in it as they are shown in warnings, with the words of their parameters.
        """
        return {
            "version": _VERSION,
            "steps": self._steps,
            "marks": [
                [list(part) if isinstance(part, tuple) else part for part in one] for one in self._marks
            ],
            "counts": {action: list(count) for action, count in self._counts.items()},
            "failures": dict(self._failures),
            "watches": [watch.state() for watch in self._watches],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes over from a guard whose `state` this is.

        Raises:
            InvalidInputError: If it is no state of a guard; nothing is changed then.
        """
        try:
            if state["version"] != _VERSION:
                raise ValueError(f"version {state['version']!r}")  # noqa: TRY301 - told as all else that is wrong
            marks = [_mark(one) for one in state["marks"]]
            counts = OrderedDict(
                (str(key), [int(one) for one in value]) for key, value in state["counts"].items()
            )
            failures = OrderedDict((str(key), int(value)) for key, value in state["failures"].items())
            watches = [Watch.from_state(one) for one in state["watches"]]
            steps = int(state["steps"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InvalidInputError(
                f"this is no state of a guard ({error!r}): pass what state() gave"
            ) from error
        self.reset()
        self._marks.extend(marks)
        for mark in marks:
            self._tracker.add_mark(mark)
        self._steps, self._counts, self._failures, self._watches = steps, counts, failures, watches

    def _goes_on(self, watch: Watch, mark: Mark) -> bool:
        """Whether a loop of actions that are only alike would go on with this one."""
        latest = next((one for one in reversed(self._marks) if one.action in watch.actions), None)
        if watch.period > 1 or len(watch.actions) < 2 or latest is None:
            return False
        is_elsewhere = bool(mark.url and latest.url) and mark.url != latest.url
        return not is_elsewhere and difference(mark, latest) is not None

    def _observe(self, mark: Mark, signature: str) -> GuardAdvice | None:
        loop = self._tracker.add_mark(mark)
        self._marks.append(mark)
        last_time = self._count(mark)
        if mark.failed:
            self._failures[signature] = self._failures.pop(signature, 0) + 1
            _shrink(self._failures)
        for watch in self._watches:
            watch.notice(mark, last_time)
        advice = None if loop is None else self._escalate(mark, loop)
        self._steps += 1
        return advice

    def _count(self, mark: Mark) -> int:
        """Counts the action and gives the number of the step at which it was done before, or -1."""
        count, last_time = self._counts.pop(mark.action, [0, -1])
        self._counts[mark.action] = [count + 1, self._steps]
        _shrink(self._counts)
        return last_time

    def _escalate(self, mark: Mark, loop: Loop) -> GuardAdvice | None:
        watch = next((one for one in self._watches if one.is_of(mark, loop)), None)
        if watch is None:
            if loop.score < _NOTED or (mark.kind is ActionKind.EXPLORE and loop.score < self._threshold):
                return None
            watch = Watch(first=self._steps)
            self._watches = [*self._watches, watch][-_WATCHES:]
        around = list(self._marks)[-max(loop.period, 1) :]
        return advice_on(watch, mark, loop, around, is_sure=loop.score >= self._threshold)


def _mark(parts: list[Any]) -> Mark:
    whole: list[Any] = [tuple(part) if isinstance(part, list) else part for part in parts]
    mark = Mark(*whole)
    return mark._replace(kind=ActionKind(mark.kind))


def _shrink(counted: OrderedDict[str, Any]) -> None:
    if len(counted) > _COUNTED:
        counted.popitem(last=False)
