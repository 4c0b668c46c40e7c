"""Contract of ``SessionRepository``."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from langmem_tiers.errors import SessionNotFoundError
from langmem_tiers.testing.threads import run_in_threads
from tests.contract.storage.base import (
    HOSTILE_NAMES,
    NOW,
    StoreConformance,
    Stores,
    message,
)

if TYPE_CHECKING:
    from datetime import datetime

    from langmem_tiers.common.namespaces import NamespacePath


class SessionRepositoryConformance(StoreConformance):
    """What ``SessionRepository`` must do."""

    def test_get_or_create_creates_a_session_once(self, stores: Stores, namespace: NamespacePath) -> None:
        first = stores.sessions.get_or_create(namespace, "s", NOW)
        again = stores.sessions.get_or_create(namespace, "s", NOW + timedelta(days=1))
        assert first == again
        assert (first.namespace, first.name, first.created_at) == (namespace, "s", NOW)
        assert (first.message_count, first.token_count, first.compressed_count) == (0, 0, 0)

    def test_get_does_not_create_a_session(self, stores: Stores, namespace: NamespacePath) -> None:
        assert stores.sessions.get(namespace, "s") is None
        assert stores.sessions.list_sessions(namespace, before=None, limit=10) == ()

    def test_names_match_exactly(self, stores: Stores, namespace: NamespacePath) -> None:
        opened = {
            name: stores.sessions.get_or_create((*namespace, name), name, NOW) for name in HOSTILE_NAMES
        }
        assert len({info.key for info in opened.values()}) == len(HOSTILE_NAMES)
        for name, expected in opened.items():
            info = stores.sessions.get((*namespace, name), name)
            assert info == expected
            assert (info.namespace[-1], info.name) == (name, name)

    def test_adjacent_labels_are_not_concatenated(self, stores: Stores, namespace: NamespacePath) -> None:
        one = stores.sessions.get_or_create((*namespace, "a", "b"), "s", NOW)
        other = stores.sessions.get_or_create((*namespace, "a/b"), "s", NOW)
        assert one.key != other.key

    def test_sessions_are_paged_newest_first(self, stores: Stores, namespace: NamespacePath) -> None:
        opened = [stores.sessions.get_or_create(namespace, f"s{i}", NOW) for i in range(5)]
        first = stores.sessions.list_sessions(namespace, before=None, limit=3)
        second = stores.sessions.list_sessions(namespace, before=first[-1].key, limit=3)
        assert [info.name for info in first + second] == [info.name for info in reversed(opened)]

    def test_sessions_are_found_by_when_they_changed(self, stores: Stores, namespace: NamespacePath) -> None:
        stores.sessions.get_or_create((*namespace, "below"), "theirs", NOW + timedelta(hours=9))
        keys = {name: stores.sessions.get_or_create(namespace, name, NOW).key for name in ("a", "b", "c")}
        for hours, name in enumerate(("b", "a"), 1):
            stores.messages.append(keys[name], [message()], NOW + timedelta(hours=hours))

        def changed(since: datetime | None, limit: int = 9) -> list[str]:
            return [info.name for info in stores.sessions.list_changed(namespace, since=since, limit=limit)]

        assert changed(None) == ["a", "b", "c"]
        assert changed(None, limit=2) == ["a", "b"]
        assert changed(NOW + timedelta(hours=1)) == ["a", "b"]
        assert changed(NOW + timedelta(hours=3)) == []

    def test_sessions_are_found_by_many_names_in_one_call(
        self, stores: Stores, namespace: NamespacePath
    ) -> None:
        made = {name: stores.sessions.get_or_create(namespace, name, NOW) for name in HOSTILE_NAMES}
        stores.sessions.get_or_create((*namespace, "below"), "theirs", NOW)
        asked = [*HOSTILE_NAMES[1:], "theirs", *(f"none {n}" for n in range(2_000))]
        found = {info.name: info for info in stores.sessions.list_by_name(namespace, asked)}
        assert found == {name: made[name] for name in HOSTILE_NAMES[1:]}
        assert stores.sessions.list_by_name(namespace, []) == ()

    def test_a_prefix_matches_whole_labels_only(self, stores: Stores, namespace: NamespacePath) -> None:
        ours = [(*namespace, "acme"), (*namespace, "acme", "alice"), (*namespace, "acme", "bob")]
        for path in [
            *ours,
            (*namespace, "acme-corp"),
            (*namespace, "Acme", "eve"),
            (*namespace, "acm%"),
        ]:
            stores.sessions.get_or_create(path, "s", NOW)
        assert list(stores.sessions.list_namespaces((*namespace, "acme"), after=None, limit=10)) == ours
        assert (
            list(stores.sessions.list_namespaces((*namespace, "acme"), after=ours[0], limit=1)) == ours[1:2]
        )

    def test_the_revision_increases_with_writes_and_is_none_after_deletion(
        self, stores: Stores, key: int
    ) -> None:
        before = stores.sessions.get_revision(key)
        assert before is not None
        after = stores.messages.append(key, [message()], NOW).revision
        assert after == before + 1 == stores.sessions.get_revision(key)
        stores.sessions.delete(key)
        assert stores.sessions.get_revision(key) is None

    def test_delete_deletes_the_messages_of_the_session(
        self, stores: Stores, namespace: NamespacePath, key: int
    ) -> None:
        stores.messages.append(key, [message("zanzibar one"), message("zanzibar two")], NOW)
        report = stores.sessions.delete(key)
        assert (report.sessions, report.messages) == (1, 2)
        recreated = stores.sessions.get_or_create(namespace, "session", NOW)
        assert recreated.key != key
        assert stores.messages.list_latest(recreated.key, 10).messages == ()

    def test_deleting_a_deleted_session_reports_nothing(self, stores: Stores, key: int) -> None:
        stores.sessions.delete(key)
        report = stores.sessions.delete(key)
        assert (report.sessions, report.messages) == (0, 0)

    def test_deleting_a_namespace_keeps_its_children(
        self, stores: Stores, namespace: NamespacePath, key: int
    ) -> None:
        child = stores.sessions.get_or_create((*namespace, "child"), "s", NOW)
        stores.messages.append(key, [message()], NOW)
        stores.messages.append(child.key, [message()], NOW)
        report = stores.sessions.delete_namespace(namespace)
        assert (report.sessions, report.messages) == (1, 1)
        assert stores.sessions.get_revision(key) is None
        assert len(stores.messages.list_latest(child.key, 10).messages) == 1

    def test_a_renamed_session_keeps_everything_but_its_name(
        self, stores: Stores, namespace: NamespacePath, key: int
    ) -> None:
        stores.messages.append(key, [message("one", id="1")], NOW)
        before = stores.sessions.get(namespace, "session")
        assert before is not None
        assert stores.sessions.rename(key, "other")
        after = stores.sessions.get(namespace, "other")
        assert after is not None
        assert replace(after, name="session") == before
        assert [m.id for m in stores.messages.list_latest(key, 9).messages] == ["1"]
        assert [info.name for info in stores.sessions.list_sessions(namespace, before=None, limit=9)] == [
            "other"
        ]

    def test_the_former_name_of_a_session_can_be_reused(
        self, stores: Stores, namespace: NamespacePath, key: int
    ) -> None:
        stores.messages.append(key, [message()], NOW)
        assert stores.sessions.rename(key, "other")
        assert stores.sessions.get(namespace, "session") is None
        recreated = stores.sessions.get_or_create(namespace, "session", NOW)
        assert recreated.key != key
        assert (recreated.message_count, stores.messages.list_latest(recreated.key, 9).messages) == (0, ())

    def test_renaming_to_an_existing_name_is_refused_and_changes_nothing(
        self, stores: Stores, namespace: NamespacePath, key: int
    ) -> None:
        other = stores.sessions.get_or_create(namespace, "other", NOW).key
        stores.messages.append(other, [message()], NOW)
        before = stores.sessions.list_sessions(namespace, before=None, limit=9)
        assert not stores.sessions.rename(key, "other")
        assert not stores.sessions.rename(other, "session")
        assert stores.sessions.list_sessions(namespace, before=None, limit=9) == before

    def test_a_session_can_be_renamed_to_its_own_name_or_one_of_another_namespace(
        self, stores: Stores, namespace: NamespacePath, key: int
    ) -> None:
        stores.sessions.get_or_create((*namespace, "below"), "theirs", NOW)
        assert stores.sessions.rename(key, "session")
        assert stores.sessions.rename(key, "theirs")
        assert stores.sessions.rename(key, "session")

    def test_a_session_is_renamed_exactly(self, stores: Stores, namespace: NamespacePath) -> None:
        for number, name in enumerate(HOSTILE_NAMES):
            place = (*namespace, str(number))
            key = stores.sessions.get_or_create(place, "before", NOW).key
            others = {
                other: stores.sessions.get_or_create(place, other, NOW)
                for other in HOSTILE_NAMES
                if other != name
            }
            assert stores.sessions.rename(key, name)
            found = stores.sessions.get(place, name)
            assert found is not None
            assert (found.key, found.name) == (key, name)
            assert not any(stores.sessions.rename(key, other) for other in others)
            assert {other: stores.sessions.get(place, other) for other in others} == others

    def test_a_deleted_session_cannot_be_renamed(
        self, stores: Stores, namespace: NamespacePath, key: int
    ) -> None:
        stores.sessions.delete(key)
        with pytest.raises(SessionNotFoundError):
            stores.sessions.rename(key, "other")
        assert stores.sessions.get(namespace, "other") is None

    def test_only_one_of_several_concurrent_renames_to_one_name_succeeds(
        self, stores: Stores, namespace: NamespacePath
    ) -> None:
        keys = [stores.sessions.get_or_create(namespace, f"{n}", NOW).key for n in range(4)]
        waiting, got = iter(keys), list[int]()

        def rename() -> None:
            key = next(waiting)
            if stores.sessions.rename(key, "wanted"):
                got.append(key)

        run_in_threads(len(keys), rename)
        found = stores.sessions.get(namespace, "wanted")
        assert found is not None
        assert got == [found.key]
        assert len(stores.sessions.list_sessions(namespace, before=None, limit=9)) == len(keys)
