"""Many processes that add to and recall from one database while its server is restarted.

Each message has its own id and a tenant, and each process notes acknowledged messages. At the end the rows are read by
plain SQL: none may be missing, duplicated or stored with another tenant, and no recall may have returned a message of
another tenant. A message that was just added must be among the latest of its session.
"""

from __future__ import annotations

import json
import multiprocessing
import time
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

from benchmarks.scale_texts import PER_SESSION, get_tenant_word, make_question, make_text, tenant_name
from langmem_tiers import (
    EngineConfig,
    MemoryEngine,
    MessageDraft,
    PostgresConfig,
    RedisConfig,
    Session,
    StorageBusyError,
    StorageUnavailableError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from benchmarks.servers import TemporaryPostgres, TemporaryRedis

MAY_BE_RETRIED = (StorageUnavailableError, StorageBusyError)
_STEPS = 100
_SHIFT = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Load that all workers generate together."""

    url: str
    folder: str
    messages: int
    recalls: int
    workers: int
    tenants: int
    rate: float = 0.0
    """Messages a second by all of them together; 0 is as many as they can."""
    redis_url: str | None = None

    def numbers(self, worker: int) -> Iterator[tuple[int, int, int]]:
        """Of a worker's messages: the number among all, the tenant, and the number among that tenant's.

        Workers take blocks in turn, each with one message of every tenant: so all of them write to all tenants, and to
        the same sessions of theirs.
        """
        blocks = -(-self.messages // self.tenants)
        for block in range(worker, blocks, self.workers):
            for turn in range(self.tenants):
                tenant = (turn + 7 * worker) % self.tenants
                number = block * self.tenants + tenant
                if number < self.messages:
                    yield number, tenant, block

    def due(self, worker: int, nth: int) -> float:
        """Return the time at which a worker adds its nth message, in seconds since the start."""
        return (nth * self.workers + worker) / self.rate if self.rate else 0.0

    def recalls_after(self, number: int) -> int:
        """Return the number of recalls after a message, spread evenly over time and tenants."""
        block, tenant = divmod(number, self.tenants)
        turn = block * self.tenants + (tenant + _SHIFT * block) % self.tenants
        return (turn + 1) * self.recalls // self.messages - turn * self.recalls // self.messages

    def config(self) -> EngineConfig:
        """Return the configuration of the workers' engines."""
        redis = None if self.redis_url is None else RedisConfig(url=self.redis_url)
        return EngineConfig(postgres=PostgresConfig(pool_size=4, max_overflow=2), redis=redis)


def run(load: Load, server: TemporaryPostgres, redis: TemporaryRedis | None, restarts: int) -> dict[str, Any]:
    """Let all workers run, restart the servers in the middle, and read what is there."""
    start = time.perf_counter()
    all_notes, seconds = _work(load, work, _restarter(server, redis, restarts))
    results = _summarize(load, all_notes, seconds)
    results["restarts"] = server.restarts
    results["redis_restarts"] = 0 if redis is None else redis.restarts
    results |= check(load, all_notes)
    results["seconds_in_all"] = time.perf_counter() - start
    return results


def run_plain(load: Load) -> dict[str, Any]:
    """Baseline with the driver alone: an INSERT per message, a full-text SELECT per recall."""
    from benchmarks import scale_plain  # noqa: PLC0415 - of the baseline alone

    scale_plain.prepare(load.url)
    all_notes, seconds = _work(load, scale_plain.work, lambda _share: None)
    return _summarize(load, all_notes, seconds)


def _work(
    load: Load, target: Callable[..., None], progressed: Callable[[float], None]
) -> tuple[list[dict[str, Any]], float]:
    context = multiprocessing.get_context("spawn")
    steps: Any = context.Queue()
    ready = context.Barrier(load.workers + 1)
    workers = [context.Process(target=target, args=(load, n, ready, steps)) for n in range(load.workers)]
    for worker in workers:
        worker.start()
    ready.wait(300)
    start, progress, ended = time.perf_counter(), 0.0, 0
    while ended < load.workers:
        step = steps.get(timeout=600)
        ended += step == 0
        progress += step
        progressed(progress / load.messages)
    seconds = time.perf_counter() - start
    for worker in workers:
        worker.join(60)
    return [json.loads(_notes(load, n).read_text()) for n in range(load.workers)], seconds


def _restarter(
    server: TemporaryPostgres, redis: TemporaryRedis | None, restarts: int
) -> Callable[[float], None]:
    marks = [(n + 1) / (restarts + 1) for n in range(restarts)]
    redis_marks = [mark - 0.5 / (restarts + 1) for mark in marks] if redis is not None else []

    def progressed(share: float) -> None:
        if marks and share >= marks[0]:
            marks.pop(0)
            # In turns as an operator does it, and as a power cut does.
            server.restart("immediate" if len(marks) % 2 else "fast", away_seconds=0.5)
        if redis is not None and redis_marks and share >= redis_marks[0]:
            redis_marks.pop(0)
            redis.restart(away_seconds=0.5)

    return progressed


def _notes(load: Load, worker: int) -> Path:
    return Path(load.folder) / f"worker-{worker}.json"


class WorkerNotes:
    """Observations of a worker."""

    def __init__(self, load: Load, worker: int, steps: Any) -> None:  # noqa: ANN401 - a queue of another process
        self._load, self._worker, self._steps = load, worker, steps
        self._each = max(1, load.messages // load.workers // _STEPS)
        self._unreported = 0
        self.acknowledged: list[int] = []
        self.add_ms: list[float] = []
        self.recall_ms: list[float] = []
        self.latest_ms: list[float] = []
        self.unseen = 0
        self.cpu_seconds = 0.0
        self.retried: Counter[str] = Counter()
        self.wrong_tenant = 0
        self.crash: str | None = None

    def record_added(self, number: int, taken_ms: float) -> None:
        """Note a message that was acknowledged."""
        self.acknowledged.append(number)
        self.add_ms.append(taken_ms)
        self._unreported += 1
        if self._unreported >= self._each:
            self._steps.put(self._unreported)
            self._unreported = 0

    def end(self) -> None:
        """Write it all down and say so."""
        kept = {name: value for name, value in vars(self).items() if not name.startswith("_")}
        _notes(self._load, self._worker).write_text(json.dumps(kept))
        self._steps.put(0)


def work(load: Load, worker: int, ready: Any, steps: Any) -> None:  # noqa: ANN401 - of another process
    """One worker process."""
    notes = WorkerNotes(load, worker, steps)
    try:
        with MemoryEngine(load.url, config=load.config()) as engine:
            if engine.embedder is not None:
                engine.embedder.embed_query("It is loaded before time is taken")
            ready.wait(300)
            before = time.process_time()
            _add_and_recall(load, engine, worker, notes)
            notes.cpu_seconds = time.process_time() - before
    except BaseException as error:  # noqa: BLE001 - reported as a failure of the run
        notes.crash = f"{type(error).__name__}: {error}"
    notes.end()


def _add_and_recall(load: Load, engine: MemoryEngine, worker: int, notes: WorkerNotes) -> None:
    sessions: dict[tuple[int, int], Session] = {}
    began = time.perf_counter()
    for nth, (number, tenant, index) in enumerate(load.numbers(worker)):
        key = (tenant, index // PER_SESSION)
        if key not in sessions:
            sessions[key] = _retry(notes, partial(engine.session, tenant_name(tenant), f"s{key[1]}"))
        draft = MessageDraft(("user", "assistant")[index % 2], make_text(tenant, index), id=f"m{number}")
        start = wait_until(began + load.due(worker, nth) if load.rate else 0.0)
        _retry(notes, partial(sessions[key].add_many, [draft], expect_new=True))
        notes.record_added(number, (time.perf_counter() - start) * 1e3)
        for _ in range(load.recalls_after(number)):
            _recall(engine, tenant, make_question(tenant, key[1] + 1, number), notes)
            _latest(sessions[key], draft, notes)


def wait_until(due: float) -> float:
    """Wait for a moment, which is what time is taken from: who is late has made somebody wait."""
    now = time.perf_counter()
    if due > now:
        time.sleep(due - now)
        return due
    return due or now


def _latest(session: Session, added: MessageDraft, notes: WorkerNotes) -> None:
    start = time.perf_counter()
    found = _retry(notes, partial(session.latest, 2 * PER_SESSION))
    notes.latest_ms.append((time.perf_counter() - start) * 1e3)
    notes.unseen += all(message.id != added.id for message in found)


def _recall(engine: MemoryEngine, tenant: int, question: str, notes: WorkerNotes) -> None:
    namespace, mark = engine.namespace(tenant_name(tenant)), get_tenant_word(tenant)
    start = time.perf_counter()
    found = _retry(notes, lambda: namespace.recall(question, limit=10))
    notes.recall_ms.append((time.perf_counter() - start) * 1e3)
    notes.wrong_tenant += sum(
        hit.entry.namespace != namespace.path or mark not in hit.entry.content for hit in found.hits
    )


def _retry(notes: WorkerNotes, step: Callable[[], Any]) -> Any:  # noqa: ANN401 - what the step gives
    while True:
        try:
            return step()
        except MAY_BE_RETRIED as error:  # the engine has waited for the server already
            notes.retried[type(error).__name__] += 1


def check(load: Load, all_notes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Count acknowledged messages that are stored, by reading the rows."""
    acknowledged = {number for notes in all_notes for number in notes["acknowledged"]}
    there: Counter[str] = Counter()
    strayed = 0
    with psycopg.connect(load.url) as connection, connection.cursor(name="all") as cursor:
        cursor.execute(
            "SELECT n.path, m.id, m.content FROM lmt_messages m JOIN lmt_namespaces n ON n.pk = m.namespace_pk"
        )
        for path, message_id, content in cursor:
            there[message_id] += 1
            strayed += not content.endswith(f" {get_tenant_word(int(path.rpartition('-')[2]))}.")
    names = {f"m{number}" for number in acknowledged}
    return {
        "acknowledged": len(acknowledged),
        "stored": there.total(),
        "lost": len(names - set(there)),
        "doubled": there.total() - len(there),
        "wrong_tenant": strayed + sum(notes["wrong_tenant"] for notes in all_notes),
        "unseen": sum(notes["unseen"] for notes in all_notes),
    }


def _summarize(load: Load, all_notes: Sequence[dict[str, Any]], seconds: float) -> dict[str, Any]:
    retried: Counter[str] = Counter()
    for notes in all_notes:
        retried.update(notes["retried"])
    adds = sorted(ms for notes in all_notes for ms in notes["add_ms"])
    recalls = sorted(ms for notes in all_notes for ms in notes["recall_ms"])
    latest = sorted(ms for notes in all_notes for ms in notes["latest_ms"])
    return {
        "workers": load.workers,
        "tenants": load.tenants,
        "messages": len(adds),
        "recalls": len(recalls),
        "seconds": seconds,
        "messages_per_second": len(adds) / seconds,
        "recalls_per_second": len(recalls) / seconds,
        "add_ms": quantiles(adds),
        "recall_ms": quantiles(recalls),
        "latest_ms": quantiles(latest),
        "workers_cpu_seconds": sum(notes["cpu_seconds"] for notes in all_notes),
        "retried_by_workers": dict(retried),
        "crashes": [notes["crash"] for notes in all_notes if notes["crash"]],
    }


def quantiles(ordered: Sequence[float]) -> dict[str, float]:
    """Return quantiles of sorted values."""
    if not ordered:
        return {}
    last = len(ordered) - 1
    return {
        name: ordered[round(share * last)]
        for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("most", 1.0))
    }
