"""Benchmark of recall speed compared with the minimum cost of the same work in the same run.

The baseline does the least that an answer takes, with the same file, words and vectors: one BM25 query
by the standard library's ``sqlite3``, the query embedded, one product of the matrix with it, the ten
rows read. It does not rank by neighbors, sessions or time, and explains nothing.

Sessions of 20 made-up messages share a topic. Words follow Zipf's law; the commonest are the function
words of English, as in any text, and recall leaves those out. No question is asked twice, so no query's
vector is in a cache. Part of ``python -m benchmarks.speed``.
"""

from __future__ import annotations

import functools
import itertools
import json
import random
import sqlite3
import statistics
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.conversations import MadeUpConversation
from langmem_tiers import EngineConfig, MemoryEngine, MessageDraft, OfflineEmbedder, TokenBudget
from langmem_tiers.config import Durability
from langmem_tiers.text.stop_words import STOP_WORDS
from langmem_tiers.text.tokenize import extract_terms

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from langmem_tiers import Session

PARTS = ("recall", "tenants")
LIMITS_MS = {1_000: 3.0, 10_000: 6.0, 100_000: 25.0}
RATIO_LIMIT, TENANTS_LIMIT = 3.0, 1.5
CONTEXT_MS, MEMORY_MB = 30.0, 400.0
QUESTIONS, ROUNDS, HITS, PER_SESSION = 60, 3, 10, 20
TENANTS, MANY_TENANTS, OF_TENANT = 50, 1_000, 1_000
_START = datetime(2024, 1, 1, tzinfo=UTC)
_CONFIG = EngineConfig(durability=Durability.NORMAL)


def measure(folder: Path, *, only: str | None, quick: bool) -> dict[str, Any]:
    """Measure one part, or all except the largest number of tenants."""
    if only == "tenants":
        return {"tenants": measure_tenants(folder, *((10, 200) if quick else (MANY_TENANTS, OF_TENANT)))}
    sizes = list(LIMITS_MS)[: 1 if quick else None]
    for size in sizes:
        fill(folder / f"{size}.db", ["bench"], size)
    return {
        "recall": {str(size): recall(folder / f"{size}.db", size) for size in sizes},
        "build_context_ms": build_context(folder / "context.db", 500 if quick else 5_000),
        "memory_mb": measure_memory(folder / f"{sizes[-1]}.db", sizes[-1]),
        "tenants": measure_tenants(folder, *((5, 200) if quick else (TENANTS, OF_TENANT))),
    }


def is_ok(results: object) -> bool:
    """Return True if all limits are met."""
    if not isinstance(results, dict):
        return True
    return bool(results.get("ok", True)) and all(is_ok(part) for part in results.values())


def recall(path: Path, size: int) -> dict[str, Any]:
    """Measure recall and the bare cost in turns, so that other load affects both.

    Who comes first pays for words that are new to the process, so that goes in turns as well.
    """
    bare = _Bare(path)
    with MemoryEngine(path) as engine:
        ours_way = functools.partial(engine.namespace("bench").recall, limit=HITS)
        ways: tuple[Callable[[str], object], ...] = (ours_way, bare.recall)
        taken: list[list[float]] = [[], []]
        for turn in range(ROUNDS + 1):
            for number, question in enumerate(questions("bench", size, seed=turn)):
                for way in (number % 2, 1 - number % 2):
                    taken[way].append(_ms(functools.partial(ways[way], question)))
    bare.db.close()
    ours, theirs = (some[QUESTIONS:] for some in taken)  # the first round warms up
    p50, bare_ms, limit = statistics.median(ours), statistics.median(theirs), LIMITS_MS.get(size)
    return {
        "p50_ms": p50,
        "p95_ms": statistics.quantiles(ours, n=20)[-1],
        "limit_ms": limit,
        "bare_ms": bare_ms,
        "ratio": p50 / bare_ms,
        "ratio_limit": RATIO_LIMIT,
        "ok": (limit is None or p50 <= limit) and p50 / bare_ms <= RATIO_LIMIT,
    }


class _Bare:
    """Measure the minimum cost of an answer on a file that the engine filled."""

    def __init__(self, path: Path) -> None:
        self.db = sqlite3.connect(path)
        self._namespace = self.db.execute("SELECT pk FROM lmt_namespaces").fetchone()[0]
        rows = self.db.execute("SELECT vector FROM lmt_vectors ORDER BY message_pk").fetchall()
        self._embedder = OfflineEmbedder()
        joined = np.frombuffer(b"".join(row[0] for row in rows), "<f4")
        self._matrix = joined.reshape(len(rows), self._embedder.dimension).astype(np.float32)

    def recall(self, question: str) -> list[Any]:
        words = " OR ".join(f'"{self._namespace}_{term}"' for term in dict.fromkeys(extract_terms(question)))
        found = self.db.execute(
            "SELECT rowid, bm25(lmt_messages_terms) AS s FROM lmt_messages_terms "
            "WHERE lmt_messages_terms MATCH ? ORDER BY s LIMIT 10",
            (words,),
        ).fetchall()
        cosines = self._matrix @ self._embedder.embed_query(question)
        np.argpartition(cosines, len(cosines) - HITS)[-HITS:]
        marks = ",".join("?" * len(found))
        query = f"SELECT pk, content FROM lmt_messages WHERE pk IN ({marks})"
        return self.db.execute(query, [row[0] for row in found]).fetchall()


def build_context(path: Path, messages: int) -> dict[str, Any]:
    """A turn of a long conversation: a new user message, not timed, and the context for it.

    The very first call, which compresses the session, and calls without a new message are reported separately.
    """
    with MemoryEngine(path, config=_CONFIG) as engine:
        session = engine.session("bench", "long")
        session.add_many(itertools.islice(MadeUpConversation().messages(), messages))
        engine.namespace("bench").embed()
        first, turns = _ms(session.build_context), _turns(session, None)
        again = [_ms(session.build_context) for _ in range(20)]
        small = _turns(session, TokenBudget.of(8000))
    p50, small_p50 = statistics.median(turns), statistics.median(small)
    return {
        "messages": messages,
        "p50": p50,
        "p95": statistics.quantiles(turns, n=20)[-1],
        "p50_of_8000_tokens": small_p50,
        "p50_nothing_new": statistics.median(again),
        "first": first,
        "limit": CONTEXT_MS,
        "ok": max(p50, small_p50) <= CONTEXT_MS,
    }


def _turns(session: Session, budget: TokenBudget | None) -> list[float]:
    taken = []
    for question in itertools.islice(questions(str(budget), 1_000, seed=0), 20):
        session.add("user", question)
        taken.append(_ms(functools.partial(session.build_context, budget=budget)))
    return taken


def measure_memory(path: Path, size: int) -> dict[str, Any]:
    """The most that a fresh process held, from opening the file to its last answer."""
    child = subprocess.run(  # noqa: S603 - ourselves
        [sys.executable, "-m", "benchmarks.recall_speed", str(path), str(size)],
        capture_output=True,
        text=True,
        check=True,
    )
    results: dict[str, Any] = json.loads(child.stdout)
    return {**results, "entries": size, "limit": MEMORY_MB, "ok": results["peak"] <= MEMORY_MB}


def measure_tenants(folder: Path, number: int, entries: int) -> dict[str, Any]:
    """Compare a namespace among others, written in turns with them, with the same namespace alone in a file."""
    names = [f"tenant-{n}" for n in range(number)]
    measured = names[number // 2]
    fill(folder / "many.db", names, entries)
    fill(folder / "alone.db", [measured], entries)
    taken: tuple[list[float], list[float]] = ([], [])
    found: tuple[list[list[str]], list[list[str]]] = ([], [])
    with MemoryEngine(folder / "many.db") as many, MemoryEngine(folder / "alone.db") as alone:
        for turn in range(ROUNDS + 1):
            for question in questions(measured, entries, seed=turn):
                for side, engine in enumerate((many, alone)):
                    start = time.perf_counter()
                    hits = engine.namespace(measured).recall(question, limit=HITS).hits
                    taken[side].append((time.perf_counter() - start) * 1e3)
                    found[side].append([hit.entry.id for hit in hits])
    p50, p50_alone = (statistics.median(some[QUESTIONS:]) for some in taken)  # the first round warms up
    same = found[0] == found[1]
    return {
        "namespaces": number,
        "entries_each": entries,
        "p50_ms": p50,
        "alone_ms": p50_alone,
        "ratio": p50 / p50_alone,
        "ratio_limit": TENANTS_LIMIT,
        "same_ranking": same,
        "ok": same and p50 / p50_alone <= TENANTS_LIMIT,
    }


def fill(path: Path, names: Sequence[str], entries: int) -> None:
    """So many messages in each namespace, embedded; each gets a session in turn."""
    with MemoryEngine(path, config=_CONFIG) as engine:
        for number in range(max(1, entries // PER_SESSION)):
            for name in names:
                engine.session(name, f"s{number}").add_many(make_messages(name, number))
        for name in names:
            engine.namespace(name).embed()


def questions(name: str, entries: int, seed: int) -> list[str]:
    """Each about the topic of one of the sessions, none like another."""
    rng = random.Random(f"{name} {entries} {seed}")  # noqa: S311 - repeatable on purpose
    unique: dict[str, None] = {}
    while len(unique) < QUESTIONS:
        topic = _topic(name, rng.randrange(max(1, entries // PER_SESSION)))
        words = " ".join([*rng.sample(topic, 3), _words(rng, 1)[0]])
        unique[f"What did you say about the {words}?"] = None
    return list(unique)


def make_messages(name: str, number: int) -> list[MessageDraft]:
    """The messages of one session."""
    rng = random.Random(f"{name} {number}")  # noqa: S311 - repeatable on purpose
    topic, start = _topic(name, number), _START + timedelta(hours=number)
    drafts = []
    for n in range(PER_SESSION):
        words = [*_words(rng, rng.randint(6, 24)), *rng.sample(topic, 4)]
        rng.shuffle(words)
        role, text = ("assistant", "user")[n % 2], " ".join(words).capitalize() + "."
        drafts.append(MessageDraft(role, text, id=f"{number}-{n}", created_at=start + timedelta(minutes=n)))
    return drafts


def _topic(name: str, number: int) -> list[str]:
    rng = random.Random(f"topic {name} {number}")  # noqa: S311 - repeatable on purpose
    own = [word for word in _words(rng, 200) if word not in STOP_WORDS]
    return list(dict.fromkeys(own))[:12]


def _words(rng: random.Random, count: int) -> list[str]:
    words, weights = _vocabulary()
    return rng.choices(words, cum_weights=weights, k=count)


@functools.cache
def _vocabulary() -> tuple[list[str], list[float]]:
    """8,000 words, the commonest first, and their weights added up."""
    rng = random.Random(3)  # noqa: S311 - repeatable on purpose
    syllables = [first + second for first in "bdfgklmnprstvz" for second in "aeiou"]
    made = dict.fromkeys("".join(rng.choices(syllables, k=rng.randint(2, 4))) for _ in range(12_000))
    words = [*sorted(STOP_WORDS), *(word for word in made if word not in STOP_WORDS)][:8_000]
    return words, list(itertools.accumulate(1 / rank for rank in range(1, len(words) + 1)))


def _ms(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1e3


def show(results: dict[str, Any]) -> None:
    """A table of what was measured."""
    table = Table(title="recall compared with the bare cost", caption="p50; no question is asked twice")
    for heading in ("measure", "engine", "limit", "baseline", "ratio", "limit"):
        table.add_column(heading, justify="left" if heading == "measure" else "right", no_wrap=True)
    sizes = results.get("recall", {}).items()
    rows = [(m, f"recall of {int(size):,}, ms", "p50_ms", "bare_ms") for size, m in sizes]
    if m := results.get("build_context_ms"):
        rows.append((m, f"context of {m['messages']:,}, ms", "p50", "p50_of_8000_tokens"))
    if m := results.get("memory_mb"):
        rows.append((m, f"memory of {m['entries']:,}, MB", "peak", "before"))
    if m := results.get("tenants"):
        same = "" if m["same_ranking"] else ", ranked otherwise"
        rows.append((m, f"1 of {m['namespaces']:,} x {m['entries_each']:,}{same}, ms", "p50_ms", "alone_ms"))
    for m, name, ours, baseline in rows:
        limit = m.get("limit", m.get("limit_ms"))
        baseline_text = (
            f"{baseline.removeprefix('p50_of_').removesuffix('_ms').replace('_', ' ')} {m[baseline]:.1f}"
        )
        limits = [f"{value:.3g}" if value else "" for value in (limit, m.get("ratio"), m.get("ratio_limit"))]
        cells = (name, f"{m[ours]:.1f}", limits[0], baseline_text, *limits[1:])
        table.add_row(*cells, style=None if m["ok"] else "red")
    Console().print(table)


def main() -> None:
    """The process whose memory is measured: opens the file of the first argument and recalls from it."""
    path, size = Path(sys.argv[1]), int(sys.argv[2])
    before = _peak_mb()
    with MemoryEngine(path) as engine:
        for question in questions("bench", size, seed=99):
            engine.namespace("bench").recall(question, limit=HITS)
    print(json.dumps({"peak": _peak_mb(), "before": before}))


def _peak_mb() -> float:
    # Not by getrusage(): its value for a child starts with the memory of the parent.
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


if __name__ == "__main__":
    main()
