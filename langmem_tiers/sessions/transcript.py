"""A session's messages as the list that a framework keeps of them: added, archived, taken out, replaced.

Nothing of it changes the record. What was taken out of the list stays there, and ``session.delete()`` erases.
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

_MAX_ATTEMPTS = 3  # then others wait
_LISTING_BY_VALUE = {one.value: one for one in Listing}
_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)


class _ChangeFactory(Protocol[_T_co]):
    def __call__(self, there: VersionedMessages, *, alone: bool) -> tuple[ListChange, _T_co] | None:
        """What to do with a list; alone, while others wait, it must use no store."""
        ...


class Transcript:
    """The list of one session. Get it from ``session.transcript``."""

    def __init__(self, parts: SessionDependencies, session: SessionRecord) -> None:
        self._dependencies = parts
        self._session = session

    def messages(
        self, listings: Sequence[Listing] = IN_LIST, *, limit: int | None = None, offset: int = 0
    ) -> tuple[Message, ...]:
        """The messages that stand so in the list, oldest first; all of the list, if left out."""
        wanted = _check_listings(listings)
        limit = None if limit is None else check_whole(limit, 0, "limit")
        offset = check_whole(offset, 0, "offset")
        return self._dependencies.transcripts.list_messages(
            self._session.key, wanted, limit=limit, offset=offset
        ).messages

    def latest(self, count: int = 30, listings: Sequence[Listing] = IN_LIST) -> tuple[Message, ...]:
        """The newest messages that stand so in the list, oldest first."""
        wanted, count = _check_listings(listings), check_whole(count, 0, "count")
        return self._dependencies.transcripts.list_latest(self._session.key, wanted, count).messages

    def count(self, listings: Sequence[Listing] = IN_LIST) -> int:
        """How many messages stand so in the list."""
        return self._dependencies.transcripts.count(self._session.key, _check_listings(listings))

    def add(self, drafts: Sequence[MessageDraft], listing: Listing = Listing.ACTIVE) -> AddReport:
        """Put messages at the end of the list, in one transaction.

        A message whose id the session knows is not stored again, and stands in the list as before.

        Raises:
            MessageConflictError: The id is taken by a message that says something else.
        """
        listing = _check_listing(listing)
        if listing is Listing.ACTIVE:
            return self._session.add_many(drafts)
        drafts = check_drafts(drafts)
        try:
            return self._add_with_listing(drafts, listing)
        except MessageConflictError:  # somebody else may have stored the same in between: look again
            return self._add_with_listing(drafts, listing)

    def _add_with_listing(self, drafts: Sequence[MessageDraft], listing: Listing) -> AddReport:
        held = self._session.find_known_ids(draft.id for draft in drafts if draft.id is not None)
        known = {
            index for index, draft in enumerate(drafts) if draft.id in held or is_only_fenced(draft.content)
        }
        left_out = self._session.add_many(drafts[index] for index in sorted(known))
        new = [draft for index, draft in enumerate(drafts) if index not in known]
        added = tuple(complete_drafts(self._dependencies, new))
        self._write_change(ListChange({}, added, listing), None)
        return AddReport(stored=added, duplicates=left_out.duplicates, echoes=left_out.echoes)

    def move(self, ids: Iterable[str], listing: Listing) -> None:
        """Let messages stand otherwise in the list, take them out of it, or bring them back.

        Raises:
            MessageNotFoundError: The session holds no message with that id; nothing was changed.
        """
        listing, wanted = _check_listing(listing), _check_ids(ids)
        held = self._session.find_known_ids(wanted)
        if (missing := next((one for one in wanted if one not in held), None)) is not None:
            raise MessageNotFoundError(
                f"{self._session!r} holds no message {missing!r}: use an id that messages() gave"
            )
        self._write_change(ListChange(dict.fromkeys(wanted, listing), ()), None)

    def move_oldest(self, count: int, listing: Listing) -> tuple[Message, ...]:
        """The same with the oldest of the active messages; those that it concerned."""
        listing, count = _check_listing(listing), check_whole(count, 0, "count")

        def change(there: VersionedMessages, *, alone: bool) -> tuple[ListChange, tuple[Message, ...]]:  # noqa: ARG001 - asks none
            return ListChange({one.id: listing for one in there.messages}, ()), there.messages

        return self._apply_change((Listing.ACTIVE,), change, limit=count) or ()

    def replace(
        self,
        drafts: Sequence[MessageDraft],
        listing: Listing = Listing.ACTIVE,
        *,
        former: Listing = Listing.REPLACED,
        behind_summaries: bool = True,
    ) -> ReplaceReport | None:
        """Put another list in the place of this one, in one transaction.

        Messages that both have, in the same order, stay as they are, so that a list that was handed back with
        some more at its end costs only those. A message is had by both if it says the same, whatever its id.

        Args:
            drafts: The new list.
            listing: How all its messages stand in it.
            former: How messages stand from now on that are no longer in the list.
            behind_summaries: Whether messages may be taken out that a summary in force tells of.

        Returns:
            None, with nothing done, if such messages would have to be taken out and may not be.

        Raises:
            MessageConflictError: A message that comes anew, or to another place, has an id that the record holds.
        """
        listing, former = _check_listing(listing), _check_listing(former)
        wanted = [draft for draft in check_drafts(drafts) if not is_only_fenced(draft.content)]
        otherwise = [one for one in IN_LIST if one is not listing]

        def change(there: VersionedMessages, *, alone: bool) -> tuple[ListChange, ReplaceReport] | None:
            kept, new = _match_drafts(there.messages, wanted)
            out = [message for message in there.messages if message.id not in kept]
            if not behind_summaries and any(message.is_compressed for message in out):
                return None
            added = tuple(complete_drafts(self._dependencies, new))
            listed = dict.fromkeys((message.id for message in out), former)
            if alone or self.count(otherwise):
                listed |= dict.fromkeys(kept, listing)
            report = ReplaceReport(kept=len(kept), added=added, replaced=len(out))
            return ListChange(listed, added, listing), report

        return self._apply_change(IN_LIST, change)

    def _apply_change(
        self, listings: Sequence[Listing], make: _ChangeFactory[_T], limit: int | None = None
    ) -> _T | None:
        parts, key = self._dependencies, self._session.key
        for _ in range(_MAX_ATTEMPTS):
            there = parts.transcripts.list_messages(key, listings, limit=limit)
            made = make(there, alone=False)
            if made is None:
                return None
            if self._write_change(made[0], there.revision):
                return made[1]
            # somebody else wrote in between: look again
        results: list[_T] = []

        def decide(there: VersionedMessages) -> ListChange | None:
            made = make(there, alone=True)
            if made is None:
                return None
            results.append(made[1])
            return made[0]

        if parts.transcripts.apply_locked_change(key, listings, decide, parts.now(), limit=limit):
            self._notify_changed()
        return results[0] if results else None

    def _write_change(self, change: ListChange, revision: int | None) -> bool:
        parts, key = self._dependencies, self._session.key
        if not change.listing_by_id and not change.added:
            return True
        if parts.transcripts.apply_change(key, change, parts.now(), revision=revision) is None:
            return False
        self._notify_changed()
        return True

    def _notify_changed(self) -> None:
        self._dependencies.cache.invalidate(self._session.key)
        self._dependencies.on_change(self._session.namespace)


def _match_drafts(
    there: Sequence[Message], drafts: Sequence[MessageDraft]
) -> tuple[set[str], Sequence[MessageDraft]]:
    # In order, from the front: which messages stay, and the drafts from the first that is not there.
    places: dict[object, list[int]] = {}
    for place in reversed(range(len(there))):
        places.setdefault(_build_content_key(there[place]), []).append(place)
    kept, least = set[str](), 0
    for number, draft in enumerate(drafts):
        found = places.get(_build_content_key(draft), [])
        while found and found[-1] < least:
            found.pop()
        if not found:
            return kept, drafts[number:]
        least = found.pop() + 1
        kept.add(there[least - 1].id)
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
    return [_check_listing(one) for one in listings]


def _check_ids(ids: object) -> list[str]:
    if isinstance(ids, str) or not isinstance(ids, Iterable):
        raise InvalidInputError(
            f"ids must be a list of message ids, got a {type(ids).__name__}: put a single one into a list"
        )
    return list(ids)
