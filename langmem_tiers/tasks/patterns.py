"""In-memory store of learned patterns, and their placeholders."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from langmem_tiers.common.checks import check_whole
from langmem_tiers.common.json_values import to_plain_value
from langmem_tiers.context_files.checks import (
    check_count,
    check_list,
    check_not_empty,
    check_object,
    check_text,
    check_unix_seconds,
)
from langmem_tiers.errors import InvalidInputError
from langmem_tiers.tasks.context_store import get_wall_seconds
from langmem_tiers.tasks.cycles import check_json_object
from langmem_tiers.tasks.models import LearnedPattern
from langmem_tiers.text.urls import get_domain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_NAME = "[A-Za-z_][A-Za-z0-9_]*"
PLACEHOLDER = re.compile(rf"\{{\{{({_NAME})\}}\}}|\{{({_NAME})\}}")
"""A placeholder ``{name}`` (second group) or an escaped ``{{name}}`` (first group)."""
# Share of the maximum that remains after pruning.
_KEPT_SHARE = 0.8


class PatternMemory:
    """Learned patterns by id and by domain.

    Above ``max_patterns``, patterns with the lowest success rate are removed, the least recently used first, until 80 %
    of the maximum remain. A pattern without any use has a success rate of 0.
    """

    def __init__(self, max_patterns: int = 100, now: Callable[[], float] = get_wall_seconds) -> None:
        self.max_patterns = check_whole(max_patterns, 1, "max_patterns")
        self._now = now
        self._patterns: dict[str, LearnedPattern] = {}
        self._by_domain: dict[str, dict[str, None]] = {}

    def __len__(self) -> int:
        return len(self._patterns)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PatternMemory) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment] # mutable

    @property
    def patterns(self) -> list[LearnedPattern]:
        """All patterns in the order in which they were learned."""
        return list(self._patterns.values())

    def learn(self, pattern: LearnedPattern) -> None:
        """Store a pattern. It replaces one with the same id; if the steps are equal, the counts are added."""
        # The round trip validates the pattern and copies its steps.
        pattern = pattern_from_dict(pattern_to_dict(pattern))
        if pattern.last_used == 0:
            pattern = replace(pattern, last_used=self._now())
        old = self._patterns.get(pattern.pattern_id)
        if old is not None and old.steps == pattern.steps:
            pattern = replace(
                pattern,
                success_count=old.success_count + pattern.success_count,
                failure_count=old.failure_count + pattern.failure_count,
                last_used=max(old.last_used, pattern.last_used),
            )
        self._put(pattern)
        if len(self._patterns) > self.max_patterns:
            self._prune()

    def get(self, pattern_id: str) -> LearnedPattern | None:
        """Return the pattern with an id, or None."""
        return self._patterns.get(pattern_id)

    def get_patterns_for_domain(self, domain: str) -> list[LearnedPattern]:
        """Return the patterns of a domain and its parent domains, by success rate, then by last use.

        Args:
            domain: A domain or a URL; ``www.`` is ignored. Empty for patterns without a site.
        """
        found = [
            self._patterns[pattern_id]
            for site in iterate_parent_domains(to_site(domain))
            for pattern_id in self._by_domain.get(site, ())
        ]
        # The sort is stable: among equal patterns, the one of the nearest domain comes first.
        return sorted(found, key=lambda pattern: (pattern.success_rate, pattern.last_used), reverse=True)

    def record_usage(self, pattern_id: str, *, success: bool) -> LearnedPattern:
        """Count a use of a pattern and return the updated pattern.

        Raises:
            InvalidInputError: The pattern does not exist.
        """
        pattern = self._patterns.get(pattern_id)
        if pattern is None:
            raise InvalidInputError(f"unknown pattern {pattern_id!r}: learn it first")
        used = replace(
            pattern,
            success_count=pattern.success_count + bool(success),
            failure_count=pattern.failure_count + (not success),
            last_used=self._now(),
        )
        self._patterns[pattern_id] = used
        return used

    def remove_pattern(self, pattern_id: str) -> bool:
        """Remove a pattern; return False if it does not exist."""
        pattern = self._patterns.pop(pattern_id, None)
        if pattern is None:
            return False
        domain = to_site(pattern.domain)
        del self._by_domain[domain][pattern_id]
        if not self._by_domain[domain]:
            del self._by_domain[domain]
        return True

    def clear(self) -> None:
        """Remove all patterns."""
        self._patterns.clear()
        self._by_domain.clear()

    def to_dict(self) -> dict[str, Any]:
        """Convert the patterns to plain JSON values."""
        return {
            "max_patterns": self.max_patterns,
            "patterns": [pattern_to_dict(pattern) for pattern in self._patterns.values()],
        }

    @classmethod
    def from_dict(cls, value: object, now: Callable[[], float] = get_wall_seconds) -> PatternMemory:
        """Restore patterns from ``to_dict``; an ``InvalidInputError`` names damaged values."""
        data = check_json_object(value, "long-term memory")
        memory = cls(data.get("max_patterns", 100), now)
        for index, item in enumerate(check_list(data.get("patterns", []), "patterns")):
            pattern = pattern_from_dict(item, f"patterns[{index}]")
            if pattern.pattern_id in memory._patterns:
                raise InvalidInputError(
                    f"patterns[{index}] repeats the id {pattern.pattern_id!r}: ids must be unique"
                )
            memory._put(pattern)
        if len(memory) > memory.max_patterns:
            memory._prune()
        return memory

    def _put(self, pattern: LearnedPattern) -> None:
        old = self._patterns.get(pattern.pattern_id)
        if old is not None and to_site(old.domain) != to_site(pattern.domain):
            self.remove_pattern(pattern.pattern_id)
        self._patterns[pattern.pattern_id] = pattern
        self._by_domain.setdefault(to_site(pattern.domain), {})[pattern.pattern_id] = None

    def _prune(self) -> None:
        worst_first = sorted(
            self._patterns.values(), key=lambda pattern: (pattern.success_rate, pattern.last_used)
        )
        for pattern in worst_first[: len(worst_first) - int(self.max_patterns * _KEPT_SHARE)]:
            self.remove_pattern(pattern.pattern_id)


def find_placeholders(pattern: LearnedPattern) -> list[str]:
    """Return the names of the placeholders of a pattern, in the order of its steps."""
    names = [name for text in _iterate_texts(pattern.steps) for _, name in PLACEHOLDER.findall(text)]
    return list(dict.fromkeys(filter(None, names)))


def fill_placeholders(pattern: LearnedPattern, values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the steps of a pattern with values in place of the placeholders.

    If a placeholder is the whole text, the value keeps its type. ``{{name}}`` becomes ``{name}``. Placeholders within a
    value are not replaced.

    Args:
        pattern: The pattern.
        values: Values by placeholder name. Additional names are ignored.

    Raises:
        InvalidInputError: A value is missing.
    """
    missing = [name for name in find_placeholders(pattern) if name not in values]
    if missing:
        names = ", ".join(map(repr, missing))
        raise InvalidInputError(f"pattern {pattern.pattern_id!r} needs values for {names}: pass them")
    return [{key: _substitute(item, values) for key, item in step.items()} for step in pattern.steps]


def escape_placeholders(text: str) -> str:
    """Escape placeholders in a text, so that they are read literally."""
    return re.sub(rf"\{{({_NAME})\}}", r"{{\1}}", text)


@lru_cache(maxsize=10_000)
def to_site(address: str) -> str:
    """Return the host of a URL or domain in lower case, without ``www.`` and port."""
    text = address.strip().lower()
    return get_domain(text if "://" in text else f"https://{text}") or text


def pattern_to_dict(pattern: LearnedPattern) -> dict[str, Any]:
    """Convert a pattern to plain JSON values."""
    return {
        "pattern_id": pattern.pattern_id,
        "domain": pattern.domain,
        "description": pattern.description,
        "pattern_type": pattern.pattern_type,
        "steps": list(map(_step_to_plain, pattern.steps)),
        "success_count": pattern.success_count,
        "failure_count": pattern.failure_count,
        "last_used": pattern.last_used,
    }


def _step_to_plain(step: object) -> object:
    # Any other value is left as it is; pattern_from_dict() refuses it with an error that names the step.
    return dict(step) if isinstance(step, Mapping) else step


def pattern_from_dict(value: object, where: str = "pattern") -> LearnedPattern:
    """Restore a pattern from plain JSON values; an ``InvalidInputError`` names invalid steps."""
    data = check_json_object(value, where)
    steps = check_list(data.get("steps"), f"{where}.steps")
    return LearnedPattern(
        pattern_id=check_not_empty(data.get("pattern_id"), f"{where}.pattern_id"),
        domain=check_text(data.get("domain"), f"{where}.domain"),
        description=check_text(data.get("description", ""), f"{where}.description"),
        pattern_type=check_text(data.get("pattern_type", ""), f"{where}.pattern_type"),
        steps=tuple(check_object(step, f"{where}.steps[{index}]") for index, step in enumerate(steps)),
        success_count=check_count(data.get("success_count", 0), f"{where}.success_count"),
        failure_count=check_count(data.get("failure_count", 0), f"{where}.failure_count"),
        last_used=check_unix_seconds(data.get("last_used", 0.0), f"{where}.last_used"),
    )


def iterate_parent_domains(domain: str) -> Iterator[str]:
    """Yield a domain, as returned by ``to_site``, and its parent domains."""
    # A top-level domain is not a site, unless it is the whole name, as in localhost.
    yield domain
    _, dot, parent = domain.partition(".")
    while dot and "." in parent:
        yield parent
        _, dot, parent = parent.partition(".")


def _iterate_texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _iterate_texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _iterate_texts(item)


def _substitute(value: object, values: Mapping[str, Any]) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(value, str):
        whole = PLACEHOLDER.fullmatch(value)
        if whole and whole[2]:
            return values[whole[2]]
        return PLACEHOLDER.sub(lambda match: str(values[match[2]]) if match[2] else f"{{{match[1]}}}", value)
    if isinstance(value, Mapping):
        return {key: _substitute(item, values) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_substitute(item, values) for item in value]
    return to_plain_value(value)
