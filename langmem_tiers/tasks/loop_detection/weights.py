"""What counts for how much when runs are searched for loops: one table, and the kinds of actions."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class StepKind(StrEnum):
    """What sort of thing an action is: some are repeated for good reason."""

    ACT = "act"
    """Clicks, fills, calls: to do the same again is suspect."""
    VISIT = "visit"
    """Going to an address of one's own choice."""
    BACK = "back"
    """Going back, as one does from each item of a list."""
    EXPLORE = "explore"
    """Scrolling, waiting, changing tabs: done again and again while reading."""
    TALK = "talk"
    """A message to the user, or the end of the task."""


class ActionDifference(StrEnum):
    """How an action differs from an earlier one of the same tool."""

    NONE = "none"
    DRIFT = "drift"
    """The same text at an element with another number."""
    LITTLE = "little"
    """Some words differ."""
    NUMBER = "number"
    """Only a counter or an id differs."""


class PageComparison(StrEnum):
    """How what was observed compares to what was observed before."""

    UNKNOWN = "unknown"
    SAME = "same"
    NEARLY = "nearly"
    """All but a few lines of it are the same."""
    CHANGED = "changed"


LOOP_EVIDENCE = 1.7
"""The evidence at which a run is called a loop: a little less than two full repeats."""
DEFAULT_LOOP_THRESHOLD = 0.5
"""The score that this evidence has: from here on an agent under way is warned."""
RUN_LOOP_THRESHOLD = 0.38
"""The score from which on a run that is over is called a loop. Lower: who looks back need not be as sure as who
interrupts, and of runs with three equal actions most are loops."""

REPEAT_WEIGHTS: Mapping[StepKind, float] = {
    StepKind.ACT: 1.0,
    StepKind.VISIT: 1.0,
    StepKind.BACK: 0.5,
    StepKind.EXPLORE: 0.33,
    StepKind.TALK: 0.5,
}
"""What one repeat is worth."""
DIFFERENCE_FACTORS: Mapping[ActionDifference, float] = {
    ActionDifference.NONE: 1.0,
    ActionDifference.DRIFT: 0.8,
    ActionDifference.LITTLE: 0.5,
    ActionDifference.NUMBER: 0.3,
}
"""Times this for an action that differs."""

PAGE_FACTORS: Mapping[PageComparison, float] = {
    PageComparison.UNKNOWN: 1.0,
    PageComparison.SAME: 1.5,
    PageComparison.NEARLY: 1.0,
    PageComparison.CHANGED: 0.4,
}
"""Times this by what was observed."""
SAME_STATUS_FACTOR = 1.25
"""Times this when the same was observed, but is too short to be a page or comes of mere looking."""
NEW_ADDRESS_FACTOR = 0.5
"""Times this at an address where it was not done before: numbers of elements mean something else there."""
NEXT_ADDRESS_FACTOR = 0.2
"""Times this when each repeat follows at once and each is at a new address: paging."""
NEW_BETWEEN_FACTOR = 0.5
"""Times this when all that was done between was new; in proportion when some of it was."""
REPEATED_FAILURE_FACTOR = 1.5
"""Times this when it failed before and failed again."""
CYCLE_ELSEWHERE_WEIGHT = 0.7
"""A step of a cycle through several addresses, at an element with another number."""
CYCLE_HERE_WEIGHT = 0.2
"""The same where the address never changes: rows of a form look like that."""
MAX_NUMBERS_ONLY_EVIDENCE = 0.5
"""The most evidence that counters and ids can give while the page is not known to stand still."""

MAX_CHANGED_ONLY_EVIDENCE = 1.3
"""The most evidence of repeats after which something new was observed each time, such as the next of many items: who
looks back may call that a loop, but an agent under way is not interrupted for it."""

PROGRESS_FACTOR = 0.5
"""What is left of the evidence after a step of the loop that brought something new: early failures are made good."""
MIN_NEW_STEPS_SHARE = 0.5
"""The share of the steps between two repeats from which on the repeat belongs to work that goes on."""

ENDED_IN_LOOP_FACTOR = 1.1
MOVED_ON_FACTOR = 0.85
"""A third of the run, and five steps, came afterwards."""
ANSWERED_FACTOR = 0.9
"""The run ended with a message to the user."""
LARGE_SHARE_FACTOR = 1.15
"""From two fifths of the steps on."""
SMALL_SHARE_FACTOR = 0.85
"""Below an eighth of the steps."""
OTHER_REPEATS_FACTOR = 0.25
"""What the evidence of the other repeated actions adds."""

EXPLORING_TOOLS = frozenset(
    "scroll scroll_page scroll_down scroll_up scroll_to scroll_at noop wait sleep wait_for mouse_move "
    "hover tab_focus switch_tab page_focus move_mouse screenshot get_status check_status poll".split()
)
TALKING_TOOLS = frozenset(
    "send_msg_to_user report_infeasible respond message finish finished done stop answer complete "
    "terminate submit_answer final_answer".split()
)
GOING_BACK_TOOLS = frozenset("go_back go_forward back forward navigate_back navigate_forward".split())
VISITING_TOOLS = frozenset(
    "goto navigate navigate_to open_url visit goto_url new_tab open go_to go_to_url".split()
)
"""Tools that lead to an address."""
KEY_PRESS_TOOLS = frozenset("press keyboard_press key_press press_key key send_keys".split())
READING_KEYS = frozenset("pagedown pageup arrowdown arrowup down up space end home".split())

ELEMENT_KEYS = frozenset(
    "bid element element_id elementid selector index node ref target xpath id coordinate coordinates x y".split()
)
"""Parameters that say where on the page, not what."""
ELEMENT_FIRST_TOOLS = frozenset(
    "click dblclick double_click fill type select_option select hover press focus clear check uncheck "
    "drag_and_drop upload_file input input_text right_click tap".split()
)
"""Tools whose first argument by position is the element."""
