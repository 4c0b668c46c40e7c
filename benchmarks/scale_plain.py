"""The baseline of ``benchmarks.scale``: a table, the driver, and nothing else.

No order in a session, no ids checked, no tokens counted, no vectors, no reasons: an INSERT that commits for each
message, a SELECT by PostgreSQL's own full text for each recall.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import psycopg

from benchmarks.scale_load import WorkerNotes, wait_until
from benchmarks.scale_texts import PER_SESSION, get_tenant_word, make_question, make_text, tenant_name

if TYPE_CHECKING:
    from benchmarks.scale_load import Load

TABLE = (
    "DROP TABLE IF EXISTS plain",
    """CREATE TABLE plain (
        id text PRIMARY KEY, tenant text NOT NULL, session text NOT NULL, role text NOT NULL, content text NOT NULL,
        created_at timestamptz NOT NULL DEFAULT now(),
        words tsvector GENERATED ALWAYS AS (to_tsvector('simple', content)) STORED)""",
    "CREATE INDEX ON plain (tenant, session, created_at)",
    "CREATE INDEX ON plain USING gin (words)",
)
INSERT = "INSERT INTO plain (id, tenant, session, role, content) VALUES (%s, %s, %s, %s, %s)"
SELECT = """SELECT tenant, content FROM plain WHERE tenant = %s AND words @@ to_tsquery('simple', %s)
    ORDER BY ts_rank(words, to_tsquery('simple', %s)) DESC LIMIT 10"""


def prepare(url: str) -> None:
    """An empty table."""
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in TABLE:
            connection.execute(statement)  # type: ignore[call-overload, unused-ignore] # statements of our own


def query_of(question: str) -> str:
    """Any of a question's words."""
    return " | ".join(question.strip("?").lower().split())


def work(load: Load, worker: int, ready: Any, steps: Any) -> None:  # noqa: ANN401 - of another process
    """One worker process."""
    notes = WorkerNotes(load, worker, steps)
    try:
        with psycopg.connect(load.url, autocommit=True) as connection:
            ready.wait(300)
            _add_and_recall(load, connection, worker, notes)
    except BaseException as error:  # noqa: BLE001 - reported as a failure of the run
        notes.crash = f"{type(error).__name__}: {error}"
    notes.end()


def _add_and_recall(load: Load, connection: psycopg.Connection[Any], worker: int, notes: WorkerNotes) -> None:
    began = time.perf_counter()
    for nth, (number, tenant, index) in enumerate(load.numbers(worker)):
        session, role = f"s{index // PER_SESSION}", ("user", "assistant")[index % 2]
        row = (f"m{number}", tenant_name(tenant), session, role, make_text(tenant, index))
        start = wait_until(began + load.due(worker, nth) if load.rate else 0.0)
        connection.execute(INSERT, row)
        notes.record_added(number, (time.perf_counter() - start) * 1e3)
        for _ in range(load.recalls_after(number)):
            query = query_of(make_question(tenant, index // PER_SESSION + 1, number))
            start = time.perf_counter()
            found = connection.execute(SELECT, (tenant_name(tenant), query, query)).fetchall()
            notes.recall_ms.append((time.perf_counter() - start) * 1e3)
            notes.wrong_tenant += sum(get_tenant_word(tenant) not in content for _, content in found)
