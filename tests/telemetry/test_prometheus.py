"""Metrics of engines in a real registry, scraped by Prometheus."""

from __future__ import annotations

import gc
import re
import subprocess
import sys
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import REGISTRY, CollectorRegistry, Counter, generate_latest

from benchmarks.servers import TemporaryRedis
from langmem_tiers import (
    InvalidConfigError,
    MemoryEngine,
    MessageConflictError,
    MessageDraft,
    MissingExtraError,
    RedisConfig,
)
from langmem_tiers.errors import InvalidInputError
from langmem_tiers.telemetry.instruments import Instruments, Operation
from langmem_tiers.telemetry.prometheus import METRIC_NAMES, PrometheusMetrics
from langmem_tiers.testing import FrozenClock
from tests.telemetry.sample_workload import EMBEDDER, SECRETS, SMALL, do_everything, read_sample, read_samples
from tests.waiting import LIMIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

SEED_NAMES = {
    "memory.episodic.count": "gauge",
    "memory.semantic.count": "gauge",
    "memory.storage.bytes": "gauge",
    "memory.store.duration": "histogram",
    "memory.retrieve.duration": "histogram",
    "memory.retrieve.hit_rate": "gauge",
    "memory.summarization.runs": "counter",
    "memory.summarization.tokens_saved": "counter",
    "memory.redis.connected": "gauge",
    "memory.postgres.pool.active": "gauge",
}


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.mark.parametrize("backend", ["postgresql"])
def test_every_documented_metric_has_its_type_and_a_sample(url: str, registry: CollectorRegistry) -> None:
    with (
        TemporaryRedis() as server,
        MemoryEngine(
            url,
            config=replace(SMALL, redis=RedisConfig(url=server.url, timeout_seconds=LIMIT_SECONDS)),
            embedder=EMBEDDER,
            metrics=PrometheusMetrics(registry),
        ) as engine,
    ):
        do_everything(engine)
        text = generate_latest(registry).decode()
        for seed, kind in SEED_NAMES.items():
            ours = METRIC_NAMES[seed]
            assert ours.startswith(seed.replace(".", "_"))
            assert f"# TYPE {ours} {kind}\n" in text
            assert re.search(rf'^{ours}(_bucket)?{{engine="main"', text, re.MULTILINE), ours
        assert read_sample(registry, "memory_redis_connected") == 1
        server.kill()
        assert engine.figures().redis_connected is False
    assert set(METRIC_NAMES) - set(SEED_NAMES) == {"memory.errors", "memory.store.messages"}


def test_operations_are_counted(url: str, registry: CollectorRegistry) -> None:
    with MemoryEngine(url, config=SMALL, embedder=EMBEDDER, metrics=PrometheusMetrics(registry)) as engine:
        do_everything(engine)
        assert read_sample(registry, "memory_store_duration_seconds_count") == 60
        assert read_sample(registry, "memory_store_messages_total") == 60
        recalls = read_sample(registry, "memory_retrieve_duration_seconds_count")
        assert recalls is not None
        assert recalls >= 3
        assert read_sample(registry, "memory_retrieve_hit_rate") == 1
        assert (read_sample(registry, "memory_summarization_runs_total") or 0) >= 2
        assert (read_sample(registry, "memory_summarization_tokens_saved_total") or 0) > 100
        assert (read_sample(registry, "memory_storage_bytes") or 0) > 10_000
        engine.namespace("tenant-8231").delete()


@pytest.mark.parametrize("backend", ["sqlite-memory", "sqlite-file"])
def test_the_counts_on_sqlite_are_exact(url: str, registry: CollectorRegistry) -> None:
    with MemoryEngine(url, metrics=PrometheusMetrics(registry)) as engine:
        engine.session("a", "s").add_many(MessageDraft("user", f"{n}") for n in range(7))
        engine.session("b", "s").add("user", "one")
        engine.namespace("a").knowledge.store("tool", "editor", "vim")
        assert read_sample(registry, "memory_episodic_count") == 8
        assert read_sample(registry, "memory_semantic_count") == 1
        assert read_sample(registry, "memory_postgres_pool_active") is None
        assert read_sample(registry, "memory_redis_connected") is None


def test_the_counts_on_postgres_are_server_estimates(
    new_postgres_database: Callable[[], str], registry: CollectorRegistry
) -> None:
    from sqlalchemy import create_engine, text

    url = new_postgres_database()
    with MemoryEngine(url, metrics=PrometheusMetrics(registry, cache_seconds=0.001)) as engine:
        engine.session("a", "s").add_many(MessageDraft("user", f"{n}") for n in range(500))
        assert engine.figures().messages is not None
        admin = create_engine(
            url.replace("postgresql://", "postgresql+psycopg://"), isolation_level="AUTOCOMMIT"
        )
        with admin.connect() as connection:
            connection.execute(text("ANALYZE lmt_messages"))
        admin.dispose()
        assert engine.figures().messages == 500
        assert read_sample(registry, "memory_episodic_count") == 500
        assert read_sample(registry, "memory_postgres_pool_active") is not None


@pytest.mark.parametrize("backend", ["postgresql"])
def test_connections_in_use_are_reported_when_none_is_free(url: str, registry: CollectorRegistry) -> None:
    from langmem_tiers import EngineConfig

    metrics = PrometheusMetrics(registry, cache_seconds=0.0001)
    with MemoryEngine(
        url, config=EngineConfig(pool_size=2, busy_timeout_seconds=30), metrics=metrics
    ) as engine:
        before = read_sample(registry, "memory_episodic_count")
        with engine._database.read(), engine._database.read():
            assert read_sample(registry, "memory_postgres_pool_active") == 2
            assert read_sample(registry, "memory_episodic_count") == before  # as it last was
        assert read_sample(registry, "memory_postgres_pool_active") == 0


def test_a_scrape_queries_the_database_at_most_every_few_seconds(registry: CollectorRegistry) -> None:
    clock = FrozenClock()
    with MemoryEngine(metrics=PrometheusMetrics(registry, cache_seconds=10, clock=clock)) as engine:
        session = engine.session("a", "s")
        assert read_sample(registry, "memory_episodic_count") == 0
        session.add("user", "one")
        clock.advance(seconds=9)
        assert read_sample(registry, "memory_episodic_count") == 0
        clock.advance(seconds=1)
        assert read_sample(registry, "memory_episodic_count") == 1


def test_the_hit_rate_is_that_of_the_latest_recalls(registry: CollectorRegistry) -> None:
    with MemoryEngine(embedder=None, metrics=PrometheusMetrics(registry, hit_window=4)) as engine:
        assert read_sample(registry, "memory_retrieve_hit_rate") is None
        engine.session("a", "s").add("user", "The walrus swims.")
        space = engine.namespace("a")
        rates = []
        for query in ("walrus", "zebra", "walrus", "walrus", "walrus", "walrus"):
            space.recall(query, strategy="words")
            rates.append(read_sample(registry, "memory_retrieve_hit_rate"))
        assert rates == [1, 1 / 2, 2 / 3, 3 / 4, 3 / 4, 1]


def test_errors_are_counted_by_operation_and_class(registry: CollectorRegistry) -> None:
    with MemoryEngine(metrics=PrometheusMetrics(registry)) as engine:
        session = engine.session("a", "s")
        session.add(MessageDraft("user", "one", id="x"))
        with pytest.raises(MessageConflictError):
            session.add(MessageDraft("user", "two", id="x"))
        with pytest.raises(InvalidInputError):
            engine.namespace("a").build_context(3)  # type: ignore[arg-type]
        assert (
            read_sample(registry, "memory_errors_total", operation="memory.add", kind="MessageConflictError")
            == 1
        )
        assert (
            read_sample(
                registry, "memory_errors_total", operation="memory.build_context", kind="InvalidInputError"
            )
            == 1
        )
        assert read_sample(registry, "memory_store_duration_seconds_count") == 2


def test_foreign_errors_are_counted_as_other(registry: CollectorRegistry) -> None:
    metrics = PrometheusMetrics(registry)
    metrics.attach(lambda: None)
    with pytest.raises(ZeroDivisionError), Instruments(metrics, None, lambda: 0.0).measure(Operation.ADD):
        _ = 1 / 0
    samples = [sample for family in metrics._collector.errors.collect() for sample in family.samples]
    errors = [sample for sample in samples if sample.name.endswith("_total")]
    assert [(sample.labels["kind"], sample.value) for sample in errors] == [("other", 1)]


def test_several_engines_share_a_registry_and_a_closed_one_is_removed(registry: CollectorRegistry) -> None:
    metrics = PrometheusMetrics(registry, engine="orders")
    with MemoryEngine(metrics=metrics) as first:
        second = MemoryEngine(metrics=metrics.of("returns"))
        first.session("a", "s").add("user", "one")
        for _ in range(2):
            second.session("a", "s").add("user", "two")
        second.session("a", "s").add(MessageDraft("user", "three", id="x"))
        with pytest.raises(MessageConflictError):
            second.session("a", "s").add(MessageDraft("user", "four", id="x"))
        assert read_sample(registry, "memory_store_messages_total", engine="orders") == 1
        assert read_sample(registry, "memory_store_messages_total", engine="returns") == 3
        assert read_sample(registry, "memory_episodic_count", engine="returns") == 3
        text = generate_latest(registry).decode()
        assert len(re.findall("^# TYPE memory_episodic_count ", text, re.MULTILINE)) == 1
        second.close()
        second.close()
        assert {dict(labels)["engine"] for _, labels in read_samples(registry)} == {"orders"}
    assert generate_latest(registry) == b""
    with MemoryEngine(metrics=PrometheusMetrics(registry)) as again:
        again.session("a", "s").add("user", "three")
        assert read_sample(registry, "memory_store_messages_total") == 1


@pytest.mark.soak
def test_a_garbage_collected_engine_is_removed_too(registry: CollectorRegistry) -> None:
    engine = MemoryEngine(metrics=PrometheusMetrics(registry, cache_seconds=0.0001))
    engine.session("a", "s").add("user", "one")
    assert generate_latest(registry)
    del engine
    gc.collect()
    generate_latest(registry)
    assert generate_latest(registry) == b""


def test_two_engines_with_one_name_are_refused_and_the_first_continues(registry: CollectorRegistry) -> None:
    metrics = PrometheusMetrics(registry)
    with MemoryEngine(metrics=metrics) as engine:
        for wrong in (metrics, metrics.of("main"), PrometheusMetrics(registry, engine="other")):
            with pytest.raises(InvalidConfigError, match="metrics.of"):
                MemoryEngine(metrics=wrong)
        engine.session("a", "s").add("user", "one")
        assert read_sample(registry, "memory_store_messages_total") == 1


def test_a_registry_with_an_existing_metric_name_is_refused(registry: CollectorRegistry) -> None:
    Counter("memory_errors", "of somebody else", registry=registry)
    with pytest.raises(InvalidConfigError, match="one PrometheusMetrics per registry"):
        MemoryEngine(metrics=PrometheusMetrics(registry))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"registry": None}, "CollectorRegistry"),
        ({"engine": ""}, "label"),
        ({"hit_window": 0}, "hit_window"),
        ({"cache_seconds": -1}, "cache_seconds"),
    ],
)
def test_invalid_settings_are_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidConfigError, match=said):
        PrometheusMetrics(**{"registry": CollectorRegistry(), **wrong})


@pytest.mark.parametrize("part", ["metrics", "tracer"])
def test_an_invalid_instrument_is_refused(part: str) -> None:
    wrong: Any = {part: CollectorRegistry()}
    with pytest.raises(InvalidConfigError, match=part):
        MemoryEngine(**wrong)


def test_metrics_contain_neither_texts_nor_names_and_skip_the_global_registry(
    url: str, registry: CollectorRegistry
) -> None:
    with MemoryEngine(url, config=SMALL, metrics=PrometheusMetrics(registry)) as engine:
        do_everything(engine)
        session = engine.session("tenant-8231", "session-5512")
        session.add(MessageDraft("user", "one", id="walrus-id"))
        with pytest.raises(MessageConflictError, match="walrus-id"):
            session.add(MessageDraft("user", "two", id="walrus-id"))
        text = generate_latest(registry).decode()
        assert not [secret for secret in SECRETS if secret.lower() in text.lower()]
        assert b"memory_episodic" not in generate_latest(REGISTRY)
        engine.namespace("tenant-8231").delete()


@pytest.mark.soak
def test_scraping_during_engine_starts_and_stops_does_not_fail(registry: CollectorRegistry) -> None:
    metrics, stop, failures = PrometheusMetrics(registry, cache_seconds=0.0001), threading.Event(), []

    def scrape() -> None:
        try:
            while not stop.is_set():
                generate_latest(registry)
        except BaseException as error:  # noqa: BLE001 - told below
            failures.append(error)

    scrapers = [threading.Thread(target=scrape) for _ in range(2)]
    for scraper in scrapers:
        scraper.start()
    for number in range(15):
        with MemoryEngine(metrics=metrics.of(f"e{number}")) as engine:
            engine.session("a", "s").add("user", "one")
    stop.set()
    for scraper in scrapers:
        scraper.join()
    assert failures == []


LOOK = """
import sys
import langmem_tiers, langmem_tiers.telemetry.prometheus, langmem_tiers.telemetry.opentelemetry
with langmem_tiers.MemoryEngine() as engine:
    engine.session("a", "s").add("user", "hello")
    engine.namespace("a").recall("hello")
print([name for name in sys.modules if name.split(".")[0] in ("prometheus_client", "opentelemetry")])
"""
BARE = """
import sys
sys.modules["prometheus_client"] = sys.modules["opentelemetry"] = sys.modules["opentelemetry.trace"] = None
from langmem_tiers.telemetry.prometheus import PrometheusMetrics
from langmem_tiers.telemetry.opentelemetry import OpenTelemetryTracer
for make in (PrometheusMetrics, OpenTelemetryTracer):
    try:
        make(None)
    except ImportError as error:
        print(type(error).__name__, error)
"""


def _run_and_print(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout


@pytest.mark.soak
def test_unused_packages_are_not_imported() -> None:
    assert _run_and_print(LOOK) == "[]\n"


@pytest.mark.soak
def test_a_missing_package_is_named_with_the_command_that_installs_it() -> None:
    first, second = _run_and_print(BARE).splitlines()
    assert MissingExtraError.__name__ in first
    assert "pip install 'langmem-tiers[metrics]'" in first
    assert "pip install 'langmem-tiers[tracing]'" in second
