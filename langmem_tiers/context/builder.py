"""Divide a conversation by a token budget and lay out the messages of a context."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from dataclasses import dataclass, replace
from itertools import compress
from operator import itemgetter
from typing import TYPE_CHECKING

from langmem_tiers.common.messages import Role
from langmem_tiers.context.models import DID_NOT_FIT_REASON, MemoryContext
from langmem_tiers.errors import BudgetExceededError
from langmem_tiers.sessions.budget_partition import partition_groups
from langmem_tiers.sessions.session_view import SessionView, fit_window_to_budget, is_verbatim
from langmem_tiers.text.token_counting import count_framed, count_messages

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from langmem_tiers.common.budget import TokenBudget
    from langmem_tiers.common.entries import ViewItem
    from langmem_tiers.common.messages import Message
    from langmem_tiers.compression.compressor import Compressor
    from langmem_tiers.sessions.models import StoredView


@dataclass(frozen=True, slots=True)
class ContextReasons:
    """Explains which messages of a view are included, by their ids.

    The lists are as long as the session, so the methods work on whole lists instead of single messages.
    """

    session_view: SessionView
    window_size: int
    message_ids: Sequence[str]
    """Ids of all items of the view."""
    present_flags: Sequence[bool]
    """For each item: True if it is included."""
    verbatim_flags: Sequence[bool]
    """For each item: True if it is included in full."""

    def list_full_ids(self) -> tuple[str, ...]:
        """List the ids of the messages included in full."""
        return tuple(compress(self.message_ids, self.verbatim_flags))

    def list_compressed_ids(self) -> tuple[str, ...]:
        """List the ids of the messages included in compressed form."""
        flags = zip(self.present_flags, self.verbatim_flags, strict=True)
        return tuple(compress(self.message_ids, [present and not verbatim for present, verbatim in flags]))

    def explain_included(self) -> dict[str, str]:
        """Return the reason of each included message of the conversation, by id."""
        start, compressed = self.session_view.window_start, self.list_compressed_ids()
        recent, older = f"among the newest {self.window_size}", "older, fits the budget"
        newest = set(self.message_ids[start:])
        reasons = dict.fromkeys(
            compress(self.message_ids[:start], self.verbatim_flags[:start]), f"in full: {older}"
        )
        reasons |= dict.fromkeys(
            compress(self.message_ids[start:], self.verbatim_flags[start:]), f"in full: {recent}"
        )
        return reasons | {name: f"compressed: {recent if name in newest else older}" for name in compressed}

    def explain_excluded(self, summary: Message | None, left_out: Iterable[str]) -> dict[str, str]:
        """Return the reason of each message that is not included, by id.

        Args:
            summary: The summary, which is placed separately from the conversation.
            left_out: Ids of pinned messages that do not fit.
        """
        missing = [index for index, present in enumerate(self.present_flags) if not present]
        reasons = {
            self.message_ids[index]: "archived"
            if self.session_view.visible_messages[index] is None
            else DID_NOT_FIT_REASON
            for index in missing
        }
        if summary is not None:
            # It is an item of the view, but counts as pinned and not as part of the conversation.
            reasons.pop(summary.id, None)
        return reasons | dict.fromkeys(left_out, DID_NOT_FIT_REASON)

    @staticmethod
    def explain_injected(summary: Iterable[Message], recalled: Iterable[Message]) -> dict[str, str]:
        """Return the reasons of messages that are not part of the conversation, by id."""
        pinned = {message.id: "pinned: summary of the earlier messages" for message in summary}
        return pinned | {message.id: "recalled for the question" for message in recalled}


MAX_SUMMARY_SHARE = 0.3
"""Maximum share of the budget for the summary. A summary made for a larger budget is shortened to it."""
MAX_SYSTEM_SHARE = 0.3
"""Maximum share of the budget for system messages at the beginning, which are always included."""
MAX_REJECTED_GROUPS_IN_A_ROW = 20
"""Number of consecutive groups that do not fit, after which all older groups are left out untested."""
# Reserve for the summary's prefix line and message frame, rounded up.
_SUMMARY_PREFIX_TOKENS = 16


@dataclass(frozen=True, slots=True)
class ContextDivision:
    """Division of a conversation into full, compressed and dropped groups, given certain pinned messages.

    Groups are identified by their index. A group in neither set is included in full.
    """

    pinned: tuple[Message, ...]
    """The summary and the other pinned messages, such as recalled memories, as far as they fit."""
    compressed_groups: frozenset[int]
    dropped_groups: frozenset[int]
    unplaced_ids: tuple[str, ...] = ()
    """Ids of pinned messages that do not fit."""


class ContextBuilder:
    """Divides one view of a session by a budget, repeatedly if needed, and lays out the result.

    Args:
        view: The visible messages of the session.
        budget: Token budget; its window says how many of the newest messages stay in full.
        compressor: Compresses messages that do not fit in full.
    """

    def __init__(self, view: StoredView, budget: TokenBudget, compressor: Compressor) -> None:
        self._counter = compressor.counter
        window = fit_window_to_budget(view.items, budget.full_message_window, budget, self._counter)
        self._budget = replace(budget, full_message_window=window)
        self._compressor = compressor
        self._items = view.items
        self._session_view = session_view = SessionView.from_view(view, window)
        self._summary = None if session_view.summary is None else self._shorten_summary(view.items[0])
        groups = session_view.get_visible_groups(view.groups, self._counter)
        # The summary is the first group; it is pinned and not divided with the conversation.
        first = 0 if session_view.summary is None else 1
        self._groups, self._group_sizes = groups.ranges[first:], groups.sizes[first:]
        self._fixed_groups = self._find_leading_system_groups()
        self._compressed_by_group: dict[int, list[Message]] = {}
        self._placement_cache: list[tuple[ContextDivision, list[Message | None]]] = []

    def divide(
        self,
        extra_messages: Sequence[Message] = (),
        excluded_ids: frozenset[str] = frozenset(),
        reserved: int = 0,
    ) -> ContextDivision:
        """Decide which groups are included in full, compressed or not at all.

        Args:
            extra_messages: Messages that are not part of the conversation, such as recalled memories, most important
                first. The newest message has priority over them; the last of them is dropped first.
            excluded_ids: Ids of messages whose text is in ``extra_messages``; the conversation does not repeat them.
            reserved: Tokens to keep free for further messages of that kind. Ignored if the newest message
                would not fit then.

        Raises:
            BudgetExceededError: The newest message, with its tool call, does not fit even alone.
        """
        pinned = [*([] if self._summary is None else [self._summary]), *extra_messages]
        left_out: list[str] = []
        if (
            reserved
            and (division := self._try_divide(pinned, excluded_ids, self._fixed_groups, reserved)) is not None
        ):
            return division
        while True:
            division = self._try_divide(pinned, excluded_ids, self._fixed_groups)
            if division is not None:
                return replace(division, unplaced_ids=tuple(left_out))
            if not pinned:
                break
            # The newest message has priority: drop pinned messages from the end until it fits.
            left_out.append(pinned.pop().id)
        # Last resort: give up the guaranteed place of the leading system messages.
        if self._fixed_groups and (division := self._try_divide((), excluded_ids, frozenset())) is not None:
            return replace(division, unplaced_ids=tuple(left_out))
        if self._groups:
            raise self._build_too_large_error()
        return ContextDivision((), frozenset(), frozenset(), tuple(left_out))

    def _try_divide(
        self,
        pinned: Sequence[Message],
        excluded_ids: frozenset[str],
        fixed: frozenset[int],
        reserved: int = 0,
    ) -> ContextDivision | None:
        # None if the newest group does not fit. `indexes` maps the groups to be divided to all groups: without
        # the fixed ones, whose tokens are counted up front, and those that recalled memories already contain.
        indexes = self._list_groups_without(excluded_ids, fixed)
        used = (
            reserved
            + count_messages(self._counter, pinned)
            + sum(self._group_sizes[index].tokens for index in fixed)
        )
        parts = partition_groups(
            [self._group_sizes[index] for index in indexes] if excluded_ids or fixed else self._group_sizes,
            self._budget,
            compressed_tokens=lambda index: self._count_compressed_tokens(indexes[index]),
            pinned_tokens=used,
            patience=MAX_REJECTED_GROUPS_IN_A_ROW,
        )
        newest = len(self._groups) - 1
        if used > self._budget.available:
            return None
        # Shortcut for the usual case: everything fits in full.
        if len(parts.full) + len(fixed) == newest + 1:
            return ContextDivision(tuple(pinned), frozenset(), frozenset())
        shown = {indexes[index] for index in (*parts.full, *parts.compressed)} | fixed
        if newest not in shown:
            return None
        return ContextDivision(
            pinned=tuple(pinned),
            compressed_groups=frozenset(indexes[index] for index in parts.compressed),
            dropped_groups=frozenset(range(newest + 1)) - shown,
        )

    def get_visible_texts(self, division: ContextDivision) -> dict[int, str]:
        """Return the text of each included message of the conversation, by the key of its item."""
        placed = zip(self._items, self._get_placement(division), strict=True)
        return {item.key: message.content for item, message in placed if message is not None}

    def is_newest_in_full(self, division: ContextDivision) -> bool:
        """Return True if the newest message is included in full."""
        newest = len(self._groups) - 1
        return newest not in division.compressed_groups or is_verbatim(
            self._compress_group(newest)[-1], self._items[-1].message
        )

    def lay_out(self, division: ContextDivision, before: str | None = None) -> MemoryContext:
        """Build the context: the summary, then the conversation with the recalled messages inserted.

        Args:
            division: The result of ``divide()``.
            before: Id of the message before which the recalled messages are inserted. Default: the first.
        """
        placed = self._get_placement(division)
        messages = [message for message in placed if message is not None]
        # Recalled memories change with every question. Inserted right before the newest question, they leave
        # all earlier messages the same as in the previous turn, so that providers can cache that prefix.
        insert_at = next((n for n in reversed(range(len(messages))) if messages[n].id == before), 0)
        summary = tuple(message for message in division.pinned if message is self._summary)
        extra_messages = division.pinned[len(summary) :]
        everything = (*summary, *messages[:insert_at], *extra_messages, *messages[insert_at:])
        reasons = self._build_reasons(division, placed)
        dropped = reasons.explain_excluded(self._summary, division.unplaced_ids)
        sections = {
            "summary": self._count_tokens(summary),
            "conversation": self._count_conversation_tokens(division, placed),
            "memories": self._count_tokens(extra_messages),
            "frame": count_messages(self._counter, ()) if everything else 0,
        }
        return MemoryContext(
            messages=everything,
            token_count=sum(sections.values()),
            token_budget=self._budget.available,
            full=reasons.list_full_ids(),
            compressed=reasons.list_compressed_ids(),
            sections=sections,
            dropped=tuple(dropped),
            reasons=reasons.explain_included() | dropped | reasons.explain_injected(summary, extra_messages),
            problems=self._report_compressed_newest(placed),
        )

    def _build_reasons(self, division: ContextDivision, placed: Sequence[Message | None]) -> ContextReasons:
        present = [message is not None for message in placed]
        verbatim = [
            is_full and is_present
            for is_full, is_present in zip(self._session_view.verbatim_flags, present, strict=True)
        ]
        for index in division.compressed_groups:
            for position in range(*self._groups[index]):
                message = placed[position]
                # Compressing a short message may leave it unchanged, so compare the texts.
                verbatim[position] = message is not None and is_verbatim(
                    message, self._items[position].message
                )
        ids = [item.message.id for item in self._items]
        return ContextReasons(self._session_view, self._budget.full_message_window, ids, present, verbatim)

    def _find_leading_system_groups(self) -> frozenset[int]:
        # System messages at the beginning are the instructions of the application. They stay in the context
        # as long as they take no large share of the budget.
        leading = itertools.takewhile(
            lambda index: all(message.role is Role.SYSTEM for message in self._get_group_messages(index)),
            range(len(self._groups)),
        )
        fixed, room = set(), self._budget.share(MAX_SYSTEM_SHARE)
        for index in leading:
            room -= self._group_sizes[index].tokens
            if room < 0:
                break
            fixed.add(index)
        return frozenset(fixed)

    def _get_placement(self, division: ContextDivision) -> list[Message | None]:
        # For each item the message as it is included, or None. The summary is placed separately. Divisions are
        # compared by identity: a few are made per context, and the same object is laid out again.
        cached = next((placed for known, placed in self._placement_cache if known is division), None)
        if cached is None:
            cached = self._build_placement(division)
            self._placement_cache.append((division, cached))
        return cached

    def _build_placement(self, division: ContextDivision) -> list[Message | None]:
        placed = list(self._session_view.visible_messages)
        if self._summary is not None:
            placed[0] = None
        for index in division.dropped_groups:
            start, end = self._groups[index]
            placed[start:end] = [None] * (end - start)
        for index in division.compressed_groups:
            compressed = iter(self._compress_group(index))
            for position in range(*self._groups[index]):
                placed[position] = None if placed[position] is None else next(compressed)
        # Providers reject a tool result without its call.
        for index in self._session_view.orphan_indexes:
            placed[index] = None
        return placed

    def _list_groups_without(self, excluded_ids: frozenset[str], fixed: frozenset[int]) -> Sequence[int]:
        if not excluded_ids and not fixed:
            return range(len(self._groups))
        positions = []
        if excluded_ids:
            positions = [number for number, item in enumerate(self._items) if item.message.id in excluded_ids]
        # The group of a position is the last one that starts at or before it, if it also ends after it.
        candidates = (
            (position, bisect_right(self._groups, position, key=itemgetter(0)) - 1) for position in positions
        )
        containing = {
            index for position, index in candidates if index >= 0 and position < self._groups[index][1]
        }
        left_out = containing | fixed
        return [index for index in range(len(self._groups)) if index not in left_out]

    def _get_group_messages(self, index: int) -> list[Message]:
        start, end = self._groups[index]
        return [message for message in self._session_view.visible_messages[start:end] if message is not None]

    def _shorten_summary(self, item: ViewItem) -> Message:
        # A summary made for a larger budget is rebuilt from its digest in the share that this budget allows.
        # Without a digest it cannot be rebuilt and stays as it is.
        max_tokens = self._budget.share(MAX_SUMMARY_SHARE)
        digest = None if item.override is None else item.override.digest
        if count_framed(self._counter, item.message) <= max_tokens or digest is None:
            return item.message
        return self._compressor.shorten_summary(
            item.message, digest, max(1, max_tokens - _SUMMARY_PREFIX_TOKENS)
        )

    def _build_too_large_error(self) -> BudgetExceededError:
        newest = len(self._groups) - 1
        left = max(0, self._budget.available - count_messages(self._counter, ()))
        return BudgetExceededError(
            f"the newest message does not fit: it takes {self._group_sizes[newest].tokens} tokens, "
            f"{self._count_compressed_tokens(newest)} compressed, but only {left} are available: "
            "raise the budget or store the message in smaller pieces"
        )

    def _report_compressed_newest(self, placed: Sequence[Message | None]) -> tuple[str, ...]:
        newest = placed[-1] if self._groups else None
        if newest is None or is_verbatim(newest, original := self._items[-1].message):
            return ()
        tokens = count_framed(self._counter, original)
        return (
            f"the newest message was compressed: it takes {tokens} of {self._budget.available} available tokens",
        )

    def _count_conversation_tokens(self, division: ContextDivision, placed: Sequence[Message | None]) -> int:
        sizes = self._session_view.count_tokens_per_item(self._counter)
        for index in division.compressed_groups:
            for position in range(*self._groups[index]):
                message = placed[position]
                sizes[position] = 0 if message is None else count_framed(self._counter, message)
        return sum(itertools.compress(sizes, [message is not None for message in placed]))

    def _count_tokens(self, messages: Sequence[Message]) -> int:
        return sum(count_framed(self._counter, message) for message in messages)

    def _compress_group(self, index: int) -> list[Message]:
        if index not in self._compressed_by_group:
            # Compress the original messages: compressing a compressed one again would lose facts.
            start, end = self._groups[index]
            originals = (
                self._items[position].message
                for position in range(start, end)
                if self._session_view.visible_messages[position] is not None
            )
            self._compressed_by_group[index] = [
                self._compressor.compress_message(message) for message in originals
            ]
        return self._compressed_by_group[index]

    def _count_compressed_tokens(self, index: int) -> int:
        return self._count_tokens(self._compress_group(index))
