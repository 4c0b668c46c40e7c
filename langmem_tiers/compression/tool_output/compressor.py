"""Large results of tools in few words, without losing what an agent needs to go on: addresses above all."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from langmem_tiers.compression.fact_finder import FactFinder, contains_fact, select_outermost
from langmem_tiers.compression.llm_fallback import BoundedModel
from langmem_tiers.compression.selection import find_largest_fitting
from langmem_tiers.compression.tool_output.detection import detect_content_type
from langmem_tiers.compression.tool_output.elements import (
    extract_elements,
    limit_read_text,
    to_output_content,
)
from langmem_tiers.compression.tool_output.error_advice import read_error
from langmem_tiers.compression.tool_output.key_sentences import (
    CandidateLine,
    rank_sentences,
    rank_structured_data,
)
from langmem_tiers.compression.tool_output.llm_summary import ModelSummary, ask_model
from langmem_tiers.compression.tool_output.models import CompressedExtraction, CompressionContentType
from langmem_tiers.compression.tool_output.urls import MAX_URLS, ExtractedUrls, extract_all_urls
from langmem_tiers.text.facts import FactKind
from langmem_tiers.text.sentences import shorten_text
from langmem_tiers.text.token_counting import ContentAwareCounter

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from langmem_tiers.common.ports import LanguageModel, TokenCounter
    from langmem_tiers.compression.fact_finder import FactSpan
    from langmem_tiers.compression.tool_output.elements import ToolOutputContent
    from langmem_tiers.compression.tool_output.models import ErrorDetails
    from langmem_tiers.compression.tool_output.pages import ExtractedElements


MAX_SUMMARY_LINE_CHARACTERS = 240
"""Of the one line."""
SNIPPET_CHARACTERS = {1: (400, 300, 200), 2: (200, 150, 100), 3: (100, 80, 60)}
"""Characters of a search result's snippet for each tier, as there is room; the last is kept in any case."""
_MAX_BUTTONS = 2_000
_Kind = CompressionContentType


def build_navigation_targets(
    links: Sequence[tuple[str, str]], urls: ExtractedUrls
) -> tuple[dict[str, str], ...]:
    """The addresses that have a name, each once, in their order."""
    known = set(urls.urls)
    named: dict[str, str] = {}
    for label, url in links:
        if url in known and label and label != url:
            named.setdefault(url, label)
    return tuple({"label": label, "url": url} for url, label in named.items())


def build_summary_line(
    kind: CompressionContentType,
    gathered: ExtractedElements,
    targets: Sequence[dict[str, str]],
    lines: Sequence[CandidateLine],
    error: ErrorDetails | None,
) -> str:
    """What the result is, in one line."""
    if error is not None:
        return shorten_text(f"{error.type}: {error.message}", MAX_SUMMARY_LINE_CHARACTERS)
    names = ", ".join(one["label"] for one in targets[:5])
    if kind is _Kind.SEARCH_RESULTS and targets:
        return shorten_text(f"{len(targets)} search results: {names}", MAX_SUMMARY_LINE_CHARACTERS)
    if kind is _Kind.FORM_DATA and gathered.fields:
        fields = ", ".join(one["name"] for one in gathered.fields[:8])
        return shorten_text(f"Form with {len(gathered.fields)} fields: {fields}", MAX_SUMMARY_LINE_CHARACTERS)
    if kind is _Kind.PAGE_STATE:
        what = f'Page "{gathered.title}"' if gathered.title else "Page"
        counts = f"{len(targets)} named links, {len(gathered.buttons)} buttons, {len(gathered.fields)} fields"
        return shorten_text(f"{what}: {counts}", MAX_SUMMARY_LINE_CHARACTERS)
    best = max(lines, key=lambda one: one.score, default=None)
    said = gathered.title or (best.text if best else "") or " ".join(gathered.text[:1]).strip()
    return shorten_text(said or "nothing to read", MAX_SUMMARY_LINE_CHARACTERS)


def build_required_lines(
    draft: CompressedExtraction, gathered: ExtractedElements, fits: Callable[[Sequence[str]], bool]
) -> tuple[str, ...]:
    """The lines that this kind of result must keep: snippets of search results, buttons of pages and forms."""
    if draft.content_type is _Kind.SEARCH_RESULTS:
        widths = SNIPPET_CHARACTERS[draft.tier]
        some = [_build_snippets(draft, gathered, width) for width in widths]
        return next((one for one in some if fits(one)), some[-1])
    if draft.content_type in (_Kind.PAGE_STATE, _Kind.FORM_DATA):
        pressed = dict.fromkeys(gathered.buttons)
        return tuple(_format_button(label, selector) for label, selector in pressed)[:_MAX_BUTTONS]
    return ()


def _build_snippets(draft: CompressedExtraction, gathered: ExtractedElements, width: int) -> tuple[str, ...]:
    numbered = enumerate(draft.navigation_targets, 1)
    said = ((number, gathered.snippets.get(one["url"], "")) for number, one in numbered)
    return tuple(f"[{number}] {shorten_text(snippet, width)}" for number, snippet in said if snippet.strip())


def _format_button(label: str, selector: str) -> str:
    return f"button: {label}" + (f" {selector}" if selector else "")


TIER_TOKEN_SHARES = {1: 0.60, 2: 0.30, 3: 0.12}
"""Of the input's tokens that a tier aims at: recent, session, archival. Addresses are kept beyond it."""
MAX_LISTED_ELEMENTS = 2_000
"""Buttons, fields and selectors that are kept of each."""
_MIN_TOKENS = 60
_MAX_CHECKED_FACTS = 300
_KINDS_WITH_SELECTORS = frozenset({_Kind.PAGE_STATE, _Kind.FORM_DATA})


@dataclass(frozen=True, slots=True)
class ExtractionJob:
    """One result of a tool, read."""

    content: ToolOutputContent
    kind: CompressionContentType
    tier: int
    urls: ExtractedUrls
    elements: ExtractedElements
    prose: str
    fact_spans: list[FactSpan]
    token_count: int

    @property
    def target_tokens(self) -> int:
        """The tokens that its tier aims at."""
        return max(_MIN_TOKENS, int(self.token_count * TIER_TOKEN_SHARES[self.tier]))


def extract_output_urls(material: ToolOutputContent) -> ExtractedUrls:
    """The addresses of all of a result."""
    try:
        return extract_all_urls(material.source)
    except Exception:  # noqa: BLE001 - a mapping of the caller's may raise anything as it is read
        return extract_all_urls(material.text)


def deduplicate_fields(some: list[dict[str, str]]) -> list[dict[str, str]]:
    """Fields, each once."""
    return list({tuple(one.items()): one for one in some}.values())[:MAX_LISTED_ELEMENTS]


def collect_selectors(job: ExtractionJob) -> tuple[str, ...]:
    """The selectors that its tier keeps."""
    if job.tier == 3 and job.kind not in _KINDS_WITH_SELECTORS:
        return ()
    found = [one.fact.text for one in job.fact_spans if one.fact.kind == FactKind.SELECTOR]
    every = dict.fromkeys(" ".join(one.split()) for one in [*job.elements.selectors, *found])
    return tuple(every)[:MAX_LISTED_ELEMENTS]


def merge_model_facts(
    facts: Sequence[str], lines: Sequence[CandidateLine], job: ExtractionJob
) -> list[CandidateLine]:
    """The model's lines, and behind them those with facts that it lost."""
    told = "\n".join(facts)
    lost = [
        one.fact
        for one in select_outermost(job.prose, job.fact_spans)[0]
        if not contains_fact(told, one.fact)
    ]
    texts = [one.text for one in lost[:_MAX_CHECKED_FACTS]]
    own = [CandidateLine(index - len(facts), fact, 1000.0 - index) for index, fact in enumerate(facts)]
    is_data = job.kind is _Kind.STRUCTURED_DATA
    return own + [line for line in lines if is_data or any(text in line.text for text in texts)]


def compute_confidence(
    done: CompressedExtraction, job: ExtractionJob, lines: Sequence[CandidateLine]
) -> float:
    """How much of what could be told to matter is still there, 0 to 1."""
    facts = list(dict.fromkeys(one.fact for one in select_outermost(job.prose, job.fact_spans)[0]))
    sample = facts[:: max(1, len(facts) // _MAX_CHECKED_FACTS)][:_MAX_CHECKED_FACTS]
    text = done.format_for_prompt()
    share = sum(contains_fact(text, fact) for fact in sample) / len(sample) if sample else 1.0
    if job.kind is _Kind.STRUCTURED_DATA and lines:
        share = len({one.text for one in lines} & set(done.key_facts)) / len(lines)
    lowered = 0.1 * job.content.is_truncated + 0.1 * (done.urls_left_out > 0)
    return round(min(1.0, max(0.0, 0.4 + 0.6 * share - lowered)), 3)


URL_CRITICAL_TOOLS = frozenset(
    {"search", "search_human", "search_api", "search_rank", "get_page_state", "get_attribute"}
)
"""Never compressed: an agent goes on from the addresses and selectors in their results."""
COMPRESSIBLE_TOOLS = frozenset(
    {"extract_text", "extract_data", "extract_structured_data", "evaluate_javascript", "get_page_content"}
)
MIN_TIER_FACTS = {1: 5, 2: 3, 3: 1}
"""Kept although the addresses alone take all the room."""
_MAX_FULLY_COUNTED_CHARACTERS = 400_000  # characters; of a longer text parts are counted
_KINDS_FOR_MODEL = frozenset(
    {_Kind.TEXT_CONTENT, _Kind.STRUCTURED_DATA, _Kind.PAGE_STATE, _Kind.SEARCH_RESULTS}
)
_KINDS_KEEPING_URLS = frozenset({_Kind.PAGE_STATE, _Kind.SEARCH_RESULTS})


class ContextCompressor:
    """Compresses the results of tools, by itself or with a language model.

    Args:
        counter: Counts tokens; by content if left out.
        model: Writes summaries. It may fail: then the sentences that say most take its place.
        compression_threshold_tokens: Up to this size nothing is compressed by itself.
        enable_intelligent_compression: Whether `should_compress` ever says yes.
        url_critical_tools: Further tools whose results are never compressed.
        compressible_tools: Further tools whose results are.
        time_limit_seconds: How long the model is waited for.
    """

    def __init__(
        self,
        counter: TokenCounter | None = None,
        model: LanguageModel | None = None,
        *,
        compression_threshold_tokens: int = 2000,
        enable_intelligent_compression: bool = True,
        url_critical_tools: Collection[str] = (),
        compressible_tools: Collection[str] = (),
        time_limit_seconds: float = 30.0,
    ) -> None:
        self.counter = ContentAwareCounter() if counter is None else counter
        self.compression_threshold_tokens = compression_threshold_tokens
        self.enable_intelligent_compression = enable_intelligent_compression
        self.url_critical_tools = URL_CRITICAL_TOOLS | frozenset(url_critical_tools)
        self.compressible_tools = COMPRESSIBLE_TOOLS | frozenset(compressible_tools)
        self._model = None if model is None else BoundedModel(model, time_limit_seconds=time_limit_seconds)
        self._finder = FactFinder()

    def should_compress(self, tool_name: str, data: object) -> bool:
        """Whether a tool's result is to be compressed: it is large, and the tool is not URL-critical.

        Args:
            tool_name: The tool; one that is not known counts as compressible.
            data: What it returned.
        """
        if not self.enable_intelligent_compression or tool_name in self.url_critical_tools:
            return False
        return self._count_tokens(to_output_content(data).text) > self.compression_threshold_tokens

    async def compress_extraction(
        self,
        large_data: object,
        content_type: CompressionContentType | str | None = None,
        compression_tier: int = 2,
        validate_urls: bool = True,  # noqa: FBT001, FBT002 - as in the design
    ) -> CompressedExtraction:
        """As `compress`, without holding up the event loop."""
        return await asyncio.to_thread(
            self.compress, large_data, content_type, compression_tier, validate_urls
        )

    def compress(
        self,
        large_data: object,
        content_type: CompressionContentType | str | None = None,
        compression_tier: int = 2,
        validate_urls: bool = True,  # noqa: FBT001, FBT002 - as in the design
    ) -> CompressedExtraction:
        """A tool's result in few words. No input makes it raise.

        Args:
            large_data: A text, HTML, JSON, data or anything else, which counts as its text.
            content_type: What it is; found by itself if left out or not known.
            compression_tier: 1 keeps most detail, 2 shortens texts, 3 keeps facts only; other numbers count as
                the nearest of them.
            validate_urls: Whether addresses that a model left out of a text are put back. Those of page
                states and search results always are.
        """
        job = self._read_job(large_data, content_type, compression_tier)
        told = self._ask_model(job)
        draft, lines = self._build_draft(job, told)
        done = self._fit_facts(draft, lines, job)
        if told.summary and not validate_urls and job.kind not in _KINDS_KEEPING_URLS:
            text = f"{done.summary}\n" + "\n".join(done.key_facts)
            done = replace(
                done,
                urls_mentioned=[url for url in done.urls_mentioned if url in text],
                navigation_targets=tuple(one for one in done.navigation_targets if one["url"] in text),
            )
        else:
            done = self._restore_urls(done, job)
        done = replace(done, compressed_tokens=self.counter.count(done.format_for_prompt()))
        return replace(done, compression_confidence=compute_confidence(done, job, lines))

    def _extract_all_urls(self, content: object) -> list[str]:
        """Every distinct address of a content, up to the most that are kept."""
        return list(extract_output_urls(to_output_content(content)).urls)

    def _count_tokens(self, text: str) -> int:
        if len(text) <= _MAX_FULLY_COUNTED_CHARACTERS:
            return self.counter.count(text)
        part = f"{text[: _MAX_FULLY_COUNTED_CHARACTERS // 4]}{text[-_MAX_FULLY_COUNTED_CHARACTERS // 4 :]}"
        return self.counter.count(part) * len(text) // len(part)

    def _read_job(
        self, data: object, content_type: CompressionContentType | str | None, tier: object
    ) -> ExtractionJob:
        material = to_output_content(data)
        known = {one.value: one for one in CompressionContentType}
        kind = known.get(str(content_type)) if content_type is not None else None
        if kind is None:
            kind = detect_content_type(material.text if material.value is None else material.value)
        gathered = extract_elements(material)
        prose = limit_read_text("\n".join(gathered.text))
        return ExtractionJob(
            content=material,
            kind=kind,
            tier=min(3, max(1, tier)) if isinstance(tier, int) else 2,
            urls=extract_output_urls(material),
            elements=gathered,
            prose=prose,
            fact_spans=self._finder.find_spans(prose),
            token_count=self._count_tokens(material.text),
        )

    def _ask_model(self, job: ExtractionJob) -> ModelSummary:
        if self._model is None or job.kind not in _KINDS_FOR_MODEL or not job.content.text.strip():
            return ModelSummary()
        return ask_model(
            self._model,
            job.content.text,
            kind=job.kind,
            max_tokens=job.target_tokens,
            urls=job.urls.urls,
            finder=self._finder,
        )

    def _build_draft(
        self, job: ExtractionJob, told: ModelSummary
    ) -> tuple[CompressedExtraction, list[CandidateLine]]:
        error = read_error(job.content.value, job.content.text) if job.kind is _Kind.ERROR_INFO else None
        what, lines = "", rank_sentences(job.prose, job.fact_spans)
        if job.kind is _Kind.STRUCTURED_DATA and job.content.value is not None:
            what, lines = rank_structured_data(job.content.value)
        elif job.kind is _Kind.SEARCH_RESULTS and job.elements.snippets:
            lines = []  # they say the same
        targets = build_navigation_targets(job.elements.links, job.urls)
        summary = told.summary or what or build_summary_line(job.kind, job.elements, targets, lines, error)
        if told.facts:
            lines = merge_model_facts(told.facts, lines, job)
        draft = CompressedExtraction(
            summary=summary,
            urls_mentioned=list(job.urls.urls),
            navigation_targets=targets,
            form_fields=tuple(deduplicate_fields(job.elements.fields)),
            selectors=collect_selectors(job),
            error=error,
            original_tokens=job.token_count,
            content_type=job.kind,
            tier=job.tier,
            urls_left_out=job.urls.left_out_count,
            problems=(
                *told.problems,
                *(("not all of it was read for facts",) if job.content.is_truncated else ()),
            ),
        )
        return draft, lines

    def _fit_facts(
        self, draft: CompressedExtraction, lines: Sequence[CandidateLine], job: ExtractionJob
    ) -> CompressedExtraction:
        def tokens(facts: Sequence[str]) -> int:
            return self.counter.count(replace(draft, key_facts=tuple(facts)).format_for_prompt())

        kept = build_required_lines(draft, job.elements, lambda some: tokens(some) <= job.target_tokens)
        said = {draft.summary, *kept}
        ranked = sorted((one for one in lines if one.text not in said), key=lambda one: -one.score)

        def with_best(number: int) -> tuple[str, ...]:
            return (*kept, *(one.text for one in sorted(ranked[:number], key=lambda one: one.position)))

        number = 0
        if tokens(kept) <= job.target_tokens:
            number = find_largest_fitting(len(ranked), lambda n: tokens(with_best(n)) <= job.target_tokens)
        least = min(MIN_TIER_FACTS[job.tier], len(ranked))
        if number < least and tokens(with_best(least)) < job.token_count:
            number = least
        return replace(draft, key_facts=with_best(number))

    def _restore_urls(self, done: CompressedExtraction, job: ExtractionJob) -> CompressedExtraction:
        is_whole, message = done.validate_url_preservation(len(job.urls.urls))
        if is_whole:
            return done
        urls = dict.fromkeys([*done.urls_mentioned, *self._extract_all_urls(job.content.source)])
        return replace(
            done, urls_mentioned=list(urls)[:MAX_URLS], problems=(*done.problems, f"{message}, put back")
        )
