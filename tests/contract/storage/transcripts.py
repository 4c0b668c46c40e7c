"""Contract of ``TranscriptStore``."""

from __future__ import annotations

import itertools
import threading
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Self

import pytest

from langmem_tiers.common.entries import EntryOverride, Tier
from langmem_tiers.common.messages import SUMMARY_PREFIX, Role
from langmem_tiers.errors import MessageConflictError, SessionNotFoundError
from langmem_tiers.sessions.models import IN_LIST, ListChange, Listing
from langmem_tiers.testing.threads import run_in_threads
from tests.contract.storage.base import (
    HOSTILE_NAMES,
    NOW,
    StoreConformance,
    Stores,
    message,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.sessions.models import VersionedMessages
    from langmem_tiers.sessions.override_repository import OverrideRepository
    from langmem_tiers.sessions.stores import TranscriptStore

ACTIVE, ARCHIVED, REPLACED, REMOVED = Listing
THREADS = 4


@dataclass(frozen=True)
class TranscriptHelper:
    """A session, and the list that is kept of it."""

    stores: Stores
    lists: TranscriptStore
    namespace: NamespacePath
    key: int

    def say(self, *ids: str) -> None:
        """Add messages to the record, each saying its id."""
        self.stores.messages.append(self.key, [message(message_id, id=message_id) for message_id in ids], NOW)

    def sum_up(self, name: str, *, before: str, hidden: int, was_hidden: int = 0) -> None:
        """Put a summary in front of a message."""
        summary = message(f"{SUMMARY_PREFIX}\n{name}", id=name, role=Role.SYSTEM)
        done = self.stores.messages.compress(
            self.key, summary, before=before, hidden=hidden, was_hidden=was_hidden
        )
        assert done

    def put(self, listing: Listing, *ids: str, now: datetime = NOW) -> int:
        """Let messages stand so in the list; the revision after it."""
        done = self.lists.apply_change(
            self.key, ListChange(dict.fromkeys(ids, listing), ()), now, revision=None
        )
        assert done is not None
        return done

    def ids(self, *listings: Listing) -> list[str]:
        """What stands so in the list; all of the list, if nothing is said."""
        found = self.lists.list_messages(self.key, listings or IN_LIST).messages
        assert self.lists.count(self.key, listings or IN_LIST) == len(found)
        return [message.id for message in found]

    def record(self) -> list[str]:
        """The ids of all that was ever said."""
        return [message.id for message in self.stores.messages.list_after(self.key, after=None, limit=2000)]

    def list_shown(self) -> list[str]:
        """The ids of what is in view."""
        return [message.id for message in self.stores.messages.list_visible(self.key, 2000)]

    def revision(self) -> int:
        """The session's."""
        found = self.stores.sessions.get_revision(self.key)
        assert found is not None
        return found

    def beside(self, session: str) -> Self:
        """Another session of the namespace."""
        return replace(self, key=self.stores.sessions.get_or_create(self.namespace, session, NOW).key)


def a_change(
    listed: Iterable[str] = (), listing: Listing = ARCHIVED, added: Iterable[str] = ()
) -> ListChange:
    """Some messages are listed otherwise, and others come behind them."""
    return ListChange(
        dict.fromkeys(listed, listing), tuple(message(message_id, id=message_id) for message_id in added)
    )


class TranscriptStoreConformance(StoreConformance):
    """What ``TranscriptStore`` must do."""

    @pytest.fixture
    def helper(self, stores: Stores, namespace: NamespacePath, key: int) -> TranscriptHelper:
        """A session with nothing in it."""
        assert stores.transcripts is not None, "hand in Stores(transcripts=...) to run this suite"
        return TranscriptHelper(stores, stores.transcripts, namespace, key)

    def test_the_newest_messages_are_listed_in_order(self, helper: TranscriptHelper) -> None:
        helper.say("a", "b", "c", "d")
        helper.put(ARCHIVED, "b")
        helper.put(REMOVED, "d")
        helper.sum_up("summary", before="c", hidden=2)
        newest = [
            [message.id for message in helper.lists.list_latest(helper.key, listings, limit).messages]
            for listings, limit in ((IN_LIST, 2), ((ACTIVE,), 9), ((REMOVED,), 9), (IN_LIST, 0))
        ]
        assert newest == [["b", "c"], ["a", "c"], ["d"], []]
        with pytest.raises(SessionNotFoundError):
            helper.lists.list_latest(-1, IN_LIST, 1)

    def test_added_messages_are_active(self, helper: TranscriptHelper) -> None:
        assert (helper.ids(), helper.ids(*Listing)) == ([], [])
        helper.say("1", "2", "3")
        tail = helper.lists.list_messages(helper.key, IN_LIST)
        assert tail == helper.stores.messages.list_latest(helper.key, 9)
        assert tail.revision == helper.revision()
        assert (helper.ids(ACTIVE), helper.ids(ARCHIVED, REPLACED, REMOVED)) == (["1", "2", "3"], [])

    def test_a_list_is_in_the_order_of_the_record_regardless_of_times(self, helper: TranscriptHelper) -> None:
        batch = [replace(message(id=f"{n}"), created_at=NOW - timedelta(days=n)) for n in range(3)]
        helper.stores.messages.append(helper.key, batch, NOW)
        helper.put(ARCHIVED, "2", "0")
        assert helper.lists.list_messages(helper.key, IN_LIST).messages == tuple(batch)

    def test_a_list_is_read_in_pages(self, helper: TranscriptHelper) -> None:
        helper.say(*"abcdefg")
        helper.put(REPLACED, "b", "f")
        helper.put(ARCHIVED, "a", "d")

        def part(*listings: Listing, limit: int | None = None, offset: int = 0) -> str:
            found = helper.lists.list_messages(helper.key, listings, limit=limit, offset=offset)
            assert found.revision == helper.revision()
            return "".join(message.id for message in found.messages)

        assert [part(*IN_LIST, limit=2, offset=n) for n in (0, 2, 4, 5, 9)] == ["ac", "de", "g", "", ""]
        assert (part(*IN_LIST, offset=3), part(*IN_LIST, limit=0), part(ACTIVE, limit=1)) == ("eg", "", "c")
        assert part(*IN_LIST, limit=2**40) == part(*IN_LIST) == "acdeg"

    def test_each_listing_is_read_and_counted_by_itself(self, helper: TranscriptHelper) -> None:
        helper.say(*"abcde")
        for message_id, listing in zip("bcd", (ARCHIVED, REPLACED, REMOVED), strict=True):
            helper.put(listing, message_id)
        assert [helper.ids(listing) for listing in Listing] == [["a", "e"], ["b"], ["c"], ["d"]]
        assert (helper.ids(), helper.ids(REPLACED, REMOVED)) == (["a", "b", "e"], ["c", "d"])
        assert helper.ids(*Listing) == helper.record() == list("abcde")
        assert helper.lists.list_messages(helper.key, ()).messages == ()
        assert helper.lists.count(helper.key, ()) == 0

    def test_a_message_has_its_last_listing_and_keeps_its_position(self, helper: TranscriptHelper) -> None:
        helper.say(*"abc")
        for first, then in itertools.product(Listing, Listing):
            helper.put(first, "b")
            helper.put(then, "b")
            assert helper.ids(then) == (list("abc") if then is ACTIVE else ["b"])
            assert sum(helper.lists.count(helper.key, (listing,)) for listing in Listing) == 3

    def test_messages_removed_from_the_list_are_hidden_and_stay_in_the_record(
        self, helper: TranscriptHelper
    ) -> None:
        helper.say(*"abcd")
        helper.put(ARCHIVED, "a")
        helper.put(REPLACED, "b")
        helper.put(REMOVED, "d")
        assert (helper.list_shown(), helper.record()) == (["a", "c"], list("abcd"))
        assert [message.id for message in helper.stores.messages.list_visible(helper.key, 1)] == ["c"]
        assert [message.id for message in helper.stores.messages.list_latest(helper.key, 2).messages] == [
            "c",
            "d",
        ]
        found = helper.stores.messages.get(helper.key, "d")
        assert found is not None
        assert found.content == "d"
        helper.put(ACTIVE, "b", "d")
        assert helper.list_shown() == list("abcd")

    def test_a_cached_view_is_updated_after_a_listing_change(
        self, helper: TranscriptHelper, entries: OverrideRepository
    ) -> None:
        helper.say(*"abc")
        view = entries.get_view(helper.key, 9)
        for listing, message_id, left in (
            (REPLACED, "c", "ab"), (REMOVED, "a", "b"), (ACTIVE, "c", "bc"), (ACTIVE, "a", "abc")
        ):  # fmt: skip
            helper.put(listing, message_id)
            view = entries.get_view(helper.key, 9, known_view=view)
            assert "".join(item.message.id for item in view.items) == left
            assert view == entries.get_view(helper.key, 9)
        helper.lists.apply_change(
            helper.key, ListChange({}, (message(id="d"),), REPLACED), NOW, revision=None
        )
        helper.say("e")
        view = entries.get_view(helper.key, 9, known_view=view)
        assert "".join(item.message.id for item in view.items) == "abce"

    @pytest.mark.parametrize("listing", Listing)
    def test_messages_added_by_a_change_are_appended_with_its_listing(
        self, helper: TranscriptHelper, listing: Listing
    ) -> None:
        helper.say("a", "b")
        later = NOW + timedelta(hours=1)
        added = (message("new", id="d"), message("newer", id="c"))
        done = helper.lists.apply_change(
            helper.key, ListChange({"a": REPLACED}, added, listing), later, revision=helper.revision()
        )
        assert helper.record() == ["a", "b", "d", "c"]
        assert helper.lists.list_messages(helper.key, (listing,)).messages[-2:] == added
        assert set(helper.ids(ACTIVE)) == {"b", *(("c", "d") if listing is ACTIVE else ())}
        info = helper.stores.sessions.get(helper.namespace, "session")
        assert info is not None
        assert (info.message_count, info.token_count, info.updated_at) == (4, 8, later)
        assert done == helper.revision() == info.revision

    def test_a_change_increases_the_revision(self, helper: TranscriptHelper) -> None:
        helper.say(*"abc")
        before = helper.revision()
        moved = helper.put(ARCHIVED, "a")
        assert before < moved == helper.revision()
        added = helper.lists.apply_change(helper.key, a_change(added="d"), NOW, revision=moved)
        assert added is not None
        assert moved < added == helper.revision()
        assert (
            helper.lists.apply_change(helper.key, a_change(), NOW, revision=added)
            == added
            == helper.revision()
        )

    @pytest.mark.parametrize("listing", Listing)
    def test_a_stale_revision_writes_nothing(self, helper: TranscriptHelper, listing: Listing) -> None:
        helper.say(*"abc")
        stale = helper.revision()
        helper.say("d")
        change = replace(a_change("ab", REMOVED, added="e"), added_listing=listing)
        for revision in (stale, stale - 1, helper.revision() + 1):
            assert helper.lists.apply_change(helper.key, change, NOW, revision=revision) is None
        assert (helper.ids(), helper.record(), helper.revision()) == (list("abcd"), list("abcd"), stale + 1)

    def test_a_change_without_a_revision_ignores_concurrent_writes(self, helper: TranscriptHelper) -> None:
        helper.say(*"abc")
        helper.say("d")
        assert helper.lists.apply_change(helper.key, a_change("ad", added="e"), NOW, revision=None)
        assert (helper.ids(ARCHIVED), helper.ids(ACTIVE)) == (["a", "d"], ["b", "c", "e"])

    @pytest.mark.parametrize("listed", ["a", ""], ids=["listed", "added"])
    def test_only_one_of_several_writers_with_the_same_revision_succeeds(
        self, helper: TranscriptHelper, listed: str
    ) -> None:
        helper.say(*"abc")
        start, numbers, won = threading.Barrier(THREADS, timeout=60), itertools.count(), list[int]()

        def write() -> None:
            for _ in range(10):
                change = a_change(listed, added=[f"new {next(numbers)}"])
                seen = helper.revision()
                start.wait()
                if helper.lists.apply_change(helper.key, change, NOW, revision=seen) is not None:
                    won.append(seen)
                start.wait()

        run_in_threads(THREADS, write)
        assert len(won) == len(set(won)) == 10
        assert (len(helper.record()), helper.ids(ARCHIVED)) == (13, list(listed))

    @pytest.mark.parametrize("added", [("new", "b"), ("new", "newer", "new")], ids=["of another", "twice"])
    def test_a_change_with_an_existing_id_changes_nothing(
        self, helper: TranscriptHelper, added: tuple[str, ...]
    ) -> None:
        helper.say(*"abc")
        helper.put(REMOVED, "c")
        before, wrong = helper.revision(), a_change("ac", added=added)
        for revision in (before, None):
            with pytest.raises(MessageConflictError, match=f"'{added[-1]}'"):
                helper.lists.apply_change(helper.key, wrong, NOW, revision=revision)
        with pytest.raises(MessageConflictError, match=f"'{added[-1]}'"):
            helper.lists.apply_locked_change(helper.key, IN_LIST, lambda _: wrong, NOW)
        assert [helper.ids(listing) for listing in Listing] == [["a", "b"], [], [], ["c"]]
        assert (helper.record(), helper.revision()) == (list("abc"), before)

    def test_unknown_messages_cannot_be_listed(self, helper: TranscriptHelper) -> None:
        helper.say("a")
        helper.put(ARCHIVED, "a", "nowhere")
        assert helper.ids(*Listing) == ["a"]
        helper.say("nowhere")
        assert helper.ids(ACTIVE) == ["nowhere"]

    def test_lists_of_sessions_are_isolated(self, helper: TranscriptHelper) -> None:
        other = helper.beside("other")
        for each_helper in (helper, other):
            each_helper.say(*"abc")
        before = other.revision()
        helper.put(REMOVED, "a")
        helper.put(ARCHIVED, "b")
        helper.lists.apply_change(helper.key, a_change("c", REPLACED, added="d"), NOW, revision=None)
        assert (other.ids(ACTIVE), other.list_shown(), other.revision()) == (list("abc"), list("abc"), before)
        other.put(ACTIVE, *"abc")
        assert [helper.ids(listing) for listing in Listing] == [["d"], ["b"], ["c"], ["a"]]

    def test_ids_match_exactly(self, helper: TranscriptHelper) -> None:
        for name in HOSTILE_NAMES:
            helper.beside(name).say(*HOSTILE_NAMES)
            helper.beside(name).put(REMOVED, name)
        for name in HOSTILE_NAMES:
            there = helper.beside(name)
            assert there.ids(REMOVED) == [name]
            assert (
                there.ids()
                == there.list_shown()
                == [message_id for message_id in HOSTILE_NAMES if message_id != name]
            )

    def test_many_messages_are_listed_in_one_call(self, helper: TranscriptHelper) -> None:
        ids = [f"n{number}" for number in range(1200)]
        helper.lists.apply_change(
            helper.key, replace(a_change(added=ids), added_listing=ARCHIVED), NOW, revision=None
        )
        assert (helper.ids(ARCHIVED), helper.ids(ACTIVE)) == (ids, [])
        helper.put(REPLACED, *ids[::2])
        assert (helper.ids(), helper.ids(REPLACED)) == (ids[1::2], ids[::2])
        assert helper.list_shown() == ids[1::2]

    def test_summaries_are_not_in_a_list(self, helper: TranscriptHelper) -> None:
        helper.say(*"abcd")
        helper.sum_up("first", before="c", hidden=2)
        assert helper.ids(*Listing) == list("abcd")
        listed = helper.lists.list_messages(helper.key, IN_LIST).messages
        assert [message.is_compressed for message in listed] == [True, True, False, False]
        helper.sum_up("second", before="d", hidden=2, was_hidden=2)
        for listing in Listing:
            helper.put(listing, "first", "second")
            assert helper.ids(*Listing) == list("abcd")
            assert helper.list_shown() == ["second", "d"]
        helper.put(REPLACED, *"abcd")
        assert (helper.ids(), helper.list_shown()) == ([], ["second"])
        helper.say("e")
        assert (helper.ids(), helper.list_shown()) == (["e"], ["second", "e"])

    def test_a_message_with_the_summary_prefix_is_in_the_list(self, helper: TranscriptHelper) -> None:
        said = message(f"{SUMMARY_PREFIX}\nby another", id="s", role=Role.SYSTEM)
        helper.stores.messages.append(helper.key, [said], NOW)
        assert helper.ids() == ["s"]

    def test_a_deleted_session_has_no_list(self, helper: TranscriptHelper) -> None:
        helper.say("a")
        helper.put(ARCHIVED, "a")
        revision = helper.revision()
        helper.stores.sessions.delete(helper.key)
        for listed, added in (("a", "b"), ("a", ""), ("", "b"), ("", "")):
            for seen in (None, revision):
                with pytest.raises(SessionNotFoundError):
                    helper.lists.apply_change(helper.key, a_change(listed, added=added), NOW, revision=seen)
        with pytest.raises(SessionNotFoundError):
            helper.lists.list_messages(helper.key, IN_LIST)
        with pytest.raises(SessionNotFoundError):
            helper.lists.count(helper.key, IN_LIST)
        with pytest.raises(SessionNotFoundError):
            helper.lists.apply_locked_change(helper.key, IN_LIST, lambda _: None, NOW)

    @pytest.mark.parametrize("what", ["session", "namespace"])
    def test_erased_messages_have_no_listing(self, helper: TranscriptHelper, what: str) -> None:
        deleted = helper.beside("gone")
        deleted.say(*"abcdef")
        deleted.put(REMOVED, *"abc")
        deleted.put(ARCHIVED, *"def")
        if what == "session":
            helper.stores.sessions.delete(deleted.key)
        else:
            helper.stores.sessions.delete_namespace(helper.namespace)
        recreated = helper.beside("gone")  # its messages may get the keys of those that are gone
        recreated.say(*"abcdef")
        assert recreated.ids(ACTIVE) == recreated.list_shown() == list("abcdef")
        recreated.put(ARCHIVED, *"abcdef")
        assert recreated.ids(ARCHIVED) == list("abcdef")

    def test_removed_messages_are_not_indexed(self, helper: TranscriptHelper) -> None:
        index = helper.stores.index
        if index is None:
            pytest.skip("no index was handed in")
        helper.say(*"abc")
        refresh = index.load_changes(helper.namespace, 0)
        before, (first, second, third) = refresh.tenant, refresh.rows.keys.tolist()
        helper.put(REPLACED, "a")
        helper.put(ARCHIVED, "b")
        assert index.load_changes(helper.namespace, 0).tenant == before
        helper.put(REMOVED, "b")
        removed = index.load_changes(helper.namespace, 0)
        assert removed.rows.keys.tolist() == [first, third]
        assert removed.tenant != before  # whoever holds rows reads them anew
        helper.say("d")
        later = set(index.load_changes(helper.namespace, removed.watermark).rows.keys.tolist())
        assert len(later - {first, third}) == 1  # rows may come again while other transactions are open
        helper.put(REMOVED, "b")
        assert index.load_changes(helper.namespace, 0).tenant == removed.tenant
        helper.put(REPLACED, "b")
        back = index.load_changes(helper.namespace, 0)
        assert back.rows.keys.tolist()[:3] == [first, second, third]
        assert back.tenant not in (before, removed.tenant)

    def test_removed_messages_are_not_long_term_entries(
        self, helper: TranscriptHelper, entries: OverrideRepository
    ) -> None:
        helper.say(*"ab")
        shown = [item.key for item in entries.get_view(helper.key, 9).items]
        mark = EntryOverride(tier=Tier.LONG_TERM, changed_at=NOW)
        assert entries.apply(helper.key, dict.fromkeys(shown, mark), roll_up=None, was_hidden=0)
        for listing, left in ((REMOVED, ["b"]), (REPLACED, ["b", "a"])):
            helper.put(listing, "a")
            promoted = entries.list_promoted(helper.namespace, before=None, limit=9)
            assert [entry.item.message.id for entry in promoted] == left

    def test_a_locked_change_receives_the_current_list(self, helper: TranscriptHelper) -> None:
        helper.say(*"abcd")
        helper.put(ARCHIVED, "b")
        seen: list[VersionedMessages] = []

        def archive(there: VersionedMessages) -> ListChange:
            seen.append(there)
            return a_change([message.id for message in there.messages], added="e")

        assert helper.lists.apply_locked_change(helper.key, (ACTIVE,), archive, NOW, limit=2)
        assert [[message.id for message in tail.messages] for tail in seen] == [["a", "c"]]
        assert (helper.ids(ARCHIVED), helper.ids(ACTIVE)) == (["a", "b", "c"], ["d", "e"])
        assert seen[0].revision < helper.revision()

    def test_a_locked_change_without_a_result_writes_nothing(self, helper: TranscriptHelper) -> None:
        helper.say(*"abc")
        before = helper.revision()
        assert not helper.lists.apply_locked_change(helper.key, IN_LIST, lambda _: None, NOW)

        def fail(there: VersionedMessages) -> ListChange:
            raise ZeroDivisionError(f"{len(there.messages)} messages")

        with pytest.raises(ZeroDivisionError, match="3 messages"):
            helper.lists.apply_locked_change(helper.key, IN_LIST, fail, NOW)
        assert (helper.ids(ACTIVE), helper.revision()) == (list("abc"), before)
        helper.say("d")

    def test_concurrent_locked_changes_are_serialized(self, helper: TranscriptHelper) -> None:
        helper.say(*(f"{n}" for n in range(20)))
        taken: list[str] = []

        def take(there: VersionedMessages) -> ListChange:
            (first,) = there.messages
            taken.append(first.id)
            return a_change([first.id], added=[f"for {first.id}"])

        run_in_threads(
            THREADS,
            lambda: [
                helper.lists.apply_locked_change(helper.key, (ACTIVE,), take, NOW, limit=1) for _ in range(5)
            ],
        )
        assert taken == helper.ids(ARCHIVED) == [f"{n}" for n in range(20)]
        assert helper.ids(ACTIVE) == [f"for {n}" for n in range(20)]

    def test_adding_waits_for_a_locked_change(self, helper: TranscriptHelper) -> None:
        helper.say("a")
        is_deciding, is_added, came_between = threading.Event(), threading.Event(), list[bool]()

        def decide(there: VersionedMessages) -> ListChange:
            is_deciding.set()
            came_between.append(is_added.wait(0.3))
            return a_change([message.id for message in there.messages], added="b")

        def add() -> None:
            assert is_deciding.wait(60)
            helper.say("c")
            is_added.set()

        works = iter([lambda: helper.lists.apply_locked_change(helper.key, IN_LIST, decide, NOW), add])

        def work() -> None:
            next(works)()

        run_in_threads(2, work)
        assert (came_between, helper.record(), helper.ids(ACTIVE)) == ([False], list("abc"), ["b", "c"])
