"""Successful action sequences of a task, from which patterns are learned."""

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

    from langmem_tiers.tasks.models import Cycle

MIN_PATTERN_STEPS, MAX_PATTERN_STEPS = 2, 8
"""Minimum and maximum number of steps of a learned pattern."""


class StepUse(Enum):
    """Use of a step by pattern learning."""

    FREE = "free"
    USED = "used"
    """The step belongs to a use of a known pattern."""
    LEARNED = "learned"
    """The step belongs to an occurrence of a new pattern."""


class ActionSequence:
    """Uninterrupted successful actions at one site, with secrets removed.

    Args:
        site: Domain of the site; empty for actions without a site.
        steps: The steps in their order.
        failed: The failed step that followed at the same site, or None.
        is_fresh: True if nothing was learned from the sequence before.
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
        """For each step, True if it does not belong to a pattern."""
        return [use is StepUse.FREE for use in self.step_uses]

    def are_free(self, start: int, length: int) -> bool:
        """Return True if none of the steps belongs to a pattern."""
        return all(use is StepUse.FREE for use in self.step_uses[start : start + length])

    def set_use(self, start: int, length: int, mark: StepUse) -> None:
        """Set the use of ``length`` steps from ``start``."""
        self.step_uses[start : start + length] = [mark] * length

    def split_unlearned(self, excluded_ids: Container[str] = ()) -> list[ActionSequence]:
        """Return the parts of the sequence that may become a pattern together with later sequences.

        Args:
            excluded_ids: Ids of cycles to leave out.
        """
        pieces: list[list[int]] = [[]]
        for index, step in enumerate(self.steps):
            if self.step_uses[index] is StepUse.LEARNED or step.cycle_id in excluded_ids:
                pieces.append([])
            else:
                pieces[-1].append(index)
        # Steps used by a known pattern may be part of a longer new one, so pieces may contain them. A piece must
        # have at least one free step, and one that does more than wait or look.
        return [
            ActionSequence(self.site, [self.steps[index] for index in piece], is_fresh=False)
            for piece in pieces
            if len(piece) >= MIN_PATTERN_STEPS
            and any(self.step_uses[index] is StepUse.FREE for index in piece)
            and not all(self.steps[index].is_passive for index in piece)
        ]


def find_sequences(run: Iterable[Cycle]) -> list[ActionSequence]:
    """Split the cycles of a task into successful sequences; a failure or a change of site ends a sequence."""
    sequences: list[ActionSequence] = []
    site, steps = "", list[TemplateStep]()
    for cycle in run:
        previous_site, site = site, _find_site(cycle) or site
        is_success = cycle.outcome is ExecutionOutcome.SUCCESS
        if not is_success or site != previous_site:
            is_failure = cycle.outcome.is_failure and site == previous_site
            sequences += _build_sequences(
                previous_site, steps, build_template_step(cycle) if is_failure else None
            )
            steps = []
        if is_success:
            steps.append(build_template_step(cycle))
    return [*sequences, *_build_sequences(site, steps)]


def _build_sequences(
    site: str, steps: Sequence[TemplateStep], failed: TemplateStep | None = None
) -> list[ActionSequence]:
    # Redact with the reach of the longest pattern: any two steps that may share a pattern are looked at together.
    # A step whose secret cannot be removed (None) splits the sequence.
    pieces: list[list[TemplateStep]] = [[]]
    for step in redact_secrets(steps, MAX_PATTERN_STEPS - 1):
        if step is None:
            pieces.append([])
        else:
            pieces[-1].append(step)
    sequences = [ActionSequence(site, piece) for piece in pieces]
    sequences[-1].failed_step = failed
    return [sequence for sequence in sequences if sequence.steps]


def _find_site(cycle: Cycle) -> str:
    # A navigation belongs to the site that it leads to, not to the page where it started.
    target = cycle.action.parameters.get("url")
    return (get_domain(target) if isinstance(target, str) else "") or get_domain(cycle.url)


def sequence_to_dict(sequence: ActionSequence) -> dict[str, Any]:
    """Convert a sequence to plain JSON values."""
    return {"site": sequence.site, "tried": list(map(_step_to_dict, sequence.steps))}


def sequence_from_dict(data: Mapping[str, Any]) -> ActionSequence:
    """Restore a sequence from ``sequence_to_dict``.

    Raises:
        LookupError, TypeError, ValueError: The data is damaged.
    """
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
    # Values of slots are not stored separately; read them from the parameters by their path.
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
