"""What ``TranscriptStore`` must do."""

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
class Paper:
    """A session, and the list that is kept of it."""

    stores: Stores
    lists: TranscriptStore
    namespace: NamespacePath
    key: int

    def say(self, *ids: str) -> None:
        """Add messages to the record, each saying its id."""
        self.stores.messages.append(self.key, [message(one, id=one) for one in ids], NOW)

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
        return [one.id for one in found]

    def record(self) -> list[str]:
        """The ids of all that was ever said."""
        return [one.id for one in self.stores.messages.list_after(self.key, after=None, limit=2000)]

    def shown(self) -> list[str]:
        """The ids of what is in view."""
        return [one.id for one in self.stores.messages.list_visible(self.key, 2000)]

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
    return ListChange(dict.fromkeys(listed, listing), tuple(message(one, id=one) for one in added))


class TranscriptStoreConformance(StoreConformance):
    """What ``TranscriptStore`` must do."""

    @pytest.fixture
    def paper(self, stores: Stores, namespace: NamespacePath, key: int) -> Paper:
        """A session with nothing in it."""
        assert stores.transcripts is not None, "hand in Stores(transcripts=...) to run this suite"
        return Paper(stores, stores.transcripts, namespace, key)

    def test_the_newest_come_in_order(self, paper: Paper) -> None:
        paper.say("a", "b", "c", "d")
        paper.put(ARCHIVED, "b")
        paper.put(REMOVED, "d")
        paper.sum_up("summary", before="c", hidden=2)
        newest = [
            [one.id for one in paper.lists.list_latest(paper.key, listings, limit).messages]
            for listings, limit in ((IN_LIST, 2), ((ACTIVE,), 9), ((REMOVED,), 9), (IN_LIST, 0))
        ]
        assert newest == [["b", "c"], ["a", "c"], ["d"], []]
        with pytest.raises(SessionNotFoundError):
            paper.lists.list_latest(-1, IN_LIST, 1)

    def test_what_was_said_is_active(self, paper: Paper) -> None:
        assert (paper.ids(), paper.ids(*Listing)) == ([], [])
        paper.say("1", "2", "3")
        tail = paper.lists.list_messages(paper.key, IN_LIST)
        assert tail == paper.stores.messages.list_latest(paper.key, 9)
        assert tail.revision == paper.revision()
        assert (paper.ids(ACTIVE), paper.ids(ARCHIVED, REPLACED, REMOVED)) == (["1", "2", "3"], [])

    def test_a_list_is_in_the_order_of_the_record_whatever_its_times(self, paper: Paper) -> None:
        batch = [replace(message(id=f"{n}"), created_at=NOW - timedelta(days=n)) for n in range(3)]
        paper.stores.messages.append(paper.key, batch, NOW)
        paper.put(ARCHIVED, "2", "0")
        assert paper.lists.list_messages(paper.key, IN_LIST).messages == tuple(batch)

    def test_a_list_is_read_in_parts(self, paper: Paper) -> None:
        paper.say(*"abcdefg")
        paper.put(REPLACED, "b", "f")
        paper.put(ARCHIVED, "a", "d")

        def part(*listings: Listing, limit: int | None = None, offset: int = 0) -> str:
            found = paper.lists.list_messages(paper.key, listings, limit=limit, offset=offset)
            assert found.revision == paper.revision()
            return "".join(one.id for one in found.messages)

        assert [part(*IN_LIST, limit=2, offset=n) for n in (0, 2, 4, 5, 9)] == ["ac", "de", "g", "", ""]
        assert (part(*IN_LIST, offset=3), part(*IN_LIST, limit=0), part(ACTIVE, limit=1)) == ("eg", "", "c")
        assert part(*IN_LIST, limit=2**40) == part(*IN_LIST) == "acdeg"

    def test_each_listing_is_read_and_counted_by_itself(self, paper: Paper) -> None:
        paper.say(*"abcde")
        for one, listing in zip("bcd", (ARCHIVED, REPLACED, REMOVED), strict=True):
            paper.put(listing, one)
        assert [paper.ids(one) for one in Listing] == [["a", "e"], ["b"], ["c"], ["d"]]
        assert (paper.ids(), paper.ids(REPLACED, REMOVED)) == (["a", "b", "e"], ["c", "d"])
        assert paper.ids(*Listing) == paper.record() == list("abcde")
        assert paper.lists.list_messages(paper.key, ()).messages == ()
        assert paper.lists.count(paper.key, ()) == 0

    def test_a_message_has_its_last_listing_and_keeps_its_position(self, paper: Paper) -> None:
        paper.say(*"abc")
        for first, then in itertools.product(Listing, Listing):
            paper.put(first, "b")
            paper.put(then, "b")
            assert paper.ids(then) == (list("abc") if then is ACTIVE else ["b"])
            assert sum(paper.lists.count(paper.key, (listing,)) for listing in Listing) == 3

    def test_what_is_no_longer_in_the_list_is_not_in_view_and_stays_in_the_record(self, paper: Paper) -> None:
        paper.say(*"abcd")
        paper.put(ARCHIVED, "a")
        paper.put(REPLACED, "b")
        paper.put(REMOVED, "d")
        assert (paper.shown(), paper.record()) == (["a", "c"], list("abcd"))
        assert [one.id for one in paper.stores.messages.list_visible(paper.key, 1)] == ["c"]
        assert [one.id for one in paper.stores.messages.list_latest(paper.key, 2).messages] == ["c", "d"]
        found = paper.stores.messages.get(paper.key, "d")
        assert found is not None
        assert found.content == "d"
        paper.put(ACTIVE, "b", "d")
        assert paper.shown() == list("abcd")

    def test_a_view_that_somebody_holds_is_read_anew(self, paper: Paper, entries: OverrideRepository) -> None:
        paper.say(*"abc")
        held = entries.get_view(paper.key, 9)
        for listing, one, left in (
            (REPLACED, "c", "ab"), (REMOVED, "a", "b"), (ACTIVE, "c", "bc"), (ACTIVE, "a", "abc")
        ):  # fmt: skip
            paper.put(listing, one)
            held = entries.get_view(paper.key, 9, known_view=held)
            assert "".join(item.message.id for item in held.items) == left
            assert held == entries.get_view(paper.key, 9)
        paper.lists.apply_change(paper.key, ListChange({}, (message(id="d"),), REPLACED), NOW, revision=None)
        paper.say("e")
        held = entries.get_view(paper.key, 9, known_view=held)
        assert "".join(item.message.id for item in held.items) == "abce"

    @pytest.mark.parametrize("listing", Listing)
    def test_what_a_change_adds_comes_behind_and_stands_as_it_says(
        self, paper: Paper, listing: Listing
    ) -> None:
        paper.say("a", "b")
        later = NOW + timedelta(hours=1)
        added = (message("new", id="d"), message("newer", id="c"))
        done = paper.lists.apply_change(
            paper.key, ListChange({"a": REPLACED}, added, listing), later, revision=paper.revision()
        )
        assert paper.record() == ["a", "b", "d", "c"]
        assert paper.lists.list_messages(paper.key, (listing,)).messages[-2:] == added
        assert set(paper.ids(ACTIVE)) == {"b", *(("c", "d") if listing is ACTIVE else ())}
        info = paper.stores.sessions.get(paper.namespace, "session")
        assert info is not None
        assert (info.message_count, info.token_count, info.updated_at) == (4, 8, later)
        assert done == paper.revision() == info.revision

    def test_a_change_is_told_by_the_revision(self, paper: Paper) -> None:
        paper.say(*"abc")
        before = paper.revision()
        moved = paper.put(ARCHIVED, "a")
        assert before < moved == paper.revision()
        added = paper.lists.apply_change(paper.key, a_change(added="d"), NOW, revision=moved)
        assert added is not None
        assert moved < added == paper.revision()
        assert (
            paper.lists.apply_change(paper.key, a_change(), NOW, revision=added) == added == paper.revision()
        )

    @pytest.mark.parametrize("listing", Listing)
    def test_a_stale_revision_writes_nothing(self, paper: Paper, listing: Listing) -> None:
        paper.say(*"abc")
        stale = paper.revision()
        paper.say("d")
        change = replace(a_change("ab", REMOVED, added="e"), added_listing=listing)
        for revision in (stale, stale - 1, paper.revision() + 1):
            assert paper.lists.apply_change(paper.key, change, NOW, revision=revision) is None
        assert (paper.ids(), paper.record(), paper.revision()) == (list("abcd"), list("abcd"), stale + 1)

    def test_without_a_revision_it_does_not_matter_who_wrote(self, paper: Paper) -> None:
        paper.say(*"abc")
        paper.say("d")
        assert paper.lists.apply_change(paper.key, a_change("ad", added="e"), NOW, revision=None)
        assert (paper.ids(ARCHIVED), paper.ids(ACTIVE)) == (["a", "d"], ["b", "c", "e"])

    @pytest.mark.parametrize("listed", ["a", ""], ids=["listed", "added"])
    def test_of_many_who_looked_at_the_same_time_one_writes(self, paper: Paper, listed: str) -> None:
        paper.say(*"abc")
        start, numbers, won = threading.Barrier(THREADS, timeout=60), itertools.count(), list[int]()

        def write() -> None:
            for _ in range(10):
                change = a_change(listed, added=[f"new {next(numbers)}"])
                seen = paper.revision()
                start.wait()
                if paper.lists.apply_change(paper.key, change, NOW, revision=seen) is not None:
                    won.append(seen)
                start.wait()

        run_in_threads(THREADS, write)
        assert len(won) == len(set(won)) == 10
        assert (len(paper.record()), paper.ids(ARCHIVED)) == (13, list(listed))

    @pytest.mark.parametrize("added", [("new", "b"), ("new", "newer", "new")], ids=["of another", "twice"])
    def test_a_change_with_an_id_that_is_taken_changes_nothing(
        self, paper: Paper, added: tuple[str, ...]
    ) -> None:
        paper.say(*"abc")
        paper.put(REMOVED, "c")
        before, wrong = paper.revision(), a_change("ac", added=added)
        for revision in (before, None):
            with pytest.raises(MessageConflictError, match=f"'{added[-1]}'"):
                paper.lists.apply_change(paper.key, wrong, NOW, revision=revision)
        with pytest.raises(MessageConflictError, match=f"'{added[-1]}'"):
            paper.lists.apply_locked_change(paper.key, IN_LIST, lambda _: wrong, NOW)
        assert [paper.ids(one) for one in Listing] == [["a", "b"], [], [], ["c"]]
        assert (paper.record(), paper.revision()) == (list("abc"), before)

    def test_what_is_not_there_cannot_be_listed(self, paper: Paper) -> None:
        paper.say("a")
        paper.put(ARCHIVED, "a", "nowhere")
        assert paper.ids(*Listing) == ["a"]
        paper.say("nowhere")
        assert paper.ids(ACTIVE) == ["nowhere"]

    def test_the_list_of_one_session_is_not_that_of_another(self, paper: Paper) -> None:
        other = paper.beside("other")
        for one in (paper, other):
            one.say(*"abc")
        before = other.revision()
        paper.put(REMOVED, "a")
        paper.put(ARCHIVED, "b")
        paper.lists.apply_change(paper.key, a_change("c", REPLACED, added="d"), NOW, revision=None)
        assert (other.ids(ACTIVE), other.shown(), other.revision()) == (list("abc"), list("abc"), before)
        other.put(ACTIVE, *"abc")
        assert [paper.ids(one) for one in Listing] == [["d"], ["b"], ["c"], ["a"]]

    def test_ids_match_exactly(self, paper: Paper) -> None:
        for name in HOSTILE_NAMES:
            paper.beside(name).say(*HOSTILE_NAMES)
            paper.beside(name).put(REMOVED, name)
        for name in HOSTILE_NAMES:
            there = paper.beside(name)
            assert there.ids(REMOVED) == [name]
            assert there.ids() == there.shown() == [one for one in HOSTILE_NAMES if one != name]

    def test_many_messages_are_listed_at_once(self, paper: Paper) -> None:
        ids = [f"n{number}" for number in range(1200)]
        paper.lists.apply_change(
            paper.key, replace(a_change(added=ids), added_listing=ARCHIVED), NOW, revision=None
        )
        assert (paper.ids(ARCHIVED), paper.ids(ACTIVE)) == (ids, [])
        paper.put(REPLACED, *ids[::2])
        assert (paper.ids(), paper.ids(REPLACED)) == (ids[1::2], ids[::2])
        assert paper.shown() == ids[1::2]

    def test_summaries_are_no_part_of_a_list(self, paper: Paper) -> None:
        paper.say(*"abcd")
        paper.sum_up("first", before="c", hidden=2)
        assert paper.ids(*Listing) == list("abcd")
        told = paper.lists.list_messages(paper.key, IN_LIST).messages
        assert [one.is_compressed for one in told] == [True, True, False, False]
        paper.sum_up("second", before="d", hidden=2, was_hidden=2)
        for listing in Listing:
            paper.put(listing, "first", "second")
            assert paper.ids(*Listing) == list("abcd")
            assert paper.shown() == ["second", "d"]
        paper.put(REPLACED, *"abcd")
        assert (paper.ids(), paper.shown()) == ([], ["second"])
        paper.say("e")
        assert (paper.ids(), paper.shown()) == (["e"], ["second", "e"])

    def test_a_message_that_says_it_is_a_summary_is_part_of_the_list(self, paper: Paper) -> None:
        said = message(f"{SUMMARY_PREFIX}\nby another", id="s", role=Role.SYSTEM)
        paper.stores.messages.append(paper.key, [said], NOW)
        assert paper.ids() == ["s"]

    def test_of_a_session_that_is_gone_there_is_no_list(self, paper: Paper) -> None:
        paper.say("a")
        paper.put(ARCHIVED, "a")
        revision = paper.revision()
        paper.stores.sessions.delete(paper.key)
        for listed, added in (("a", "b"), ("a", ""), ("", "b"), ("", "")):
            for seen in (None, revision):
                with pytest.raises(SessionNotFoundError):
                    paper.lists.apply_change(paper.key, a_change(listed, added=added), NOW, revision=seen)
        with pytest.raises(SessionNotFoundError):
            paper.lists.list_messages(paper.key, IN_LIST)
        with pytest.raises(SessionNotFoundError):
            paper.lists.count(paper.key, IN_LIST)
        with pytest.raises(SessionNotFoundError):
            paper.lists.apply_locked_change(paper.key, IN_LIST, lambda _: None, NOW)

    @pytest.mark.parametrize("what", ["session", "namespace"])
    def test_what_is_erased_leaves_no_listing_behind(self, paper: Paper, what: str) -> None:
        gone = paper.beside("gone")
        gone.say(*"abcdef")
        gone.put(REMOVED, *"abc")
        gone.put(ARCHIVED, *"def")
        if what == "session":
            paper.stores.sessions.delete(gone.key)
        else:
            paper.stores.sessions.delete_namespace(paper.namespace)
        anew = paper.beside("gone")  # its messages may get the keys of those that are gone
        anew.say(*"abcdef")
        assert anew.ids(ACTIVE) == anew.shown() == list("abcdef")
        anew.put(ARCHIVED, *"abcdef")
        assert anew.ids(ARCHIVED) == list("abcdef")

    def test_what_is_removed_is_no_row_of_the_index(self, paper: Paper) -> None:
        index = paper.stores.index
        if index is None:
            pytest.skip("no index was handed in")
        paper.say(*"abc")
        refresh = index.load_changes(paper.namespace, 0)
        before, (first, second, third) = refresh.tenant, refresh.rows.keys.tolist()
        paper.put(REPLACED, "a")
        paper.put(ARCHIVED, "b")
        assert index.load_changes(paper.namespace, 0).tenant == before
        paper.put(REMOVED, "b")
        removed = index.load_changes(paper.namespace, 0)
        assert removed.rows.keys.tolist() == [first, third]
        assert removed.tenant != before  # whoever holds rows reads them anew
        paper.say("d")
        later = set(index.load_changes(paper.namespace, removed.watermark).rows.keys.tolist())
        assert len(later - {first, third}) == 1  # rows may come again while other transactions are open
        paper.put(REMOVED, "b")
        assert index.load_changes(paper.namespace, 0).tenant == removed.tenant
        paper.put(REPLACED, "b")
        back = index.load_changes(paper.namespace, 0)
        assert back.rows.keys.tolist()[:3] == [first, second, third]
        assert back.tenant not in (before, removed.tenant)

    def test_what_is_removed_is_no_long_term_entry(self, paper: Paper, entries: OverrideRepository) -> None:
        paper.say(*"ab")
        shown = [item.key for item in entries.get_view(paper.key, 9).items]
        mark = EntryOverride(tier=Tier.LONG_TERM, changed_at=NOW)
        assert entries.apply(paper.key, dict.fromkeys(shown, mark), roll_up=None, was_hidden=0)
        for listing, left in ((REMOVED, ["b"]), (REPLACED, ["b", "a"])):
            paper.put(listing, "a")
            promoted = entries.list_promoted(paper.namespace, before=None, limit=9)
            assert [one.item.message.id for one in promoted] == left

    def test_who_decides_sees_the_list_as_it_is(self, paper: Paper) -> None:
        paper.say(*"abcd")
        paper.put(ARCHIVED, "b")
        seen: list[VersionedMessages] = []

        def archive(there: VersionedMessages) -> ListChange:
            seen.append(there)
            return a_change([one.id for one in there.messages], added="e")

        assert paper.lists.apply_locked_change(paper.key, (ACTIVE,), archive, NOW, limit=2)
        assert [[one.id for one in tail.messages] for tail in seen] == [["a", "c"]]
        assert (paper.ids(ARCHIVED), paper.ids(ACTIVE)) == (["a", "b", "c"], ["d", "e"])
        assert seen[0].revision < paper.revision()

    def test_who_decides_for_nothing_writes_nothing(self, paper: Paper) -> None:
        paper.say(*"abc")
        before = paper.revision()
        assert not paper.lists.apply_locked_change(paper.key, IN_LIST, lambda _: None, NOW)

        def fail(there: VersionedMessages) -> ListChange:
            raise ZeroDivisionError(f"{len(there.messages)} messages")

        with pytest.raises(ZeroDivisionError, match="3 messages"):
            paper.lists.apply_locked_change(paper.key, IN_LIST, fail, NOW)
        assert (paper.ids(ACTIVE), paper.revision()) == (list("abc"), before)
        paper.say("d")

    def test_nobody_writes_between_look_and_decision(self, paper: Paper) -> None:
        paper.say(*(f"{n}" for n in range(20)))
        taken: list[str] = []

        def take(there: VersionedMessages) -> ListChange:
            (first,) = there.messages
            taken.append(first.id)
            return a_change([first.id], added=[f"for {first.id}"])

        run_in_threads(
            THREADS,
            lambda: [
                paper.lists.apply_locked_change(paper.key, (ACTIVE,), take, NOW, limit=1) for _ in range(5)
            ],
        )
        assert taken == paper.ids(ARCHIVED) == [f"{n}" for n in range(20)]
        assert paper.ids(ACTIVE) == [f"for {n}" for n in range(20)]

    def test_who_adds_waits_for_a_decision(self, paper: Paper) -> None:
        paper.say("a")
        is_deciding, is_added, came_between = threading.Event(), threading.Event(), list[bool]()

        def decide(there: VersionedMessages) -> ListChange:
            is_deciding.set()
            came_between.append(is_added.wait(0.3))
            return a_change([one.id for one in there.messages], added="b")

        def add() -> None:
            assert is_deciding.wait(60)
            paper.say("c")
            is_added.set()

        works = iter([lambda: paper.lists.apply_locked_change(paper.key, IN_LIST, decide, NOW), add])

        def work() -> None:
            next(works)()

        run_in_threads(2, work)
        assert (came_between, paper.record(), paper.ids(ACTIVE)) == ([False], list("abc"), ["b", "c"])
