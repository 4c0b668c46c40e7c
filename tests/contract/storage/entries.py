"""Contract of ``OverrideRepository``."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from langmem_tiers.common.entries import EntryOverride, EntryState, Tier
from langmem_tiers.common.messages import SUMMARY_PREFIX, MessageToolCall, Role
from langmem_tiers.errors import LangmemTiersError, MessageNotFoundError, SessionNotFoundError
from langmem_tiers.sessions.models import RollUp
from langmem_tiers.testing.threads import run_in_threads
from tests.contract.storage.base import (
    ANY_TEXT,
    HOSTILE_NAMES,
    NOW,
    StoreConformance,
    Stores,
    message,
)

if TYPE_CHECKING:
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.sessions.models import StoredView
    from langmem_tiers.sessions.override_repository import OverrideRepository

THREADS = 8
PROMOTED = EntryOverride(tier=Tier.LONG_TERM, relevance=1.0, reason="manually", changed_at=NOW)
ARCHIVED = EntryOverride(state=EntryState.ARCHIVED, reason="relevance 0.10", changed_at=NOW)
FULL_MARK = EntryOverride(
    tier=Tier.LONG_TERM,
    state=EntryState.COMPRESSED,
    relevance=0.123456789,
    content="[user] Hello é 😀",
    tool_calls=(MessageToolCall("c1", "search", '{"q": 1'), MessageToolCall("c2", "😀 \0 \ud83d", "")),
    token_count=2**40,
    reason="duplicate of m2 é 😀",
    changed_at=datetime(2024, 2, 29, 23, 59, 59, 999999, tzinfo=UTC),
)


def fill(stores: Stores, key: int, count: int) -> None:
    """Add messages with the ids "0", "1" and so on."""
    stores.messages.append(key, [message(f"{n}", id=f"{n}") for n in range(count)], NOW)


def roll_up(name: str = "s", *, before: str, hidden: int) -> RollUp:
    """A summary of so many messages."""
    summary = message(f"{SUMMARY_PREFIX}\n{name}", id=name, role=Role.SYSTEM)
    return RollUp(summary=summary, first_visible_id=before, hidden_count=hidden)


def key_of(entries: OverrideRepository, key: int, message_id: str) -> int:
    """The store's handle of a message."""
    shown = entries.get(key, message_id)
    assert shown is not None
    return shown.key


def mark(entries: OverrideRepository, key: int, message_id: str, new: EntryOverride | None) -> None:
    """Put one mark on a session that nobody compressed."""
    assert entries.apply(key, {key_of(entries, key, message_id): new}, roll_up=None, was_hidden=0)


def mark_of(entries: OverrideRepository, key: int, message_id: str) -> EntryOverride | None:
    """The mark of a message."""
    shown = entries.get(key, message_id)
    assert shown is not None
    return shown.override


def ids(view: StoredView) -> list[str]:
    """The ids in a view, for comparing."""
    return [item.message.id for item in view.items]


class OverrideRepositoryConformance(StoreConformance):
    """What ``OverrideRepository`` must do."""

    def test_without_overrides_the_view_equals_the_record(
        self, stores: Stores, entries: OverrideRepository, key: int
    ) -> None:
        assert (entries.get_view(key, 9).items, entries.get_view(key, 9).hidden_count) == ((), 0)
        fill(stores, key, 5)
        view = entries.get_view(key, 9)
        assert tuple(item.message for item in view.items) == stores.messages.list_latest(key, 9).messages
        assert {item.override for item in view.items} == {None}
        assert len({item.key for item in view.items}) == 5
        assert ids(entries.get_view(key, 2)) == ["3", "4"]

    def test_an_earlier_view_is_updated(self, stores: Stores, entries: OverrideRepository, key: int) -> None:
        view = entries.get_view(key, 9)
        for number in range(3):
            stores.messages.append(key, [message(id=f"{number}")], NOW)
            view = entries.get_view(key, 9, known_view=view)
            assert view == entries.get_view(key, 9)
        assert entries.get_view(key, 9, known_view=view) is view
        mark(entries, key, "1", PROMOTED)
        view = entries.get_view(key, 9, known_view=view)
        assert [item.override for item in view.items] == [None, PROMOTED, None]
        mark(entries, key, "1", None)
        assert entries.get_view(key, 9, known_view=view) == entries.get_view(key, 9)
        assert entries.apply(key, {}, roll_up=roll_up(before="2", hidden=2), was_hidden=0)
        view = entries.get_view(key, 9, known_view=view)
        assert ids(view) == ["s", "2"]
        stores.messages.append(key, [message(id="3")], NOW)
        assert entries.get_view(key, 9, known_view=view) == entries.get_view(key, 9)
        assert entries.get_view(key, 9, known_view=view).hidden_count == 2

    def test_an_earlier_view_does_not_grow_beyond_the_limit(
        self, stores: Stores, entries: OverrideRepository, key: int
    ) -> None:
        fill(stores, key, 3)
        view = entries.get_view(key, 4)
        stores.messages.append(key, [message(id=name) for name in "abc"], NOW)
        assert ids(entries.get_view(key, 4, known_view=view)) == ["2", "a", "b", "c"]

    def test_a_message_is_found_by_its_key_in_the_view(
        self, stores: Stores, entries: OverrideRepository, key: int
    ) -> None:
        stores.messages.append(key, [message(id=name) for name in HOSTILE_NAMES], NOW)
        for item in entries.get_view(key, 99).items:
            assert entries.get(key, item.message.id) == item
        assert entries.get(key, "nowhere") is None

    @pytest.mark.parametrize(
        "given",
        [
            EntryOverride(changed_at=NOW),
            PROMOTED,
            ARCHIVED,
            FULL_MARK,
            replace(FULL_MARK, tool_calls=(), content="", token_count=0, relevance=0.0),
            replace(FULL_MARK, content=ANY_TEXT),
            replace(FULL_MARK, tool_calls=(MessageToolCall("c", ANY_TEXT, ANY_TEXT),)),
            replace(FULL_MARK, reason=ANY_TEXT),
        ],
        ids=["bare", "promoted", "archived", "all", "empty", "any content", "any call", "any reason"],
    )
    def test_an_override_comes_back_equal(
        self,
        stores: Stores,
        entries: OverrideRepository,
        namespace: NamespacePath,
        key: int,
        given: EntryOverride,
    ) -> None:
        fill(stores, key, 2)
        mark(entries, key, "1", given)
        assert mark_of(entries, key, "1") == given
        assert [item.override for item in entries.get_view(key, 9).items] == [None, given]
        promoted = entries.list_promoted(namespace, before=None, limit=9)
        assert [entry.item.override for entry in promoted] == [given] * (given.tier is Tier.LONG_TERM)

    def test_every_tier_and_state_can_be_overridden(
        self, stores: Stores, entries: OverrideRepository, key: int
    ) -> None:
        marks = [replace(PROMOTED, tier=tier, state=state) for tier in Tier for state in EntryState]
        fill(stores, key, len(marks))
        keys = [item.key for item in entries.get_view(key, 99).items]
        assert entries.apply(key, dict(zip(keys, marks, strict=True)), roll_up=None, was_hidden=0)
        assert [item.override for item in entries.get_view(key, 99).items] == marks

    def test_a_later_override_replaces_the_earlier_one_and_none_removes_it(
        self, stores: Stores, entries: OverrideRepository, key: int
    ) -> None:
        fill(stores, key, 1)
        for given in (FULL_MARK, ARCHIVED, None, None, PROMOTED):
            mark(entries, key, "0", given)
            assert mark_of(entries, key, "0") == given

    def test_overrides_do_not_change_the_record_or_other_entries(
        self, stores: Stores, entries: OverrideRepository, key: int
    ) -> None:
        fill(stores, key, 3)
        before = stores.messages.list_after(key, after=None, limit=9)
        mark(entries, key, "0", PROMOTED)
        mark(entries, key, "1", ARCHIVED)
        assert [item.override for item in entries.get_view(key, 9).items] == [PROMOTED, ARCHIVED, None]
        assert stores.messages.list_after(key, after=None, limit=9) == before

    def test_many_overrides_are_written_in_one_call(
        self, stores: Stores, entries: OverrideRepository, key: int
    ) -> None:
        fill(stores, key, 1100)
        keys = [item.key for item in entries.get_view(key, 9999).items]
        assert entries.apply(key, dict.fromkeys(keys, PROMOTED), roll_up=None, was_hidden=0)
        changes = {k: ARCHIVED if n % 2 else None for n, k in enumerate(keys)}
        assert entries.apply(key, changes, roll_up=None, was_hidden=0)
        assert [item.override for item in entries.get_view(key, 9999).items] == [None, ARCHIVED] * 550

    def test_overrides_and_summary_are_written_atomically(
        self, stores: Stores, entries: OverrideRepository, key: int
    ) -> None:
        fill(stores, key, 6)
        marks = {key_of(entries, key, "1"): ARCHIVED, key_of(entries, key, "4"): PROMOTED}
        assert entries.apply(key, marks, roll_up=roll_up(before="3", hidden=3), was_hidden=0)
        view = entries.get_view(key, 9)
        assert (ids(view), view.hidden_count) == (["s", "3", "4", "5"], 3)
        assert [item.override for item in view.items] == [None, None, PROMOTED, None]
        assert ids(entries.get_view(key, 2)) == ["s", "4", "5"]
        behind = entries.get(key, "1")
        assert behind is not None
        assert (behind.override, behind.message.is_compressed) == (ARCHIVED, True)

    def test_a_summary_before_an_unknown_message_writes_no_override(
        self, stores: Stores, entries: OverrideRepository, namespace: NamespacePath, key: int
    ) -> None:
        fill(stores, key, 3)
        mark(entries, key, "1", ARCHIVED)
        before = entries.get_view(key, 9)
        marks = {key_of(entries, key, "0"): PROMOTED, key_of(entries, key, "1"): None}
        with pytest.raises(MessageNotFoundError, match="'nowhere'"):
            entries.apply(key, marks, roll_up=roll_up(before="nowhere", hidden=1), was_hidden=0)
        assert entries.get_view(key, 9) == before
        assert entries.list_promoted(namespace, before=None, limit=9) == ()
        assert stores.messages.get(key, "s") is None

    def test_a_stale_view_writes_nothing_after_another_compression(
        self, stores: Stores, entries: OverrideRepository, namespace: NamespacePath, key: int
    ) -> None:
        fill(stores, key, 4)
        marks = {key_of(entries, key, "3"): PROMOTED}
        assert entries.apply(key, {}, roll_up=roll_up("first", before="2", hidden=2), was_hidden=0)
        before = entries.get_view(key, 9)
        assert not entries.apply(key, marks, roll_up=None, was_hidden=0)
        assert not entries.apply(key, marks, roll_up=roll_up(before="3", hidden=3), was_hidden=3)
        assert entries.get_view(key, 9) == before
        assert entries.list_promoted(namespace, before=None, limit=9) == ()
        assert stores.messages.get(key, "s") is None
        assert entries.apply(key, marks, roll_up=None, was_hidden=2)

    def test_only_one_of_several_concurrent_compressions_succeeds(
        self, stores: Stores, entries: OverrideRepository, key: int
    ) -> None:
        fill(stores, key, 4)
        start, done, names = threading.Barrier(THREADS), list[str](), iter("abcdefgh")

        def compress() -> None:
            name = next(names)
            start.wait()
            if entries.apply(key, {}, roll_up=roll_up(name, before="2", hidden=2), was_hidden=0):
                done.append(name)

        run_in_threads(THREADS, compress)
        view = entries.get_view(key, 9)
        assert (ids(view), view.hidden_count) == ([*done, "2", "3"], 2)

    def test_an_empty_change_succeeds_only_on_a_current_view(
        self, stores: Stores, entries: OverrideRepository, key: int
    ) -> None:
        fill(stores, key, 1)
        assert entries.apply(key, {}, roll_up=None, was_hidden=0)
        assert not entries.apply(key, {}, roll_up=None, was_hidden=1)

    def test_promoted_entries_of_all_sessions_are_paged_newest_first(
        self, stores: Stores, entries: OverrideRepository, namespace: NamespacePath
    ) -> None:
        sessions = [stores.sessions.get_or_create(namespace, name, NOW).key for name in ("a%\0", "b")]
        for n in range(8):
            key = sessions[n % 2]
            stores.messages.append(key, [message(f"{n}", id=f"{n}")], NOW)
            mark(entries, key, f"{n}", ARCHIVED if n == 5 else PROMOTED)
        seen: list[tuple[str, str]] = []
        before = None
        while page := entries.list_promoted(namespace, before=before, limit=3):
            seen += [(entry.item.message.content, entry.session) for entry in page]
            before = page[-1].item.key
        assert seen == [(f"{n}", "b" if n % 2 else "a%\0") for n in (7, 6, 4, 3, 2, 1, 0)]

    def test_tenants_are_isolated(
        self, stores: Stores, entries: OverrideRepository, namespace: NamespacePath
    ) -> None:
        for name in HOSTILE_NAMES:
            key = stores.sessions.get_or_create((*namespace, name), name, NOW).key
            stores.messages.append(key, [message(repr(name), id="same")], NOW)
            mark(entries, key, "same", PROMOTED)
        for name in HOSTILE_NAMES:
            (one,) = entries.list_promoted((*namespace, name), before=None, limit=99)
            assert (one.item.message.content, one.session) == (repr(name), name)
        assert entries.list_promoted(namespace, before=None, limit=9) == ()

    def test_a_message_is_found_by_its_id_in_any_session_of_its_namespace(
        self, stores: Stores, entries: OverrideRepository, namespace: NamespacePath
    ) -> None:
        for path, session in ((namespace, "a"), (namespace, "b"), ((*namespace, "below"), "c")):
            key = stores.sessions.get_or_create(path, session, NOW).key
            for name in HOSTILE_NAMES:
                stores.messages.append(
                    key, [message(session, id=name), message("other", id=f"{name}..")], NOW
                )
        for name in HOSTILE_NAMES:
            hits = entries.list_by_message_id(namespace, name, limit=9)
            found = sorted((hit.session, hit.item.message.content) for hit in hits)
            assert found == [("a", "a"), ("b", "b")], name
            assert len(entries.list_by_message_id(namespace, name, limit=1)) == 1
        assert entries.list_by_message_id(namespace, "nowhere", limit=9) == ()

    def test_a_session_cannot_override_messages_of_another_session(
        self, stores: Stores, entries: OverrideRepository, namespace: NamespacePath, key: int
    ) -> None:
        other = (*namespace, "other")
        stranger = stores.sessions.get_or_create(other, "s", NOW).key
        fill(stores, key, 2)
        mark(entries, key, "0", ARCHIVED)
        for message_id in ("0", "1"):
            with suppress(LangmemTiersError):  # refused or passed over, as the store likes
                entries.apply(
                    stranger, {key_of(entries, key, message_id): PROMOTED}, roll_up=None, was_hidden=0
                )
        assert entries.list_promoted(other, before=None, limit=9) == ()
        assert [item.override for item in entries.get_view(key, 9).items] == [ARCHIVED, None]

    def test_a_deleted_session_has_no_entries(
        self, stores: Stores, entries: OverrideRepository, namespace: NamespacePath, key: int
    ) -> None:
        fill(stores, key, 1)
        mark(entries, key, "0", PROMOTED)
        stores.sessions.delete(key)
        assert entries.list_promoted(namespace, before=None, limit=9) == ()
        with pytest.raises(SessionNotFoundError):
            entries.get_view(key, 9)
        with pytest.raises(SessionNotFoundError):
            entries.get(key, "0")
        with pytest.raises(SessionNotFoundError):
            entries.apply(key, {}, roll_up=None, was_hidden=0)

    def test_a_deleted_namespace_keeps_no_data(
        self, stores: Stores, entries: OverrideRepository, namespace: NamespacePath
    ) -> None:
        child = (*namespace, "child")
        for path in (namespace, child):
            key = stores.sessions.get_or_create(path, "session", NOW).key
            fill(stores, key, 2)
            mark(entries, key, "0", PROMOTED)
        stores.sessions.delete_namespace(namespace)
        recreated = stores.sessions.get_or_create(namespace, "session", NOW).key
        fill(stores, recreated, 2)
        assert [item.override for item in entries.get_view(recreated, 9).items] == [None, None]
        assert entries.list_promoted(namespace, before=None, limit=9) == ()
        assert len(entries.list_promoted(child, before=None, limit=9)) == 1
