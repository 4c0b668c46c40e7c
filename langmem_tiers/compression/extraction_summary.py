"""The line that says what a result is, and the lines that are kept whatever the room."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langmem_tiers.compression.extraction_types import CompressedExtraction, CompressionContentType
from langmem_tiers.scoring.sentences import shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from langmem_tiers.compression.extraction_facts import Candidate
    from langmem_tiers.compression.extraction_lines import Gathered
    from langmem_tiers.compression.extraction_types import ErrorDetails
    from langmem_tiers.compression.extraction_urls import FoundUrls

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
