"""One result of a tool as it is compressed: what was read of it, and what is told from that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from langmem_tiers.compression.extraction_facts import Candidate
from langmem_tiers.compression.extraction_types import CompressionContentType
from langmem_tiers.compression.extraction_urls import FoundUrls, extract_all_urls
from langmem_tiers.compression.facts import holds, outermost
from langmem_tiers.scoring.facts import FactKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langmem_tiers.compression.extraction_gather import Material
    from langmem_tiers.compression.extraction_lines import Gathered
    from langmem_tiers.compression.extraction_types import CompressedExtraction
    from langmem_tiers.compression.facts import Found

TIER_SHARES = {1: 0.60, 2: 0.30, 3: 0.12}
"""Of the input's tokens that a tier aims at: recent, session, archival. Addresses are kept beyond it."""
MAX_LISTED = 2_000
"""Buttons, fields and selectors that are kept of each."""
_LEAST_TOKENS = 60
_CHECKED_FACTS = 300
_K = CompressionContentType
_WITH_SELECTORS = frozenset({_K.PAGE_STATE, _K.FORM_DATA})


@dataclass(frozen=True, slots=True)
class ExtractionJob:
    """One result of a tool, read."""

    material: Material
    kind: CompressionContentType
    tier: int
    urls: FoundUrls
    gathered: Gathered
    prose: str
    places: list[Found]
    tokens: int

    @property
    def target(self) -> int:
        """The tokens that its tier aims at."""
        return max(_LEAST_TOKENS, int(self.tokens * TIER_SHARES[self.tier]))


def urls_of(material: Material) -> FoundUrls:
    """The addresses of all of a result."""
    try:
        return extract_all_urls(material.source)
    except Exception:  # noqa: BLE001 - a mapping of the caller's may raise anything as it is read
        return extract_all_urls(material.text)


def each_once(some: list[dict[str, str]]) -> list[dict[str, str]]:
    """Fields, each once."""
    return list({tuple(one.items()): one for one in some}.values())[:MAX_LISTED]


def selectors_of(job: ExtractionJob) -> tuple[str, ...]:
    """The selectors that its tier keeps."""
    if job.tier == 3 and job.kind not in _WITH_SELECTORS:
        return ()
    found = [one.fact.text for one in job.places if one.fact.kind == FactKind.SELECTOR]
    every = dict.fromkeys(" ".join(one.split()) for one in [*job.gathered.selectors, *found])
    return tuple(every)[:MAX_LISTED]


def with_model(facts: Sequence[str], lines: Sequence[Candidate], job: ExtractionJob) -> list[Candidate]:
    """The model's lines, and behind them those with facts that it lost."""
    told = "\n".join(facts)
    lost = [one.fact for one in outermost(job.prose, job.places)[0] if not holds(told, one.fact)]
    texts = [one.text for one in lost[:_CHECKED_FACTS]]
    own = [Candidate(index - len(facts), fact, 1000.0 - index) for index, fact in enumerate(facts)]
    is_data = job.kind is _K.STRUCTURED_DATA
    return own + [line for line in lines if is_data or any(text in line.text for text in texts)]


def confidence_of(done: CompressedExtraction, job: ExtractionJob, lines: Sequence[Candidate]) -> float:
    """How much of what could be told to matter is still there, 0 to 1."""
    facts = list(dict.fromkeys(one.fact for one in outermost(job.prose, job.places)[0]))
    sample = facts[:: max(1, len(facts) // _CHECKED_FACTS)][:_CHECKED_FACTS]
    text = done.format_for_prompt()
    share = sum(holds(text, fact) for fact in sample) / len(sample) if sample else 1.0
    if job.kind is _K.STRUCTURED_DATA and lines:
        share = len({one.text for one in lines} & set(done.key_facts)) / len(lines)
    lowered = 0.1 * job.material.is_cut + 0.1 * (done.urls_left_out > 0)
    return round(min(1.0, max(0.0, 0.4 + 0.6 * share - lowered)), 3)
