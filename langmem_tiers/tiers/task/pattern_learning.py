"""Patterns that are learned by themselves: what worked in the same way more than once."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from itertools import chain, count
from typing import TYPE_CHECKING, Any, TypeAlias

from langmem_tiers.core.tasks import ExecutionOutcome, LearnedPattern, MemoryEntry
from langmem_tiers.scoring.web_addresses import domain_of
from langmem_tiers.tiers.task.patterns import literal, placeholders_of, site_of
from langmem_tiers.tiers.task.step_shapes import Slot, Step, step_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

SHORTEST, LONGEST = 2, 8
"""Steps of a pattern."""
_LEAST = 2  # times that it has to work
_TITLES = {
    "login_flow": "Login flow",
    "form_fill": "Form fill",
    "search": "Search",
    "navigation": "Navigation",
}

_Gram: TypeAlias = tuple[int, ...]
_Place: TypeAlias = tuple[int, int]
"""A stretch, and where in it."""


class _Stretch:
    """Successful actions at one site without a break."""

    def __init__(self, site: str) -> None:
        self.site = site
        self.steps: list[Step] = []
        self.shapes: list[int] = []
        self.is_taken: list[bool] = []


def propose_patterns(
    entries: Iterable[MemoryEntry | Sequence[MemoryEntry]], known: Iterable[LearnedPattern] = ()
) -> list[LearnedPattern]:
    """The sequences of 2 to 8 actions that worked at one site at least twice, the longest first.

    Two sequences are the same if their tools and all parameters are, but for what is typed in. What was
    typed differently becomes a placeholder named after its field; so does whatever looks like a secret or
    like personal data, and all that is typed in a login. No cycle is part of two patterns, and what only
    goes round in circles, scrolls, waits or looks is none.

    Args:
        entries: The cycles of a task in their order, or the cycles of several tasks.
        known: Patterns that are there already: they are proposed again only with more placeholders.
    """
    stretches = [one for run in _runs(entries) for one in _stretches(run)]
    _number(stretches)
    held = list(known)
    found = [
        _pattern(stretches[places[0][0]].site, [_steps(stretches, place, length) for place in places])
        for length in range(LONGEST, SHORTEST - 1, -1)
        for places in _repeated(stretches, length)
    ]
    return [pattern for pattern in found if pattern is not None and not _is_known(pattern, held)]


def _runs(entries: Iterable[MemoryEntry | Sequence[MemoryEntry]]) -> Iterator[Sequence[MemoryEntry]]:
    alone: list[MemoryEntry] = []
    for one in entries:
        if isinstance(one, MemoryEntry):
            alone.append(one)
        else:
            yield one
    yield alone


def _stretches(run: Sequence[MemoryEntry]) -> Iterator[_Stretch]:
    stretch = _Stretch("")
    site = ""
    for entry in run:
        site = _site(entry) or site
        worked = entry.outcome is ExecutionOutcome.SUCCESS and site != ""
        if not worked or site != stretch.site:
            yield stretch
            stretch = _Stretch(site)
        if worked:
            stretch.steps.append(step_of(entry))
    yield stretch


def _site(entry: MemoryEntry) -> str:
    # Who goes to an address is there afterwards, wherever the cycle began.
    aim = entry.action.parameters.get("url")
    return (domain_of(aim) if isinstance(aim, str) else "") or domain_of(entry.url)


def _number(stretches: Sequence[_Stretch]) -> None:
    numbers: dict[tuple[str, str], int] = {}
    for stretch in stretches:
        keys = [(stretch.site, step.shape) for step in stretch.steps]
        stretch.shapes = [numbers.setdefault(key, len(numbers)) for key in keys]
        stretch.is_taken = [False] * len(keys)


def _repeated(stretches: Sequence[_Stretch], length: int) -> Iterator[list[_Place]]:
    """The places of each sequence of that length that is worth a pattern; they are taken from then on."""
    places: defaultdict[_Gram, list[_Place]] = defaultdict(list)
    for number, stretch in enumerate(stretches):
        for start in _free(stretch, length):
            places[tuple(stretch.shapes[start : start + length])].append((number, start))
    often = [(gram, where) for gram, where in places.items() if len(where) >= _LEAST]
    for gram, where in sorted(often, key=lambda one: (-len(one[1]), one[1][0])):
        if _is_circle(gram, where, stretches) or all(
            step.is_passive for step in _steps(stretches, where[0], length)
        ):
            continue
        chosen = _apart(stretches, where, length)
        if len(chosen) >= _LEAST:
            for number, start in chosen:
                stretches[number].is_taken[start : start + length] = [True] * length
            yield chosen


def _free(stretch: _Stretch, length: int) -> Iterator[int]:
    run = 0
    for end, is_taken in enumerate(stretch.is_taken, 1):
        run = 0 if is_taken else run + 1
        if run >= length:
            yield end - length


def _is_circle(gram: _Gram, where: Sequence[_Place], stretches: Sequence[_Stretch]) -> bool:
    """Whether it is cut out of something shorter that was done again and again: ABCA of ABCABCABC."""
    period = next(size for size in range(1, len(gram) + 1) if gram[size:] == gram[:-size])
    if period == len(gram):
        return False
    twice = list(gram[:period] * 2)
    return any(stretches[number].shapes[start : start + 2 * period] == twice for number, start in where)


def _apart(stretches: Sequence[_Stretch], where: Sequence[_Place], length: int) -> list[_Place]:
    """Of the places, those that overlap neither each other nor what is taken."""
    chosen: list[_Place] = []
    for number, start in where:
        overlaps = bool(chosen) and chosen[-1][0] == number and start < chosen[-1][1] + length
        if not overlaps and not any(stretches[number].is_taken[start : start + length]):
            chosen.append((number, start))
    return chosen


def _steps(stretches: Sequence[_Stretch], place: _Place, length: int) -> list[Step]:
    number, start = place
    return stretches[number].steps[start : start + length]


def _pattern(site: str, times: Sequence[Sequence[Step]]) -> LearnedPattern | None:
    """What was done in the same way each time; nothing if a secret stands in what is the same."""
    first = times[0]
    slots = [slot for steps in times for step in steps for slot in step.slots]
    kind = _kind(slots)
    secrets = {str(slot.value) for slot in slots if slot.is_secret or kind == "login_flow"}
    names = _names(first)
    steps = [_step([steps[at] for steps in times], names[at], secrets) for at in range(len(first))]
    if any(_holds(step.shape, secret) for step in first for secret in secrets):
        return None
    whole = "\n".join([site, *(step.shape for step in first)])
    mark = hashlib.blake2b(whole.encode("utf-8", "replace"), digest_size=6).hexdigest()
    return LearnedPattern(
        pattern_id=f"learned_{site}_{mark}",
        domain=site,
        description=f"{_TITLES[kind]} for {site}: {', '.join(step.tool for step in first)}",
        pattern_type=kind,
        steps=tuple(steps),
        success_count=len(times),
        last_used=max(steps[-1].timestamp for steps in times),
    )


def _holds(text: str, secret: str) -> bool:
    # A password that is a short word may stand in a selector by chance: "password" does in most.
    is_word = secret.isalpha() and len(secret) < 12
    return len(secret) >= 4 and not is_word and (secret in text or json.dumps(secret)[1:-1] in text)


def _kind(slots: Sequence[Slot]) -> str:
    if any(slot.is_password for slot in slots):
        return "login_flow"
    if not slots:
        return "navigation"
    return "search" if all(slot.is_search for slot in slots) else "form_fill"


def _names(steps: Sequence[Step]) -> list[list[str]]:
    """A name of its own for each slot, whether it becomes a placeholder or not: so names never move."""
    taken: set[str] = set()
    named: list[list[str]] = [[] for _ in steps]
    for index, step in enumerate(steps):
        for slot in step.slots:
            more = (f"{slot.name}_{number}" for number in count(2))
            name = next(one for one in chain([slot.name], more) if one not in taken)
            taken.add(name)
            named[index].append(name)
    return named


def _step(times: Sequence[Step], names: Sequence[str], secrets: set[str]) -> dict[str, Any]:
    open_slots = {}
    for index, slot in enumerate(times[0].slots):
        values = {str(step.slots[index].value) for step in times}
        if len(values) > 1 or values & secrets or any(_holds(str(slot.value), one) for one in secrets):
            open_slots[slot.path] = f"{{{names[index]}}}"
    step: dict[str, Any] = _written(times[0].parameters, (), open_slots)
    tool = literal(times[0].tool)
    return {"tool": tool, "parameters": step} if "tool" in step else {"tool": tool, **step}


def _written(
    value: object, path: tuple[str | int, ...], open_slots: Mapping[tuple[str | int, ...], str]
) -> Any:  # noqa: ANN401 - any JSON value
    if path in open_slots:
        return open_slots[path]
    if isinstance(value, dict):
        return {key: _written(one, (*path, key), open_slots) for key, one in value.items()}
    if isinstance(value, list):
        return [_written(one, (*path, index), open_slots) for index, one in enumerate(value)]
    return literal(value) if isinstance(value, str) else value


def _is_known(pattern: LearnedPattern, known: Sequence[LearnedPattern]) -> bool:
    for one in known:
        if one.pattern_id == pattern.pattern_id and len(placeholders_of(one)) >= len(
            placeholders_of(pattern)
        ):
            return True
        if one.steps == pattern.steps and site_of(one.domain) == pattern.domain:
            return True
    return False
