"""Stretches of a task that worked: what patterns are learned from."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

from langmem_tiers.tasks.action_templates import Slot, Step, sealed, shape_of, step_of
from langmem_tiers.tasks.models import ExecutionOutcome
from langmem_tiers.text.urls import domain_of

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from langmem_tiers.tasks.models import MemoryEntry

SHORTEST, LONGEST = 2, 8
"""Steps of a pattern."""


class Mark(Enum):
    """What became of a step."""

    FREE = "free"
    USED = "used"
    """It is part of a use of a pattern that was known."""
    LEARNED = "learned"
    """It is part of what a new pattern is learned from."""


class Stretch:
    """Successful actions at one site without a break, and without their secrets.

    Args:
        site: Where; empty if at none.
        steps: In their order.
        failed: What was tried next there, and failed.
        is_fresh: Whether it was never learned from.
    """

    def __init__(
        self, site: str, steps: Sequence[Step], failed: Step | None = None, *, is_fresh: bool = True
    ) -> None:
        self.site = site
        self.steps = list(steps)
        self.failed = failed
        self.is_fresh = is_fresh
        self.shapes: list[int] = []
        self.marks = [Mark.FREE] * len(self.steps)

    @property
    def is_free(self) -> list[bool]:
        """For each step, whether it is part of no pattern."""
        return [mark is Mark.FREE for mark in self.marks]

    def are_free(self, start: int, length: int) -> bool:
        """Whether some steps are part of no pattern."""
        return all(mark is Mark.FREE for mark in self.marks[start : start + length])

    def mark(self, start: int, length: int, mark: Mark) -> None:
        """Say what became of some steps."""
        self.marks[start : start + length] = [mark] * length

    def rest(self, without: Container[str] = ()) -> list[Stretch]:
        """What nothing was learned from, in pieces from which something may be learned one day.

        Args:
            without: Ids of cycles that are no longer part of it.
        """
        pieces: list[list[int]] = [[]]
        for at, step in enumerate(self.steps):
            if self.marks[at] is Mark.LEARNED or step.cycle in without:
                pieces.append([])
            else:
                pieces[-1].append(at)
        return [
            Stretch(self.site, [self.steps[at] for at in piece], is_fresh=False)
            for piece in pieces
            if len(piece) >= SHORTEST
            and any(self.marks[at] is Mark.FREE for at in piece)
            and not all(self.steps[at].is_passive for at in piece)
        ]


def stretches_of(run: Iterable[MemoryEntry]) -> list[Stretch]:
    """The stretches of a task's cycles, in their order."""
    found: list[Stretch] = []
    site, steps = "", list[Step]()
    for entry in run:
        before, site = site, _site(entry) or site
        worked = entry.outcome is ExecutionOutcome.SUCCESS
        if not worked or site != before:
            is_failure = entry.outcome.is_failure and site == before
            found += _sealed(before, steps, step_of(entry) if is_failure else None)
            steps = []
        if worked:
            steps.append(step_of(entry))
    return [*found, *_sealed(site, steps)]


def _sealed(site: str, steps: Sequence[Step], failed: Step | None = None) -> list[Stretch]:
    pieces: list[list[Step]] = [[]]
    for step in sealed(steps, LONGEST - 1):
        if step is None:
            pieces.append([])
        else:
            pieces[-1].append(step)
    stretches = [Stretch(site, piece) for piece in pieces]
    stretches[-1].failed = failed
    return [one for one in stretches if one.steps]


def _site(entry: MemoryEntry) -> str:
    # Who goes to an address is there afterwards, wherever the cycle began.
    aim = entry.action.parameters.get("url")
    return (domain_of(aim) if isinstance(aim, str) else "") or domain_of(entry.url)


def stretch_to_dict(stretch: Stretch) -> dict[str, Any]:
    """A stretch as plain JSON."""
    return {"site": stretch.site, "tried": list(map(_step_to_dict, stretch.steps))}


def stretch_from_dict(data: Mapping[str, Any]) -> Stretch:
    """The stretch that ``stretch_to_dict`` wrote; ``LookupError``, ``TypeError`` or ``ValueError`` if it is none."""
    return Stretch(str(data["site"]), list(map(_step_from_dict, data["tried"])), is_fresh=False)


def _step_to_dict(step: Step) -> dict[str, Any]:
    slots = [
        [list(slot.path), slot.name, slot.is_secret, slot.is_password, slot.is_search] for slot in step.slots
    ]
    return {
        "tool": step.tool,
        "parameters": step.parameters,
        "slots": slots,
        "timestamp": step.timestamp,
        "cycle": step.cycle,
    }


def _step_from_dict(data: Mapping[str, Any]) -> Step:
    parameters, slots = data["parameters"], []
    for path, name, is_secret, is_password, is_search in data["slots"]:
        value = parameters
        for part in path:
            value = value[part]
        slots.append(
            Slot(
                path=tuple(path),
                name=str(name),
                value=None if is_secret else value,
                is_secret=bool(is_secret),
                is_password=bool(is_password),
                is_search=bool(is_search),
            )
        )
    tool = str(data["tool"])
    shape = shape_of(tool, parameters, slots)
    return Step(tool, parameters, shape, tuple(slots), float(data["timestamp"]), str(data["cycle"]))
