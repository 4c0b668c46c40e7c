"""Patterns that are learned by themselves: what worked in the same way more than once."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, count
from typing import TYPE_CHECKING, Any, TypeAlias

from langmem_tiers.tasks.action_sequences import (
    MAX_PATTERN_STEPS,
    MIN_PATTERN_STEPS,
    ActionSequence,
    StepUse,
    find_sequences,
)
from langmem_tiers.tasks.action_templates import replace_at_paths
from langmem_tiers.tasks.models import LearnedPattern, MemoryEntry
from langmem_tiers.tasks.patterns import PLACEHOLDER, escape_placeholders, iterate_parent_domains, to_site

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence

    from langmem_tiers.tasks.action_templates import ParameterPath, Slot, TemplateStep


LEARNED_ID_PREFIX = "learned_"
"""How the ids of patterns begin that were learned by themselves."""


def find_pattern_uses(
    pattern: LearnedPattern, steps: Sequence[TemplateStep], is_free: Sequence[bool]
) -> list[int]:
    """Where a pattern was used, from its first step to its last: places that do not overlap."""
    length, at, found = len(pattern.steps), 0, list[int]()
    while length and at + length <= len(steps):
        if all(is_free[at : at + length]) and _matches_start(pattern, steps[at : at + length]):
            found.append(at)
            at += length
        else:
            at += 1
    return found


def count_steps_before_failure(
    pattern: LearnedPattern, steps: Sequence[TemplateStep], is_free: Sequence[bool], failed: TemplateStep
) -> int:
    """How many steps of a pattern worked before it failed at the next one; 0 if it did not."""
    for done in range(min(len(pattern.steps) - 1, len(steps)), 0, -1):
        if all(is_free[-done:]) and _matches_start(pattern, [*steps[-done:], failed]):
            return done
    return 0


def _matches_start(pattern: LearnedPattern, steps: Sequence[TemplateStep]) -> bool:
    # What was always typed alike may be typed otherwise from now on; who wrote a pattern by hand meant what it says.
    is_loose = pattern.pattern_id.startswith(LEARNED_ID_PREFIX)
    return all(
        matches_step(
            told,
            done.tool,
            done.parameters,
            {slot.path for slot in done.slots if is_loose or slot.is_secret},
        )
        for told, done in zip(pattern.steps, steps, strict=False)
    )


def matches_step(
    step: Mapping[str, Any], tool: str, parameters: object, open_paths: Container[ParameterPath]
) -> bool:
    """Whether an action is a step of a pattern, with anything in place of ``{name}``.

    Args:
        step: Of the pattern.
        tool: Of the action.
        parameters: Of the action, as JSON.
        open_paths: Where in the parameters anything goes.
    """
    if not _matches(step.get("tool"), tool, (), ()):
        return False
    rest = {key: one for key, one in step.items() if key != "tool"}
    is_nested = rest.keys() == {"parameters"} and _matches(rest["parameters"], parameters, (), open_paths)
    return is_nested or _matches(rest, parameters, (), open_paths)


def _matches(step: object, value: object, path: ParameterPath, open_paths: Container[ParameterPath]) -> bool:
    if path in open_paths:
        return True
    if isinstance(step, str):
        alone = PLACEHOLDER.fullmatch(step)
        return bool(alone and alone[2]) or (isinstance(value, str) and _matches_text(step, value))
    if isinstance(step, Mapping):
        return (
            isinstance(value, Mapping)
            and step.keys() == value.keys()
            and all(_matches(one, value[key], (*path, key), open_paths) for key, one in step.items())
        )
    if isinstance(step, list | tuple):
        return (
            isinstance(value, list)
            and len(step) == len(value)
            and all(_matches(one, value[at], (*path, at), open_paths) for at, one in enumerate(step))
        )
    return step == value and isinstance(step, bool) == isinstance(value, bool)


def _matches_text(step: str, text: str) -> bool:
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


_MIN_OCCURRENCES = 2  # times that it has to work
_TYPE_TITLES = {
    "login_flow": "Login flow",
    "form_fill": "Form fill",
    "search": "Search",
    "navigation": "Navigation",
    "tool_flow": "Tool flow",
}

_ShapeSequence: TypeAlias = tuple[int, ...]
_Position: TypeAlias = tuple[int, int]
"""A stretch, and where in it."""


@dataclass(slots=True)
class LearningResult:
    """What stretches teach."""

    new_patterns: list[LearnedPattern] = field(default_factory=list)
    """New patterns, the longest first."""
    used_patterns: dict[str, LearnedPattern] = field(default_factory=dict)
    """Known patterns by their ids, with the uses that were counted, and placeholders for what now differed."""
    widened_ids: list[str] = field(default_factory=list)
    """Those of them that have more placeholders than before."""


def propose_patterns(
    entries: Iterable[MemoryEntry | Sequence[MemoryEntry]], known: Iterable[LearnedPattern] = ()
) -> list[LearnedPattern]:
    """The sequences of 2 to 8 actions that worked at one site, or at none, at least twice; the longest first.

    Two sequences are the same if their tools and all parameters are, but for what is typed in. What was
    typed differently becomes a placeholder named after its field; so does whatever looks like a secret or
    like personal data, and all that is typed in a login. No cycle is part of two patterns, and what only
    goes round in circles, scrolls, waits or looks is none.

    Args:
        entries: The cycles of a task in their order, or the cycles of several tasks.
        known: Patterns that are there already: they are proposed again only with more placeholders.
    """
    lessons = learn_from_sequences(
        [one for run in _split_runs(entries) for one in find_sequences(run)], known
    )
    return [*lessons.new_patterns, *(lessons.used_patterns[name] for name in lessons.widened_ids)]


def learn_from_sequences(
    stretches: Sequence[ActionSequence], known: Iterable[LearnedPattern] = ()
) -> LearningResult:
    """What is learned from stretches: new patterns, and uses of known ones in what is fresh.

    The longest come first, of equal length those that are known. What only older stretches show is not learned: it
    was not when they were fresh, or was forgotten since. The steps are marked with what became of them.
    """
    _number_shapes(stretches)
    lessons = LearningResult()
    held: defaultdict[int, list[LearnedPattern]] = defaultdict(list)
    for pattern in known:
        held[len(pattern.steps)].append(pattern)
    for length in sorted({*held, *range(MIN_PATTERN_STEPS, MAX_PATTERN_STEPS + 1)}, reverse=True):
        for pattern in held[length]:
            _count_uses(pattern, stretches, lessons)
        if MIN_PATTERN_STEPS <= length <= MAX_PATTERN_STEPS:
            for places in _find_repeated(stretches, length):
                times = [_get_steps(stretches, place, length) for place in places]
                lessons.new_patterns.append(_build_pattern(stretches[places[0][0]].site, times))
    return lessons


def _count_uses(
    pattern: LearnedPattern, stretches: Sequence[ActionSequence], lessons: LearningResult
) -> None:
    domain, length = to_site(pattern.domain), len(pattern.steps)
    used = pattern
    for stretch in stretches:
        if not stretch.is_fresh or domain not in iterate_parent_domains(stretch.site):
            continue
        for at in find_pattern_uses(pattern, stretch.steps, stretch.free_flags):
            stretch.set_use(at, length, StepUse.USED)
            used = _record_use(used, stretch.steps[at : at + length])
        if stretch.failed_step is not None and (
            done := count_steps_before_failure(
                pattern, stretch.steps, stretch.free_flags, stretch.failed_step
            )
        ):
            stretch.set_use(len(stretch.steps) - done, done, StepUse.USED)
            last = max(used.last_used, stretch.failed_step.timestamp)
            used = replace(used, failure_count=used.failure_count + 1, last_used=last)
    if used is not pattern:
        lessons.used_patterns[pattern.pattern_id] = used
        if used.steps != pattern.steps:
            lessons.widened_ids.append(pattern.pattern_id)


def _record_use(pattern: LearnedPattern, done: Sequence[TemplateStep]) -> LearnedPattern:
    steps = list(pattern.steps)
    if pattern.pattern_id.startswith(LEARNED_ID_PREFIX):
        for at, names in enumerate(_name_slots(done)):
            fresh = _build_step([done[at]], names)
            steps[at] = _widen(steps[at], fresh, _build_step([done[at]], names, all_open=True))
    return replace(
        pattern,
        steps=tuple(steps),
        success_count=pattern.success_count + 1,
        last_used=max(pattern.last_used, done[-1].timestamp),
    )


def _widen(old: Any, new: Any, opened: Any) -> Any:  # noqa: ANN401 - any JSON value
    """The old step, opened where the new one differs from it."""
    if old in (new, opened):
        return old
    if isinstance(old, Mapping):
        if old.keys() != new.keys():
            return old
        return {key: _widen(one, new[key], opened[key]) for key, one in old.items()}
    if isinstance(old, list):
        return [_widen(one, new[at], opened[at]) for at, one in enumerate(old)]
    return opened


def _split_runs(entries: Iterable[MemoryEntry | Sequence[MemoryEntry]]) -> Iterator[Sequence[MemoryEntry]]:
    alone: list[MemoryEntry] = []
    for one in entries:
        if isinstance(one, MemoryEntry):
            alone.append(one)
        else:
            yield one
    yield alone


def _number_shapes(stretches: Sequence[ActionSequence]) -> None:
    numbers: dict[tuple[str, str], int] = {}
    for stretch in stretches:
        keys = [(stretch.site, step.shape) for step in stretch.steps]
        stretch.shapes = [numbers.setdefault(key, len(numbers)) for key in keys]


def _find_repeated(stretches: Sequence[ActionSequence], length: int) -> Iterator[list[_Position]]:
    """The places of each sequence of that length that is worth a pattern; they are taken from then on."""
    places: defaultdict[_ShapeSequence, list[_Position]] = defaultdict(list)
    for number, stretch in enumerate(stretches):
        for start in _find_free_starts(stretch, length):
            places[tuple(stretch.shapes[start : start + length])].append((number, start))
    often = [(gram, where) for gram, where in places.items() if len(where) >= _MIN_OCCURRENCES]
    for gram, where in sorted(often, key=lambda one: (-len(one[1]), one[1][0])):
        if _is_repetition(gram, where, stretches) or all(
            step.is_passive for step in _get_steps(stretches, where[0], length)
        ):
            continue
        chosen = _select_disjoint(stretches, where, length)
        if len(chosen) >= _MIN_OCCURRENCES and any(stretches[number].is_fresh for number, _ in chosen):
            for number, start in chosen:
                stretches[number].set_use(start, length, StepUse.LEARNED)
            yield chosen


def _find_free_starts(stretch: ActionSequence, length: int) -> Iterator[int]:
    run = 0
    for end, is_free in enumerate(stretch.free_flags, 1):
        run = run + 1 if is_free else 0
        if run >= length:
            yield end - length


def _is_repetition(
    gram: _ShapeSequence, where: Sequence[_Position], stretches: Sequence[ActionSequence]
) -> bool:
    """Whether it is cut out of something shorter that was done again and again: ABCA of ABCABCABC."""
    period = next(size for size in range(1, len(gram) + 1) if gram[size:] == gram[:-size])
    if period == len(gram):
        return False
    twice = list(gram[:period] * 2)
    return any(stretches[number].shapes[start : start + 2 * period] == twice for number, start in where)


def _select_disjoint(
    stretches: Sequence[ActionSequence], where: Sequence[_Position], length: int
) -> list[_Position]:
    """Of the places, those that overlap neither each other nor what is taken."""
    chosen: list[_Position] = []
    for number, start in where:
        overlaps = bool(chosen) and chosen[-1][0] == number and start < chosen[-1][1] + length
        if not overlaps and stretches[number].are_free(start, length):
            chosen.append((number, start))
    return chosen


def _get_steps(stretches: Sequence[ActionSequence], place: _Position, length: int) -> list[TemplateStep]:
    number, start = place
    return stretches[number].steps[start : start + length]


def _build_pattern(site: str, times: Sequence[Sequence[TemplateStep]]) -> LearnedPattern:
    """What was done in the same way each time."""
    first = times[0]
    slots = [slot for steps in times for step in steps for slot in step.slots]
    kind = _choose_pattern_type(slots, site)
    names = _name_slots(first)
    whole = "\n".join([site, *(step.shape for step in first)])
    mark = hashlib.blake2b(whole.encode("utf-8", "replace"), digest_size=6).hexdigest()
    title = f"{_TYPE_TITLES[kind]} for {site}" if site else _TYPE_TITLES[kind]
    return LearnedPattern(
        pattern_id=f"{LEARNED_ID_PREFIX}{site or 'tools'}_{mark}",
        domain=site,
        description=f"{title}: {', '.join(step.tool for step in first)}",
        pattern_type=kind,
        steps=tuple(_build_step([steps[at] for steps in times], names[at]) for at in range(len(first))),
        success_count=len(times),
        last_used=max(steps[-1].timestamp for steps in times),
    )


def _choose_pattern_type(slots: Sequence[Slot], site: str) -> str:
    if any(slot.is_password for slot in slots):
        return "login_flow"
    if not site:
        return "tool_flow"
    if not slots:
        return "navigation"
    return "search" if all(slot.is_search for slot in slots) else "form_fill"


def _name_slots(steps: Sequence[TemplateStep]) -> list[list[str]]:
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


def _build_step(
    times: Sequence[TemplateStep], names: Sequence[str], *, all_open: bool = False
) -> dict[str, Any]:
    first = times[0]
    values: dict[ParameterPath, Any] = {}
    for index, name in enumerate(names):
        slots = [step.slots[index] for step in times]
        is_open = len({str(slot.value) for slot in slots}) > 1 or any(slot.is_secret for slot in slots)
        if is_open or all_open:
            values[slots[0].path] = f"{{{name}}}"
    step: dict[str, Any] = replace_at_paths(_escape_values(first.parameters), values)
    tool = escape_placeholders(first.tool)
    return {"tool": tool, "parameters": step} if "tool" in step else {"tool": tool, **step}


def _escape_values(value: object) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(value, dict):
        return {key: _escape_values(one) for key, one in value.items()}
    if isinstance(value, list):
        return list(map(_escape_values, value))
    return escape_placeholders(value) if isinstance(value, str) else value
