"""Threads that add to one list while others replace, archive and remove its messages."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from langmem_tiers import MemoryEngine, MessageDraft
from langmem_tiers.sessions.models import Listing
from tests.waiting import LIMIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from langmem_tiers import Session

ADDERS = 3


def write_lists_in_a_process(url: str, tenant: str, name: str, each: int) -> None:
    """The same on an engine of its own."""
    with MemoryEngine(url) as engine:
        write_lists(engine, tenant, name, each)


def write_lists(engine: MemoryEngine, tenant: str, name: str, each: int) -> None:
    """Let so many messages of each adder be stored; whoever changes the list goes on until all are there."""
    are_added = threading.Event()

    def add(adder: int) -> None:
        session = engine.session(tenant, "s")
        for number in range(each):
            text = f"{name}/{adder}/{number}"
            draft = MessageDraft("user", text, id=text)
            listing = Listing.ARCHIVED if number % 5 == 4 else Listing.ACTIVE
            session.transcript.add([draft], listing)

    def change(once: Callable[[Session, int], None]) -> None:
        session, number = engine.session(tenant, "s"), 0
        while number < 3 or not are_added.is_set():
            once(session, number)
            number += 1

    def replace(session: Session, number: int) -> None:
        there = [message.content for message in session.transcript.messages()]
        assert len(set(there)) == len(there)
        new = [*there[len(there) // 3 :], f"{name}/new/{number}"]
        session.transcript.replace([MessageDraft("user", text) for text in new])

    def archive(session: Session, number: int) -> None:
        moved = session.transcript.move_oldest(2, Listing.ARCHIVED)
        if number % 4 == 3:
            session.transcript.move([message.id for message in moved], Listing.REMOVED)

    with ThreadPoolExecutor(ADDERS + 2) as pool:
        changing = [pool.submit(change, once) for once in (replace, archive)]
        try:
            for adding in [pool.submit(add, adder) for adder in range(ADDERS)]:
                adding.result(LIMIT_SECONDS)
        finally:
            are_added.set()
        for future in changing:
            future.result(LIMIT_SECONDS)
