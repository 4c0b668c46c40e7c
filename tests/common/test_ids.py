from __future__ import annotations

import os
import re
import threading
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from langmem_tiers.common import TimeSortedIds
from langmem_tiers.testing import seeded_ids

NOW = datetime(2025, 1, 15, 10, 30, tzinfo=UTC)
times = st.datetimes(datetime(1971, 1, 1), datetime(5000, 1, 1), timezones=st.just(UTC))


@given(times)
def test_an_id_is_its_time_in_base_36_and_randomness(now: datetime) -> None:
    made = TimeSortedIds().new(now)
    assert re.fullmatch(r"[0-9a-z]{9}-[0-9a-f]{16}", made)
    assert int(made.split("-")[0], 36) == int(now.timestamp() * 1000)


@given(st.lists(times, min_size=2, max_size=30))
def test_ids_of_one_process_sort_in_creation_order_and_never_repeat(moments: list[datetime]) -> None:
    ids = TimeSortedIds()
    made = [ids.new(moment) for moment in moments]  # the clock may step back
    assert made == sorted(made)
    assert len(set(made)) == len(made)


def test_ids_of_one_millisecond_count_up_and_keep_their_length() -> None:
    ids = TimeSortedIds(lambda bits: (1 << bits) - 1)  # the largest start
    moments = [NOW, NOW, NOW - timedelta(days=1), NOW + timedelta(milliseconds=1)]
    prefixes, numbers = zip(*(ids.new(moment).split("-") for moment in moments), strict=True)
    assert numbers == ("7fffffffffffffff", "8000000000000000", "8000000000000001", "7fffffffffffffff")
    assert prefixes[0] == prefixes[1] == prefixes[2] < prefixes[3]


def test_ids_of_times_before_1970_start_with_zeros() -> None:
    ids = TimeSortedIds(lambda _bits: 5)
    made = [ids.new(datetime(year, 1, 1, tzinfo=UTC)) for year in (1900, 1970, 1960)]
    assert made == [f"000000000-{number:016x}" for number in (5, 6, 7)]


def test_ids_of_later_processes_sort_later() -> None:
    early, late = TimeSortedIds().new(NOW), TimeSortedIds().new(NOW + timedelta(milliseconds=1))
    assert early < late


def test_a_seeded_source_repeats_its_ids() -> None:
    first, second = seeded_ids(), seeded_ids()
    assert [first.new(NOW) for _ in range(5)] == [second.new(NOW) for _ in range(5)]


def test_threads_never_get_the_same_id() -> None:
    ids = TimeSortedIds()
    made: list[str] = []
    workers = [
        threading.Thread(target=lambda: made.extend(ids.new(NOW) for _ in range(2000))) for _ in range(8)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(set(made)) == 16_000


def test_a_forked_child_does_not_repeat_its_parents_ids() -> None:
    ids = TimeSortedIds()
    ids.new(NOW)
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        os.write(writer, ids.new(NOW).encode())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = os.read(reader, 100).decode()
    os.close(reader)
    os.close(writer)
    assert theirs != ids.new(NOW)
