"""Stretches of a task that worked: what patterns are learned from."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

from langmem_tiers.tasks.action_templates import (
    Slot,
    TemplateStep,
    build_shape,
    build_template_step,
    redact_secrets,
)
from langmem_tiers.tasks.models import ExecutionOutcome
from langmem_tiers.text.urls import get_domain

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from langmem_tiers.tasks.models import MemoryEntry

MIN_PATTERN_STEPS, MAX_PATTERN_STEPS = 2, 8
"""Steps of a pattern."""


class StepUse(Enum):
    """What became of a step."""

    FREE = "free"
    USED = "used"
    """It is part of a use of a pattern that was known."""
    LEARNED = "learned"
    """It is part of what a new pattern is learned from."""


class ActionSequence:
    """Successful actions at one site without a break, and without their secrets.

    Args:
        site: Where; empty if at none.
        steps: In their order.
        failed: What was tried next there, and failed.
        is_fresh: Whether it was never learned from.
    """

    def __init__(
        self,
        site: str,
        steps: Sequence[TemplateStep],
        failed: TemplateStep | None = None,
        *,
        is_fresh: bool = True,
    ) -> None:
        self.site = site
        self.steps = list(steps)
        self.failed_step = failed
        self.is_fresh = is_fresh
        self.shapes: list[int] = []
        self.step_uses = [StepUse.FREE] * len(self.steps)

    @property
    def free_flags(self) -> list[bool]:
        """For each step, whether it is part of no pattern."""
        return [mark is StepUse.FREE for mark in self.step_uses]

    def are_free(self, start: int, length: int) -> bool:
        """Whether some steps are part of no pattern."""
        return all(mark is StepUse.FREE for mark in self.step_uses[start : start + length])

    def set_use(self, start: int, length: int, mark: StepUse) -> None:
        """Say what became of some steps."""
        self.step_uses[start : start + length] = [mark] * length

    def split_unlearned(self, without: Container[str] = ()) -> list[ActionSequence]:
        """What nothing was learned from, in pieces from which something may be learned one day.

        Args:
            without: Ids of cycles that are no longer part of it.
        """
        pieces: list[list[int]] = [[]]
        for at, step in enumerate(self.steps):
            if self.step_uses[at] is StepUse.LEARNED or step.cycle_id in without:
                pieces.append([])
            else:
                pieces[-1].append(at)
        return [
            ActionSequence(self.site, [self.steps[at] for at in piece], is_fresh=False)
            for piece in pieces
            if len(piece) >= MIN_PATTERN_STEPS
            and any(self.step_uses[at] is StepUse.FREE for at in piece)
            and not all(self.steps[at].is_passive for at in piece)
        ]


def find_sequences(run: Iterable[MemoryEntry]) -> list[ActionSequence]:
    """The stretches of a task's cycles, in their order."""
    found: list[ActionSequence] = []
    site, steps = "", list[TemplateStep]()
    for entry in run:
        before, site = site, _find_site(entry) or site
        worked = entry.outcome is ExecutionOutcome.SUCCESS
        if not worked or site != before:
            is_failure = entry.outcome.is_failure and site == before
            found += _build_sequences(before, steps, build_template_step(entry) if is_failure else None)
            steps = []
        if worked:
            steps.append(build_template_step(entry))
    return [*found, *_build_sequences(site, steps)]


def _build_sequences(
    site: str, steps: Sequence[TemplateStep], failed: TemplateStep | None = None
) -> list[ActionSequence]:
    pieces: list[list[TemplateStep]] = [[]]
    for step in redact_secrets(steps, MAX_PATTERN_STEPS - 1):
        if step is None:
            pieces.append([])
        else:
            pieces[-1].append(step)
    stretches = [ActionSequence(site, piece) for piece in pieces]
    stretches[-1].failed_step = failed
    return [one for one in stretches if one.steps]


def _find_site(entry: MemoryEntry) -> str:
    # Who goes to an address is there afterwards, wherever the cycle began.
    aim = entry.action.parameters.get("url")
    return (get_domain(aim) if isinstance(aim, str) else "") or get_domain(entry.url)


def sequence_to_dict(stretch: ActionSequence) -> dict[str, Any]:
    """A stretch as plain JSON."""
    return {"site": stretch.site, "tried": list(map(_step_to_dict, stretch.steps))}


def sequence_from_dict(data: Mapping[str, Any]) -> ActionSequence:
    """The stretch that ``stretch_to_dict`` wrote; ``LookupError``, ``TypeError`` or ``ValueError`` if it is none."""
    return ActionSequence(str(data["site"]), list(map(_step_from_dict, data["tried"])), is_fresh=False)


def _step_to_dict(step: TemplateStep) -> dict[str, Any]:
    slots = [
        [list(slot.path), slot.name, slot.is_secret, slot.is_password, slot.is_search] for slot in step.slots
    ]
    return {
        "tool": step.tool,
        "parameters": step.parameters,
        "slots": slots,
        "timestamp": step.timestamp,
        "cycle": step.cycle_id,
    }


def _step_from_dict(data: Mapping[str, Any]) -> TemplateStep:
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
    shape = build_shape(tool, parameters, slots)
    return TemplateStep(tool, parameters, shape, tuple(slots), float(data["timestamp"]), str(data["cycle"]))
