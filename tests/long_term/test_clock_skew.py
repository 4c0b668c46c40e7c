"""Two engines with different clocks on one memory: the order of writes decides."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from langmem_tiers import MemoryEngine, RecallFilters
from langmem_tiers.long_term.models import Outcome
from langmem_tiers.testing import FrozenClock
from tests.backends import ON_FILE_AND_SERVER

if TYPE_CHECKING:
    from collections.abc import Iterator

NOW = datetime(2025, 1, 15, 10, 30, tzinfo=UTC)
LATER = NOW + timedelta(seconds=3)
pytestmark = ON_FILE_AND_SERVER


@pytest.fixture
def ahead(url: str) -> Iterator[MemoryEngine]:
    with MemoryEngine(url, embedder=None, clock=FrozenClock(LATER)) as opened:
        yield opened


@pytest.fixture
def behind(url: str, ahead: MemoryEngine) -> Iterator[MemoryEngine]:
    with MemoryEngine(url, embedder=None, clock=FrozenClock(NOW)) as opened:
        yield opened


def test_equal_entries_are_stored_once(ahead: MemoryEngine, behind: MemoryEngine, tenant: str) -> None:
    first = ahead.namespace(tenant).long_term.store("Alice lives in Berlin.")
    second = behind.namespace(tenant).long_term.store("Alice lives in Berlin.")
    assert first.entry is not None
    assert (second.outcome, second.duplicate_of) == (Outcome.DUPLICATE, first.entry.id)
    assert len(list(ahead.namespace(tenant).long_term.entries())) == 1


def test_the_last_statement_is_valid_despite_clock_skew(
    ahead: MemoryEngine, behind: MemoryEngine, tenant: str
) -> None:
    ahead.namespace(tenant).long_term.store("Alice lives in Berlin.")
    second = behind.namespace(tenant).long_term.store("Alice lives in Paris.")
    assert second.outcome is Outcome.SUPERSEDES
    now = RecallFilters(valid_at=LATER)
    hits = ahead.namespace(tenant).recall("Where does Alice live?", filters=now).hits
    assert [hit.entry.content for hit in hits] == ["Alice lives in Paris."]


def test_an_explicit_time_is_kept(ahead: MemoryEngine, behind: MemoryEngine, tenant: str) -> None:
    ahead.namespace(tenant).long_term.store("Alice lives in Berlin.")
    second = behind.namespace(tenant).long_term.store("Alice lives in Berlin.", valid_from=NOW)
    assert second.entry is not None
    assert (second.entry.valid_from, second.entry.valid_until) == (NOW, LATER)


def test_a_clock_with_a_large_error_is_ignored(url: str, behind: MemoryEngine, tenant: str) -> None:
    with MemoryEngine(url, embedder=None, clock=FrozenClock(NOW + timedelta(days=300))) as wrong:
        wrong.namespace(tenant).long_term.store("Alice lives in Berlin.")
    receipt = behind.namespace(tenant).long_term.store("Alice lives in Paris.")
    assert receipt.entry is not None
    assert receipt.entry.valid_from == NOW


def test_a_pool_stores_equal_contributions_once(
    ahead: MemoryEngine, behind: MemoryEngine, tenant: str
) -> None:
    one, two = (tenant, "one"), (tenant, "two")
    pool = ahead.pools.create(tenant, members=[one, two])
    assert pool.contribute(one, "Alice lives in Berlin.").is_stored
    again = behind.pools.get(pool.id).contribute(two, "Alice lives in Berlin.")
    assert again.outcome is Outcome.DUPLICATE
    assert len(pool.query(two, "Where does Alice live?")) == 1


def test_entries_a_member_learned_later_are_not_copied(
    ahead: MemoryEngine, behind: MemoryEngine, tenant: str
) -> None:
    one, two = (tenant, "one"), (tenant, "two")
    pool = behind.pools.create(tenant, members=[one, two])
    pool.contribute(one, "Alice lives in Berlin.")
    ahead.namespace(*two).long_term.store("Alice lives in Berlin.")
    report = ahead.pools.get(pool.id).sync_to(two)
    assert (report.copied, report.known) == ((), 1)
    assert len(list(ahead.namespace(*two).long_term.entries())) == 1
