"""Steps that worked at a site: learned once, used again, and forgotten when they stop to work."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from langmem_tiers.common.checks import check_whole
from langmem_tiers.common.plain_values import to_plain_value
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
"""``{name}``, which is its second group; doubled braces are none, and its first."""
_KEPT_SHARE = 0.8  # of the cap, when the least useful patterns are removed


class PatternMemory:
    """Learned patterns, by id and by domain.

    When there are more than ``max_patterns``, those of the lowest success rate leave, of these the ones
    that were not used for longest, until 80 % of the cap are left. A pattern that was never used counts as
    one that never worked.
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

    __hash__ = None  # type: ignore[assignment] # it changes

    @property
    def patterns(self) -> list[LearnedPattern]:
        """All patterns, in the order in which they were learned."""
        return list(self._patterns.values())

    def learn(self, pattern: LearnedPattern) -> None:
        """Remember a pattern in place of one with the same id; if its steps are the same, uses are summed."""
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
        """The pattern with that id."""
        return self._patterns.get(pattern_id)

    def get_patterns_for_domain(self, domain: str) -> list[LearnedPattern]:
        """The patterns of a domain and of those above it, by success rate, then by the time of the last use.

        Args:
            domain: Its name or an address there; ``www.`` makes no difference. Empty for what worked at no site.
        """
        found = [
            self._patterns[pattern_id]
            for one in iterate_parent_domains(to_site(domain))
            for pattern_id in self._by_domain.get(one, ())
        ]
        # The nearest domain comes first among equals: the order of a sort is stable.
        return sorted(found, key=lambda one: (one.success_rate, one.last_used), reverse=True)

    def record_usage(self, pattern_id: str, *, success: bool) -> LearnedPattern:
        """Count a use of a pattern.

        Raises:
            InvalidInputError: There is no pattern with that id.
        """
        pattern = self._patterns.get(pattern_id)
        if pattern is None:
            raise InvalidInputError(f"there is no pattern {pattern_id!r}: learn it first")
        used = replace(
            pattern,
            success_count=pattern.success_count + bool(success),
            failure_count=pattern.failure_count + (not success),
            last_used=self._now(),
        )
        self._patterns[pattern_id] = used
        return used

    def remove_pattern(self, pattern_id: str) -> bool:
        """Forget a pattern; whether there was one."""
        pattern = self._patterns.pop(pattern_id, None)
        if pattern is None:
            return False
        domain = to_site(pattern.domain)
        del self._by_domain[domain][pattern_id]
        if not self._by_domain[domain]:
            del self._by_domain[domain]
        return True

    def clear(self) -> None:
        """Forget all patterns."""
        self._patterns.clear()
        self._by_domain.clear()

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain JSON."""
        return {
            "max_patterns": self.max_patterns,
            "patterns": [pattern_to_dict(one) for one in self._patterns.values()],
        }

    @classmethod
    def from_dict(cls, value: object, now: Callable[[], float] = get_wall_seconds) -> PatternMemory:
        """The memory that ``to_dict`` wrote; ``InvalidInputError`` names what is wrong with it."""
        data = check_json_object(value, "long-term memory")
        memory = cls(data.get("max_patterns", 100), now)
        for index, one in enumerate(check_list(data.get("patterns", []), "patterns")):
            pattern = pattern_from_dict(one, f"patterns[{index}]")
            if pattern.pattern_id in memory._patterns:
                raise InvalidInputError(f"patterns[{index}] has the id {pattern.pattern_id!r} of another")
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
        least = sorted(self._patterns.values(), key=lambda one: (one.success_rate, one.last_used))
        for pattern in least[: len(least) - int(self.max_patterns * _KEPT_SHARE)]:
            self.remove_pattern(pattern.pattern_id)


def find_placeholders(pattern: LearnedPattern) -> list[str]:
    """The names that a pattern needs values for, in the order of its steps."""
    names = [name for text in _iterate_texts(pattern.steps) for _, name in PLACEHOLDER.findall(text)]
    return list(dict.fromkeys(filter(None, names)))


def fill_placeholders(pattern: LearnedPattern, values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The steps of a pattern with values in place of ``{name}``.

    A value that stands alone keeps its type; ``{{name}}`` stands for ``{name}`` itself. What looks like
    a placeholder within a value is left as it is.

    Raises:
        InvalidInputError: A value is missing.
    """
    missing = [name for name in find_placeholders(pattern) if name not in values]
    if missing:
        named = ", ".join(map(repr, missing))
        raise InvalidInputError(f"pattern {pattern.pattern_id!r} needs values for {named}: hand them in")
    return [{key: _substitute(one, values) for key, one in step.items()} for step in pattern.steps]


def escape_placeholders(text: str) -> str:
    """A text for a step in which nothing is taken for a placeholder."""
    return re.sub(rf"\{{({_NAME})\}}", r"{{\1}}", text)


@lru_cache(maxsize=10_000)
def to_site(address: str) -> str:
    """The host of an address, or of a domain's own name, in lower case and without ``www.`` or port."""
    text = address.strip().lower()
    return get_domain(text if "://" in text else f"https://{text}") or text


def pattern_to_dict(pattern: LearnedPattern) -> dict[str, Any]:
    """A pattern as plain JSON."""
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
    return (
        dict(step) if isinstance(step, Mapping) else step
    )  # what is none is refused by name on the way back


def pattern_from_dict(value: object, where: str = "pattern") -> LearnedPattern:
    """The pattern that plain JSON stands for; steps that are no JSON are refused by name."""
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
    """A domain as ``site_of`` writes it, and those above it."""
    # A last label alone is no site, unless it is all there is, as in localhost.
    yield domain
    _, dot, parent = domain.partition(".")
    while dot and "." in parent:
        yield parent
        _, dot, parent = parent.partition(".")


def _iterate_texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _iterate_texts(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _iterate_texts(one)


def _substitute(value: object, values: Mapping[str, Any]) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(value, str):
        alone = PLACEHOLDER.fullmatch(value)
        if alone and alone[2]:
            return values[alone[2]]
        return PLACEHOLDER.sub(lambda one: str(values[one[2]]) if one[2] else f"{{{one[1]}}}", value)
    if isinstance(value, Mapping):
        return {key: _substitute(one, values) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_substitute(one, values) for one in value]
    return to_plain_value(value)
