"""Contract of ``PoolRepository``."""

from __future__ import annotations

import itertools
import threading
import uuid
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from langmem_tiers.errors import (
    EntryNotFoundError,
    InvalidInputError,
    NotAllowedError,
    PoolExistsError,
    PoolNotFoundError,
)
from langmem_tiers.long_term.models import Relation, RelationKind
from langmem_tiers.long_term.records import MemoryWrite, NewEntry
from langmem_tiers.pools.models import NewContribution, Origin, PoolErasure, PoolInfo
from langmem_tiers.testing.threads import run_in_threads
from tests.contract.storage.base import ANY_TEXT, HOSTILE_NAMES, NOW, StoreConformance
from tests.contract.storage.pool_book import LATER, Shared, entry, member

if TYPE_CHECKING:
    from langmem_tiers.common.namespaces import NamespacePath
    from tests.contract.storage.base import Stores


class PoolRepositoryConformance(StoreConformance):
    """What ``PoolRepository`` must do, with the other repositories on the same database."""

    @pytest.fixture
    def shared(self, stores: Stores, namespace: NamespacePath) -> Shared:
        """A pool."""
        assert stores.pools is not None, "hand in Stores(pools=...) to run this suite"
        assert stores.memories is not None, "hand in Stores(memories=...) to run this suite"
        return Shared(stores.pools, stores.memories, namespace[-1])

    def test_a_pool_is_found_by_its_name_and_by_its_id(self, shared: Shared) -> None:
        assert shared.pools.get(shared.info.name) == shared.info
        assert shared.pools.get(shared.id) == shared.info
        assert shared.pools.get(shared.info.name.upper()) is None
        assert shared.info in shared.pools.list_pools(after=shared.info.name[:-1], limit=99)
        assert shared.info not in shared.pools.list_pools(after=shared.info.name, limit=99)

    def test_an_existing_pool_name_or_id_is_refused(self, shared: Shared) -> None:
        for name in (shared.info.name, shared.id):
            again = PoolInfo(id=uuid.uuid4().hex, name=name, created_at=NOW)
            with pytest.raises(PoolExistsError, match="already"):
                shared.pools.create(again, [member(shared.owner, is_owner=True)])
            assert shared.pools.get(again.id) is None

    def test_only_one_of_several_concurrent_creations_succeeds(self, shared: Shared) -> None:
        made: list[str] = []
        name = f"{shared.info.name} 2"

        def create() -> None:
            info = PoolInfo(id=uuid.uuid4().hex, name=name, created_at=NOW)
            try:
                shared.pools.create(info, [member(shared.owner, is_owner=True)])
            except PoolExistsError:
                return
            made.append(info.id)

        run_in_threads(4, create)
        found = shared.pools.get(name)
        assert found is not None
        assert made == [found.id]

    def test_similar_names_belong_to_different_pools(self, shared: Shared, namespace: NamespacePath) -> None:
        tenant = namespace[-1]
        for name in HOSTILE_NAMES:
            info = PoolInfo(id=f"{tenant}{name}", name=f"{tenant} {name}", created_at=NOW)
            shared.pools.create(info, [member((tenant, name), is_owner=True)])
        for name in HOSTILE_NAMES:
            (readable,) = shared.pools.list_readable((tenant, name))
            assert (readable.id, readable.name) == (f"{tenant}{name}", f"{tenant} {name}")
            (only,) = shared.pools.list_members(readable.id)
            assert only.namespace == (tenant, name)
            for other in set(HOSTILE_NAMES) - {name}:
                assert shared.pools.get_member(readable.id, (tenant, other)) is None

    def test_a_pool_is_not_listed_as_a_namespace(self, stores: Stores, shared: Shared) -> None:
        shared.give(shared.owner, "a")
        stores.sessions.get_or_create(shared.owner, "s", NOW)
        assert shared.info.namespace not in stores.sessions.list_namespaces((), after=None, limit=100_000)
        assert stores.sessions.list_namespaces(shared.owner, after=None, limit=9) == (shared.owner,)

    def test_members_have_their_latest_rights(self, shared: Shared) -> None:
        reader = member(shared.member, can_write=False)
        later = replace(reader, joined_at=LATER)  # it is in the pool for as long as before
        assert shared.pools.upsert_member(shared.id, later, by=shared.owner) == reader
        assert shared.pools.get_member(shared.id, shared.member) == reader
        assert shared.pools.list_members(shared.id) == (reader, member(shared.owner, is_owner=True))
        shared.pools.upsert_member(shared.id, member(shared.member, can_read=False), by=None)
        assert shared.pools.list_readable(shared.member) == ()
        assert shared.pools.list_readable(shared.owner) == (shared.info,)

    def test_a_member_without_rights_is_refused(self, shared: Shared) -> None:
        with pytest.raises(InvalidInputError, match=r"pool\.remove"):
            member(shared.member, can_read=False, can_write=False)

    def test_only_an_owner_changes_members_and_deletes(self, shared: Shared) -> None:
        stranger = ("stranger",)
        for by in (shared.member, stranger, ("",), (shared.owner[0],)):
            with pytest.raises(NotAllowedError):
                shared.pools.upsert_member(shared.id, member(stranger), by=by)
            with pytest.raises(NotAllowedError):
                shared.pools.remove_member(shared.id, shared.owner, by=by, take_back=True)
            with pytest.raises(NotAllowedError):
                shared.pools.delete(shared.id, by=by)
        assert [member.namespace for member in shared.pools.list_members(shared.id)] == [
            shared.member,
            shared.owner,
        ]

    def test_the_last_owner_cannot_be_removed(self, shared: Shared) -> None:
        with pytest.raises(NotAllowedError, match="only owner"):
            shared.pools.remove_member(shared.id, shared.owner, by=shared.owner, take_back=False)
        with pytest.raises(NotAllowedError, match="only owner"):
            shared.pools.upsert_member(shared.id, member(shared.owner), by=shared.owner)
        shared.pools.upsert_member(shared.id, member(shared.member, is_owner=True), by=shared.owner)
        shared.pools.remove_member(shared.id, shared.owner, by=shared.owner, take_back=False)
        assert [member.namespace for member in shared.pools.list_members(shared.id)] == [shared.member]

    def test_a_namespace_without_write_access_cannot_contribute(self, shared: Shared) -> None:
        shared.pools.upsert_member(shared.id, member(shared.member, can_write=False), by=None)
        for name in (shared.member, ("stranger",)):
            with pytest.raises(NotAllowedError):
                shared.give(name, "a")
        assert shared.list_stored() == {}

    def test_a_namespace_without_read_access_cannot_sync(self, shared: Shared) -> None:
        shared.give(shared.owner, "a")
        news = shared.news(shared.member)
        shared.pools.upsert_member(shared.id, member(shared.member, can_read=False), by=None)
        for name in (shared.member, ("stranger",)):
            with pytest.raises(NotAllowedError):
                shared.news(name)
            with pytest.raises(NotAllowedError):
                shared.take(name, news)
        assert shared.list_stored(shared.member) == {}

    def test_a_contribution_for_an_older_revision_changes_nothing(self, shared: Shared) -> None:
        assert shared.give(shared.owner, "a", revision=0)
        assert not shared.give(shared.owner, "b", revision=0)
        assert list(shared.list_stored()) == ["a"]
        assert shared.pools.get_origins(shared.info.namespace, ["b"]) == {}

    def test_contributing_an_unknown_entry_is_refused(self, shared: Shared) -> None:
        with pytest.raises(EntryNotFoundError, match="to contribute"):
            shared.give(shared.owner, "a", entry_id="e")
        assert shared.list_stored() == {}
        own = NewEntry(entry=entry(shared.owner, "e"), terms="e")
        shared.memories.commit(shared.owner, MemoryWrite(put=(own,)), NOW)
        with pytest.raises(EntryNotFoundError):
            shared.give(shared.member, "a", entry_id="e")
        assert shared.give(shared.owner, "a", entry_id="e")

    def test_origins_come_back_equal(self, shared: Shared, namespace: NamespacePath) -> None:
        who = (namespace[-1], ANY_TEXT)
        shared.pools.upsert_member(shared.id, member(who), by=None)
        shared.memories.commit(who, MemoryWrite(put=(NewEntry(entry=entry(who, ANY_TEXT), terms="e"),)), NOW)
        origin = Origin(namespace=who, entry_id=ANY_TEXT, copied_at=LATER, confidence=0.25, ends_at=LATER)
        new = NewEntry(entry=entry(shared.info.namespace, "a"), terms="a")
        kept = NewContribution(write=MemoryWrite(put=(new,)), origin=origin)
        assert shared.pools.contribute(shared.id, who, kept, NOW)
        assert shared.pools.get_origins(shared.info.namespace, ["a", "b"]) == {"a": (origin,)}
        assert shared.pools.get_origins(shared.owner, ["a"]) == {}

    def test_new_entries_are_delivered_once_and_in_order_for_any_page_size(self, shared: Shared) -> None:
        for name in "abcde":
            shared.give(shared.owner, name)
        seen = []
        while (news := shared.news(shared.member, limit=2)).latest_revision != news.synced_revision:
            assert shared.take(shared.member, news)
            seen += [kept.entry.id for kept, _ in news.entries]
        assert seen == list("abcde")
        assert shared.news(shared.owner).synced_revision == 0
        shared.give(shared.member, "f")
        assert shared.sync(shared.member) == ["f"]
        assert list(shared.list_stored(shared.member)) == [f"copy of {name}" for name in "abcdef"]

    def test_new_entries_already_synced_are_not_synced_again(self, shared: Shared) -> None:
        shared.give(shared.owner, "a")
        news = shared.news(shared.member)
        assert shared.take(shared.member, news)
        assert not shared.take(shared.member, news)
        assert list(shared.list_stored(shared.member)) == ["copy of a"]

    def test_new_entries_erased_in_the_meantime_are_not_synced(self, shared: Shared) -> None:
        shared.give(shared.owner, "a")
        news = shared.news(shared.member)
        shared.pools.delete_namespace(shared.owner)
        assert not shared.take(shared.member, news)
        assert shared.list_stored(shared.member) == {}

    def test_ended_entries_are_not_delivered(self, shared: Shared) -> None:
        shared.give(shared.owner, "a")
        shared.give(shared.owner, "b", close={"a": LATER})
        assert [kept.entry.id for kept, _ in shared.news(shared.member).entries] == ["a", "b"]
        assert [kept.entry.id for kept, _ in shared.news(shared.member, now=LATER).entries] == ["b"]

    def test_a_hidden_duplicate_is_shown_after_its_original_is_erased(self, shared: Shared) -> None:
        shared.give(shared.owner, "a")
        shared.give(shared.member, "b", same_as="a")
        third = (*shared.member, "third")
        shared.pools.upsert_member(shared.id, member(third), by=None)
        shared.give(third, "c", same_as="a")
        assert shared.list_shown() == ["a"]
        (found,) = shared.pools.get_origins(shared.info.namespace, ["a"]).values()
        assert [origin.namespace for origin in found] == [shared.owner, shared.member, third]
        assert shared.sync(third) == ["a"]
        erased = shared.pools.delete_namespace(shared.owner)
        assert erased == PoolErasure(contributions=1, copies=1, memberships=1)
        assert shared.list_shown() == ["b"]
        (found,) = shared.pools.get_origins(shared.info.namespace, ["b"]).values()
        assert [origin.namespace for origin in found] == [shared.member, third]
        assert shared.sync(third) == ["b"]

    def test_an_entry_is_valid_again_after_its_only_successor_is_erased(self, shared: Shared) -> None:
        shared.give(shared.owner, "a")
        times = [NOW + timedelta(minutes=minutes) for minutes in (1, 2, 3)]
        for name, old, at in zip("bcd", "abc", times, strict=True):
            who = shared.owner if name == "d" else shared.member
            shared.give(
                who,
                name,
                valid_from=at,
                close={old: at},
                relate=(Relation(source=name, target=old, kind=RelationKind.SUPERSEDES, created_at=NOW),),
            )
        assert shared.list_shown() == ["d"]
        shared.pools.remove_member(shared.id, shared.member, by=shared.owner, take_back=True)
        stored = shared.list_stored()
        assert list(stored) == ["a", "d"]
        assert stored["a"].entry.valid_until == times[2]
        (relation,) = shared.memories.list_relations(shared.info.namespace, ["a"])
        assert (relation.source, relation.target) == ("d", "a")

    def test_leaving_withdraws_contributions_only_on_request(self, shared: Shared) -> None:
        shared.give(shared.owner, "a")
        shared.give(shared.member, "b")
        shared.sync(shared.owner)
        assert shared.pools.remove_member(shared.id, shared.member, by=shared.member, take_back=False) == 0
        assert shared.list_shown() == ["a", "b"]
        with pytest.raises(NotAllowedError, match="is not a member"):
            shared.pools.remove_member(shared.id, shared.member, by=shared.member, take_back=False)
        shared.pools.upsert_member(shared.id, member(shared.member), by=None)
        assert shared.pools.remove_member(shared.id, shared.member, by=shared.member, take_back=True) == 1
        assert shared.list_shown() == ["a"]
        assert "copy of b" in shared.list_stored(shared.owner)

    def test_erasing_an_entry_erases_only_its_own_copies(self, shared: Shared) -> None:
        for name in ("e", "f"):
            own = NewEntry(entry=entry(shared.owner, name), terms=name)
            shared.memories.commit(shared.owner, MemoryWrite(put=(own,)), NOW)
            shared.give(shared.owner, f"of {name}", entry_id=name)
        shared.give(shared.owner, "said")
        shared.sync(shared.member)
        assert shared.pools.delete_entries(shared.member, ["e"]) == PoolErasure()
        erased = shared.pools.delete_entries(shared.owner, ["e", "none"])
        assert erased == PoolErasure(contributions=1, copies=1)
        assert list(shared.list_stored()) == ["of f", "said"]
        assert list(shared.list_stored(shared.member)) == ["copy of of f", "copy of said"]

    def test_copies_are_erased_with_their_origin_after_the_pool_is_deleted(self, shared: Shared) -> None:
        shared.give(shared.owner, "a")
        shared.sync(shared.member)
        assert shared.pools.delete(shared.id, by=shared.owner) == 1
        assert list(shared.list_stored(shared.member)) == ["copy of a"]
        assert shared.list_stored() == {}
        assert shared.pools.delete_namespace(shared.owner) == PoolErasure(copies=1)
        assert shared.list_stored(shared.member) == {}

    def test_the_oldest_member_owns_a_pool_that_lost_its_owner(self, shared: Shared) -> None:
        young = (*shared.member, "young")
        shared.pools.upsert_member(shared.id, member(("another", *young), joined_at=LATER), by=None)
        shared.pools.upsert_member(shared.id, member(young, joined_at=LATER), by=None)
        shared.pools.delete_namespace(shared.owner)
        owners = [member.namespace for member in shared.pools.list_members(shared.id) if member.is_owner]
        assert owners == [shared.member]

    def test_a_pool_is_deleted_with_its_last_member(self, shared: Shared) -> None:
        shared.give(shared.member, "a")
        assert shared.pools.delete_namespace(shared.owner).pools == 0
        assert shared.pools.delete_namespace(shared.member) == PoolErasure(
            contributions=1, memberships=1, pools=1
        )
        assert shared.pools.get(shared.id) is None
        assert shared.list_stored() == {}

    def test_no_operation_finds_a_deleted_pool(self, shared: Shared) -> None:
        shared.give(shared.owner, "a")
        news = shared.news(shared.member)
        shared.pools.delete(shared.id, by=None)
        uses = (
            lambda: shared.pools.list_members(shared.id),
            lambda: shared.pools.get_member(shared.id, shared.owner),
            lambda: shared.pools.upsert_member(shared.id, member(shared.member), by=None),
            lambda: shared.pools.remove_member(shared.id, shared.member, by=None, take_back=False),
            lambda: shared.pools.delete(shared.id, by=None),
            lambda: shared.give(shared.owner, "b"),
            lambda: shared.news(shared.member),
            lambda: shared.take(shared.member, news),
        )
        for use in uses:
            with pytest.raises(PoolNotFoundError):
                use()
        assert shared.list_stored(shared.member) == {}

    @pytest.mark.parametrize("take_back", [False, True])
    def test_a_contribution_concurrent_with_a_removal_is_stored_before_it_or_refused(
        self, shared: Shared, *, take_back: bool
    ) -> None:
        given, enough, roles = list[str](), threading.Event(), itertools.count()

        def contribute() -> None:
            for _ in range(10_000):
                name = uuid.uuid4().hex
                try:
                    shared.give(shared.member, name)
                except NotAllowedError:
                    return
                given.append(name)
                if len(given) == 6:
                    enough.set()

        def remove() -> None:
            assert enough.wait(60)
            shared.pools.remove_member(shared.id, shared.member, by=shared.owner, take_back=take_back)

        run_in_threads(3, lambda: contribute() if next(roles) else remove())
        assert sorted(shared.list_stored()) == ([] if take_back else sorted(given))
