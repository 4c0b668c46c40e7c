"""Learning of patterns from action sequences that succeeded more than once in the same way."""

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
from langmem_tiers.tasks.models import Cycle, LearnedPattern
from langmem_tiers.tasks.patterns import PLACEHOLDER, escape_placeholders, iterate_parent_domains, to_site

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence

    from langmem_tiers.tasks.action_templates import ParameterPath, Slot, TemplateStep


LEARNED_ID_PREFIX = "learned_"
"""Prefix of the ids of automatically learned patterns."""


def find_pattern_uses(
    pattern: LearnedPattern, steps: Sequence[TemplateStep], is_free: Sequence[bool]
) -> list[int]:
    """Return the indexes at which complete, non-overlapping uses of a pattern start."""
    length, index, starts = len(pattern.steps), 0, list[int]()
    while length and index + length <= len(steps):
        if all(is_free[index : index + length]) and _matches_start(pattern, steps[index : index + length]):
            starts.append(index)
            index += length
        else:
            index += 1
    return starts


def count_steps_before_failure(
    pattern: LearnedPattern, steps: Sequence[TemplateStep], is_free: Sequence[bool], failed: TemplateStep
) -> int:
    """Return how many steps of a pattern succeeded before the failed step; 0 if the pattern was not used."""
    for done_count in range(min(len(pattern.steps) - 1, len(steps)), 0, -1):
        if all(is_free[-done_count:]) and _matches_start(pattern, [*steps[-done_count:], failed]):
            return done_count
    return 0


def _matches_start(pattern: LearnedPattern, steps: Sequence[TemplateStep]) -> bool:
    # In a learned pattern, a value that was equal each time may still differ in the next use, so all slots match any
    # value. A pattern written by hand means its values literally; only secrets, which were removed, match any value.
    is_learned = pattern.pattern_id.startswith(LEARNED_ID_PREFIX)
    return all(
        matches_step(
            pattern_step,
            step.tool,
            step.parameters,
            {slot.path for slot in step.slots if is_learned or slot.is_secret},
        )
        for pattern_step, step in zip(pattern.steps, steps, strict=False)
    )


def matches_step(
    step: Mapping[str, Any], tool: str, parameters: object, open_paths: Container[ParameterPath]
) -> bool:
    """Return True if an action matches a step of a pattern; ``{name}`` matches any value.

    Args:
        step: Step of the pattern.
        tool: Tool of the action.
        parameters: Parameters of the action as JSON.
        open_paths: Paths in the parameters that match any value.
    """
    if not _matches(step.get("tool"), tool, (), ()):
        return False
    # A step has its parameters either below the key "parameters" or next to "tool".
    rest = {key: value for key, value in step.items() if key != "tool"}
    is_nested = rest.keys() == {"parameters"} and _matches(rest["parameters"], parameters, (), open_paths)
    return is_nested or _matches(rest, parameters, (), open_paths)


def _matches(step: object, value: object, path: ParameterPath, open_paths: Container[ParameterPath]) -> bool:
    if path in open_paths:
        return True
    if isinstance(step, str):
        # A placeholder that is the whole text matches a value of any type.
        placeholder = PLACEHOLDER.fullmatch(step)
        return bool(placeholder and placeholder[2]) or (isinstance(value, str) and _matches_text(step, value))
    if isinstance(step, Mapping):
        return (
            isinstance(value, Mapping)
            and step.keys() == value.keys()
            and all(_matches(item, value[key], (*path, key), open_paths) for key, item in step.items())
        )
    if isinstance(step, list | tuple):
        return (
            isinstance(value, list)
            and len(step) == len(value)
            and all(
                _matches(item, value[index], (*path, index), open_paths) for index, item in enumerate(step)
            )
        )
    # True == 1 in Python, but not in JSON.
    return step == value and isinstance(step, bool) == isinstance(value, bool)


def _matches_text(step: str, text: str) -> bool:
    # Split the step at its placeholders into literal parts and find these in the text in order. The leftmost match of
    # each part suffices, so the search takes linear time, unlike a regular expression with several wildcards.
    parts, end = [""], 0
    for found in PLACEHOLDER.finditer(step):
        parts[-1] += step[end : found.start()] + (f"{{{found[1]}}}" if found[1] else "")
        parts += [""] if found[2] else []
        end = found.end()
    parts[-1] += step[end:]
    first, *between = parts
    if not between:
        return first == text
    position, last = len(first), between.pop()
    for part in between:
        found_at = text.find(part, position)
        if found_at < 0:
            return False
        position = found_at + len(part)
    return text.startswith(first) and text.endswith(last) and position + len(last) <= len(text)


# Number of successful occurrences that make a pattern.
_MIN_OCCURRENCES = 2
_TYPE_TITLES = {
    "login_flow": "Login flow",
    "form_fill": "Form fill",
    "search": "Search",
    "navigation": "Navigation",
    "tool_flow": "Tool flow",
}

_ShapeSequence: TypeAlias = tuple[int, ...]
_Position: TypeAlias = tuple[int, int]
"""Index of a sequence, and index of a step in it."""


@dataclass(slots=True)
class LearningResult:
    """Result of learning from action sequences."""

    new_patterns: list[LearnedPattern] = field(default_factory=list)
    """New patterns, longest first."""
    used_patterns: dict[str, LearnedPattern] = field(default_factory=dict)
    """Known patterns by id, with updated counts, and with placeholders for values that differed."""
    widened_ids: list[str] = field(default_factory=list)
    """Ids of the used patterns that got more placeholders."""


def propose_patterns(
    entries: Iterable[Cycle | Sequence[Cycle]], known: Iterable[LearnedPattern] = ()
) -> list[LearnedPattern]:
    """Propose patterns: sequences of 2 to 8 actions that succeeded at least twice at a site, longest first.

    Sequences are equal if their tools and parameters are equal, except for typed values. A typed value that differs
    becomes a placeholder named after its field. So do values that look like secrets or personal data, and all values
    typed in a login. A cycle belongs to at most one pattern. Loops, and sequences that only scroll, wait or read, do
    not become patterns.

    Args:
        entries: The cycles of a task in order, or one sequence of cycles per task.
        known: Existing patterns. They are proposed again only with additional placeholders.
    """
    result = learn_from_sequences(
        [sequence for run in _split_runs(entries) for sequence in find_sequences(run)], known
    )
    return [*result.new_patterns, *(result.used_patterns[name] for name in result.widened_ids)]


def learn_from_sequences(
    stretches: Sequence[ActionSequence], known: Iterable[LearnedPattern] = ()
) -> LearningResult:
    """Learn new patterns, and count uses of known patterns in fresh sequences.

    Longer patterns come first; among equal lengths, known patterns. A new pattern needs at least one occurrence in a
    fresh sequence: older sequences alone were either not a pattern when they were fresh, or the pattern was removed
    since. The use of each step is recorded in the sequences.

    Args:
        stretches: Action sequences. Their ``step_uses`` and ``shapes`` are updated.
        known: Existing patterns.
    """
    _number_shapes(stretches)
    result = LearningResult()
    known_by_length: defaultdict[int, list[LearnedPattern]] = defaultdict(list)
    for pattern in known:
        known_by_length[len(pattern.steps)].append(pattern)
    # Longest first: otherwise parts of a long pattern would be learned before the pattern itself.
    for length in sorted({*known_by_length, *range(MIN_PATTERN_STEPS, MAX_PATTERN_STEPS + 1)}, reverse=True):
        for pattern in known_by_length[length]:
            _count_uses(pattern, stretches, result)
        if MIN_PATTERN_STEPS <= length <= MAX_PATTERN_STEPS:
            for positions in _find_repeated(stretches, length):
                occurrences = [_get_steps(stretches, position, length) for position in positions]
                result.new_patterns.append(_build_pattern(stretches[positions[0][0]].site, occurrences))
    return result


def _count_uses(pattern: LearnedPattern, sequences: Sequence[ActionSequence], result: LearningResult) -> None:
    domain, length = to_site(pattern.domain), len(pattern.steps)
    used = pattern
    for sequence in sequences:
        # Uses in older sequences were counted when they were fresh.
        if not sequence.is_fresh or domain not in iterate_parent_domains(sequence.site):
            continue
        for start in find_pattern_uses(pattern, sequence.steps, sequence.free_flags):
            sequence.set_use(start, length, StepUse.USED)
            used = _record_use(used, sequence.steps[start : start + length])
        if sequence.failed_step is not None and (
            done_count := count_steps_before_failure(
                pattern, sequence.steps, sequence.free_flags, sequence.failed_step
            )
        ):
            sequence.set_use(len(sequence.steps) - done_count, done_count, StepUse.USED)
            last = max(used.last_used, sequence.failed_step.timestamp)
            used = replace(used, failure_count=used.failure_count + 1, last_used=last)
    if used is not pattern:
        result.used_patterns[pattern.pattern_id] = used
        if used.steps != pattern.steps:
            result.widened_ids.append(pattern.pattern_id)


def _record_use(pattern: LearnedPattern, done: Sequence[TemplateStep]) -> LearnedPattern:
    steps = list(pattern.steps)
    if pattern.pattern_id.startswith(LEARNED_ID_PREFIX):
        for index, names in enumerate(_name_slots(done)):
            new_step = _build_step([done[index]], names)
            steps[index] = _widen(steps[index], new_step, _build_step([done[index]], names, all_open=True))
    return replace(
        pattern,
        steps=tuple(steps),
        success_count=pattern.success_count + 1,
        last_used=max(pattern.last_used, done[-1].timestamp),
    )


def _widen(old: Any, new: Any, opened: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Return the old step with placeholders, taken from ``opened``, where the new step differs."""
    if old in (new, opened):
        return old
    if isinstance(old, Mapping):
        if old.keys() != new.keys():
            return old
        return {key: _widen(item, new[key], opened[key]) for key, item in old.items()}
    if isinstance(old, list):
        return [_widen(item, new[index], opened[index]) for index, item in enumerate(old)]
    return opened


def _split_runs(entries: Iterable[Cycle | Sequence[Cycle]]) -> Iterator[Sequence[Cycle]]:
    # Single entries belong to one task; each sequence of entries is a task of its own.
    single_entries: list[Cycle] = []
    for entry in entries:
        if isinstance(entry, Cycle):
            single_entries.append(entry)
        else:
            yield entry
    yield single_entries


def _number_shapes(sequences: Sequence[ActionSequence]) -> None:
    # Replace each pair of site and shape with a small number, so that comparing subsequences is cheap.
    numbers: dict[tuple[str, str], int] = {}
    for sequence in sequences:
        keys = [(sequence.site, step.shape) for step in sequence.steps]
        sequence.shapes = [numbers.setdefault(key, len(numbers)) for key in keys]


def _find_repeated(sequences: Sequence[ActionSequence], length: int) -> Iterator[list[_Position]]:
    """Yield the positions of each subsequence that becomes a pattern, and mark its steps as learned."""
    positions_by_shapes: defaultdict[_ShapeSequence, list[_Position]] = defaultdict(list)
    for number, sequence in enumerate(sequences):
        for start in _find_free_starts(sequence, length):
            positions_by_shapes[tuple(sequence.shapes[start : start + length])].append((number, start))
    repeated = [
        (shapes, positions)
        for shapes, positions in positions_by_shapes.items()
        if len(positions) >= _MIN_OCCURRENCES
    ]
    # Most frequent first, then by first position.
    for shapes, positions in sorted(repeated, key=lambda item: (-len(item[1]), item[1][0])):
        if _is_repetition(shapes, positions, sequences) or all(
            step.is_passive for step in _get_steps(sequences, positions[0], length)
        ):
            continue
        chosen = _select_disjoint(sequences, positions, length)
        if len(chosen) >= _MIN_OCCURRENCES and any(sequences[number].is_fresh for number, _ in chosen):
            for number, start in chosen:
                sequences[number].set_use(start, length, StepUse.LEARNED)
            yield chosen


def _find_free_starts(sequence: ActionSequence, length: int) -> Iterator[int]:
    free_run = 0
    for end, is_free in enumerate(sequence.free_flags, 1):
        free_run = free_run + 1 if is_free else 0
        if free_run >= length:
            yield end - length


def _is_repetition(
    shapes: _ShapeSequence, positions: Sequence[_Position], sequences: Sequence[ActionSequence]
) -> bool:
    """Return True if the subsequence is a part of a shorter repeated one, such as ABCA of ABCABCABC."""
    period = next(size for size in range(1, len(shapes) + 1) if shapes[size:] == shapes[:-size])
    if period == len(shapes):
        return False
    twice = list(shapes[:period] * 2)
    return any(sequences[number].shapes[start : start + 2 * period] == twice for number, start in positions)


def _select_disjoint(
    sequences: Sequence[ActionSequence], positions: Sequence[_Position], length: int
) -> list[_Position]:
    """Return the positions that overlap neither each other nor steps of other patterns."""
    chosen: list[_Position] = []
    for number, start in positions:
        overlaps = bool(chosen) and chosen[-1][0] == number and start < chosen[-1][1] + length
        if not overlaps and sequences[number].are_free(start, length):
            chosen.append((number, start))
    return chosen


def _get_steps(sequences: Sequence[ActionSequence], position: _Position, length: int) -> list[TemplateStep]:
    number, start = position
    return sequences[number].steps[start : start + length]


def _build_pattern(site: str, occurrences: Sequence[Sequence[TemplateStep]]) -> LearnedPattern:
    first = occurrences[0]
    slots = [slot for steps in occurrences for step in steps for slot in step.slots]
    kind = _choose_pattern_type(slots, site)
    names = _name_slots(first)
    # The id is derived from site and shapes: the same steps get the same id in every process.
    identity = "\n".join([site, *(step.shape for step in first)])
    digest = hashlib.blake2b(identity.encode("utf-8", "replace"), digest_size=6).hexdigest()
    title = f"{_TYPE_TITLES[kind]} for {site}" if site else _TYPE_TITLES[kind]
    return LearnedPattern(
        pattern_id=f"{LEARNED_ID_PREFIX}{site or 'tools'}_{digest}",
        domain=site,
        description=f"{title}: {', '.join(step.tool for step in first)}",
        pattern_type=kind,
        steps=tuple(
            _build_step([steps[index] for steps in occurrences], names[index]) for index in range(len(first))
        ),
        success_count=len(occurrences),
        last_used=max(steps[-1].timestamp for steps in occurrences),
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
    """Return a unique name for each slot of each step.

    Slots that do not become placeholders get names too. A slot that becomes a placeholder later therefore does not
    change the names of the others.
    """
    taken: set[str] = set()
    names: list[list[str]] = [[] for _ in steps]
    for index, step in enumerate(steps):
        for slot in step.slots:
            numbered = (f"{slot.name}_{number}" for number in count(2))
            name = next(candidate for candidate in chain([slot.name], numbered) if candidate not in taken)
            taken.add(name)
            names[index].append(name)
    return names


def _build_step(
    occurrences: Sequence[TemplateStep], names: Sequence[str], *, all_open: bool = False
) -> dict[str, Any]:
    first = occurrences[0]
    values: dict[ParameterPath, Any] = {}
    for index, name in enumerate(names):
        slots = [step.slots[index] for step in occurrences]
        # A slot becomes a placeholder if its values differ, or if it is a secret, whose value was removed.
        is_open = len({str(slot.value) for slot in slots}) > 1 or any(slot.is_secret for slot in slots)
        if is_open or all_open:
            values[slots[0].path] = f"{{{name}}}"
    step: dict[str, Any] = replace_at_paths(_escape_values(first.parameters), values)
    tool = escape_placeholders(first.tool)
    # A parameter called "tool" would collide with the tool itself.
    return {"tool": tool, "parameters": step} if "tool" in step else {"tool": tool, **step}


def _escape_values(value: object) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(value, dict):
        return {key: _escape_values(item) for key, item in value.items()}
    if isinstance(value, list):
        return list(map(_escape_values, value))
    return escape_placeholders(value) if isinstance(value, str) else value
