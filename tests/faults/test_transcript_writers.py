"""Concurrent writers of one list: no loss, no duplicates, no deadlock."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import pytest

from langmem_tiers import MemoryEngine, MessageDraft, SessionNotFoundError
from langmem_tiers.sessions.models import Listing
from langmem_tiers.testing.threads import run_in_threads
from tests.faults.disk_backends import QUICKLY_ON_SQLITE
from tests.faults.list_writers import ADDERS, write_lists, write_lists_in_a_process
from tests.fork_server import fork_server
from tests.waiting import LIMIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langmem_tiers import Session

pytestmark = [pytest.mark.fault, pytest.mark.timeout(600)]


@pytest.mark.parametrize(
    ("backend", "each"),
    [pytest.param("sqlite-file", 12, marks=pytest.mark.smoke), ("sqlite-file", 120), ("postgresql", 120)],
)
def test_threads_that_add_and_change_a_list_lose_and_duplicate_nothing(
    engine: MemoryEngine, tenant: str, each: int
) -> None:
    write_lists(engine, tenant, "a", each)
    check(engine.session(tenant, "s"), ["a"], each)


@pytest.mark.parametrize(
    ("backend", "each"),
    [pytest.param("sqlite-file", 6, marks=pytest.mark.smoke), ("sqlite-file", 60), ("postgresql", 60)],
)
def test_processes_that_add_and_change_a_list_lose_and_duplicate_nothing(
    url: str, tenant: str, each: int
) -> None:
    context = fork_server()
    with MemoryEngine(url) as engine:
        session = engine.session(tenant, "s")
        children = [
            context.Process(target=write_lists_in_a_process, args=(url, tenant, name, each))
            for name in ("a", "b")
        ]
        for child in children:
            child.start()
        for child in children:
            child.join(2 * LIMIT_SECONDS)
        assert [child.exitcode for child in children] == [0, 0]
        check(session, ["a", "b"], each)


@QUICKLY_ON_SQLITE
def test_erasing_a_session_and_changing_its_list_do_not_deadlock(engine: MemoryEngine, tenant: str) -> None:
    for number in range(15):
        session = engine.session(tenant, f"{number}")
        session.add_many(MessageDraft("user", f"walrus {n}") for n in range(20))
        erasing, start = itertools.count(), threading.Barrier(3)

        def erase_or_change(session: Session, erasing: Iterator[int], start: threading.Barrier) -> None:
            is_first = next(erasing) == 0
            start.wait(LIMIT_SECONDS)
            if is_first:
                session.delete()
                return
            with suppress(SessionNotFoundError):
                for _ in range(10):
                    session.transcript.move_oldest(1, Listing.REMOVED)
                    session.transcript.replace([MessageDraft("user", "walrus")], former=Listing.REMOVED)

        run_in_threads(3, partial(erase_or_change, session, erasing, start))
    assert engine.namespace(tenant).sessions().sessions == ()
    assert engine.namespace(tenant).search("walrus") == ()


def check(session: Session, names: list[str], each: int) -> None:
    """That all which was added is in the record once and in order, and the list and what is shown agree."""
    record = list(session.messages())
    stored = Counter(message.id for message in record)
    wanted = {f"{name}/{adder}/{n}" for name in names for adder in range(ADDERS) for n in range(each)}
    assert wanted <= stored.keys()
    assert set(stored.values()) == {1}
    assert session.info().message_count == len(record)
    seen: dict[str, int] = {}
    for message in record:
        if message.id in wanted:
            writer, number = message.id.rsplit("/", 1)
            assert int(number) == seen.get(writer, -1) + 1
            seen[writer] = int(number)

    transcript = session.transcript
    by_listing = {listing: [m.id for m in transcript.messages([listing])] for listing in Listing}
    assert Counter(message_id for some in by_listing.values() for message_id in some) == stored
    listed = transcript.messages()
    assert sorted(m.id for m in listed) == sorted(by_listing[Listing.ACTIVE] + by_listing[Listing.ARCHIVED])
    assert set(Counter(m.content for m in listed).values()) == {1}
    assert [m for m in record if m in listed] == list(listed)
    assert session.view() == session.build_context(recall=False).messages == listed
