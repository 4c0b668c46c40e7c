"""Compression of large tool results that keeps everything an agent needs to continue, URLs above all."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from langmem_tiers.compression.fact_finder import FactFinder, contains_fact, select_outermost
from langmem_tiers.compression.llm_fallback import BoundedModel
from langmem_tiers.compression.tool_output.detection import detect_content_type
from langmem_tiers.compression.tool_output.error_advice import read_error
from langmem_tiers.compression.tool_output.key_sentences import (
    CandidateLine,
    rank_sentences,
    rank_structured_data,
)
from langmem_tiers.compression.tool_output.llm_summary import ModelSummary, ask_model
from langmem_tiers.compression.tool_output.models import CompressedExtraction, CompressionContentType
from langmem_tiers.compression.tool_output.page_elements import (
    extract_elements,
    limit_read_text,
    to_output_content,
)
from langmem_tiers.compression.tool_output.urls import MAX_URLS, ExtractedUrls, extract_all_urls
from langmem_tiers.text.facts import FactKind
from langmem_tiers.text.sentences import find_largest_fitting, shorten_text
from langmem_tiers.text.token_counting import ContentAwareCounter

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from langmem_tiers.common.ports import LanguageModel, TokenCounter
    from langmem_tiers.compression.fact_finder import FactSpan
    from langmem_tiers.compression.tool_output.models import ErrorDetails
    from langmem_tiers.compression.tool_output.page_elements import ToolOutputContent
    from langmem_tiers.compression.tool_output.pages import ExtractedElements


MAX_SUMMARY_LINE_CHARACTERS = 240
"""Maximum length of the summary line."""
SNIPPET_CHARACTERS = {1: (400, 300, 200), 2: (200, 150, 100), 3: (100, 80, 60)}
"""Maximum snippet lengths of search results per tier; the first one that fits is used, otherwise the last."""
_MAX_BUTTONS = 2_000
_Kind = CompressionContentType


def build_navigation_targets(
    links: Sequence[tuple[str, str]], urls: ExtractedUrls
) -> tuple[dict[str, str], ...]:
    """Return the URLs that have a label, in order and without duplicates."""
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
    """Describe a tool result in one line."""
    if error is not None:
        return shorten_text(f"{error.type}: {error.message}", MAX_SUMMARY_LINE_CHARACTERS)
    names = ", ".join(target["label"] for target in targets[:5])
    if kind is _Kind.SEARCH_RESULTS and targets:
        return shorten_text(f"{len(targets)} search results: {names}", MAX_SUMMARY_LINE_CHARACTERS)
    if kind is _Kind.FORM_DATA and gathered.fields:
        fields = ", ".join(field["name"] for field in gathered.fields[:8])
        return shorten_text(f"Form with {len(gathered.fields)} fields: {fields}", MAX_SUMMARY_LINE_CHARACTERS)
    if kind is _Kind.PAGE_STATE:
        page = f'Page "{gathered.title}"' if gathered.title else "Page"
        counts = f"{len(targets)} named links, {len(gathered.buttons)} buttons, {len(gathered.fields)} fields"
        return shorten_text(f"{page}: {counts}", MAX_SUMMARY_LINE_CHARACTERS)
    best = max(lines, key=lambda line: line.score, default=None)
    text = gathered.title or (best.text if best else "") or " ".join(gathered.text[:1]).strip()
    return shorten_text(text or "nothing to read", MAX_SUMMARY_LINE_CHARACTERS)


def build_required_lines(
    draft: CompressedExtraction, gathered: ExtractedElements, fits: Callable[[Sequence[str]], bool]
) -> tuple[str, ...]:
    """Return the lines that must be kept: snippets of search results, buttons of pages and forms."""
    if draft.content_type is _Kind.SEARCH_RESULTS:
        widths = SNIPPET_CHARACTERS[draft.tier]
        candidates = [_build_snippets(draft, gathered, width) for width in widths]
        return next((lines for lines in candidates if fits(lines)), candidates[-1])
    if draft.content_type in (_Kind.PAGE_STATE, _Kind.FORM_DATA):
        buttons = dict.fromkeys(gathered.buttons)
        return tuple(_format_button(label, selector) for label, selector in buttons)[:_MAX_BUTTONS]
    return ()


def _build_snippets(draft: CompressedExtraction, gathered: ExtractedElements, width: int) -> tuple[str, ...]:
    # The numbers are those of the links in the prompt text.
    numbered = enumerate(draft.navigation_targets, 1)
    snippets = ((number, gathered.snippets.get(target["url"], "")) for number, target in numbered)
    return tuple(
        f"[{number}] {shorten_text(snippet, width)}" for number, snippet in snippets if snippet.strip()
    )


def _format_button(label: str, selector: str) -> str:
    return f"button: {label}" + (f" {selector}" if selector else "")


TIER_TOKEN_SHARES = {1: 0.60, 2: 0.30, 3: 0.12}
"""Target size of a tier, as a share of the input's tokens: recent, session, archival. URLs may exceed it."""
MAX_LISTED_ELEMENTS = 2_000
"""Maximum number of fields, and of selectors."""
_MIN_TOKENS = 60
_MAX_CHECKED_FACTS = 300
_KINDS_WITH_SELECTORS = frozenset({_Kind.PAGE_STATE, _Kind.FORM_DATA})


@dataclass(frozen=True, slots=True)
class ExtractionJob:
    """A parsed tool result with the parameters of its compression."""

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
        """Target size of the tier, in tokens."""
        return max(_MIN_TOKENS, int(self.token_count * TIER_TOKEN_SHARES[self.tier]))


def extract_output_urls(material: ToolOutputContent) -> ExtractedUrls:
    """Extract the URLs of a complete tool result."""
    try:
        return extract_all_urls(material.source)
    except Exception:  # noqa: BLE001 - reading a mapping of the caller may raise anything
        return extract_all_urls(material.text)


def deduplicate_fields(fields: list[dict[str, str]]) -> list[dict[str, str]]:
    """Return form fields without duplicates."""
    return list({tuple(field.items()): field for field in fields}.values())[:MAX_LISTED_ELEMENTS]


def collect_selectors(job: ExtractionJob) -> tuple[str, ...]:
    """Return the selectors to keep at the tier of the job."""
    if job.tier == 3 and job.kind not in _KINDS_WITH_SELECTORS:
        return ()
    found = [span.fact.text for span in job.fact_spans if span.fact.kind == FactKind.SELECTOR]
    unique = dict.fromkeys(" ".join(selector.split()) for selector in [*job.elements.selectors, *found])
    return tuple(unique)[:MAX_LISTED_ELEMENTS]


def merge_model_facts(
    facts: Sequence[str], lines: Sequence[CandidateLine], job: ExtractionJob
) -> list[CandidateLine]:
    """Return the model's lines, followed by the lines with facts that the model left out."""
    model_text = "\n".join(facts)
    lost = [
        span.fact
        for span in select_outermost(job.prose, job.fact_spans)[0]
        if not contains_fact(model_text, span.fact)
    ]
    texts = [fact.text for fact in lost[:_MAX_CHECKED_FACTS]]
    # Negative positions and high scores: the model's lines come first and are dropped last.
    model_lines = [
        CandidateLine(index - len(facts), fact, 1000.0 - index) for index, fact in enumerate(facts)
    ]
    is_data = job.kind is _Kind.STRUCTURED_DATA
    return model_lines + [line for line in lines if is_data or any(text in line.text for text in texts)]


def compute_confidence(
    done: CompressedExtraction, job: ExtractionJob, lines: Sequence[CandidateLine]
) -> float:
    """Compute the share of the important facts that the result still contains, from 0 to 1."""
    facts = list(dict.fromkeys(span.fact for span in select_outermost(job.prose, job.fact_spans)[0]))
    # A sample spread evenly over the text limits the time.
    sample = facts[:: max(1, len(facts) // _MAX_CHECKED_FACTS)][:_MAX_CHECKED_FACTS]
    text = done.format_for_prompt()
    share = sum(contains_fact(text, fact) for fact in sample) / len(sample) if sample else 1.0
    if job.kind is _Kind.STRUCTURED_DATA and lines:
        share = len({line.text for line in lines} & set(done.key_facts)) / len(lines)
    penalty = 0.1 * job.content.is_truncated + 0.1 * (done.urls_left_out > 0)
    return round(min(1.0, max(0.0, 0.4 + 0.6 * share - penalty)), 3)


URL_CRITICAL_TOOLS = frozenset(
    {"search", "search_human", "search_api", "search_rank", "get_page_state", "get_attribute"}
)
"""Tools whose results are never compressed: an agent continues with the URLs and selectors in them."""
COMPRESSIBLE_TOOLS = frozenset(
    {"extract_text", "extract_data", "extract_structured_data", "evaluate_javascript", "get_page_content"}
)
MIN_TIER_FACTS = {1: 5, 2: 3, 3: 1}
"""Minimum number of key facts per tier, kept even if the URLs alone exceed the target size."""
_MAX_FULLY_COUNTED_CHARACTERS = 400_000  # the size of a longer text is estimated from its beginning and end
_KINDS_FOR_MODEL = frozenset(
    {_Kind.TEXT_CONTENT, _Kind.STRUCTURED_DATA, _Kind.PAGE_STATE, _Kind.SEARCH_RESULTS}
)
_KINDS_KEEPING_URLS = frozenset({_Kind.PAGE_STATE, _Kind.SEARCH_RESULTS})


class ContextCompressor:
    """Compressor for tool results, with or without a language model.

    Args:
        counter: Token counter. Default: an estimate that depends on the type of content.
        model: Language model that writes summaries. If it fails, the most important sentences are used.
        compression_threshold_tokens: ``should_compress`` returns False for results up to this size. Default: 2,000.
        enable_intelligent_compression: If False, ``should_compress`` always returns False.
        url_critical_tools: Additional tools whose results are never compressed.
        compressible_tools: Additional tools whose results may be compressed.
        time_limit_seconds: Time limit for the model. Default: 30.
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
        """Return True if a tool result is large and the tool is not URL-critical.

        Args:
            tool_name: Name of the tool. Unknown tools count as compressible.
            data: Result of the tool.
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
        """Run ``compress`` in a thread, without blocking the event loop."""
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
        """Compress a tool result. Never raises, whatever the input.

        Args:
            large_data: Text, HTML, JSON, mappings, lists, or any other object, which is converted to text.
            content_type: Type of the data. Default: detected; also if the type is unknown.
            compression_tier: 1 keeps most details, 2 shortens texts, 3 keeps facts only. Other numbers are clamped.
            validate_urls: If True, URLs that a model left out are restored. URLs of page states and search results
                are always kept.
        """
        job = self._read_job(large_data, content_type, compression_tier)
        model_summary = self._ask_model(job)
        draft, lines = self._build_draft(job, model_summary)
        result = self._fit_facts(draft, lines, job)
        if model_summary.summary and not validate_urls and job.kind not in _KINDS_KEEPING_URLS:
            # Keep only the URLs that occur in the text of the model.
            text = f"{result.summary}\n" + "\n".join(result.key_facts)
            result = replace(
                result,
                urls_mentioned=[url for url in result.urls_mentioned if url in text],
                navigation_targets=tuple(
                    target for target in result.navigation_targets if target["url"] in text
                ),
            )
        else:
            result = self._restore_urls(result, job)
        result = replace(result, compressed_tokens=self.counter.count(result.format_for_prompt()))
        return replace(result, compression_confidence=compute_confidence(result, job, lines))

    def _extract_all_urls(self, content: object) -> list[str]:
        """Return the distinct URLs of a content, at most ``MAX_URLS``."""
        return list(extract_output_urls(to_output_content(content)).urls)

    def _count_tokens(self, text: str) -> int:
        if len(text) <= _MAX_FULLY_COUNTED_CHARACTERS:
            return self.counter.count(text)
        sample = f"{text[: _MAX_FULLY_COUNTED_CHARACTERS // 4]}{text[-_MAX_FULLY_COUNTED_CHARACTERS // 4 :]}"
        return self.counter.count(sample) * len(text) // len(sample)

    def _read_job(
        self, data: object, content_type: CompressionContentType | str | None, tier: object
    ) -> ExtractionJob:
        material = to_output_content(data)
        known = {content_kind.value: content_kind for content_kind in CompressionContentType}
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
        self, job: ExtractionJob, model_summary: ModelSummary
    ) -> tuple[CompressedExtraction, list[CandidateLine]]:
        error = read_error(job.content.value, job.content.text) if job.kind is _Kind.ERROR_INFO else None
        data_summary, lines = "", rank_sentences(job.prose, job.fact_spans)
        if job.kind is _Kind.STRUCTURED_DATA and job.content.value is not None:
            data_summary, lines = rank_structured_data(job.content.value)
        elif job.kind is _Kind.SEARCH_RESULTS and job.elements.snippets:
            lines = []  # the sentences would repeat the snippets
        targets = build_navigation_targets(job.elements.links, job.urls)
        summary = (
            model_summary.summary
            or data_summary
            or build_summary_line(job.kind, job.elements, targets, lines, error)
        )
        if model_summary.facts:
            lines = merge_model_facts(model_summary.facts, lines, job)
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
                *model_summary.problems,
                *(("only a part of the text was searched for facts",) if job.content.is_truncated else ()),
            ),
        )
        return draft, lines

    def _fit_facts(
        self, draft: CompressedExtraction, lines: Sequence[CandidateLine], job: ExtractionJob
    ) -> CompressedExtraction:
        def count_tokens(facts: Sequence[str]) -> int:
            return self.counter.count(replace(draft, key_facts=tuple(facts)).format_for_prompt())

        required = build_required_lines(
            draft, job.elements, lambda facts: count_tokens(facts) <= job.target_tokens
        )
        used = {draft.summary, *required}
        ranked = sorted((line for line in lines if line.text not in used), key=lambda line: -line.score)

        def add_best(count: int) -> tuple[str, ...]:
            # The best lines in their original order, after the required ones.
            best = sorted(ranked[:count], key=lambda line: line.position)
            return (*required, *(line.text for line in best))

        count = 0
        if count_tokens(required) <= job.target_tokens:
            count = find_largest_fitting(
                len(ranked), lambda n: count_tokens(add_best(n)) <= job.target_tokens
            )
        # Exceed the target rather than return no facts, but never the size of the original.
        minimum = min(MIN_TIER_FACTS[job.tier], len(ranked))
        if count < minimum and count_tokens(add_best(minimum)) < job.token_count:
            count = minimum
        return replace(draft, key_facts=add_best(count))

    def _restore_urls(self, result: CompressedExtraction, job: ExtractionJob) -> CompressedExtraction:
        is_complete, message = result.validate_url_preservation(len(job.urls.urls))
        if is_complete:
            return result
        urls = dict.fromkeys([*result.urls_mentioned, *self._extract_all_urls(job.content.source)])
        return replace(
            result, urls_mentioned=list(urls)[:MAX_URLS], problems=(*result.problems, f"{message}, restored")
        )
