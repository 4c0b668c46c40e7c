"""Benchmark of growth with the entries of a database: add, recall, disk size, memory of the process.

Ordinary tenants have 1,000 entries each, however large the database is; one tenant has a tenth of all. So it is seen
apart what it costs to live among many, and what it costs to be large. Figures are taken by a fresh process each time.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

from benchmarks import scale_bulk, scale_plain
from benchmarks.scale_load import quantiles
from benchmarks.scale_texts import PER_SESSION, make_question, make_text, tenant_name
from langmem_tiers import MemoryEngine, MessageDraft

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ADDS, COLD, WARM = 200, 20, 100
TO_INDEX = 2_200
"""More messages than the index of a large namespace leaves unindexed."""
_FROM_OURS = """INSERT INTO plain (id, tenant, session, role, content, created_at)
    SELECT m.pk::text, n.path, m.session_pk::text, m.role, m.content, m.created_at
    FROM lmt_messages m JOIN lmt_namespaces n ON n.pk = m.namespace_pk WHERE m.id LIKE 'b%'"""
_SIZES = """SELECT pg_database_size(current_database()) - pg_total_relation_size('plain'),
    pg_total_relation_size('lmt_messages'), pg_table_size('lmt_vectors'),
    (SELECT coalesce(sum(pg_relation_size(indexrelid)), 0) FROM pg_stat_user_indexes
        WHERE indexrelname LIKE 'lmt_vectors_hnsw%'), pg_total_relation_size('plain')"""


def grow(url: str, sizes: Sequence[int]) -> list[dict[str, Any]]:
    """Measure each size, in one database that grows."""
    results, before = [], 0
    for size in sorted(sizes):
        start = time.perf_counter()
        scale_bulk.fill(url, before, size)
        seconds = time.perf_counter() - start
        _fill_plain(url)
        child = subprocess.run(  # noqa: S603 - ourselves
            [sys.executable, "-m", "benchmarks.scale_growth", url, str(size)],
            capture_output=True,
            text=True,
            check=False,
        )
        if child.returncode:
            raise RuntimeError(f"the measuring process failed: {child.stderr[-2000:]}")
        sample = json.loads(child.stdout)
        results.append({"entries": size, "bulk_load_seconds": seconds, **sample, "bytes": _bytes(url, size)})
        before = size
    return results


def _fill_plain(url: str) -> None:
    scale_plain.prepare(url)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_FROM_OURS)
        connection.execute("VACUUM ANALYZE")  # as autovacuum does, only that nobody waits for it here


def _bytes(url: str, entries: int) -> dict[str, float]:
    with psycopg.connect(url) as connection:
        row = connection.execute(_SIZES).fetchone()
    assert row is not None  # noqa: S101 - sizes are always there
    whole, messages, vectors, hnsw, plain = (int(value) for value in row)
    return {
        "database": whole,
        "per_entry": whole / entries,
        "messages_and_words": messages,
        "vectors": vectors,
        "hnsw_index": hnsw,
        "plain_per_entry": plain / entries,
    }


def main() -> None:
    """The process that is measured: adds to the database of the first argument and recalls from it."""
    url, entries = sys.argv[1], int(sys.argv[2])
    ordinary = range(1, max(2, (entries - entries // 10) // scale_bulk.OF_TENANT + 1))
    rng = random.Random(entries)  # noqa: S311 - repeatable on purpose
    before = _peak_mb()
    start = time.perf_counter()
    with MemoryEngine(url) as engine:
        if engine.embedder is not None:
            engine.embedder.embed_query("It is loaded before time is taken")
        sample: dict[str, Any] = {"open_ms": (time.perf_counter() - start) * 1e3}
        some = rng.sample(list(ordinary), min(COLD, len(ordinary)))
        sample |= _ours(engine, some, scale_bulk.OF_TENANT, "ordinary")
        sample |= _ours(engine, [scale_bulk.LARGE], entries // 10, "large")
        sample["large"]["index_ms_each"] = _indexed(engine, entries // 10)
    sample["memory_mb"] = {"before": before, "peak": _peak_mb()}
    sample["plain"] = _plain(url, some)
    print(json.dumps(sample))


def _ours(engine: MemoryEngine, tenants: Sequence[int], entries: int, name: str) -> dict[str, Any]:
    spaces = {tenant: engine.namespace(tenant_name(tenant)) for tenant in tenants}
    sessions = entries // PER_SESSION

    def recall(tenant: int, seed: int) -> float:
        question = make_question(tenant, sessions, seed)
        return _ms(lambda: spaces[tenant].recall(question, limit=10))

    cold = [recall(tenant, -1) for tenant in tenants]
    handles = {tenant: spaces[tenant].session("now") for tenant in tenants}
    added = []
    for number in range(ADDS):
        tenant = tenants[number % len(tenants)]
        draft = MessageDraft("user", make_text(tenant, entries + number))
        added.append(_ms(lambda handle=handles[tenant], draft=draft: handle.add(draft)))  # type: ignore[misc]
    embedded = sum(_ms(spaces[tenant].embed) for tenant in tenants)
    warm = [recall(tenants[number % len(tenants)], number) for number in range(WARM)]
    return {
        name: {
            "entries": entries,
            "add_ms": quantiles(sorted(added)),
            "embed_ms_each": embedded / ADDS,
            "recall_ms": quantiles(sorted(warm)),
            "first_recall_ms": quantiles(sorted(cold)),
        }
    }


def _indexed(engine: MemoryEngine, entries: int) -> float:
    """Measure embedding an entry, storing its vector and indexing it, if the namespace has an index."""
    space = engine.namespace(tenant_name(scale_bulk.LARGE))
    drafts = [
        MessageDraft("user", make_text(scale_bulk.LARGE, entries + n)) for n in range(ADDS, ADDS + TO_INDEX)
    ]
    space.session("bulk").add_many(drafts)
    return _ms(space.embed) / TO_INDEX


def _plain(url: str, tenants: Sequence[int]) -> dict[str, Any]:
    sessions = scale_bulk.OF_TENANT // PER_SESSION
    with psycopg.connect(url, autocommit=True) as connection:
        added, recalled = [], []
        for number in range(ADDS):
            tenant = tenants[number % len(tenants)]
            row = (f"p{number}", tenant_name(tenant), "now", "user", make_text(tenant, number))
            added.append(_ms(lambda row=row: connection.execute(scale_plain.INSERT, row)))  # type: ignore[misc]
        for number in range(WARM):
            tenant = tenants[number % len(tenants)]
            query = scale_plain.query_of(make_question(tenant, sessions, number))
            values = (tenant_name(tenant), query, query)
            recalled.append(
                _ms(lambda values=values: connection.execute(scale_plain.SELECT, values).fetchall())  # type: ignore[misc]
            )
    return {"add_ms": quantiles(sorted(added)), "recall_ms": quantiles(sorted(recalled))}


def _ms(step: Callable[[], object]) -> float:
    start = time.perf_counter()
    step()
    return (time.perf_counter() - start) * 1e3


def _peak_mb() -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


if __name__ == "__main__":
    main()
