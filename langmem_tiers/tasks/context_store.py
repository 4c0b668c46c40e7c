"""What is known around a task: what the user said, what was found out, and what was just extracted."""

from __future__ import annotations

import math
import re
from collections import OrderedDict, deque
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from langmem_tiers.common.checks import check_whole
from langmem_tiers.common.clock import SystemClock
from langmem_tiers.common.plain_values import to_plain_value
from langmem_tiers.context_files.checks import (
    check_list,
    check_not_empty,
    check_number,
    check_object,
    check_text,
    check_unix_seconds,
)
from langmem_tiers.errors import InvalidInputError
from langmem_tiers.tasks.cycles import check_json_object
from langmem_tiers.text.tokenize import extract_terms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

MAX_EXTRACTION_AGE_SECONDS = 300
"""How long an extraction counts as fresh."""
_MAX_HISTORY = 1_000
_MAX_EXTRACTIONS = 200
_MAX_VALUE_CHARACTERS = 2_000  # of a value that relevance looks at
_KEY_WEIGHT = 2.0  # a key says what a value is about
_CAMEL_CASE_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_CLOCK = SystemClock()


def get_wall_seconds() -> float:
    """Seconds since 1970, by the machine's clock: for those who hand in no other."""
    return _CLOCK.now().timestamp()


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextChange:
    """Something that became known."""

    time: float
    """Seconds since 1970."""
    key: str
    value: Any
    source: str
    kind: str
    """``user`` or ``inferred``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedExtraction:
    """Data that was taken from a page."""

    key: str
    data: Any
    time: float
    """Seconds since 1970."""


@dataclass(frozen=True, slots=True)
class _ContextValue:
    value: Any
    source: str
    key_terms: frozenset[str]
    value_terms: frozenset[str]


class TaskContext:
    """Context of a task.

    Values are plain JSON and copied: change one and set it again. Those in the history and in the list of
    extractions are not copied, and not to be changed.
    """

    def __init__(self, now: Callable[[], float] = get_wall_seconds) -> None:
        self._now = now
        self._user_values: dict[str, _ContextValue] = {}
        self._inferred_values: dict[str, _ContextValue] = {}
        self._history: deque[ContextChange] = deque(maxlen=_MAX_HISTORY)
        self._extractions: OrderedDict[str, CachedExtraction] = OrderedDict()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TaskContext) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment] # it changes

    def set_user_context(self, context: Mapping[str, Any]) -> None:
        """Take what the user said in place of what was said before."""
        if not isinstance(context, Mapping):
            raise InvalidInputError(f"user context must be a mapping, got a {type(context).__name__}")
        said = check_object(dict(context), "user context")
        self._user_values = {key: _build_value(key, value, "user") for key, value in said.items()}
        for key, value in said.items():
            self._add_change(key, value, "user", "user")

    @property
    def user_context(self) -> dict[str, Any]:
        """What the user said."""
        return {key: known.value for key, known in self._user_values.items()}

    def add_inferred(self, key: str, value: object, source: str = "") -> None:
        """Remember what was found out, and by what; what the user said goes before it."""
        check_not_empty(key, "the key of inferred context")
        ((key, held),) = check_object({key: value}, "inferred context").items()
        self._inferred_values[key] = _build_value(key, held, check_text(source, "source"))
        self._add_change(key, held, source, "inferred")

    def get(self, key: str, default: Any = None) -> Any:  # noqa: ANN401 - any JSON value
        """What is known under a key: by the user, else found out, else the default."""
        known = self._user_values.get(key) or self._inferred_values.get(key)
        return default if known is None else deepcopy(known.value)

    def get_all(self) -> dict[str, Any]:
        """All that is known."""
        return {key: deepcopy(known.value) for key, known in self._merge_values().items()}

    def get_source(self, key: str) -> str | None:
        """Where it is known from: ``user``, or what was handed in with it; ``None`` if it is not known."""
        known = self._user_values.get(key) or self._inferred_values.get(key)
        return None if known is None else known.source

    @property
    def history(self) -> list[ContextChange]:
        """The last thousand changes, the oldest first."""
        return list(self._history)

    def get_relevant_context(self, task_text: str, limit: int | None = None) -> dict[str, Any]:
        """What shares words with a task, the best first; words of a key count twice those of its value."""
        asked = frozenset(extract_terms(task_text))
        scored = [(_score_overlap(asked, known), key) for key, known in self._merge_values().items()]
        scored = [one for one in scored if one[0] > 0]
        scored.sort(key=lambda one: -one[0])
        found = scored if limit is None else scored[: check_whole(limit, 0, "limit")]
        return {key: self.get(key) for _, key in found}

    def cache_extraction(self, key: str, data: object) -> None:
        """Hold data for a while, as plain JSON: what is none by its text. Of 200 the oldest leaves."""
        check_not_empty(key, "the key of an extraction")
        try:
            held = check_object({key: data}, "extraction")
        except InvalidInputError:  # what is no JSON
            held = check_object({key: to_plain_value(data)}, "extraction")
        self._put_extraction(CachedExtraction(key=key, data=held[key], time=self._now()))

    def get_cached_extraction(self, key: str, max_age_seconds: float = MAX_EXTRACTION_AGE_SECONDS) -> Any:  # noqa: ANN401 - any JSON value
        """The data that was held, or ``None`` if it is older than that.

        What is too old is dropped; what is only too old for a caller that asks for less than five
        minutes stays for others.
        """
        check_number(max_age_seconds, "max_age_seconds")
        held = self._extractions.get(key)
        if held is None:
            return None
        age_seconds = self._now() - held.time
        if age_seconds > max(max_age_seconds, MAX_EXTRACTION_AGE_SECONDS):
            del self._extractions[key]
        return deepcopy(held.data) if age_seconds <= max_age_seconds else None

    def extractions(self, max_age_seconds: float | None = None) -> list[CachedExtraction]:
        """What is held, the newest first; of any age unless one is asked for, since a task may take long."""
        since = -math.inf if max_age_seconds is None else self._now() - max_age_seconds
        return [one for one in reversed(self._extractions.values()) if one.time >= since]

    def clear(self, *, keep_user: bool = True) -> None:
        """Forget what was found out and extracted, and what the user said unless it is kept."""
        if not keep_user:
            self._user_values.clear()
        kept = [one for one in self._history if keep_user and one.kind == "user"]
        self._history = deque(kept, maxlen=_MAX_HISTORY)
        self._inferred_values.clear()
        self._extractions.clear()

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain JSON."""
        return {
            "user": {key: known.value for key, known in self._user_values.items()},
            "inferred": {
                key: {"value": known.value, "source": known.source}
                for key, known in self._inferred_values.items()
            },
            "history": [asdict(one) for one in self._history],
            "extractions": [asdict(one) for one in self._extractions.values()],
        }

    @classmethod
    def from_dict(cls, value: object, now: Callable[[], float] = get_wall_seconds) -> TaskContext:
        """The store that ``to_dict`` wrote; ``InvalidInputError`` names what is wrong with it."""
        data = check_json_object(value, "context store")
        store = cls(now)
        said = check_object(data.get("user", {}), "user")
        store._user_values = {key: _build_value(key, one, "user") for key, one in said.items()}
        for key, one in check_json_object(data.get("inferred", {}), "inferred").items():
            where = f"inferred[{key!r}]"
            held = check_json_object(one, where)
            source = check_text(held.get("source", ""), f"{where}.source")
            store._inferred_values[key] = _build_value(key, _parse_value(held, "value", where), source)
        for where, held in _iterate_objects(data, "history"):
            store._history.append(_parse_change(held, where))
        for where, held in _iterate_objects(data, "extractions"):
            store._put_extraction(_parse_extraction(held, where))
        return store

    def _merge_values(self) -> dict[str, _ContextValue]:
        # What the user said comes first, so that it stays in front of what is as relevant.
        return {
            **self._user_values,
            **{key: one for key, one in self._inferred_values.items() if key not in self._user_values},
        }

    def _add_change(self, key: str, value: object, source: str, kind: str) -> None:
        change = ContextChange(time=self._now(), key=key, value=value, source=source, kind=kind)
        self._history.append(change)

    def _put_extraction(self, extraction: CachedExtraction) -> None:
        self._extractions[extraction.key] = extraction
        self._extractions.move_to_end(extraction.key)
        if len(self._extractions) > _MAX_EXTRACTIONS:
            self._extractions.popitem(last=False)


def _build_value(key: str, value: object, source: str) -> _ContextValue:
    text = " ".join(_iterate_texts(value))[:_MAX_VALUE_CHARACTERS]
    return _ContextValue(value, source, frozenset(_tokenize(key)), frozenset(_tokenize(text)))


def _tokenize(text: str) -> Iterable[str]:
    return extract_terms(_CAMEL_CASE_BOUNDARY.sub(" ", text))


def _iterate_texts(value: object) -> Iterator[str]:
    # Yes, no and nothing are words of no task.
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield str(key)
            yield from _iterate_texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from _iterate_texts(one)
    elif value is not None and not isinstance(value, bool):
        yield str(value)


def _score_overlap(asked: frozenset[str], known: _ContextValue) -> float:
    in_key, in_value = len(asked & known.key_terms), len(asked & known.value_terms)
    # A long value shares words with any task.
    return _KEY_WEIGHT * in_key + in_value / math.sqrt(max(1, len(known.value_terms)))


def _iterate_objects(data: Mapping[str, Any], name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for index, one in enumerate(check_list(data.get(name, []), name)):
        yield f"{name}[{index}]", check_json_object(one, f"{name}[{index}]")


def _parse_value(held: Mapping[str, Any], name: str, where: str) -> Any:  # noqa: ANN401 - any JSON value
    return check_object({name: held.get(name)}, where)[name]


def _parse_change(held: Mapping[str, Any], where: str) -> ContextChange:
    kind = check_text(held.get("kind"), f"{where}.kind")
    if kind not in {"user", "inferred"}:
        raise InvalidInputError(f"{where}.kind must be 'user' or 'inferred', got {kind[:40]!r}")
    return ContextChange(
        time=check_unix_seconds(held.get("time"), f"{where}.time"),
        key=check_text(held.get("key"), f"{where}.key"),
        value=_parse_value(held, "value", where),
        source=check_text(held.get("source", ""), f"{where}.source"),
        kind=kind,
    )


def _parse_extraction(held: Mapping[str, Any], where: str) -> CachedExtraction:
    return CachedExtraction(
        key=check_not_empty(held.get("key"), f"{where}.key"),
        data=_parse_value(held, "data", where),
        time=check_unix_seconds(held.get("time"), f"{where}.time"),
    )
