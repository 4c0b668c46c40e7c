"""A workload for the tests of metrics and traces: every instrumented operation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from langmem_tiers import EngineConfig, TokenBudget
from langmem_tiers.testing import HashEmbedder

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from langmem_tiers import MemoryEngine

SECRETS = ("walrus", "Ottilie", "tenant-8231", "session-5512")
"""Words of texts and names that must be in no metric and no span."""
SMALL = EngineConfig(budget=TokenBudget.of(900))
EMBEDDER = HashEmbedder()


def do_everything(engine: MemoryEngine, tenant: str = "tenant-8231") -> None:
    """Add, recall, build contexts, summarise, optimise and embed."""
    session = engine.session(tenant, "session-5512")
    for number in range(60):
        session.add(
            "user", f"Ottilie tells of walrus {number}: it swam {number} miles to port {number + 8000}."
        )
    space = engine.namespace(tenant)
    space.recall("Where did the walrus swim?")
    space.build_context("How far did the walrus swim?")
    session.build_context("Who tells of the walrus?")
    engine.summarize(session.messages())
    engine.optimizer.run(tenant)
    space.embed()


def read_samples(registry: CollectorRegistry) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """The samples that Prometheus would read, by name and labels."""
    text = generate_latest(registry).decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def read_sample(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    """One sample, if it is there."""
    wanted = {"engine": "main", **labels}
    return read_samples(registry).get((name, tuple(sorted(wanted.items()))))
