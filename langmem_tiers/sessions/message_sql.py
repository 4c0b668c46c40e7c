"""The statements of a session's record, the same for every database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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

from langmem_tiers.sessions.models import IN_LIST, Listing
from langmem_tiers.storage.schema import POSITION_STEP, RECORD, entries, listings, messages, sessions

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, CompoundSelect, ScalarSelect, Select

# The row of the session is the lock of its record: whoever advances it writes next, so
# positions have no gaps, and a reader never sees a later message before an earlier one.
_advance = update(sessions).values(
    last_position=sessions.c.last_position + bindparam("added") * POSITION_STEP,
    message_count=sessions.c.message_count + bindparam("added"),
    token_count=sessions.c.token_count + bindparam("tokens"),
    revision=sessions.c.revision + 1,
    updated_at=bindparam("now"),
)
ADVANCE_ONE = _advance.where(sessions.c.pk == bindparam("key"))
_told = (sessions.c.last_position, sessions.c.revision, sessions.c.namespace_pk)
ADVANCE = ADVANCE_ONE.returning(*_told)
_was = (
    select(sessions.c.pk, sessions.c.updated_at)
    .where(sessions.c.pk == bindparam("key"))
    .with_for_update()
    .subquery("was")
)
ADVANCE_KNOWING = _advance.where(sessions.c.pk == _was.c.pk).returning(
    *_told, _was.c.updated_at.label("was_at")
)
"""The same, and when the session was last written to before; SQLite cannot say that."""
INSERT = insert(messages)
COLUMNS = [column.name for column in messages.c if column.name != "pk"]
_moved = ADVANCE_KNOWING.cte("moved")
_GIVEN = [name for name in COLUMNS if name != "position"]
APPEND_ONE = (  # where a question to the server costs more than its work
    insert(messages)
    .from_select(
        [*_GIVEN, "position"],
        select(
            *(cast(bindparam(name, type_=messages.c[name].type), messages.c[name].type) for name in _GIVEN),
            _moved.c.last_position,
        ),
    )
    .returning(select(_moved.c.revision).scalar_subquery(), select(_moved.c.was_at).scalar_subquery())
)
SESSION = select(sessions.c.revision, sessions.c.view_position, sessions.c.view_message).where(
    sessions.c.pk == bindparam("key")
)

# Each read is one statement, so that the session's row and its messages belong together on
# every database, whatever others write meanwhile. The session comes first and at least once.
_position, _pk = messages.c.position, messages.c.pk
_of_session = select(*RECORD).where(messages.c.session_pk == bindparam("key"))
_backwards = (_position.desc(), _pk.desc())


def _with_session(
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


# A mark's columns beside those of its message, which have the same names.
MARK_COLUMNS = tuple(column.label(f"mark_{column.name}") for column in entries.c)


def _with_marks(rows: Select[*tuple[Any, ...]]) -> Select[*tuple[Any, ...]]:
    found = rows.subquery("marked")
    return (
        select(found, *MARK_COLUMNS)
        .select_from(found.outerjoin(entries, entries.c.message_pk == found.c.pk))
        .order_by(found.c.position, found.c.pk)
    )


def _from(position: ScalarSelect[int], pk: ScalarSelect[int], *, inclusive: bool) -> ColumnElement[bool]:
    # As a row comparison, but so that the index on the position is used for its range.
    return and_(_position >= position, or_(_position > position, _pk >= pk if inclusive else _pk > pk))


def _of_cursor(column: ColumnElement[int]) -> ScalarSelect[int]:
    return (
        select(column)
        .where(messages.c.session_pk == bindparam("key"), messages.c.id == bindparam("after"))
        .correlate(None)
        .scalar_subquery()
    )


def _of_view(column: ColumnElement[int]) -> ScalarSelect[int]:
    return select(column).where(sessions.c.pk == bindparam("key")).correlate(None).scalar_subquery()


def _is_listed(*as_what: Listing) -> ColumnElement[bool]:
    # Written out: a statement for the driver has no places for values of its own.
    is_one = (listings.c.listing == literal_column(f"'{one.value}'") for one in as_what)
    return exists().where(listings.c.message_pk == _pk, or_(*is_one))


IS_REMOVED = _is_listed(Listing.REMOVED)
IS_IN_LIST = ~_is_listed(*(one for one in Listing if one not in IN_LIST))

LATEST = _with_session(_of_session.order_by(*_backwards).limit(bindparam("limit")))
FIRST_PAGE = _with_session(_of_session.order_by(_position, _pk).limit(bindparam("limit")))
NEXT_PAGE = _with_session(
    _of_session.where(_from(_of_cursor(_position), _of_cursor(_pk), inclusive=False))
    .order_by(_position, _pk)
    .limit(bindparam("limit"))
)
_at, _its_pk = _of_cursor(_position), _of_cursor(_pk)
PREVIOUS_PAGE = _with_session(
    _of_session.where(and_(_position <= _at, or_(_position < _at, _pk < _its_pk)))
    .order_by(*_backwards)
    .limit(bindparam("limit"))
)
_view_position, _view_message = _of_view(sessions.c.view_position), _of_view(sessions.c.view_message)
_shown = _of_session.where(_from(_view_position, _view_message, inclusive=True), IS_IN_LIST)
_summary = _of_session.where(_pk == _view_message)
VIEW = _with_session(
    union_all(
        select(_shown.order_by(*_backwards).limit(bindparam("limit")).subquery()),
        select(_summary.subquery()),
    )
)
ONE = _with_session(_of_session.where(messages.c.id == bindparam("id")))
MARKED_VIEW = _with_marks(VIEW)
MARKED_ONE = _with_marks(ONE)
MARKED_NEWER = _with_marks(
    _with_session(
        _of_session.where(_position > bindparam("newest"), IS_IN_LIST)
        .order_by(_position, _pk)
        .limit(bindparam("limit"))
    )
)

# Messages of a list as it stands; summaries, which stand between two messages, are none.
_listing = func.coalesce(listings.c.listing, Listing.ACTIVE.value)
_of_list = _of_session.outerjoin(listings, listings.c.message_pk == _pk).where(
    _position % POSITION_STEP == 0, _listing.in_(bindparam("listings", expanding=True))
)
LIST = _with_session(_of_list.order_by(_position, _pk).limit(bindparam("limit")).offset(bindparam("offset")))
LIST_END = _with_session(_of_list.order_by(*_backwards).limit(bindparam("limit")))
# Nothing at all if there is no such session.
LIST_COUNT = select(
    select(func.count())
    .select_from(messages.outerjoin(listings, listings.c.message_pk == _pk))
    .where(
        messages.c.session_pk == bindparam("key"),
        _position % POSITION_STEP == 0,
        _listing.in_(bindparam("listings", expanding=True)),
    )
    .scalar_subquery()
).where(sessions.c.pk == bindparam("key"))
