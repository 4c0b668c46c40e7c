"""Uses of patterns that are known: what was done again, and what began like one and failed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from langmem_tiers.tiers.task.patterns import PLACEHOLDER

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from langmem_tiers.core.tasks import LearnedPattern
    from langmem_tiers.tiers.task.step_shapes import Path, Step

LEARNED = "learned_"
"""How the ids of patterns begin that were learned by themselves."""


def places_of(pattern: LearnedPattern, steps: Sequence[Step], is_free: Sequence[bool]) -> list[int]:
    """Where a pattern was used, from its first step to its last: places that do not overlap."""
    length, at, found = len(pattern.steps), 0, list[int]()
    while length and at + length <= len(steps):
        if all(is_free[at : at + length]) and _begins(pattern, steps[at : at + length]):
            found.append(at)
            at += length
        else:
            at += 1
    return found


def failed_after(
    pattern: LearnedPattern, steps: Sequence[Step], is_free: Sequence[bool], failed: Step
) -> int:
    """How many steps of a pattern worked before it failed at the next one; 0 if it did not."""
    for done in range(min(len(pattern.steps) - 1, len(steps)), 0, -1):
        if all(is_free[-done:]) and _begins(pattern, [*steps[-done:], failed]):
            return done
    return 0


def _begins(pattern: LearnedPattern, steps: Sequence[Step]) -> bool:
    # What was always typed alike may be typed otherwise from now on; who wrote a pattern by hand meant what it says.
    is_loose = pattern.pattern_id.startswith(LEARNED)
    return all(
        fits(
            told,
            done.tool,
            done.parameters,
            {slot.path for slot in done.slots if is_loose or slot.is_secret},
        )
        for told, done in zip(pattern.steps, steps, strict=False)
    )


def fits(step: Mapping[str, Any], tool: str, parameters: object, open_paths: Container[Path]) -> bool:
    """Whether an action is a step of a pattern, with anything in place of ``{name}``.

    Args:
        step: Of the pattern.
        tool: Of the action.
        parameters: Of the action, as JSON.
        open_paths: Where in the parameters anything goes.
    """
    if not _fits(step.get("tool"), tool, (), ()):
        return False
    rest = {key: one for key, one in step.items() if key != "tool"}
    is_nested = rest.keys() == {"parameters"} and _fits(rest["parameters"], parameters, (), open_paths)
    return is_nested or _fits(rest, parameters, (), open_paths)


def _fits(step: object, value: object, path: Path, open_paths: Container[Path]) -> bool:
    if path in open_paths:
        return True
    if isinstance(step, str):
        alone = PLACEHOLDER.fullmatch(step)
        return bool(alone and alone[2]) or (isinstance(value, str) and _text_fits(step, value))
    if isinstance(step, Mapping):
        return (
            isinstance(value, Mapping)
            and step.keys() == value.keys()
            and all(_fits(one, value[key], (*path, key), open_paths) for key, one in step.items())
        )
    if isinstance(step, list | tuple):
        return (
            isinstance(value, list)
            and len(step) == len(value)
            and all(_fits(one, value[at], (*path, at), open_paths) for at, one in enumerate(step))
        )
    return step == value and isinstance(step, bool) == isinstance(value, bool)


def _text_fits(step: str, text: str) -> bool:
    parts, end = [""], 0
    for found in PLACEHOLDER.finditer(step):
        parts[-1] += step[end : found.start()] + (f"{{{found[1]}}}" if found[1] else "")
        parts += [""] if found[2] else []
        end = found.end()
    parts[-1] += step[end:]
    first, *between = parts
    if not between:
        return first == text
    at, last = len(first), between.pop()
    for part in between:
        found_at = text.find(part, at)
        if found_at < 0:
            return False
        at = found_at + len(part)
    return text.startswith(first) and text.endswith(last) and at + len(last) <= len(text)
