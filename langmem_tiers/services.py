"""Repositories and workers of an engine, shared by its sessions and namespaces."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from weakref import WeakSet

from langmem_tiers.chunks.service import Chunks
from langmem_tiers.common.leases import Lease
from langmem_tiers.episodes.service import Episodes
from langmem_tiers.facts.service import Facts
from langmem_tiers.knowledge.service import KnowledgeBase
from langmem_tiers.long_term.service import LongTerm
from langmem_tiers.sessions.batch_writer import list_writers
from langmem_tiers.sessions.compression_plan import Planner
from langmem_tiers.tuning.models import TuningParameters, TuningState

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from langmem_tiers.common.budget import TokenBudget
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.common.ports import TokenCounter
    from langmem_tiers.compression.summarizer import Summarizer
    from langmem_tiers.config import EngineConfig
    from langmem_tiers.episodes.patterns import MomentPattern
    from langmem_tiers.erasure.models import Eraser
    from langmem_tiers.erasure.repository import ErasureRepository
    from langmem_tiers.facts.extraction import FactExtractor
    from langmem_tiers.facts.llm_extraction import LlmFactExtractor
    from langmem_tiers.knowledge.repository import KnowledgeRepository
    from langmem_tiers.long_term.dependencies import LongTermDependencies
    from langmem_tiers.maintenance.repository import MaintenanceRepository
    from langmem_tiers.pools.repository import PoolRepository
    from langmem_tiers.recall.retriever import Retriever
    from langmem_tiers.sessions.analysis import Analyzer
    from langmem_tiers.sessions.batch_writer import BatchWriter
    from langmem_tiers.sessions.cache import ViewCache
    from langmem_tiers.sessions.models import StoredView
    from langmem_tiers.sessions.override_repository import OverrideRepository
    from langmem_tiers.sessions.service import SessionDependencies, SessionRecord
    from langmem_tiers.telemetry.instruments import Instruments
    from langmem_tiers.tuning.repository import TuningRepository
    from langmem_tiers.working_memory.service import WorkingMemories


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineServices:
    """Repositories, workers and configuration behind every session and namespace.

    Sessions and namespaces are created for every access, so they receive one object. Functions that work across
    features, such as erasure and context building, take it as well. Everything else takes what it needs.
    """

    short_term: SessionDependencies
    entries: OverrideRepository
    views: ViewCache
    knowledge: KnowledgeRepository
    tuning: TuningRepository
    analyzer: Analyzer
    summarizer: Summarizer
    retriever: Retriever
    long_term: LongTermDependencies
    pools: PoolRepository
    fact_extractor: FactExtractor
    llm_fact_extractor: LlmFactExtractor | None
    moment_patterns: Sequence[MomentPattern]
    working: WorkingMemories
    config: EngineConfig
    erasure: ErasureRepository
    maintenance_store: MaintenanceRepository
    writers: WeakSet[BatchWriter] = field(default_factory=WeakSet)
    """Batch writers created by the engine that are still referenced somewhere."""
    erasers: list[Eraser] = field(default_factory=list)
    """Callbacks for copies that row deletion does not reach; each receives the erased ids and erases its copies."""

    @property
    def counter(self) -> TokenCounter:
        """Token counter of the engine."""
        return self.short_term.counter

    @property
    def instruments(self) -> Instruments:
        """Metrics and traces of the engine."""
        return self.short_term.instruments

    def with_budget(self, budget: TokenBudget) -> EngineServices:
        """Return a copy with another token budget."""
        return replace(self, config=replace(self.config, budget=budget))

    def now(self) -> datetime:
        """Return the current time in UTC."""
        return self.short_term.now()

    def get_knowledge(self, namespace: NamespacePath) -> KnowledgeBase:
        """Return the knowledge base of a namespace."""
        return KnowledgeBase(self.knowledge, namespace, self.now)

    def get_long_term(self, namespace: NamespacePath) -> LongTerm:
        """Return the long-term entries of a namespace."""
        return LongTerm(self.long_term, self.entries, namespace)

    def get_facts(self, namespace: NamespacePath) -> Facts:
        """Return the extracted facts of a namespace."""
        return Facts(self.long_term, self.get_long_term(namespace), namespace)

    def get_episodes(self, namespace: NamespacePath) -> Episodes:
        """Return the episodes of a namespace."""
        return Episodes(self.long_term, self.short_term.sessions, self.config.learning, namespace)

    def get_chunks(self, session: SessionRecord) -> Chunks:
        """Return the chunks of a session."""
        return Chunks(
            self.long_term,
            self.summarizer,
            self.config.learning,
            namespace=session.namespace,
            session=session.name,
            key=session.key,
        )

    def get_planner(self, view: StoredView, parameters: TuningParameters) -> Planner:
        """Return the planner of compressions for the view of a session."""
        return Planner(
            view,
            parameters,
            dependencies=self.short_term,
            analyzer=self.analyzer,
            summarizer=self.summarizer,
            config=self.config,
        )

    def flush(self, namespace: NamespacePath | None = None, session: str | None = None) -> None:
        """Store the pending messages of writers and working memories, and pending access counts.

        Args:
            namespace: Flush only the working memories of this namespace. Default: all.
            session: Flush only the working memory of this session. Default: all.

        Raises:
            StorageError: Some data could not be stored. It stays pending.
        """
        # The stack runs in reverse order, and continues if a step fails: writers, working memories, access counts.
        with ExitStack() as stack:
            stack.callback(self.long_term.access_counter.flush)
            stack.callback(self.working.flush, namespace, session)
            for writer in list_writers(self.writers):
                stack.callback(writer.flush)

    def get_lease(self, name: str, seconds: float | None = None) -> Lease:
        """Return a lease. Default duration: the optimizer's ``lease_seconds``."""
        duration = self.config.optimizer.lease_seconds if seconds is None else seconds
        return Lease(self.tuning, self.now, name, duration)

    def load_parameters(self, namespace: NamespacePath) -> TuningParameters:
        """Return the tuned parameters of a namespace, or the settings of the budget if it was never tuned."""
        return self.load_tuning_state(namespace).parameters

    def load_tuning_state(self, namespace: NamespacePath) -> TuningState:
        """Return the optimizer's state for a namespace; the target usage always comes from the budget."""
        state = self.tuning.load(namespace)
        if state is None:
            return TuningState(parameters=self.build_initial_parameters())
        # The stored target may come from another budget: the user sets it, the optimizer does not tune it.
        target = self.config.budget.target_usage
        return replace(state, parameters=replace(state.parameters, target_usage=target))

    def build_initial_parameters(self) -> TuningParameters:
        """Return the settings of the budget, from which tuning starts."""
        budget = self.config.budget
        return TuningParameters(
            compression_trigger=budget.compression_trigger,
            full_message_window=budget.full_message_window,
            target_usage=budget.target_usage,
        )
