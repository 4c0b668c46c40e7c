"""Facts of contexts: extraction from the history, and search."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, cast

from langmem_tiers.common.lru_cache import SizedLruCache
from langmem_tiers.common.prompt_fences import strip_fences
from langmem_tiers.compression.fact_finder import FactFinder
from langmem_tiers.config import EmbeddingConfig, check_limit
from langmem_tiers.errors import EmbeddingError, InvalidInputError
from langmem_tiers.recall.embedders.embedding import EmbeddingClient
from langmem_tiers.recall.item_records import IndexedItem
from langmem_tiers.sessions.redundancy import find_redundant
from langmem_tiers.text.facts import FactKind, find_key_facts
from langmem_tiers.text.tokenize import extract_terms

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from langmem_tiers.common.clock import Clock
    from langmem_tiers.common.ports import Embedder
    from langmem_tiers.context_files.models import ContextData, HistoryEntry
    from langmem_tiers.recall.vector_repository import VectorRepository


# A sentence of bounded length. Punctuation within a word, as in "1.2" or "example.com", does not end it. The escapes
# are the Chinese full stop, exclamation mark and question mark.
_SENTENCE = re.compile(
    r"[^\n.!?\u3002\uff01\uff1f]{1,400}(?:[.!?](?=\S)[^\n.!?\u3002\uff01\uff1f]{0,200}){0,20}[.!?\u3002\uff01\uff1f]?"
)
_KINDS = frozenset(
    {
        FactKind.DECISION,
        FactKind.EMAIL,
        FactKind.IP_ADDRESS,
        FactKind.MONEY,
        FactKind.PATH,
        FactKind.PERSONAL,
        FactKind.URL,
        FactKind.VERSION,
    }
)
_KEY_FACTS = frozenset({"url", "api", "selector"})
# Name of the key fact that find_key_facts() reports for passwords and keys.
_SECRET = "credential"
_MAX_FACT_CHARACTERS, _MIN_FACT_CHARACTERS = 300, 8
_MAX_FACTS_PER_ENTRY = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class FactsReport:
    """Result of a fact extraction."""

    context: ContextData
    """The context with the added facts."""
    added: tuple[str, ...]
    known: int
    """Number of facts that were left out because the context or an earlier sentence already contains them."""


def extract_facts(
    context: ContextData, *, since: float | None = None, finder: FactFinder | None = None
) -> FactsReport:
    """Add facts from the history to a copy of the context: decisions, preferences, addresses, amounts.

    A fact is a complete, unchanged sentence. Questions, tool results, system messages and sentences with a password
    or a key are skipped. Sentences that differ in a number, a name or a negation are different facts.

    Args:
        context: The context to search. It is not changed.
        since: Search only entries after this time, in seconds since 1970. Default: all entries.
        finder: Recognizes facts. Default: `FactFinder()`.
    """
    finder = FactFinder() if finder is None else finder
    entries = [entry for entry in context.recent_history if since is None or entry.timestamp > since]
    found = list(dict.fromkeys(fact for entry in entries for fact in _find_facts(entry, finder)))
    # find_redundant() keeps the last of several equivalent texts. Reverse the new facts and append the present ones,
    # so that a present fact wins over a new one, and the first of the new ones over later ones.
    redundant = find_redundant([*reversed(found), *context.facts])
    new = tuple(fact for index, fact in enumerate(found) if len(found) - 1 - index not in redundant)
    return FactsReport(
        context=replace(context, facts=(*context.facts, *new)), added=new, known=len(found) - len(new)
    )


def _find_facts(entry: HistoryEntry, finder: FactFinder) -> Iterator[str]:
    if entry.role.lower() in {"tool", "function", "system"}:
        return
    count = 0
    for match in _SENTENCE.finditer(strip_fences(entry.content)):
        sentence = " ".join(match[0].split()).strip("-*•>#| ")
        if _is_fact(sentence, finder):
            yield sentence
            count += 1
        if count >= _MAX_FACTS_PER_ENTRY:
            return


def _is_fact(sentence: str, finder: FactFinder) -> bool:
    if not _MIN_FACT_CHARACTERS <= len(sentence) <= _MAX_FACT_CHARACTERS or sentence.endswith(
        ("?", "\uff1f")
    ):
        return False
    keys = find_key_facts(sentence)
    if _SECRET in keys:
        return False
    return not _KEY_FACTS.isdisjoint(keys) or any(fact.kind in _KINDS for fact in finder.find(sentence))


MIN_FACT_SCORE = 0.03
"""Minimum score of a search result. Facts below it are unrelated to the text."""
_MAX_CACHED_VECTORS = 20_000
# The item index needs a time; facts have none, so all get the same.
_FIXED_TIME = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class FactHit:
    """A fact that matches a text."""

    fact: str
    score: float
    """Relevance, at most 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FactHits:
    """Facts that match a text, best first."""

    hits: tuple[FactHit, ...]
    problems: tuple[str, ...] = ()
    """Reasons why vectors were not used."""


class _InMemoryVectors:
    """The part of ``VectorRepository`` that an `EmbeddingClient` calls, without a database."""

    def __init__(self) -> None:
        self._vectors: SizedLruCache[bytes] = SizedLruCache(_MAX_CACHED_VECTORS)

    def register_model(self, *_: object, **__: object) -> int:
        return 1

    def get_cached_vectors(self, _: int, hashes: Sequence[bytes], __: datetime) -> Mapping[bytes, bytes]:
        found = ((text_hash, self._vectors.get(text_hash)) for text_hash in hashes)
        return {text_hash: vector for text_hash, vector in found if vector is not None}

    def insert_cached_vectors(
        self, _: int, vectors: Mapping[bytes, bytes], *__: object, **___: object
    ) -> None:
        for text_hash, vector in vectors.items():
            self._vectors.put(text_hash, vector)


class FactSearch:
    """Ranks facts like items. Each fact is embedded once, and its vector is cached in memory.

    Args:
        embedder: Embeds texts. None ranks by words only.
        clock: Source of the current time.
        config: Settings of the embedder. Default: `EmbeddingConfig()`.
    """

    def __init__(
        self, embedder: Embedder | None, clock: Clock, config: EmbeddingConfig | None = None
    ) -> None:
        self._embedding = (
            None
            if embedder is None
            else EmbeddingClient(
                embedder,
                cast("VectorRepository", _InMemoryVectors()),
                EmbeddingConfig() if config is None else config,
                clock,
            )
        )
        self._vectors: SizedLruCache[bytes] = SizedLruCache(_MAX_CACHED_VECTORS)

    def find(
        self, facts: Sequence[str], text: str, *, limit: int = 5, min_score: float = MIN_FACT_SCORE
    ) -> FactHits:
        """Return the facts that match a text, best first.

        Args:
            facts: The facts to search.
            text: A question or keywords.
            limit: Maximum number of results. Default: 5.
            min_score: Minimum score of a result.
        """
        from langmem_tiers.recall.item_index import ItemSearchIndex  # noqa: PLC0415 - loads numpy

        check_limit(limit)
        if not isinstance(text, str):
            raise InvalidInputError(f"text must be a string, got {type(text).__name__}: use a str")
        unique = list(dict.fromkeys(facts))
        vector, problems = self._embed(unique, text)
        index = ItemSearchIndex()
        if vector is not None:
            index.use_model(1, len(vector))
        # Numbers start at 1 because they serve as primary keys of the index; ``pk - 1`` below leads back.
        for number, fact in enumerate(unique, 1):
            fact_vector = None if vector is None else self._vectors.get(fact)
            texts = ((" ".join(extract_terms(fact)), fact_vector),)
            index.put(IndexedItem(number, 1, number, _FIXED_TIME, texts))
        share = None if self._embedding is None else self._embedding.share
        ranked = index.rank(extract_terms(text), vector, share).get_slice(0, limit)
        hits = tuple(FactHit(unique[item.pk - 1], item.score or 0.0) for item in ranked)
        return FactHits(hits=tuple(hit for hit in hits if hit.score >= min_score), problems=problems)

    def _embed(self, facts: Sequence[str], text: str) -> tuple[NDArray[np.float32] | None, tuple[str, ...]]:
        if self._embedding is None or not facts:
            return None, ()
        try:
            new = [fact for fact in facts if self._vectors.get(fact) is None]
            result = self._embedding.embed_documents(new)
            for index in result.embedded_numbers:
                self._vectors.put(new[index], result.vectors[index].astype("<f4").tobytes())
            return self._embedding.embed_query(text), ()
        except EmbeddingError as error:
            # The search continues with words only; the caller sees the reason in ``problems``.
            return None, (str(error),)
