"""Contract of ``ContextStore``."""

from __future__ import annotations

import threading
import uuid
from dataclasses import replace
from datetime import timedelta
from itertools import count
from typing import TYPE_CHECKING

import pytest

from langmem_tiers.context_files.models import ContextData
from langmem_tiers.context_files.serializer import context_from_bytes
from langmem_tiers.errors import (
    ContextConflictError,
    InvalidInputError,
    InvalidNameError,
    StorageCorruptError,
)
from langmem_tiers.testing.threads import run_in_threads
from tests.contract.storage.base import HOSTILE_NAMES, NOW

if TYPE_CHECKING:
    from collections.abc import Callable

    from langmem_tiers.context_files.store_models import ContextStore

KEPT = 3
"""Versions that the store under test keeps."""
THREADS = 8
TEXT = 'null \0, lone \udc00, real 😀, שלום, \ufffd, %00 %uD83D, \u2028, "quoted" \\ and\nlines'
NAMES = (
    *HOSTILE_NAMES,
    "user:agent:123",
    "../../etc/passwd",
    "/etc/passwd",
    "a//b",
    "::",
    ".",
    "..",
    ".hidden",
    "CON",
    "con",
    "nul.txt",
    "x" * 1000,
    "x" * 999 + "y",
    "X" * 300,
    "é" * 300,
    "~",
    "a~b",
    "a.json",
    "会话",
)


def full(session_id: str) -> ContextData:
    """A context with something in every field."""
    return (
        ContextData(
            session_id=session_id,
            system_state={
                "last_workspace": "/home/user/project",
                "preferences": {"deep": [1, None, 2.5, TEXT]},
            },
            long_term_summary=TEXT,
            extra={"new_in_a_later_release": {"x": [True]}},
        )
        .with_message("user", TEXT, at=1708654321, token_count=5, their_own="field")
        .with_message("assistant", "", at=1708654322.25)
        .with_fact(TEXT, "Project uses Rust 1.75")
        .with_task("task_001", "Monitor system resources", at=NOW, progress=0.5)
        .with_tool_call("file_write", failed=True)
        .with_token_usage(input_tokens=15420, output_tokens=8930)
        .with_environment("/home/user/project", {"disk_usage_percent": 45.2}, at=NOW)
    )


class ContextStoreConformance:
    """What ``ContextStore`` must do."""

    @pytest.fixture
    def store(self) -> ContextStore:
        """Your store, which keeps 3 versions and takes at most 100,000 bytes. It may hold other sessions."""
        raise NotImplementedError("define a fixture named 'store' in your subclass")

    @pytest.fixture
    def damage(self) -> Callable[[str, bytes], None]:
        """Puts these bytes in place of what the store holds as the context in force of a session."""
        raise NotImplementedError("define a fixture named 'damage' in your subclass")

    @pytest.fixture
    def session_id(self) -> str:
        """A session that nobody else uses."""
        return f"conformance:{uuid.uuid4().hex}"

    def test_an_unknown_session_has_no_context_and_no_versions(
        self, store: ContextStore, session_id: str
    ) -> None:
        assert store.load(session_id) is None
        assert session_id not in store.sessions()
        assert store.versions(session_id) == ()
        assert store.version(session_id, 1) is None
        assert not store.delete(session_id).was_there

    def test_a_context_comes_back_equal_with_all_its_fields(
        self, store: ContextStore, session_id: str
    ) -> None:
        context = full(session_id)
        report = store.save(context, NOW)
        assert report.version == 1
        assert report.context == context
        assert store.load(session_id) == context
        assert session_id in store.sessions()
        with pytest.raises(ContextConflictError):
            store.save(context, NOW)  # it was new, and there is one by now

    def test_contexts_of_sessions_with_hostile_names_are_isolated(
        self, store: ContextStore, session_id: str
    ) -> None:
        names = [f"{session_id}{name}" for name in NAMES if len(name) < 900] + [
            f"{name}{session_id}"[-1000:] if len(name) < 900 else f"{name[:900]}{session_id}"
            for name in NAMES
        ]
        names = list(dict.fromkeys(names))
        for number, name in enumerate(names):
            store.save(ContextData(session_id=name).with_fact(f"{number}"), NOW)
        assert set(names) <= set(store.sessions())
        assert len(store.sessions()) == len(set(store.sessions()))
        for number, name in enumerate(names):
            found = store.load(name)
            assert found is not None
            assert (found.session_id, found.facts) == (name, (f"{number}",))
        for name in names[::2]:
            assert store.delete(name).was_there
        assert set(names) & set(store.sessions()) == set(names[1::2])

    @pytest.mark.parametrize("name", ["", "x" * 1025])
    def test_a_name_that_cannot_be_used_is_refused(self, store: ContextStore, name: str) -> None:
        with pytest.raises(InvalidNameError):
            store.load(name)

    def test_a_save_based_on_the_current_version_succeeds(self, store: ContextStore, session_id: str) -> None:
        context = store.save(ContextData(session_id=session_id), NOW).context
        for number in range(2, 5):
            report = store.save(context.with_fact(f"{number}"), NOW)
            assert report.version == number
            context = report.context
        loaded = store.load(session_id)
        assert loaded is not None
        assert store.save(loaded.with_fact("loaded"), NOW).version == 5

    def test_a_save_based_on_an_older_version_is_refused_and_changes_nothing(
        self, store: ContextStore, session_id: str
    ) -> None:
        first = store.save(ContextData(session_id=session_id), NOW).context
        store.save(first.with_fact("theirs"), NOW)
        for outdated in (first, ContextData(session_id=session_id)):
            with pytest.raises(ContextConflictError, match="load"):
                store.save(outdated.with_fact("ours"), NOW)
        found = store.load(session_id)
        assert found is not None
        assert found.facts == ("theirs",)
        assert [version.number for version in store.versions(session_id)] == [2, 1]

    def test_an_overwriting_save_keeps_the_other_version(self, store: ContextStore, session_id: str) -> None:
        first = store.save(ContextData(session_id=session_id), NOW).context
        store.save(first.with_fact("theirs"), NOW)
        report = store.save(first.with_fact("ours"), NOW, overwrite=True)
        assert report.version == 3
        theirs = store.version(session_id, 2)
        assert theirs is not None
        assert theirs.facts == ("theirs",)
        assert store.save(report.context, NOW).version == 4

    def test_a_save_of_a_concurrently_deleted_context_is_refused(
        self, store: ContextStore, session_id: str
    ) -> None:
        first = store.save(ContextData(session_id=session_id), NOW).context
        report = store.delete(session_id)
        assert (report.was_there, report.versions) == (True, 1)
        with pytest.raises(ContextConflictError, match="deleted"):
            store.save(first, NOW)
        assert store.load(session_id) is None
        assert store.versions(session_id) == ()
        store.save(replace(first, based_on=""), NOW)

    def test_the_newest_versions_are_kept_with_their_times_and_revisions(
        self, store: ContextStore, session_id: str
    ) -> None:
        context, revisions = ContextData(session_id=session_id), []
        for number in range(1, 7):
            report = store.save(context.with_fact(f"{number}"), NOW + timedelta(minutes=number))
            context = report.context
            revisions.append(context.based_on)
        versions = store.versions(session_id)
        assert [version.number for version in versions] == [6, 5, 4][:KEPT]
        assert [version.saved_at for version in versions] == [NOW + timedelta(minutes=n) for n in (6, 5, 4)]
        assert [version.is_current for version in versions] == [True, False, False]
        assert [version.revision for version in versions] == revisions[:2:-1]
        assert all(version.size_bytes > 100 for version in versions)
        for version in versions:
            kept = store.version(session_id, version.number)
            assert kept is not None
            assert kept.facts == tuple(f"{n}" for n in range(1, version.number + 1))
        assert store.version(session_id, 3) is None

    def test_a_too_large_context_is_refused_and_changes_nothing(
        self, store: ContextStore, session_id: str
    ) -> None:
        context = store.save(ContextData(session_id=session_id), NOW).context
        with pytest.raises(InvalidInputError, match=r"has \d+ bytes.*compact"):
            store.save(context.with_fact("x" * 100_000), NOW)
        assert store.load(session_id) == context

    @pytest.mark.parametrize(
        "bad",
        [
            b"",
            b"{",
            b"[]",
            b"null",
            b'{"facts": [1]}',
            b'{"session_id": "another"}',
            b'{"token_usage": {"total_input": NaN}}',
            b'{"facts": [], "facts": []}',
            b'{"x": ' + b"[" * 5000 + b"]" * 5000 + b"}",
        ],
        ids=["empty", "half", "list", "null", "wrong type", "another's", "nan", "doubled", "deep"],
    )
    def test_an_unreadable_context_is_quarantined_and_the_last_good_version_restored(
        self, store: ContextStore, damage: Callable[[str, bytes], None], session_id: str, bad: bytes
    ) -> None:
        first = store.save(full(session_id), NOW).context
        second = store.save(first.with_fact("second"), NOW).context
        damage(session_id, bad)
        found = store.load(session_id)
        assert found is not None
        assert found in (first, second)
        assert found.recovery is not None
        assert found.recovery.set_aside
        assert found.recovery.reason
        again = store.load(session_id)
        assert again == found
        assert again.recovery is None
        assert store.save(again.with_fact("third"), NOW).version >= 3

    def test_repeated_damage_ends_in_an_error_and_allows_a_new_context(
        self, store: ContextStore, damage: Callable[[str, bytes], None], session_id: str
    ) -> None:
        context = ContextData(session_id=session_id)
        for _ in range(KEPT):
            context = store.save(context, NOW).context
        for _ in range(KEPT):
            damage(session_id, b"{")
            try:
                found = store.load(session_id)
            except StorageCorruptError:  # no version is left that is good
                found = store.load(session_id)
                assert found is None
                break
            assert found == context
        store.save(ContextData(session_id=session_id) if found is None else found.with_fact("anew"), NOW)
        assert store.load(session_id) is not None

    def test_concurrent_saves_lose_nothing_and_mix_nothing(
        self, store: ContextStore, session_id: str
    ) -> None:
        start, numbers = threading.Barrier(THREADS), count(1)

        def work() -> None:
            mine, done = next(numbers), 0
            start.wait()
            while done < 5:
                context = store.load(session_id) or ContextData(session_id=session_id)
                assert len(context.facts) == context.tool_stats.total_calls
                changed = context.with_fact(f"{mine}.{done}").with_tool_call(f"tool {mine}")
                try:
                    store.save(changed, NOW)
                    done += 1
                except ContextConflictError:
                    pass

        run_in_threads(THREADS, work)
        found = store.load(session_id)
        assert found is not None
        assert set(found.facts) == {f"{n}.{m}" for n in range(1, THREADS + 1) for m in range(5)}
        assert dict(found.tool_stats.by_tool) == {f"tool {n}": 5 for n in range(1, THREADS + 1)}
        assert store.versions(session_id)[0].number == THREADS * 5

    def test_an_empty_json_object_is_an_empty_context(self, session_id: str) -> None:
        assert context_from_bytes(b"{}", session_id) == ContextData(session_id=session_id)
