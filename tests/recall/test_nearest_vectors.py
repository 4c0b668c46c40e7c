"""The nearest vectors of one tenant among many on pgvector."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np
import psycopg
import pytest

from langmem_tiers import (
    EngineConfig,
    MemoryEngine,
    MessageDraft,
    PostgresConfig,
    RecallFilters,
    Strategy,
)
from langmem_tiers.config import Durability, VectorScan
from langmem_tiers.recall.records import VectorSearchFilter
from langmem_tiers.testing import HashEmbedder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from langmem_tiers.recall.vector_repository import VectorRepository
    from tests.shared_servers import PostgresDatabases

START = datetime(2025, 1, 1, tzinfo=UTC)
TENANTS, EACH, FEW, SIZE, IN_SESSIONS = 200, 30, 4, 32, 50
# The index is asked whenever it can hope to find enough.
BY_INDEX = PostgresConfig(exact_numbers=0, max_scan_tuples=20_000)
# Among so few the server would rather sort them.
WITHOUT_SORTING = "&options=-c%20enable_sort%3Doff"

# All tests share the same tenants, which take seconds to create.
pytestmark = [pytest.mark.soak, pytest.mark.xdist_group("nearest")]


@pytest.fixture(scope="module")
def many_tenants(postgres_databases: PostgresDatabases) -> Iterator[str]:
    """200 tenants with 30 messages each, one of them in three sessions; the last has four messages."""
    url = postgres_databases.create()
    config = EngineConfig(durability=Durability.NORMAL, postgres=PostgresConfig(exact_numbers=0))
    with MemoryEngine(url, embedder=HashEmbedder(SIZE), config=config) as engine:
        for tenant in range(TENANTS):
            drafts = [_draft(tenant, number) for number in range(EACH if tenant < TENANTS - 1 else FEW)]
            parts = 3 if tenant == IN_SESSIONS else 1
            for part in range(parts):
                engine.session(f"t{tenant}", f"s{part}").add_many(drafts[part::parts])
            engine.namespace(f"t{tenant}").embed()
    yield url
    postgres_databases.drop(url)


def _draft(tenant: int, number: int) -> MessageDraft:
    text = f"w{(tenant * 7 + number * 13) % 97} v{number} u{tenant % 11}"
    return MessageDraft("user", text, created_at=START + timedelta(hours=number))


class Searching:
    """The vectors of a tenant, by index or one by one."""

    def __init__(self, engine: MemoryEngine, tenant: str) -> None:
        embedding = engine.services.retriever.embedding
        assert embedding is not None
        self.store: VectorRepository = embedding.store
        self.model = embedding.get_model_key()
        refreshed = engine.services.retriever.index.load_changes((tenant,), 0)
        assert refreshed.tenant is not None
        self.key, self.rows = refreshed.tenant.key, refreshed.rows
        _, self.table = self.store.get_vectors(self.model, self.rows.keys.tolist())

    def nearest(
        self, query: NDArray[np.float32], limit: int, within: VectorSearchFilter | None = None
    ) -> list[int]:
        found = self.store.find_nearest(
            self.key, self.model, query, limit, within or VectorSearchFilter(len(self.rows.keys))
        )
        assert found is not None
        assert (np.diff(found[1]) <= 1e-6).all()
        return [int(key) for key in found[0]]


QUERY = HashEmbedder(SIZE).embed_query("w5 v3 u7")


@pytest.fixture(params=["index", "one by one", "index that gives up"])
def engine(request: pytest.FixtureRequest, many_tenants: str) -> Iterator[MemoryEngine]:
    config = {
        "index": BY_INDEX,
        "one by one": PostgresConfig(),
        "index that gives up": PostgresConfig(
            exact_numbers=0, max_scan_tuples=40, ef_search=10, vector_scan=VectorScan.STRICT
        ),
    }[request.param]
    with psycopg.connect(many_tenants, autocommit=True) as connection:
        if (
            request.param == "index that gives up"
        ):  # it hopes for more, because it does not know how many there are
            connection.execute("UPDATE pg_class SET reltuples = -1 WHERE relname LIKE 'lmt_vectors_hnsw%'")
        else:
            connection.execute("ANALYZE lmt_vectors")
    url = many_tenants if request.param == "one by one" else many_tenants + WITHOUT_SORTING
    with MemoryEngine(url, embedder=HashEmbedder(SIZE), config=EngineConfig(postgres=config)) as opened:
        yield opened


def test_a_tenant_finds_its_k_among_two_hundred(engine: MemoryEngine) -> None:
    for tenant in ("t0", "t77", "t198"):
        searching = Searching(engine, tenant)
        found = searching.nearest(QUERY, 10)
        assert len(found) == 10
        assert set(found) <= set(searching.rows.keys.tolist())


def test_a_tenant_with_few_rows_finds_all_of_them(engine: MemoryEngine) -> None:
    searching = Searching(engine, f"t{TENANTS - 1}")
    assert sorted(searching.nearest(QUERY, 10)) == searching.rows.keys.tolist()


def test_a_filtered_search_reads_only_its_session_and_time_range(engine: MemoryEngine) -> None:
    searching = Searching(engine, f"t{IN_SESSIONS}")
    rows = searching.rows
    session = int(rows.sessions[-1])
    of_session = set(rows.keys[rows.sessions == session].tolist())
    within = VectorSearchFilter(len(rows.keys), sessions=(session,))
    assert set(searching.nearest(QUERY, 5, within)) < of_session
    assert set(searching.nearest(QUERY, 20, within)) == of_session
    late = VectorSearchFilter(
        len(rows.keys), since=START + timedelta(hours=7), until=START + timedelta(hours=9)
    )
    hours = (rows.times - int(START.timestamp() * 1e6)) // int(3.6e9)
    assert set(searching.nearest(QUERY, 20, late)) == set(rows.keys[(hours >= 7) & (hours < 9)].tolist())
    assert searching.nearest(QUERY, 20, VectorSearchFilter(len(rows.keys), sessions=())) == []


def test_the_order_is_that_of_the_cosines(engine: MemoryEngine) -> None:
    searching = Searching(engine, "t9")
    best = np.sort(searching.table @ QUERY)[::-1][:5]
    found = searching.nearest(QUERY, 5)
    keys = searching.rows.keys.tolist()
    cosines = np.array([float(searching.table[keys.index(key)] @ QUERY) for key in found])
    assert cosines[0] == pytest.approx(best[0], abs=1e-3)
    # The index is made by chance in part, and may miss one that it would find another time.
    may_miss = engine.config.postgres.exact_numbers == 0
    assert np.count_nonzero(np.abs(cosines - best) > 1e-3) <= int(may_miss)


@pytest.mark.parametrize(("exact_numbers", "is_asked"), [(0, True), (EACH * SIZE, False)])
def test_the_index_is_used_only_for_a_large_namespace(
    many_tenants: str, exact_numbers: int, *, is_asked: bool
) -> None:
    postgres = PostgresConfig(exact_numbers=exact_numbers)
    with psycopg.connect(many_tenants, autocommit=True) as connection:
        connection.execute("ANALYZE lmt_vectors")
        before = _scans(connection)
        with MemoryEngine(
            many_tenants + WITHOUT_SORTING,
            embedder=HashEmbedder(SIZE),
            config=EngineConfig(postgres=postgres),
        ) as engine:
            Searching(engine, "t3").nearest(QUERY, 10)
            with engine._database.read() as own:
                own.exec_driver_sql("SELECT pg_stat_force_next_flush()")
        assert (_scans(connection) > before) == is_asked


def _scans(connection: psycopg.Connection[tuple[object, ...]]) -> int:
    row = connection.execute(
        "SELECT sum(idx_scan) FROM pg_stat_user_indexes WHERE indexrelname LIKE 'lmt_vectors_hnsw%'"
    ).fetchone()
    assert row is not None
    return int(str(row[0]))


def test_recall_within_a_session_or_a_time_finds_messages_hidden_by_better_ones(
    shared_postgres: str, tenant: str
) -> None:
    with MemoryEngine(shared_postgres, embedder=HashEmbedder(SIZE)) as engine:
        for part in range(5):  # the first four hold nothing but what is asked for
            texts = ("red boat" if part < 4 else f"red thing {n}" for n in range(600))
            engine.session(tenant, f"s{part}").add_many(
                MessageDraft("user", text, created_at=START + timedelta(days=part)) for text in texts
            )
        engine.namespace(tenant).embed()

        def recall(filters: RecallFilters) -> set[str | None]:
            found = engine.namespace(tenant).recall(
                "red boat", limit=5, strategy=Strategy.SIMILARITY, filters=filters
            )
            assert len(found.hits) == 5
            return {hit.entry.session for hit in found.hits}

        assert recall(RecallFilters(sessions={"s4"})) == {"s4"}
        assert recall(RecallFilters(since=START + timedelta(days=4))) == {"s4"}
        assert recall(RecallFilters(sessions={"s1", "s2", "s3", "s4"}, since=START + timedelta(days=1))) <= {
            "s1",
            "s2",
            "s3",
        }


def test_an_index_over_all_vectors_from_before_is_replaced(
    new_postgres_database: Callable[[], str],
) -> None:
    url = new_postgres_database()
    with MemoryEngine(url, embedder=HashEmbedder(SIZE)) as engine:
        engine.session("acme", "s").add("user", "a red boat")
        engine.namespace("acme").embed()
    with psycopg.connect(url, autocommit=True) as connection:
        found = connection.execute("SELECT indexdef FROM pg_indexes WHERE indexname LIKE 'lmt_vectors_hnsw%'")
        ((definition,),) = found.fetchall()
        connection.execute("ALTER TABLE lmt_vectors DROP COLUMN is_indexed CASCADE")  # and its indexes
        connection.execute(definition.replace(" AND is_indexed", ""))
        with MemoryEngine(url, embedder=HashEmbedder(SIZE)) as engine:
            assert engine.namespace("acme").recall("boat", strategy=Strategy.SIMILARITY).hits
        found = connection.execute("SELECT indexdef FROM pg_indexes WHERE indexname LIKE 'lmt_vectors_hnsw%'")
        assert found.fetchall() == [(definition,)]
