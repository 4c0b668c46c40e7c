"""Child processes that forget until they are killed at a given step."""

from __future__ import annotations

import os
import signal
from datetime import timedelta
from typing import Any
from unittest.mock import patch

from langmem_tiers import EngineConfig, MaintenanceConfig
from langmem_tiers.erasure.repository import ErasureRepository
from langmem_tiers.maintenance import service
from langmem_tiers.maintenance.repository import MaintenanceRepository
from langmem_tiers.testing import FrozenClock
from tests.erasure_helpers import open_test_engine
from tests.waiting import LIMIT_SECONDS

AGED = EngineConfig(maintenance=MaintenanceConfig(compaction=False))
STEPS = ("first removal", "second removal", "before wiping", "while wiping")


def create_later_clock() -> FrozenClock:
    """A clock that is 91 days ahead of the one that all was said by."""
    clock = FrozenClock()
    clock.advance(timedelta(days=91))
    return clock


def forget_until(url: str, step: str, asked: dict[str, Any]) -> None:
    """Forget something and die at a step."""
    removals = iter(range(100))
    erase, scrub = ErasureRepository.delete_namespace, MaintenanceRepository.scrub

    def dying_erase(store: ErasureRepository, *given: Any) -> Any:
        number = next(removals)
        if step == "first removal" or (step == "second removal" and number == 1):
            die()
        return erase(store, *given)

    def dying_scrub(store: MaintenanceRepository, *given: Any, **more: Any) -> Any:
        if step == "while wiping":
            # After the file was written anew.
            patch.object(store, "_empty_log", lambda *_: die()).start()
        elif step == "before wiping":
            die()
        return scrub(store, *given, **more)

    patch.object(ErasureRepository, "delete_namespace", dying_erase).start()  # faults are put in
    patch.object(MaintenanceRepository, "scrub", dying_scrub).start()
    with open_test_engine(url) as engine:
        engine.forget(**asked)


def retain_until_killed(url: str, acknowledged: str) -> None:
    """Run maintenance in small batches, again and again, noting each batch once it is erased."""
    notes = os.open(acknowledged, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    service._MESSAGE_BATCH_SIZE = 3

    def note(erased: int) -> None:
        os.write(notes, f"{erased}\n".encode())

    with open_test_engine(url, create_later_clock(), config=AGED) as engine:
        while True:
            engine.maintenance.run(note)


def retain_together(url: str, barrier: Any) -> None:
    """Run maintenance at the same time as others."""
    service._MESSAGE_BATCH_SIZE = 3
    with open_test_engine(url, create_later_clock(), config=AGED) as engine:
        barrier.wait(LIMIT_SECONDS)
        engine.maintenance.run()


def forget_together(url: str, barrier: Any, asked: dict[str, Any]) -> None:
    """Forget the same as others at the same time."""
    with open_test_engine(url) as engine:
        barrier.wait(LIMIT_SECONDS)
        assert engine.forget(**asked, scrub=False).is_complete


def die() -> bool:
    """End as if the power was cut."""
    os.kill(os.getpid(), signal.SIGKILL)
    return True
