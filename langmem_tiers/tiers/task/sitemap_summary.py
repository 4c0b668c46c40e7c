"""A site map told in lines for a prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langmem_tiers.scoring.web_addresses import is_document
from langmem_tiers.tiers.task.sitemap_pages import LinkType, SitemapLimits, SitemapPage, clean

if TYPE_CHECKING:
    from collections.abc import Iterator

_NAME_CHARACTERS, _SUMMARY_CHARACTERS, _ADDRESS_CHARACTERS = 100, 200, 300
_SHOWN_PAGES = 10
"""Of each reason why pages were not visited."""


def why_not(page: SitemapPage, limits: SitemapLimits, *, is_full: bool) -> str:
    """Why a page was not visited; ``still to visit`` if nothing speaks against it."""
    if page.failure:
        return "failed"
    if page.order > 0 and limits.stay_on_site and page.link_type == LinkType.EXTERNAL:
        return "on other sites"
    if page.order > 0 and is_document(page.url):
        return "files"
    if page.depth > limits.max_depth:
        return f"more than {limits.max_depth} links from the homepage"
    return f"beyond the limit of {limits.max_pages} pages" if is_full else "still to visit"


def written_summary(
    pages: tuple[SitemapPage, ...], limits: SitemapLimits, *, is_full: bool, most: int
) -> str:
    """A site told in lines; whole lines up to so many characters.

    Args:
        pages: In the order of discovery.
        limits: Of the exploration.
        is_full: Whether as many pages were visited as may be.
        most: Characters.
    """
    visited = [page for page in pages if page.is_visited]
    reasons: dict[str, list[SitemapPage]] = {}
    for page in pages:
        if not page.is_visited:
            reasons.setdefault(why_not(page, limits, is_full=is_full), []).append(page)
    lines = [f"Site: {_address(pages[0])}", f"Pages visited: {len(visited)} of {len(pages)} known"]
    if reasons:
        lines.append("Not visited: " + ", ".join(f"{len(some)} {why}" for why, some in reasons.items()))
    lines += _tree(visited, pages)
    for why, some in reasons.items():
        lines += ["", f"Not visited, {why}:", *(_left_out(page) for page in some[:_SHOWN_PAGES])]
        lines += [f"  ... and {len(some) - _SHOWN_PAGES} more"] if len(some) > _SHOWN_PAGES else []
    return _whole_lines(lines, most)


def _tree(visited: list[SitemapPage], pages: tuple[SitemapPage, ...]) -> Iterator[str]:
    """Each visited page below the nearest visited one on its way from the homepage."""
    by_url = {page.url: page for page in pages}
    below: dict[str | None, list[SitemapPage]] = {}
    for page in visited:
        above = page.parent
        while above is not None and not by_url[above].is_visited:
            above = by_url[above].parent
        below.setdefault(above, []).append(page)
    waiting = [(page, 0) for page in reversed(below.get(None, []))]
    if waiting:
        yield from ("", "Visited:")
    while waiting:
        page, level = waiting.pop()
        yield "  " * level + _told(page)
        waiting += [(child, level + 1) for child in reversed(below.get(page.url, []))]


def _told(page: SitemapPage) -> str:
    name = clean(page.title or page.link_text, _NAME_CHARACTERS)
    sections = f" [{page.section_count} sections]" if page.section_count else ""
    summary = f": {clean(page.summary, _SUMMARY_CHARACTERS)}" if page.summary else ""
    where = f"{name} ({_address(page)})" if name else _address(page)
    return f"- {where}{sections}{summary}"


def _left_out(page: SitemapPage) -> str:
    why = f": {page.failure}" if page.failure else f" ({page.link_text})" if page.link_text else ""
    return f"  - {_address(page)}{why}"


def _address(page: SitemapPage) -> str:
    return page.url if len(page.url) <= _ADDRESS_CHARACTERS else page.url[:_ADDRESS_CHARACTERS] + "..."


def _whole_lines(lines: list[str], most: int) -> str:
    text = "\n".join(lines)
    if len(text) <= most:
        return text
    mark = "\n..."
    end = text.rfind("\n", 0, max(0, most - len(mark) + 1))
    return text[:end].rstrip("\n") + mark if end > 0 else ""
