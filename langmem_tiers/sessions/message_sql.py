"""SQL statements for the message record of a session, the same for every database."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeAlias

from sqlalchemy import (
    and_,
    bindparam,
    cast,
    exists,
    func,
    insert,
    literal_column,
    or_,
    select,
    union_all,
    update,
)

from langmem_tiers.common.messages import Message, MessageToolCall, Role
from langmem_tiers.common.namespaces import escape, unescape
from langmem_tiers.sessions.models import IN_LIST, Listing
from langmem_tiers.storage.column_types import pack_json, to_storable_text, unpack_json
from langmem_tiers.storage.schema import MESSAGE_COLUMNS, POSITION_STEP, entries, listings, messages, sessions

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, CompoundSelect, Row, ScalarSelect, Select

    AnyRow: TypeAlias = Row[*tuple[Any, ...]]

_ROLES = {role.value: role for role in Role}


def to_message_row(message: Message, session_pk: int, position: int) -> dict[str, Any]:
    """Return the columns of a message."""
    # Databases cannot store every text, for example not a NUL character. Then the exact text goes into `extra`.
    content = to_storable_text(message.content)
    return {
        "session_pk": session_pk,
        "position": position,
        "id": escape(message.id),
        "role": message.role.value,
        "content": content,
        "created_at": message.created_at,
        "token_count": message.token_count,
        "token_counter": message.token_counter,
        "extra": _pack_extra(message, exact=content is not message.content),
        "payload": None if message.payload_json is None else pack_json(message.payload_json),
    }


def from_message_row(row: AnyRow, view: tuple[int, int]) -> Message:
    """Return the message of a row.

    Args:
        row: The row.
        view: Position and key at which the view of the session starts. Messages before it are compressed.
    """
    extra: dict[str, Any] = {} if row.extra is None else json.loads(unpack_json(row.extra))
    return Message(
        id=unescape(row.id),
        role=_ROLES[row.role],
        content=extra.get("content", row.content),
        created_at=row.created_at,
        token_count=row.token_count,
        token_counter=row.token_counter,
        is_compressed=(row.position, row.pk) < view,
        name=extra.get("name"),
        tool_calls=tuple(MessageToolCall(*call) for call in extra.get("tool_calls", ())),
        tool_call_id=extra.get("tool_call_id"),
        payload_json=None if row.payload is None else unpack_json(row.payload),
    )


def _pack_extra(message: Message, *, exact: bool) -> str | None:
    extra: dict[str, object] = {}
    if exact:
        extra["content"] = message.content
    if message.name is not None:
        extra["name"] = message.name
    if message.tool_calls:
        extra["tool_calls"] = [(call.id, call.name, call.arguments) for call in message.tool_calls]
    if message.tool_call_id is not None:
        extra["tool_call_id"] = message.tool_call_id
    return pack_json(json.dumps(extra, ensure_ascii=False, separators=(",", ":"))) if extra else None


# The session's row is the lock of its record: the transaction that updates it writes next. So positions have no gaps,
# and a reader never sees a later message before an earlier one.
_advance = update(sessions).values(
    last_position=sessions.c.last_position + bindparam("added") * POSITION_STEP,
    message_count=sessions.c.message_count + bindparam("added"),
    token_count=sessions.c.token_count + bindparam("tokens"),
    revision=sessions.c.revision + 1,
    updated_at=bindparam("now"),
)
ADVANCE_SESSION = _advance.where(sessions.c.pk == bindparam("key"))
_session_columns = (sessions.c.last_position, sessions.c.revision, sessions.c.namespace_pk)
ADVANCE_RETURNING = ADVANCE_SESSION.returning(*_session_columns)
_previous_state = (
    select(sessions.c.pk, sessions.c.updated_at)
    .where(sessions.c.pk == bindparam("key"))
    .with_for_update()
    .subquery("was")
)
ADVANCE_RETURNING_PREVIOUS = _advance.where(sessions.c.pk == _previous_state.c.pk).returning(
    *_session_columns, _previous_state.c.updated_at.label("was_at")
)
"""Like ``ADVANCE_RETURNING``, with the time of the previous write. SQLite has no such statement."""
INSERT_MESSAGE = insert(messages)
INSERT_COLUMNS = [column.name for column in messages.c if column.name != "pk"]
_advanced = ADVANCE_RETURNING_PREVIOUS.cte("moved")
_BOUND_COLUMNS = [name for name in INSERT_COLUMNS if name != "position"]
# One statement that advances the session and inserts one message, to save a round trip to the server.
APPEND_MESSAGE = (
    insert(messages)
    .from_select(
        [*_BOUND_COLUMNS, "position"],
        select(
            *(
                cast(bindparam(name, type_=messages.c[name].type), messages.c[name].type)
                for name in _BOUND_COLUMNS
            ),
            _advanced.c.last_position,
        ),
    )
    .returning(select(_advanced.c.revision).scalar_subquery(), select(_advanced.c.was_at).scalar_subquery())
)
SELECT_SESSION = select(sessions.c.revision, sessions.c.view_position, sessions.c.view_message).where(
    sessions.c.pk == bindparam("key")
)

# Each read is one statement, so that the session's row and its messages are consistent on every database, even during
# concurrent writes. The outer join returns the session's columns even if no message matches.
_position, _pk = messages.c.position, messages.c.pk
_session_messages = select(*MESSAGE_COLUMNS).where(messages.c.session_pk == bindparam("key"))
_newest_first = (_position.desc(), _pk.desc())


def _join_session(
    rows: Select[*tuple[Any, ...]] | CompoundSelect[*tuple[Any, ...]],
) -> Select[*tuple[Any, ...]]:
    found = rows.subquery("found")
    return (
        select(
            sessions.c.revision,
            sessions.c.view_position,
            sessions.c.view_message,
            sessions.c.compressed_count,
            sessions.c.view_revision,
            found,
        )
        .select_from(sessions.outerjoin(found, found.c.session_pk == sessions.c.pk))
        .where(sessions.c.pk == bindparam("key"))
        .order_by(found.c.position, found.c.pk)
    )


# Columns of an override, prefixed because the columns of its message have the same names.
OVERRIDE_COLUMNS = tuple(column.label(f"mark_{column.name}") for column in entries.c)


def _join_overrides(rows: Select[*tuple[Any, ...]]) -> Select[*tuple[Any, ...]]:
    found = rows.subquery("marked")
    return (
        select(found, *OVERRIDE_COLUMNS)
        .select_from(found.outerjoin(entries, entries.c.message_pk == found.c.pk))
        .order_by(found.c.position, found.c.pk)
    )


def _is_from_position(
    position: ScalarSelect[int], pk: ScalarSelect[int], *, inclusive: bool
) -> ColumnElement[bool]:
    # Equivalent to the row comparison (position, pk) >= (...), but so that the range on the position uses the index.
    return and_(_position >= position, or_(_position > position, _pk >= pk if inclusive else _pk > pk))


def _select_cursor(column: ColumnElement[int]) -> ScalarSelect[int]:
    return (
        select(column)
        .where(messages.c.session_pk == bindparam("key"), messages.c.id == bindparam("after"))
        .correlate(None)
        .scalar_subquery()
    )


def _select_view_start(column: ColumnElement[int]) -> ScalarSelect[int]:
    return select(column).where(sessions.c.pk == bindparam("key")).correlate(None).scalar_subquery()


def _is_listed(*states: Listing) -> ColumnElement[bool]:
    # Literals instead of parameters: statements run directly by the driver have only the caller's parameters.
    matches = (listings.c.listing == literal_column(f"'{state.value}'") for state in states)
    return exists().where(listings.c.message_pk == _pk, or_(*matches))


IS_REMOVED = _is_listed(Listing.REMOVED)
# Negated, because messages without a row in the table are in the list.
IS_IN_LIST = ~_is_listed(*(state for state in Listing if state not in IN_LIST))

SELECT_LATEST = _join_session(_session_messages.order_by(*_newest_first).limit(bindparam("limit")))
SELECT_FIRST_PAGE = _join_session(_session_messages.order_by(_position, _pk).limit(bindparam("limit")))
SELECT_NEXT_PAGE = _join_session(
    _session_messages.where(
        _is_from_position(_select_cursor(_position), _select_cursor(_pk), inclusive=False)
    )
    .order_by(_position, _pk)
    .limit(bindparam("limit"))
)
_cursor_position, _cursor_pk = _select_cursor(_position), _select_cursor(_pk)
SELECT_PREVIOUS_PAGE = _join_session(
    _session_messages.where(
        and_(_position <= _cursor_position, or_(_position < _cursor_position, _pk < _cursor_pk))
    )
    .order_by(*_newest_first)
    .limit(bindparam("limit"))
)
_view_position, _view_message = (
    _select_view_start(sessions.c.view_position),
    _select_view_start(sessions.c.view_message),
)
_visible_messages = _session_messages.where(
    _is_from_position(_view_position, _view_message, inclusive=True), IS_IN_LIST
)
_summary_message = _session_messages.where(_pk == _view_message)
SELECT_VIEW = _join_session(
    union_all(
        select(_visible_messages.order_by(*_newest_first).limit(bindparam("limit")).subquery()),
        select(_summary_message.subquery()),
    )
)
SELECT_MESSAGE = _join_session(_session_messages.where(messages.c.id == bindparam("id")))
SELECT_VIEW_WITH_OVERRIDES = _join_overrides(SELECT_VIEW)
SELECT_MESSAGE_WITH_OVERRIDE = _join_overrides(SELECT_MESSAGE)
SELECT_NEWER_WITH_OVERRIDES = _join_overrides(
    _join_session(
        _session_messages.where(_position > bindparam("newest"), IS_IN_LIST)
        .order_by(_position, _pk)
        .limit(bindparam("limit"))
    )
)

# Messages of the current list. Summaries have positions between those of messages and are not part of it.
_listing_or_active = func.coalesce(listings.c.listing, Listing.ACTIVE.value)
_listed_messages = _session_messages.outerjoin(listings, listings.c.message_pk == _pk).where(
    _position % POSITION_STEP == 0, _listing_or_active.in_(bindparam("listings", expanding=True))
)
SELECT_LIST = _join_session(
    _listed_messages.order_by(_position, _pk).limit(bindparam("limit")).offset(bindparam("offset"))
)
SELECT_LIST_END = _join_session(_listed_messages.order_by(*_newest_first).limit(bindparam("limit")))
# Returns no row if the session does not exist.
COUNT_LIST = select(
    select(func.count())
    .select_from(messages.outerjoin(listings, listings.c.message_pk == _pk))
    .where(
        messages.c.session_pk == bindparam("key"),
        _position % POSITION_STEP == 0,
        _listing_or_active.in_(bindparam("listings", expanding=True)),
    )
    .scalar_subquery()
).where(sessions.c.pk == bindparam("key"))
