"""Results as pandas frames (``pip install 'langmem-tiers[notebook]'``).

::

    from langmem_tiers.frames import frame

    frame(namespace.recall("Who replaces Stripe?")).groupby("session")["score"].max()

Nothing of pandas is imported before the first frame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from langmem_tiers.core.context import Context
from langmem_tiers.core.episodes import Episode, NarrativeArc
from langmem_tiers.core.errors import InvalidInputError, MissingExtraError
from langmem_tiers.core.memory_system import ContextBuildResult, ContextItem
from langmem_tiers.core.messages import Message
from langmem_tiers.core.recall import Hit, Recall
from langmem_tiers.core.reports import MessagePage, SessionInfo, SessionPage
from langmem_tiers.core.upkeep import Statistics, TableStatistics
from langmem_tiers.flows.plans import Action, Plan
from langmem_tiers.frame_columns import COLUMNS, DTYPES, Column, columns_of, value_of
from langmem_tiers.tiers.task.sitemap import SitemapGraph
from langmem_tiers.tiers.task.sitemap_pages import SitemapPage

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

__all__ = ["frame"]

_CONTEXT = columns_of("id state reason role token_count:Int64 created_at:time content")
_PART = columns_of("part")


def frame(result: object, *, of: type | None = None) -> pd.DataFrame:
    """A result as a frame, one row for each thing in it, with typed columns.

    Times are in UTC, what is not there is missing. Hits have a column ``signal_…`` for each signal, and a context has
    a row for each message that it left out as well.

    Args:
        result: What a verb gave: a recall, a context, a page, a story, a site map, or any list (or iterator) of hits,
            messages, entries, sessions, knowledge, snapshots, episodes, chunks, facts, relations or cycles. Any other
            report becomes one row with its fields.
        of: What is in the list, such as ``Hit``, for the columns of a list that may be empty.

    Raises:
        MissingExtraError: There is no pandas.
        InvalidInputError: It is nothing of this library, or a list of several kinds.
    """
    try:
        import pandas  # noqa: F401, ICN001, PLC0415 - an extra, and not before it is needed
    except ImportError as error:
        raise MissingExtraError("frame() needs pandas: pip install 'langmem-tiers[notebook]'") from error
    if isinstance(result, Context):
        return _made(_CONTEXT, _context_rows(result))
    if isinstance(result, NarrativeArc):
        return _arc(result)
    things, kind = _things(result)
    return _listed(things, kind if of is None else of)


def _things(result: object) -> tuple[list[object], type | None]:
    for holder, (kind, held) in _HOLDERS.items():
        if isinstance(result, holder):
            return list(held(result)), kind
    if is_dataclass(result) and not isinstance(result, type):
        return [result], type(result)
    if isinstance(result, Iterable) and not isinstance(result, str | bytes | Mapping):
        things = list(result)
        return things, type(things[0]) if things else None
    raise _no_result(result)


_HOLDERS: Mapping[type, tuple[type, Callable[[Any], Iterable[object]]]] = {
    Recall: (Hit, lambda one: one.hits),
    MessagePage: (Message, lambda one: one.messages),
    SessionPage: (SessionInfo, lambda one: one.sessions),
    SitemapGraph: (SitemapPage, lambda one: one.pages()),
    ContextBuildResult: (ContextItem, lambda one: one.allocation.items),
    Plan: (Action, lambda one: one.actions),
    Statistics: (TableStatistics, lambda one: one.tables),
}


def _listed(things: Sequence[object], kind: type | None) -> pd.DataFrame:
    if kind is None:
        return _made((), ())
    other = next((one for one in things if not isinstance(one, kind)), None)
    if other is not None:
        raise InvalidInputError(
            f"a frame is of one kind, got a {type(other).__name__} among {kind.__name__}: make two frames"
        )
    columns = next((found for known, found in COLUMNS.items() if issubclass(kind, known)), None)
    if columns is None:
        if not is_dataclass(kind):
            raise _no_result(kind)
        columns = tuple(Column(one.name, "", (one.name,)) for one in fields(kind))
    made = _made(columns, ([value_of(one, column) for column in columns] for one in things))
    return _with_signals(made, things) if issubclass(kind, Hit) else made


def _with_signals(made: pd.DataFrame, hits: Sequence[Any]) -> pd.DataFrame:
    names = dict.fromkeys(chain.from_iterable(hit.signals for hit in hits))
    for name in names:
        made[f"signal_{name}"] = [float(hit.signals.get(name, "nan")) for hit in hits]
    return made


def _arc(story: NarrativeArc) -> pd.DataFrame:
    parts = {"beginning": story.beginning, "middle": story.middle, "end": story.end}
    made = _listed([one for those in parts.values() for one in those], Episode)
    part = [name for name, those in parts.items() for _ in those]
    made.insert(0, "part", _made(_PART, ([name] for name in part))["part"])
    return made


def _context_rows(context: Context) -> Iterable[Sequence[object]]:
    said = {message.id: message for message in context.messages}
    for name, state in context.states.items():
        about = [name, state, context.reasons.get(name)]
        message = said.get(name)
        rest = (
            [None] * 4
            if message is None
            else [message.role.value, message.token_count, message.created_at, message.content]
        )
        yield [*about, *rest]


def _made(columns: Sequence[Column], rows: Iterable[Sequence[object]]) -> pd.DataFrame:
    import pandas as pd  # noqa: PLC0415 - an extra, and here it is in use

    values = list(zip(*rows, strict=True)) or [()] * len(columns)
    return pd.DataFrame(
        {
            column.name: pd.Series(list(held), dtype=DTYPES.get(column.kind))
            for column, held in zip(columns, values, strict=True)
        }
    )


def _no_result(value: object) -> InvalidInputError:
    name = value.__name__ if isinstance(value, type) else type(value).__name__
    return InvalidInputError(
        f"there is no frame of a {name}: use what recall(), build_context(), page(), history() and the like gave"
    )
