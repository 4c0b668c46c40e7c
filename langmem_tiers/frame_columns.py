"""Which columns a frame has, for each kind of thing, and of which type."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from enum import Enum
from typing import NamedTuple

from langmem_tiers.core.entries import Chunk, Entry
from langmem_tiers.core.episodes import Episode
from langmem_tiers.core.extracted import ExtractedFact
from langmem_tiers.core.knowledge import Knowledge, KnowledgeHit, PastKnowledge
from langmem_tiers.core.long_term import Related, Relation
from langmem_tiers.core.memory_system import ContextItem, Conversation
from langmem_tiers.core.messages import Message
from langmem_tiers.core.recall import Hit
from langmem_tiers.core.reports import SessionInfo
from langmem_tiers.core.tasks import LearnedPattern, MemoryEntry
from langmem_tiers.core.tuning import Snapshot
from langmem_tiers.core.upkeep import TableStatistics
from langmem_tiers.flows.plans import Action
from langmem_tiers.tiers.task.sitemap_pages import SitemapPage

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
"""What pandas calls each kind of column. In ``Int64`` numbers may be missing; texts are kept as they are, even those
that are no valid Unicode."""


class Column(NamedTuple):
    """A column: its name, its kind, and where its values are."""

    name: str
    kind: str
    path: tuple[str, ...]


def columns_of(line: str, *, under: str = "") -> tuple[Column, ...]:
    """Columns in one line: ``name``, ``name:kind`` or ``name:kind=where.it.is``; texts, if no kind is named.

    Args:
        line: The columns.
        under: The attribute that has them.
    """
    return tuple(_column(one, [under] if under else []) for one in line.split())


def _column(written: str, under: list[str]) -> Column:
    named, _, path = written.partition("=")
    name, _, kind = named.partition(":")
    return Column(name, kind or "text", (*under, *(path or name).split(".")))


def value_of(thing: object, column: Column) -> object:
    """The value of a thing in a column, as pandas takes it."""
    value = thing
    for name in column.path:
        value = None if value is None else getattr(value, name)
    if isinstance(value, Enum):
        value = value.value
    if column.kind == "text" and isinstance(value, tuple):  # a namespace
        return "/".join(value)
    if column.kind == "seconds":
        return _moment(value)
    if column.kind == "list":
        return tuple(sorted(value)) if isinstance(value, AbstractSet) else value
    return value


def _moment(seconds: object) -> datetime | None:
    try:
        return datetime.fromtimestamp(seconds, UTC) if isinstance(seconds, int | float) else None
    except (OverflowError, ValueError, OSError):  # no year that a calendar has
        return None


_ENTRY = (
    "tier kind state session role content importance:float relevance:float token_count:int created_at:time "
    "valid_from:time valid_until:time category tags:list source access_count:int id"
)
_KNOWLEDGE = (
    "category key value confidence:float use_count:int store_count:int created_at:time updated_at:time "
    "last_used_at:time source"
)
_LINES: Mapping[type, str] = {
    Entry: _ENTRY,
    Relation: "source target kind strength:float created_at:time",
    Message: "id role content created_at:time token_count:int name is_compressed:bool tool_call_id",
    SessionInfo: (
        "namespace name message_count:int compressed_count:int token_count:int created_at:time updated_at:time"
    ),
    Knowledge: _KNOWLEDGE,
    PastKnowledge: "category key value confidence:float valid_from:time valid_until:time reason source",
    Snapshot: (
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
    MemoryEntry: (
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
    Action: "kind message_id score:float=score.value reason",
}
COLUMNS: Mapping[type, tuple[Column, ...]] = {
    **{kind: columns_of(line) for kind, line in _LINES.items()},
    Hit: (*columns_of("score:float found_by"), *columns_of(_ENTRY, under="entry")),
    Related: (*columns_of("depth:int strength:float"), *columns_of(_ENTRY, under="entry")),
    KnowledgeHit: (*columns_of("score:float"), *columns_of(_KNOWLEDGE, under="knowledge")),
}
