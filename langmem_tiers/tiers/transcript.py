"""A session's messages as the list that a framework keeps of them: added, archived, taken out, replaced.

Nothing of it changes the record. What was taken out of the list stays there, and ``session.delete()`` erases.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from langmem_tiers.core.checks import check_whole
from langmem_tiers.core.errors import MessageNotFoundError, StorageBusyError
from langmem_tiers.core.fences import is_only_fenced
from langmem_tiers.core.transcripts import IN_LIST, ListChange, Listing, ReplaceReport
from langmem_tiers.tiers.short_term import seal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from langmem_tiers.core.messages import Message, MessageDraft
    from langmem_tiers.core.records import Tail
    from langmem_tiers.core.reports import AddReport
    from langmem_tiers.tiers.short_term import ShortTerm, ShortTermParts

    _Made: TypeAlias = tuple[ListChange, tuple[Message, ...]]

_TRIES = 20  # far more than two that write to the same list need


class Transcript:
    """The list of one session. Get it from ``session.transcript``."""

    def __init__(self, parts: ShortTermParts, session: ShortTerm) -> None:
        self._parts = parts
        self._session = session

    def messages(
        self, listings: Sequence[Listing] = IN_LIST, *, limit: int | None = None, offset: int = 0
    ) -> tuple[Message, ...]:
        """The messages that stand so in the list, oldest first; all of the list, if left out."""
        limit = None if limit is None else check_whole(limit, 0, "limit")
        offset = check_whole(offset, 0, "offset")
        return self._parts.transcripts.read(self._session.key, listings, limit=limit, offset=offset).messages

    def count(self, listings: Sequence[Listing] = IN_LIST) -> int:
        """How many messages stand so in the list."""
        return self._parts.transcripts.count(self._session.key, listings)

    def add(self, drafts: Sequence[MessageDraft], listing: Listing = Listing.ACTIVE) -> AddReport:
        """Put messages at the end of the list, in one transaction."""
        report = self._session.add_many(drafts)
        if listing is not Listing.ACTIVE and report.stored:
            self.move([message.id for message in report.stored], listing)
        return report

    def move(self, ids: Iterable[str], listing: Listing) -> None:
        """Let messages stand otherwise in the list, take them out of it, or bring them back.

        Raises:
            MessageNotFoundError: The session holds no message with that id; nothing was changed.
        """
        wanted = list(ids)
        held = self._session.holds(wanted)
        if (missing := next((one for one in wanted if one not in held), None)) is not None:
            raise MessageNotFoundError(
                f"{self._session!r} holds no message {missing!r}: use an id that messages() gave"
            )
        if wanted:
            self._write(ListChange(dict.fromkeys(wanted, listing), ()), None)

    def move_oldest(self, count: int, listing: Listing) -> tuple[Message, ...]:
        """The same with the oldest of the active messages; those that it concerned."""
        count = check_whole(count, 0, "count")

        def change(there: Tail) -> _Made:
            oldest = there.messages
            return ListChange({one.id: listing for one in oldest}, ()), oldest

        return self._carry_out((Listing.ACTIVE,), change, limit=count) if count else ()

    def replace(
        self,
        drafts: Sequence[MessageDraft],
        listing: Listing = Listing.ACTIVE,
        *,
        behind_summaries: bool = True,
    ) -> ReplaceReport | None:
        """Put another list in the place of this one, in one transaction.

        Messages that both have, in the same order, stay as they are, so that a list that was handed back with
        some more at its end costs only those.

        Args:
            drafts: The new list.
            listing: How all its messages stand in it.
            behind_summaries: Whether messages may be taken out that a summary in force tells of.

        Returns:
            None, with nothing done, if such messages would have to be taken out and may not be.
        """
        drafts = [draft for draft in drafts if not is_only_fenced(draft.content)]
        done: list[ReplaceReport] = []
        is_mixed = listing is not Listing.ACTIVE or self.count((Listing.ARCHIVED,)) > 0

        def change(there: Tail) -> _Made | None:
            kept, new = _matched(there.messages, drafts)
            out = [message for message in there.messages if message.id not in kept]
            if not behind_summaries and any(message.is_compressed for message in out):
                return None
            added = tuple(seal(self._parts, new))
            done[:] = [ReplaceReport(kept=len(kept), added=added, replaced=len(out))]
            listed = {message.id: Listing.REPLACED for message in out}
            if is_mixed:
                listed |= dict.fromkeys(kept, listing)
            return ListChange(listed, added, listing), added

        self._carry_out(IN_LIST, change)
        return done[0] if done else None

    def _carry_out(
        self, listings: Sequence[Listing], make: Callable[[Tail], _Made | None], limit: int | None = None
    ) -> tuple[Message, ...]:
        parts, key = self._parts, self._session.key
        for _ in range(_TRIES):
            there = parts.transcripts.read(key, listings, limit=limit)
            made = make(there)
            if made is None:
                return ()
            change, concerned = made
            if not change.listed and not change.added:
                return concerned
            if self._write(change, there.revision):
                return concerned
            # somebody else wrote in between: look again
        raise StorageBusyError(f"{self._session!r} is written by others all the time: try again later")

    def _write(self, change: ListChange, revision: int | None) -> bool:
        parts, key = self._parts, self._session.key
        if parts.transcripts.change(key, change, parts.now(), revision=revision) is None:
            return False
        parts.cache.drop(key)
        parts.changed(self._session.namespace)
        return True


def _matched(
    there: Sequence[Message], drafts: Sequence[MessageDraft]
) -> tuple[set[str], Sequence[MessageDraft]]:
    # In order, from the front: which messages stay, and the drafts from the first that is not there.
    places: dict[object, list[int]] = {}
    for place in reversed(range(len(there))):
        places.setdefault(_said(there[place]), []).append(place)
    kept, least = set[str](), 0
    for number, draft in enumerate(drafts):
        found = places.get(_said(draft), [])
        while found and found[-1] < least:
            found.pop()
        if not found:
            return kept, drafts[number:]
        least = found.pop() + 1
        kept.add(there[least - 1].id)
    return kept, ()


def _said(message: Message | MessageDraft) -> object:
    return (
        message.role,
        message.content,
        message.name,
        message.tool_calls,
        message.tool_call_id,
        message.payload_json,
    )
