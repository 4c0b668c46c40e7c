"""The messages of a session as a list that a framework maintains: add, archive, remove, replace.

The list does not change the record: messages removed from the list stay in it. ``session.delete()`` erases them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol, TypeVar

from langmem_tiers.common.checks import check_whole
from langmem_tiers.common.prompt_fences import is_only_fenced
from langmem_tiers.errors import InvalidInputError, MessageConflictError, MessageNotFoundError
from langmem_tiers.sessions.models import IN_LIST, AddReport, ListChange, Listing, ReplaceReport
from langmem_tiers.sessions.service import check_drafts, complete_drafts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langmem_tiers.common.messages import Message, MessageDraft
    from langmem_tiers.sessions.models import VersionedMessages
    from langmem_tiers.sessions.service import SessionDependencies, SessionRecord

# Optimistic attempts; after that the session is locked and other writers wait.
_MAX_ATTEMPTS = 3
_LISTING_BY_VALUE = {listing.value: listing for listing in Listing}
_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)


class _ChangeFactory(Protocol[_T_co]):
    def __call__(self, current: VersionedMessages, *, locked: bool) -> tuple[ListChange, _T_co] | None:
        """Compute a change of the current list, and the result for the caller; None for no change.

        With ``locked``, it runs inside the transaction of the store and must not call any store itself.
        """
        ...


class Transcript:
    """The message list of one session. Get it from ``session.transcript``."""

    def __init__(self, dependencies: SessionDependencies, session: SessionRecord) -> None:
        self._dependencies = dependencies
        self._session = session

    def messages(
        self, listings: Sequence[Listing] = IN_LIST, *, limit: int | None = None, offset: int = 0
    ) -> tuple[Message, ...]:
        """List the messages in these states, oldest first.

        Args:
            listings: States to include. Default: all messages in the list, active or archived.
            limit: Maximum number of messages. Default: no limit.
            offset: Number of messages to skip.
        """
        checked = _check_listings(listings)
        limit = None if limit is None else check_whole(limit, 0, "limit")
        offset = check_whole(offset, 0, "offset")
        return self._dependencies.transcripts.list_messages(
            self._session.key, checked, limit=limit, offset=offset
        ).messages

    def latest(self, count: int = 30, listings: Sequence[Listing] = IN_LIST) -> tuple[Message, ...]:
        """Return the newest messages in these states, oldest first."""
        checked, count = _check_listings(listings), check_whole(count, 0, "count")
        return self._dependencies.transcripts.list_latest(self._session.key, checked, count).messages

    def count(self, listings: Sequence[Listing] = IN_LIST) -> int:
        """Return the number of messages in these states."""
        return self._dependencies.transcripts.count(self._session.key, _check_listings(listings))

    def add(self, drafts: Sequence[MessageDraft], listing: Listing = Listing.ACTIVE) -> AddReport:
        """Append messages to the list in one transaction.

        A message whose id is already stored is not stored again, and its state does not change.

        Args:
            drafts: The messages.
            listing: State of the new messages.

        Raises:
            MessageConflictError: An id belongs to a stored message with other content.
        """
        listing = _check_listing(listing)
        if listing is Listing.ACTIVE:
            return self._session.add_many(drafts)
        drafts = check_drafts(drafts)
        try:
            return self._add_with_listing(drafts, listing)
        except MessageConflictError:
            # Another process may have stored the same messages in between: then they are duplicates now.
            return self._add_with_listing(drafts, listing)

    def _add_with_listing(self, drafts: Sequence[MessageDraft], listing: Listing) -> AddReport:
        stored_ids = self._session.find_known_ids(draft.id for draft in drafts if draft.id is not None)
        # add_many() sorts these into duplicates and echoes and stores none of them, or raises a conflict.
        known = {
            index
            for index, draft in enumerate(drafts)
            if draft.id in stored_ids or is_only_fenced(draft.content)
        }
        left_out = self._session.add_many(drafts[index] for index in sorted(known))
        new = [draft for index, draft in enumerate(drafts) if index not in known]
        added = tuple(complete_drafts(self._dependencies, new))
        self._write_change(ListChange({}, added, listing), None)
        return AddReport(stored=added, duplicates=left_out.duplicates, echoes=left_out.echoes)

    def move(self, ids: Iterable[str], listing: Listing) -> None:
        """Change the state of messages: archive them, remove them from the list, or bring them back.

        Args:
            ids: Ids of the messages.
            listing: The new state.

        Raises:
            MessageNotFoundError: The session has no message with one of these ids. Nothing was changed.
        """
        listing, message_ids = _check_listing(listing), _check_ids(ids)
        stored_ids = self._session.find_known_ids(message_ids)
        missing = next((message_id for message_id in message_ids if message_id not in stored_ids), None)
        if missing is not None:
            raise MessageNotFoundError(
                f"{self._session!r} has no message {missing!r}: use an id returned by messages()"
            )
        self._write_change(ListChange(dict.fromkeys(message_ids, listing), ()), None)

    def move_oldest(self, count: int, listing: Listing) -> tuple[Message, ...]:
        """Change the state of the oldest active messages, and return these messages.

        Args:
            count: Maximum number of messages.
            listing: The new state.
        """
        listing, count = _check_listing(listing), check_whole(count, 0, "count")

        def change(current: VersionedMessages, *, locked: bool) -> tuple[ListChange, tuple[Message, ...]]:  # noqa: ARG001 - calls no store anyway
            return ListChange({message.id: listing for message in current.messages}, ()), current.messages

        return self._apply_change((Listing.ACTIVE,), change, limit=count) or ()

    def replace(
        self,
        drafts: Sequence[MessageDraft],
        listing: Listing = Listing.ACTIVE,
        *,
        former: Listing = Listing.REPLACED,
        behind_summaries: bool = True,
    ) -> ReplaceReport | None:
        """Replace the list with another one in one transaction.

        Messages that both lists share in the same order are kept, so passing the list back with a few more
        messages at its end stores only those. Messages are compared by content, not by id.

        Args:
            drafts: The new list.
            listing: State of all messages of the new list.
            former: State of the messages that are no longer in the list.
            behind_summaries: Allow removing messages that an active summary covers.

        Returns:
            A report; None if nothing was changed because ``behind_summaries`` is False and such messages would
            have to be removed.

        Raises:
            MessageConflictError: A new or moved message has an id that the record already contains.
        """
        listing, former = _check_listing(listing), _check_listing(former)
        wanted = [draft for draft in check_drafts(drafts) if not is_only_fenced(draft.content)]
        other_listings = [state for state in IN_LIST if state is not listing]

        def change(current: VersionedMessages, *, locked: bool) -> tuple[ListChange, ReplaceReport] | None:
            kept, new = _match_drafts(current.messages, wanted)
            removed = [message for message in current.messages if message.id not in kept]
            if not behind_summaries and any(message.is_compressed for message in removed):
                return None
            added = tuple(complete_drafts(self._dependencies, new))
            listings_by_id = dict.fromkeys((message.id for message in removed), former)
            # Kept messages usually have the right state. Writing it for all of them costs a query per 500 messages,
            # so first count the messages in another state. While locked, no store may be called: write always.
            if locked or self.count(other_listings):
                listings_by_id |= dict.fromkeys(kept, listing)
            report = ReplaceReport(kept=len(kept), added=added, replaced=len(removed))
            return ListChange(listings_by_id, added, listing), report

        return self._apply_change(IN_LIST, change)

    def _apply_change(
        self, listings: Sequence[Listing], make: _ChangeFactory[_T], limit: int | None = None
    ) -> _T | None:
        # First optimistic: read, compute, and write only if the session still has the revision that was read.
        # If other writers win repeatedly, compute the change while the session is locked.
        dependencies, key = self._dependencies, self._session.key
        for _ in range(_MAX_ATTEMPTS):
            current = dependencies.transcripts.list_messages(key, listings, limit=limit)
            made = make(current, locked=False)
            if made is None:
                return None
            change, result = made
            if self._write_change(change, current.revision):
                return result
        results: list[_T] = []

        def decide(current: VersionedMessages) -> ListChange | None:
            made = make(current, locked=True)
            if made is None:
                return None
            results.append(made[1])
            return made[0]

        if dependencies.transcripts.apply_locked_change(
            key, listings, decide, dependencies.now(), limit=limit
        ):
            self._notify_changed()
        return results[0] if results else None

    def _write_change(self, change: ListChange, revision: int | None) -> bool:
        dependencies, key = self._dependencies, self._session.key
        if not change.listing_by_id and not change.added:
            return True
        if dependencies.transcripts.apply_change(key, change, dependencies.now(), revision=revision) is None:
            return False
        self._notify_changed()
        return True

    def _notify_changed(self) -> None:
        self._dependencies.cache.invalidate(self._session.key)
        self._dependencies.on_change(self._session.namespace)


def _match_drafts(
    messages: Sequence[Message], drafts: Sequence[MessageDraft]
) -> tuple[set[str], Sequence[MessageDraft]]:
    # Match the drafts to the messages in order, as far as possible. Returns the ids of the matched messages, and
    # the drafts from the first one without a match: everything from there on has to be added again, since a list
    # grows at its end only.
    indexes_by_content: dict[object, list[int]] = {}
    # In reverse, so that pop() takes the first of several messages with the same content.
    for index in reversed(range(len(messages))):
        indexes_by_content.setdefault(_build_content_key(messages[index]), []).append(index)
    kept, first_allowed = set[str](), 0
    for number, draft in enumerate(drafts):
        candidates = indexes_by_content.get(_build_content_key(draft), [])
        while candidates and candidates[-1] < first_allowed:
            candidates.pop()
        if not candidates:
            return kept, drafts[number:]
        matched = candidates.pop()
        first_allowed = matched + 1
        kept.add(messages[matched].id)
    return kept, ()


def _build_content_key(message: Message | MessageDraft) -> object:
    return (
        message.role,
        message.content,
        message.name,
        message.tool_calls,
        message.tool_call_id,
        message.payload_json,
    )


def _check_listing(listing: object) -> Listing:
    if isinstance(listing, str) and (known := _LISTING_BY_VALUE.get(listing)) is not None:
        return known
    raise InvalidInputError(f"unknown listing {listing!r}: use one of {', '.join(_LISTING_BY_VALUE)}")


def _check_listings(listings: object) -> list[Listing]:
    if isinstance(listings, str) or not isinstance(listings, Iterable):
        raise InvalidInputError(f"listings must be a list of Listing, got {listings!r}: put it into a tuple")
    return [_check_listing(listing) for listing in listings]


def _check_ids(ids: object) -> list[str]:
    if isinstance(ids, str) or not isinstance(ids, Iterable):
        raise InvalidInputError(
            f"ids must be a list of message ids, got {type(ids).__name__}: put a single id into a list"
        )
    return list(ids)
