"""Large results of tools in few words, without losing what an agent needs to go on: addresses above all."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from langmem_tiers.compression.fact_finder import FactFinder, holds, outermost
from langmem_tiers.compression.llm_fallback import CarefulModel
from langmem_tiers.compression.selection import most_that_fits
from langmem_tiers.compression.tool_output.detection import detect_content_type
from langmem_tiers.compression.tool_output.elements import gather, head_and_tail_of, material_of
from langmem_tiers.compression.tool_output.error_advice import read_error
from langmem_tiers.compression.tool_output.key_sentences import Candidate, key_lines, structured_lines
from langmem_tiers.compression.tool_output.llm_summary import ModelTold, ask_model
from langmem_tiers.compression.tool_output.models import CompressedExtraction, CompressionContentType
from langmem_tiers.compression.tool_output.urls import MAX_URLS, FoundUrls, extract_all_urls
from langmem_tiers.text.facts import FactKind
from langmem_tiers.text.sentences import shortened
from langmem_tiers.text.token_counting import ContentAwareCounter

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from langmem_tiers.common.ports import LanguageModel, TokenCounter
    from langmem_tiers.compression.fact_finder import Found
    from langmem_tiers.compression.tool_output.elements import Material
    from langmem_tiers.compression.tool_output.models import ErrorDetails
    from langmem_tiers.compression.tool_output.pages import Gathered


SUMMARY_CHARACTERS = 240
"""Of the one line."""
SNIPPET_WIDTHS = {1: (400, 300, 200), 2: (200, 150, 100), 3: (100, 80, 60)}
"""Characters of a search result's snippet for each tier, as there is room; the last is kept in any case."""
_MAX_BUTTONS = 2_000
_K = CompressionContentType


def targets_of(links: Sequence[tuple[str, str]], urls: FoundUrls) -> tuple[dict[str, str], ...]:
    """The addresses that have a name, each once, in their order."""
    known = set(urls.urls)
    named: dict[str, str] = {}
    for label, url in links:
        if url in known and label and label != url:
            named.setdefault(url, label)
    return tuple({"label": label, "url": url} for url, label in named.items())


def one_line(
    kind: CompressionContentType,
    gathered: Gathered,
    targets: Sequence[dict[str, str]],
    lines: Sequence[Candidate],
    error: ErrorDetails | None,
) -> str:
    """What the result is, in one line."""
    if error is not None:
        return shortened(f"{error.type}: {error.message}", SUMMARY_CHARACTERS)
    names = ", ".join(one["label"] for one in targets[:5])
    if kind is _K.SEARCH_RESULTS and targets:
        return shortened(f"{len(targets)} search results: {names}", SUMMARY_CHARACTERS)
    if kind is _K.FORM_DATA and gathered.fields:
        fields = ", ".join(one["name"] for one in gathered.fields[:8])
        return shortened(f"Form with {len(gathered.fields)} fields: {fields}", SUMMARY_CHARACTERS)
    if kind is _K.PAGE_STATE:
        what = f'Page "{gathered.title}"' if gathered.title else "Page"
        counts = f"{len(targets)} named links, {len(gathered.buttons)} buttons, {len(gathered.fields)} fields"
        return shortened(f"{what}: {counts}", SUMMARY_CHARACTERS)
    best = max(lines, key=lambda one: one.score, default=None)
    said = gathered.title or (best.text if best else "") or " ".join(gathered.text[:1]).strip()
    return shortened(said or "nothing to read", SUMMARY_CHARACTERS)


def bullets(
    draft: CompressedExtraction, gathered: Gathered, fits: Callable[[Sequence[str]], bool]
) -> tuple[str, ...]:
    """The lines that this kind of result must keep: snippets of search results, buttons of pages and forms."""
    if draft.content_type is _K.SEARCH_RESULTS:
        widths = SNIPPET_WIDTHS[draft.tier]
        some = [_snippets(draft, gathered, width) for width in widths]
        return next((one for one in some if fits(one)), some[-1])
    if draft.content_type in (_K.PAGE_STATE, _K.FORM_DATA):
        pressed = dict.fromkeys(gathered.buttons)
        return tuple(_button(label, selector) for label, selector in pressed)[:_MAX_BUTTONS]
    return ()


def _snippets(draft: CompressedExtraction, gathered: Gathered, width: int) -> tuple[str, ...]:
    numbered = enumerate(draft.navigation_targets, 1)
    said = ((number, gathered.snippets.get(one["url"], "")) for number, one in numbered)
    return tuple(f"[{number}] {shortened(snippet, width)}" for number, snippet in said if snippet.strip())


def _button(label: str, selector: str) -> str:
    return f"button: {label}" + (f" {selector}" if selector else "")


TIER_SHARES = {1: 0.60, 2: 0.30, 3: 0.12}
"""Of the input's tokens that a tier aims at: recent, session, archival. Addresses are kept beyond it."""
MAX_LISTED = 2_000
"""Buttons, fields and selectors that are kept of each."""
_LEAST_TOKENS = 60
_CHECKED_FACTS = 300
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


URL_CRITICAL_TOOLS = frozenset(
    {"search", "search_human", "search_api", "search_rank", "get_page_state", "get_attribute"}
)
"""Never compressed: an agent goes on from the addresses and selectors in their results."""
COMPRESSIBLE_TOOLS = frozenset(
    {"extract_text", "extract_data", "extract_structured_data", "evaluate_javascript", "get_page_content"}
)
LEAST_FACTS = {1: 5, 2: 3, 3: 1}
"""Kept although the addresses alone take all the room."""
_COUNT_WHOLE = 400_000  # characters; of a longer text parts are counted
_ASKED = frozenset({_K.TEXT_CONTENT, _K.STRUCTURED_DATA, _K.PAGE_STATE, _K.SEARCH_RESULTS})
_URLS_IN_ANY_CASE = frozenset({_K.PAGE_STATE, _K.SEARCH_RESULTS})


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
        self._model = None if model is None else CarefulModel(model, time_limit_seconds=time_limit_seconds)
        self._finder = FactFinder()

    def should_compress(self, tool_name: str, data: object) -> bool:
        """Whether a tool's result is to be compressed: it is large, and the tool is not URL-critical.

        Args:
            tool_name: The tool; one that is not known counts as compressible.
            data: What it returned.
        """
        if not self.enable_intelligent_compression or tool_name in self.url_critical_tools:
            return False
        return self._count(material_of(data).text) > self.compression_threshold_tokens

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
        job = self._read(large_data, content_type, compression_tier)
        told = self._told(job)
        draft, lines = self._draft(job, told)
        done = self._fitted(draft, lines, job)
        if told.summary and not validate_urls and job.kind not in _URLS_IN_ANY_CASE:
            text = f"{done.summary}\n" + "\n".join(done.key_facts)
            done = replace(
                done,
                urls_mentioned=[url for url in done.urls_mentioned if url in text],
                navigation_targets=tuple(one for one in done.navigation_targets if one["url"] in text),
            )
        else:
            done = self._repaired(done, job)
        done = replace(done, compressed_tokens=self.counter.count(done.format_for_prompt()))
        return replace(done, compression_confidence=confidence_of(done, job, lines))

    def _extract_all_urls(self, content: object) -> list[str]:
        """Every distinct address of a content, up to the most that are kept."""
        return list(urls_of(material_of(content)).urls)

    def _count(self, text: str) -> int:
        if len(text) <= _COUNT_WHOLE:
            return self.counter.count(text)
        part = f"{text[: _COUNT_WHOLE // 4]}{text[-_COUNT_WHOLE // 4 :]}"
        return self.counter.count(part) * len(text) // len(part)

    def _read(
        self, data: object, content_type: CompressionContentType | str | None, tier: object
    ) -> ExtractionJob:
        material = material_of(data)
        known = {one.value: one for one in CompressionContentType}
        kind = known.get(str(content_type)) if content_type is not None else None
        if kind is None:
            kind = detect_content_type(material.text if material.value is None else material.value)
        gathered = gather(material)
        prose = head_and_tail_of("\n".join(gathered.text))
        return ExtractionJob(
            material=material,
            kind=kind,
            tier=min(3, max(1, tier)) if isinstance(tier, int) else 2,
            urls=urls_of(material),
            gathered=gathered,
            prose=prose,
            places=self._finder.places(prose),
            tokens=self._count(material.text),
        )

    def _told(self, job: ExtractionJob) -> ModelTold:
        if self._model is None or job.kind not in _ASKED or not job.material.text.strip():
            return ModelTold()
        return ask_model(
            self._model,
            job.material.text,
            kind=job.kind,
            max_tokens=job.target,
            urls=job.urls.urls,
            finder=self._finder,
        )

    def _draft(self, job: ExtractionJob, told: ModelTold) -> tuple[CompressedExtraction, list[Candidate]]:
        error = read_error(job.material.value, job.material.text) if job.kind is _K.ERROR_INFO else None
        what, lines = "", key_lines(job.prose, job.places)
        if job.kind is _K.STRUCTURED_DATA and job.material.value is not None:
            what, lines = structured_lines(job.material.value)
        elif job.kind is _K.SEARCH_RESULTS and job.gathered.snippets:
            lines = []  # they say the same
        targets = targets_of(job.gathered.links, job.urls)
        summary = told.summary or what or one_line(job.kind, job.gathered, targets, lines, error)
        if told.facts:
            lines = with_model(told.facts, lines, job)
        draft = CompressedExtraction(
            summary=summary,
            urls_mentioned=list(job.urls.urls),
            navigation_targets=targets,
            form_fields=tuple(each_once(job.gathered.fields)),
            selectors=selectors_of(job),
            error=error,
            original_tokens=job.tokens,
            content_type=job.kind,
            tier=job.tier,
            urls_left_out=job.urls.left_out,
            problems=(
                *told.problems,
                *(("not all of it was read for facts",) if job.material.is_cut else ()),
            ),
        )
        return draft, lines

    def _fitted(
        self, draft: CompressedExtraction, lines: Sequence[Candidate], job: ExtractionJob
    ) -> CompressedExtraction:
        def tokens(facts: Sequence[str]) -> int:
            return self.counter.count(replace(draft, key_facts=tuple(facts)).format_for_prompt())

        kept = bullets(draft, job.gathered, lambda some: tokens(some) <= job.target)
        said = {draft.summary, *kept}
        ranked = sorted((one for one in lines if one.text not in said), key=lambda one: -one.score)

        def with_best(number: int) -> tuple[str, ...]:
            return (*kept, *(one.text for one in sorted(ranked[:number], key=lambda one: one.place)))

        number = 0
        if tokens(kept) <= job.target:
            number = most_that_fits(len(ranked), lambda n: tokens(with_best(n)) <= job.target)
        least = min(LEAST_FACTS[job.tier], len(ranked))
        if number < least and tokens(with_best(least)) < job.tokens:
            number = least
        return replace(draft, key_facts=with_best(number))

    def _repaired(self, done: CompressedExtraction, job: ExtractionJob) -> CompressedExtraction:
        is_whole, message = done.validate_url_preservation(len(job.urls.urls))
        if is_whole:
            return done
        urls = dict.fromkeys([*done.urls_mentioned, *self._extract_all_urls(job.material.source)])
        return replace(
            done, urls_mentioned=list(urls)[:MAX_URLS], problems=(*done.problems, f"{message}, put back")
        )
