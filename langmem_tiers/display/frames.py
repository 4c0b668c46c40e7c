"""Results as pandas data frames (``pip install 'langmem-tiers[notebook]'``).

::

    from langmem_tiers.display import frame

    frame(namespace.recall("Who replaces Stripe?")).groupby("session")["score"].max()

pandas is imported only when the first frame is built.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from langmem_tiers.common.entries import Chunk, Entry
from langmem_tiers.common.messages import Message
from langmem_tiers.context.models import MemoryContext
from langmem_tiers.episodes.models import Episode, NarrativeArc
from langmem_tiers.errors import InvalidInputError, MissingExtraError
from langmem_tiers.facts.models import ExtractedFact
from langmem_tiers.knowledge.models import Knowledge, KnowledgeHit, PastKnowledge
from langmem_tiers.long_term.models import Related, Relation
from langmem_tiers.maintenance.models import Statistics, TableStatistics
from langmem_tiers.projects.models import ContextBuildResult, ContextItem, Conversation
from langmem_tiers.recall.models import Hit, Recall
from langmem_tiers.sessions.compression_plan import Plan, PlanAction
from langmem_tiers.sessions.models import MessagePage, SessionInfo, SessionPage
from langmem_tiers.tasks.models import Cycle, LearnedPattern
from langmem_tiers.tasks.sitemap import SitemapGraph
from langmem_tiers.tasks.sitemap_graph import SitemapPage
from langmem_tiers.tuning.models import TuningSnapshot

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd


DTYPES: Mapping[str, str | None] = {
    "text": "string[python]",
    "int": "int64",
    "Int64": "Int64",
    "float": "float64",
    "bool": "bool",
    "time": "datetime64[us, UTC]",
    "seconds": "datetime64[us, UTC]",
    "list": "object",
}
"""pandas dtype of each column kind. ``Int64`` columns may have missing values. Texts are stored unchanged, even invalid
Unicode."""


class Column(NamedTuple):
    """Name, kind and attribute path of a column."""

    name: str
    kind: str
    path: tuple[str, ...]


def parse_columns(line: str, *, under: str = "") -> tuple[Column, ...]:
    """Parse columns written as ``name``, ``name:kind`` or ``name:kind=attribute.path``. Default kind: text.

    Args:
        line: Columns separated by spaces.
        under: Attribute that contains the values.
    """
    return tuple(_parse_column(spec, [under] if under else []) for spec in line.split())


def _parse_column(spec: str, under: list[str]) -> Column:
    named, _, path = spec.partition("=")
    name, _, kind = named.partition(":")
    return Column(name, kind or "text", (*under, *(path or name).split(".")))


def get_column_value(value_object: object, column: Column) -> object:
    """Return the value of an object in a column, converted for pandas."""
    value = value_object
    for name in column.path:
        value = None if value is None else getattr(value, name)
    if isinstance(value, Enum):
        value = value.value
    if column.kind == "text" and isinstance(value, tuple):  # a namespace
        return "/".join(value)
    if column.kind == "seconds":
        return _to_datetime(value)
    if column.kind == "list":
        return tuple(sorted(value)) if isinstance(value, AbstractSet) else value
    return value


def _to_datetime(seconds: object) -> datetime | None:
    try:
        return datetime.fromtimestamp(seconds, UTC) if isinstance(seconds, int | float) else None
    except (OverflowError, ValueError, OSError):  # outside the years that datetime supports
        return None


_ENTRY_COLUMNS = (
    "tier kind state session role content importance:float relevance:float token_count:int created_at:time "
    "valid_from:time valid_until:time category tags:list source access_count:int id"
)
_KNOWLEDGE_COLUMNS = (
    "category key value confidence:float use_count:int store_count:int created_at:time updated_at:time "
    "last_used_at:time source"
)
_COLUMN_SPECS: Mapping[type, str] = {
    Entry: _ENTRY_COLUMNS,
    Relation: "source target kind strength:float created_at:time",
    Message: "id role content created_at:time token_count:int name is_compressed:bool tool_call_id",
    SessionInfo: (
        "namespace name message_count:int compressed_count:int token_count:int created_at:time updated_at:time"
    ),
    Knowledge: _KNOWLEDGE_COLUMNS,
    PastKnowledge: "category key value confidence:float valid_from:time valid_until:time reason source",
    TuningSnapshot: (
        "created_at:time tokens_before:int tokens_after:int tokens_saved:int entries_compressed:int "
        "entries_dropped:int entries_promoted:int usage_before:float usage_after:float "
        "compression_trigger:float=parameters.compression_trigger "
        "full_message_window:int=parameters.full_message_window min_relevance:float=parameters.min_relevance "
        "target_usage:float=parameters.target_usage is_reverted:bool reason"
    ),
    Episode: (
        "session first_turn:int last_turn:int kind title summary significance:float valence:float "
        "is_key_moment:bool outcome created_at:time id"
    ),
    Chunk: (
        "session number:int first_turn:int last_turn:int message_count:int summary topics:list token_count:int "
        "created_at:time id"
    ),
    ExtractedFact: "kind state confidence:float session content reason extracted_at:time category tags:list id",
    Cycle: (
        "time:seconds=timestamp tool:text=action.tool_name parameters:text=action.parameters_json outcome priority "
        "url page_title thought:text=thought.content observation:text=observation.text error_message "
        "duration_ms:float retry_count:int token_count:int=estimated_tokens tags:list id:text=entry_id"
    ),
    LearnedPattern: (
        "domain description pattern_type success_count:int failure_count:int success_rate:float "
        "last_used:seconds id:text=pattern_id"
    ),
    SitemapPage: (
        "url title depth:int is_visited:bool visited_at:seconds link_type link_text parent failure "
        "section_count:int summary"
    ),
    ContextItem: "kind id priority:float token_count:int content",
    Conversation: "id project_id status started_at:time ended_at:time outcome total_turns:int",
    TableStatistics: "name rows:int bytes:int",
    PlanAction: "kind message_id score:float=score.value reason",
}
COLUMNS: Mapping[type, tuple[Column, ...]] = {
    **{kind: parse_columns(line) for kind, line in _COLUMN_SPECS.items()},
    Hit: (*parse_columns("score:float found_by"), *parse_columns(_ENTRY_COLUMNS, under="entry")),
    Related: (*parse_columns("depth:int strength:float"), *parse_columns(_ENTRY_COLUMNS, under="entry")),
    KnowledgeHit: (*parse_columns("score:float"), *parse_columns(_KNOWLEDGE_COLUMNS, under="knowledge")),
}


__all__ = ["frame"]

_CONTEXT_COLUMNS = parse_columns("id state reason role token_count:Int64 created_at:time content")
_PART_COLUMNS = parse_columns("part")


def frame(result: object, *, of: type | None = None) -> pd.DataFrame:
    """Return a result as a data frame with typed columns, one row per object.

    Times are in UTC; missing values are NA. Hits get a column ``signal_…`` per signal. A context also gets a row for
    each message that it left out.

    Args:
        result: A recall, a context, a page, a narrative arc, a site map, or any list (or iterator) of hits,
            messages, entries, sessions, knowledge, snapshots, episodes, chunks, facts, relations or cycles. Any other
            report becomes one row with its fields.
        of: Type of the objects, such as ``Hit``, which defines the columns of a list that may be empty.

    Raises:
        MissingExtraError: pandas is not installed.
        InvalidInputError: The result is not an object of this library, or is a list of several types.
    """
    try:
        import pandas  # noqa: F401, ICN001, PLC0415 - optional dependency, imported on demand
    except ImportError as error:
        raise MissingExtraError("frame() needs pandas: pip install 'langmem-tiers[notebook]'") from error
    if isinstance(result, MemoryContext):
        return _build_frame(_CONTEXT_COLUMNS, _iter_context_rows(result))
    if isinstance(result, NarrativeArc):
        return _build_arc_frame(result)
    things, kind = _extract_items(result)
    return _build_typed_frame(things, kind if of is None else of)


def _extract_items(result: object) -> tuple[list[object], type | None]:
    for container, (kind, get_items) in _CONTAINERS.items():
        if isinstance(result, container):
            return list(get_items(result)), kind
    if is_dataclass(result) and not isinstance(result, type):
        return [result], type(result)
    if isinstance(result, Iterable) and not isinstance(result, str | bytes | Mapping):
        things = list(result)
        return things, type(things[0]) if things else None
    raise _build_unsupported_error(result)


_CONTAINERS: Mapping[type, tuple[type, Callable[[Any], Iterable[object]]]] = {
    Recall: (Hit, lambda recall: recall.hits),
    MessagePage: (Message, lambda page: page.messages),
    SessionPage: (SessionInfo, lambda page: page.sessions),
    SitemapGraph: (SitemapPage, lambda graph: graph.pages()),
    ContextBuildResult: (ContextItem, lambda built: built.allocation.items),
    Plan: (PlanAction, lambda plan: plan.actions),
    Statistics: (TableStatistics, lambda statistics: statistics.tables),
}


def _build_typed_frame(things: Sequence[object], kind: type | None) -> pd.DataFrame:
    if kind is None:
        return _build_frame((), ())
    other = next((value_object for value_object in things if not isinstance(value_object, kind)), None)
    if other is not None:
        raise InvalidInputError(
            f"frame() expects objects of one type, got {type(other).__name__} among {kind.__name__} objects: "
            "make two frames"
        )
    columns = next((found for known, found in COLUMNS.items() if issubclass(kind, known)), None)
    if columns is None:
        if not is_dataclass(kind):
            raise _build_unsupported_error(kind)
        columns = tuple(Column(field.name, "", (field.name,)) for field in fields(kind))
    table = _build_frame(
        columns, ([get_column_value(value_object, column) for column in columns] for value_object in things)
    )
    return _add_signal_columns(table, things) if issubclass(kind, Hit) else table


def _add_signal_columns(table: pd.DataFrame, hits: Sequence[Any]) -> pd.DataFrame:
    names = dict.fromkeys(chain.from_iterable(hit.signals for hit in hits))
    for name in names:
        table[f"signal_{name}"] = [float(hit.signals.get(name, "nan")) for hit in hits]
    return table


def _build_arc_frame(story: NarrativeArc) -> pd.DataFrame:
    parts = {"beginning": story.beginning, "middle": story.middle, "end": story.end}
    table = _build_typed_frame([episode for episodes in parts.values() for episode in episodes], Episode)
    part = [name for name, episodes in parts.items() for _ in episodes]
    table.insert(0, "part", _build_frame(_PART_COLUMNS, ([name] for name in part))["part"])
    return table


def _iter_context_rows(context: MemoryContext) -> Iterable[Sequence[object]]:
    messages = {message.id: message for message in context.messages}
    for message_id, state in context.states.items():
        decision = [message_id, state, context.reasons.get(message_id)]
        message = messages.get(message_id)  # None if the message is not in the context
        details = (
            [None] * 4
            if message is None
            else [message.role.value, message.token_count, message.created_at, message.content]
        )
        yield [*decision, *details]


def _build_frame(columns: Sequence[Column], rows: Iterable[Sequence[object]]) -> pd.DataFrame:
    import pandas as pd  # noqa: PLC0415 - optional dependency, loaded already

    # Transposed to columns; without rows, every column is empty but keeps its dtype.
    values = list(zip(*rows, strict=True)) or [()] * len(columns)
    return pd.DataFrame(
        {
            column.name: pd.Series(list(column_values), dtype=DTYPES.get(column.kind))
            for column, column_values in zip(columns, values, strict=True)
        }
    )


def _build_unsupported_error(value: object) -> InvalidInputError:
    name = value.__name__ if isinstance(value, type) else type(value).__name__
    return InvalidInputError(
        f"frame() does not support {name}: pass a result of recall(), build_context(), page(), history() and so on"
    )
