"""Context of a task: user context, inferred context and recently extracted data."""

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
from langmem_tiers.common.json_values import to_plain_value
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
"""Default maximum age of a cached extraction."""
_MAX_HISTORY = 1_000
_MAX_EXTRACTIONS = 200
# Characters of a value that are compared with the task.
_MAX_VALUE_CHARACTERS = 2_000
# A match in the key counts twice, because the key names the subject of the value.
_KEY_WEIGHT = 2.0
_CAMEL_CASE_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_CLOCK = SystemClock()


def get_wall_seconds() -> float:
    """Return the system time in seconds since 1970, the default clock of this package."""
    return _CLOCK.now().timestamp()


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextChange:
    """A change of the user context or the inferred context."""

    time: float
    """Seconds since 1970."""
    key: str
    value: Any
    source: str
    kind: str
    """``user`` or ``inferred``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedExtraction:
    """Data extracted from a page."""

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

    Values are plain JSON and are copied, so changes to a returned value have no effect: set it again. Values in
    ``history`` and ``extractions()`` are not copied and must not be changed.
    """

    def __init__(self, now: Callable[[], float] = get_wall_seconds) -> None:
        self._now = now
        self._user_values: dict[str, _ContextValue] = {}
        self._inferred_values: dict[str, _ContextValue] = {}
        self._history: deque[ContextChange] = deque(maxlen=_MAX_HISTORY)
        # No SizedLruCache: the order is that of writing, and saved with the task. Reading must not change it.
        self._extractions: OrderedDict[str, CachedExtraction] = OrderedDict()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TaskContext) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment] # mutable

    def set_user_context(self, context: Mapping[str, Any]) -> None:
        """Replace the user context."""
        if not isinstance(context, Mapping):
            raise InvalidInputError(
                f"user context must be a mapping, got {type(context).__name__}: use a dict"
            )
        values = check_object(dict(context), "user context")
        self._user_values = {key: _build_value(key, value, "user") for key, value in values.items()}
        for key, value in values.items():
            self._add_change(key, value, "user", "user")

    @property
    def user_context(self) -> dict[str, Any]:
        """Information from the user, by key."""
        return {key: stored.value for key, stored in self._user_values.items()}

    def add_inferred(self, key: str, value: object, source: str = "") -> None:
        """Store inferred context and its source. User context under the same key takes precedence."""
        check_not_empty(key, "the key of inferred context")
        ((key, checked),) = check_object({key: value}, "inferred context").items()
        self._inferred_values[key] = _build_value(key, checked, check_text(source, "source"))
        self._add_change(key, checked, source, "inferred")

    def get(self, key: str, default: Any = None) -> Any:  # noqa: ANN401 - any JSON value
        """Return a value from the user context, else from the inferred context, else the default."""
        stored = self._user_values.get(key) or self._inferred_values.get(key)
        return default if stored is None else deepcopy(stored.value)

    def get_all(self) -> dict[str, Any]:
        """Return the user context and the inferred context by key."""
        return {key: deepcopy(stored.value) for key, stored in self._merge_values().items()}

    def get_source(self, key: str) -> str | None:
        """Return the source of a value: ``user``, the source that was passed with it, or None if unknown."""
        stored = self._user_values.get(key) or self._inferred_values.get(key)
        return None if stored is None else stored.source

    @property
    def history(self) -> list[ContextChange]:
        """The last 1,000 changes, oldest first."""
        return list(self._history)

    def get_relevant_context(self, task_text: str, limit: int | None = None) -> dict[str, Any]:
        """Return the values that share words with a task, best first; words of a key count twice."""
        task_terms = frozenset(extract_terms(task_text))
        scored = [(_score_overlap(task_terms, stored), key) for key, stored in self._merge_values().items()]
        scored = [(score, key) for score, key in scored if score > 0]
        scored.sort(key=lambda score_and_key: -score_and_key[0])
        best = scored if limit is None else scored[: check_whole(limit, 0, "limit")]
        return {key: self.get(key) for _, key in best}

    def cache_extraction(self, key: str, data: object) -> None:
        """Cache extracted data as plain JSON, other objects as text. Only the newest 200 are kept."""
        check_not_empty(key, "the key of an extraction")
        try:
            checked = check_object({key: data}, "extraction")
        except InvalidInputError:
            # The data is not plain JSON.
            checked = check_object({key: to_plain_value(data)}, "extraction")
        self._put_extraction(CachedExtraction(key=key, data=checked[key], time=self._now()))

    def get_cached_extraction(self, key: str, max_age_seconds: float = MAX_EXTRACTION_AGE_SECONDS) -> Any:  # noqa: ANN401 - any JSON value
        """Return cached data, or None if it is missing or older than ``max_age_seconds``.

        An entry that exceeds both ``max_age_seconds`` and five minutes is removed. A caller with a shorter limit
        therefore does not remove data that others may still use.
        """
        check_number(max_age_seconds, "max_age_seconds")
        cached = self._extractions.get(key)
        if cached is None:
            return None
        age_seconds = self._now() - cached.time
        if age_seconds > max(max_age_seconds, MAX_EXTRACTION_AGE_SECONDS):
            del self._extractions[key]
        return deepcopy(cached.data) if age_seconds <= max_age_seconds else None

    def extractions(self, max_age_seconds: float | None = None) -> list[CachedExtraction]:
        """Return the cached extractions, newest first; without ``max_age_seconds``, of any age."""
        since = -math.inf if max_age_seconds is None else self._now() - max_age_seconds
        return [extraction for extraction in reversed(self._extractions.values()) if extraction.time >= since]

    def clear(self, *, keep_user: bool = True) -> None:
        """Remove inferred context and extractions, and the user context too unless ``keep_user`` is set."""
        if not keep_user:
            self._user_values.clear()
        kept = [change for change in self._history if keep_user and change.kind == "user"]
        self._history = deque(kept, maxlen=_MAX_HISTORY)
        self._inferred_values.clear()
        self._extractions.clear()

    def to_dict(self) -> dict[str, Any]:
        """Convert the context to plain JSON values."""
        return {
            "user": {key: stored.value for key, stored in self._user_values.items()},
            "inferred": {
                key: {"value": stored.value, "source": stored.source}
                for key, stored in self._inferred_values.items()
            },
            "history": [asdict(change) for change in self._history],
            "extractions": [asdict(extraction) for extraction in self._extractions.values()],
        }

    @classmethod
    def from_dict(cls, value: object, now: Callable[[], float] = get_wall_seconds) -> TaskContext:
        """Restore a context from ``to_dict``; an ``InvalidInputError`` names damaged values."""
        data = check_json_object(value, "context store")
        store = cls(now)
        user_values = check_object(data.get("user", {}), "user")
        store._user_values = {key: _build_value(key, item, "user") for key, item in user_values.items()}
        for key, item in check_json_object(data.get("inferred", {}), "inferred").items():
            where = f"inferred[{key!r}]"
            inferred = check_json_object(item, where)
            source = check_text(inferred.get("source", ""), f"{where}.source")
            store._inferred_values[key] = _build_value(key, _parse_value(inferred, "value", where), source)
        for where, change in _iterate_objects(data, "history"):
            store._history.append(_parse_change(change, where))
        for where, extraction in _iterate_objects(data, "extractions"):
            store._put_extraction(_parse_extraction(extraction, where))
        return store

    def _merge_values(self) -> dict[str, _ContextValue]:
        # User values come first: sorting by relevance is stable, so they precede equally relevant inferred values.
        return {
            **self._user_values,
            **{key: stored for key, stored in self._inferred_values.items() if key not in self._user_values},
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
    # Booleans and None are left out: "True" does not occur in the text of a task.
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield str(key)
            yield from _iterate_texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _iterate_texts(item)
    elif value is not None and not isinstance(value, bool):
        yield str(value)


def _score_overlap(task_terms: frozenset[str], stored: _ContextValue) -> float:
    in_key, in_value = len(task_terms & stored.key_terms), len(task_terms & stored.value_terms)
    # Normalize by the length of the value: a long value shares words with any task.
    return _KEY_WEIGHT * in_key + in_value / math.sqrt(max(1, len(stored.value_terms)))


def _iterate_objects(data: Mapping[str, Any], name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for index, item in enumerate(check_list(data.get(name, []), name)):
        yield f"{name}[{index}]", check_json_object(item, f"{name}[{index}]")


def _parse_value(data: Mapping[str, Any], name: str, where: str) -> Any:  # noqa: ANN401 - any JSON value
    return check_object({name: data.get(name)}, where)[name]


def _parse_change(data: Mapping[str, Any], where: str) -> ContextChange:
    kind = check_text(data.get("kind"), f"{where}.kind")
    if kind not in {"user", "inferred"}:
        raise InvalidInputError(f"{where}.kind must be 'user' or 'inferred', got {kind[:40]!r}")
    return ContextChange(
        time=check_unix_seconds(data.get("time"), f"{where}.time"),
        key=check_text(data.get("key"), f"{where}.key"),
        value=_parse_value(data, "value", where),
        source=check_text(data.get("source", ""), f"{where}.source"),
        kind=kind,
    )


def _parse_extraction(data: Mapping[str, Any], where: str) -> CachedExtraction:
    return CachedExtraction(
        key=check_not_empty(data.get("key"), f"{where}.key"),
        data=_parse_value(data, "data", where),
        time=check_unix_seconds(data.get("time"), f"{where}.time"),
    )
