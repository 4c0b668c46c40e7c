"""Several processes on one PostgreSQL: they start together, see each other's writes, and share what is done once."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Self

import psycopg
import pytest

from langmem_tiers import EntryDraft, MemoryEngine, MessageDraft
from langmem_tiers.storage.schema import SCHEMA_VERSION
from langmem_tiers.testing import FrozenClock, HashEmbedder
from tests.faults.engine_starter import start_and_add
from tests.faults.parallel_children import run_at_once
from tests.fork_server import fork_server
from tests.waiting import LIMIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.fault

STARTERS = 8
WORK = """
import sys, time
from langmem_tiers import MemoryEngine
from langmem_tiers.testing import HashEmbedder

class Slow(HashEmbedder):
    embedded = 0
    def embed_documents(self, texts):
        self.embedded += len(texts)
        time.sleep(0.05)
        return super().embed_documents(texts)

url, tenant = sys.argv[1:]
embedder = Slow()
with MemoryEngine(url, embedder=embedder) as engine:
    engine.namespaces()
    print("ready", flush=True)
    for line in sys.stdin:
        if line.strip() == "embed":
            print(engine.namespace(tenant).embed(), embedder.embedded, flush=True)
        elif line.strip() == "optimize":
            print(0 if engine.optimizer.run(tenant) is None else 1, flush=True)
        elif line.strip() == "consolidate":
            report = engine.namespace(tenant).consolidate()
            print(report.memories_archived, int(report.is_elsewhere), flush=True)
        elif line.strip() == "count":
            print(engine.session(tenant, "s").count(), len(engine.session(tenant, "s").latest(1000)), flush=True)
        else:
            engine.session(tenant, "s").add("user", line.strip())
            print("added", flush=True)
"""


class Worker:
    """A process that runs commands from its standard input."""

    def __init__(self, program: str, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def hear(self) -> list[int]:
        assert self.process.stdout is not None
        return [int(word) for word in self.process.stdout.readline().split() if word.isdigit()]

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def end(self) -> int:
        self.process.communicate(timeout=LIMIT_SECONDS)
        return self.process.returncode


def test_eight_processes_that_start_together_create_the_tables_once(
    new_postgres_database: Callable[[], str],
) -> None:
    url = new_postgres_database()
    texts = [str(number) for number in range(STARTERS)]
    run_at_once(fork_server(), start_and_add, [(url, text) for text in texts])
    with psycopg.connect(url) as connection:
        versions = connection.execute("SELECT version FROM lmt_schema ORDER BY version").fetchall()
        identities = connection.execute("SELECT count(*) FROM lmt_database").fetchone()
    assert versions == [(SCHEMA_VERSION,)]
    assert identities == (1,)
    with MemoryEngine(url, embedder=None) as engine:
        stored = sorted(message.content for message in engine.session("acme", "s").messages())
    assert stored == texts


def test_two_processes_see_each_others_writes_and_share_exclusive_jobs(
    shared_postgres: str, tenant: str
) -> None:
    long_ago = FrozenClock(datetime(2024, 1, 1, tzinfo=UTC))
    with MemoryEngine(shared_postgres, clock=long_ago, embedder=HashEmbedder()) as engine:
        engine.session(tenant, "s").add_many(MessageDraft("user", f"message {n} of many") for n in range(300))
        for number in range(40):
            draft = EntryDraft(content=f"The {number}th drawer holds key {number * 7}")
            engine.namespace(tenant).long_term.put(draft)
            long_ago.advance(timedelta(seconds=1))
    with Worker(WORK, shared_postgres, tenant) as one, Worker(WORK, shared_postgres, tenant) as two:
        workers = [one, two]
        for worker in workers:
            worker.hear()
        _see_each_other(workers)
        done = _both(workers, "embed")
        assert sum(made for made, _ in done) == 306
        assert sum(embedded for _, embedded in done) == 306  # no text was embedded by both
        ran = sum(count for (count,) in _both(workers, "optimize"))
        archived = _both(workers, "consolidate")
        assert sum(count for count, _ in archived) == 40
        assert [worker.end() for worker in workers] == [0, 0]
    with MemoryEngine(shared_postgres, embedder=HashEmbedder()) as engine:
        assert len(engine.optimizer.history(tenant)) == ran >= 1


def _see_each_other(workers: list[Worker]) -> None:
    for number in range(6):
        writer, reader = workers[number % 2], workers[1 - number % 2]
        writer.tell(f"hello {number}")
        writer.hear()
        reader.tell("count")
        assert reader.hear() == [301 + number, 301 + number]


def _both(workers: list[Worker], line: str) -> list[list[int]]:
    for worker in workers:
        worker.tell(line)
    return [worker.hear() for worker in workers]
