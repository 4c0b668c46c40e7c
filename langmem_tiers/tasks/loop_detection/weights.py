"""Weights, thresholds and tool kinds of loop detection."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from langmem_tiers.text.word_lists import load_words

if TYPE_CHECKING:
    from collections.abc import Mapping


class StepKind(StrEnum):
    """Kind of an action. Some kinds are often repeated for good reason."""

    ACT = "act"
    """Click, fill or call; repeats are suspicious."""
    VISIT = "visit"
    """Navigation to an address."""
    BACK = "back"
    """Navigation back or forward, as after each item of a list."""
    EXPLORE = "explore"
    """Scrolling, waiting or switching tabs; often repeated while reading."""
    TALK = "talk"
    """Message to the user, or the end of the task."""


class ActionDifference(StrEnum):
    """Difference between an action and an earlier one of the same tool."""

    NONE = "none"
    DRIFT = "drift"
    """Same text, but another element."""
    LITTLE = "little"
    """Some words differ."""
    NUMBER = "number"
    """Only a counter or id differs."""


class PageComparison(StrEnum):
    """Comparison of two observations."""

    UNKNOWN = "unknown"
    SAME = "same"
    NEARLY = "nearly"
    """All but a few lines are equal."""
    CHANGED = "changed"


LOOP_EVIDENCE = 1.7
"""Evidence that gives a score of 0.5: a little less than two full repeats."""
DEFAULT_LOOP_THRESHOLD = 0.5
"""Minimum score at which a running agent is warned."""
RUN_LOOP_THRESHOLD = 0.38
"""Minimum score at which a finished run is called a loop.

It is lower than ``DEFAULT_LOOP_THRESHOLD``: a wrong report costs less than a wrong interruption, and most runs with
three equal actions are loops.
"""

REPEAT_WEIGHTS: Mapping[StepKind, float] = {
    StepKind.ACT: 1.0,
    StepKind.VISIT: 1.0,
    StepKind.BACK: 0.5,
    StepKind.EXPLORE: 0.33,
    StepKind.TALK: 0.5,
}
"""Evidence of one repeat, by kind of action."""
DIFFERENCE_FACTORS: Mapping[ActionDifference, float] = {
    ActionDifference.NONE: 1.0,
    ActionDifference.DRIFT: 0.8,
    ActionDifference.LITTLE: 0.5,
    ActionDifference.NUMBER: 0.3,
}
"""Factor for an action that differs from the earlier one."""

PAGE_FACTORS: Mapping[PageComparison, float] = {
    PageComparison.UNKNOWN: 1.0,
    PageComparison.SAME: 1.5,
    PageComparison.NEARLY: 1.0,
    PageComparison.CHANGED: 0.4,
}
"""Factor by the comparison of the observations."""
SAME_STATUS_FACTOR = 1.25
"""Factor for an equal observation that is too short for a page, or that follows an exploring action."""
NEW_ADDRESS_FACTOR = 0.5
"""Factor for an address where the action is new: element numbers have another meaning there."""
NEXT_ADDRESS_FACTOR = 0.2
"""Factor for immediate repeats that are each at a new address, such as "next page"."""
NEW_BETWEEN_FACTOR = 0.5
"""Factor if all steps since the previous repeat were new; proportionally closer to 1 if only some were."""
REPEATED_FAILURE_FACTOR = 1.5
"""Factor if the action failed before and fails again."""
CYCLE_ELSEWHERE_WEIGHT = 0.7
"""Evidence of a step in an oscillation over several addresses, if the step addresses another element."""
CYCLE_HERE_WEIGHT = 0.2
"""Evidence of such a step if the address never changes, as when filling the rows of a form."""
MAX_NUMBERS_ONLY_EVIDENCE = 0.5
"""Maximum evidence of steps that differ in counters and ids, unless the page is known to be unchanged."""

MAX_CHANGED_ONLY_EVIDENCE = 1.3
"""Maximum evidence of repeats with a new observation each time, such as processing a list of items.

It is below ``LOOP_EVIDENCE``, so a running agent is not interrupted, but high enough to call a finished run a loop.
"""

PROGRESS_FACTOR = 0.5
"""Factor for the earlier evidence after a step that observed something new."""
MIN_NEW_STEPS_SHARE = 0.5
"""Minimum share of new steps between two repeats for the repeat to count as part of progressing work."""

# Factors for the position of a loop in the run and for its share of all steps.
ENDED_IN_LOOP_FACTOR = 1.1
"""Factor if the run ends within the loop."""
MOVED_ON_FACTOR = 0.85
"""Factor if at least five steps, and at least a third of the run, follow the loop."""
ANSWERED_FACTOR = 0.9
"""Factor if the run ended with a message to the user."""
LARGE_SHARE_FACTOR = 1.15
"""Factor if the loop contains at least two fifths of all steps."""
SMALL_SHARE_FACTOR = 0.85
"""Factor if the loop contains less than an eighth of all steps."""
OTHER_REPEATS_FACTOR = 0.25
"""Share of the evidence of other repeated actions that is added to the score of a run."""

EXPLORING_TOOLS = frozenset(load_words(__name__, "tools", "exploring"))
TALKING_TOOLS = frozenset(load_words(__name__, "tools", "talking"))
GOING_BACK_TOOLS = frozenset("go_back go_forward back forward navigate_back navigate_forward".split())
VISITING_TOOLS = frozenset(load_words(__name__, "tools", "visiting"))
"""Tools that navigate to an address."""
KEY_PRESS_TOOLS = frozenset("press keyboard_press key_press press_key key send_keys".split())
READING_KEYS = frozenset("pagedown pageup arrowdown arrowup down up space end home".split())

ELEMENT_KEYS = frozenset(load_words(__name__, "tools", "element parameters"))
"""Parameters that address an element on the page."""
ELEMENT_FIRST_TOOLS = frozenset(load_words(__name__, "tools", "element first"))
"""Tools whose first positional argument is the element."""
