"""A site as an agent explores it: which pages there are, which were visited, which comes next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, Any, Self

from langmem_tiers.common.checks import check_whole
from langmem_tiers.display.displayable import NotebookDisplayable, build_table
from langmem_tiers.display.tables import MAX_TABLE_ROWS, DisplayContent
from langmem_tiers.errors import InvalidInputError
from langmem_tiers.tasks.sitemap_graph import (
    PageGraph,
    PageNode,
    check_timestamp,
    make_damaged_error,
    node_to_dict,
    parse_page_graph,
)
from langmem_tiers.tasks.sitemap_pages import (
    MAX_LINK_TEXT_CHARACTERS,
    MAX_PAGE_SUMMARY_CHARACTERS,
    MAX_PAGE_TITLE_CHARACTERS,
    MAX_QUOTED_VALUE_CHARACTERS,
    LinkReport,
    LinkType,
    SitemapLimits,
    SitemapPage,
    clean_page_text,
    format_value_for_error,
    parse_links,
    to_link_type,
)
from langmem_tiers.text.urls import is_document, is_folder, normalize_url, to_folder_url

if TYPE_CHECKING:
    from collections.abc import Iterator


_MAX_NAME_CHARACTERS, _MAX_SUMMARY_CHARACTERS, _MAX_ADDRESS_CHARACTERS = 100, 200, 300
_MAX_SHOWN_PAGES = 10
"""Of each reason why pages were not visited."""


def explain_not_visited(page: SitemapPage, limits: SitemapLimits, *, is_full: bool) -> str:
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


def format_site_summary(
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
            reasons.setdefault(explain_not_visited(page, limits, is_full=is_full), []).append(page)
    lines = [f"Site: {_shorten_address(pages[0])}", f"Pages visited: {len(visited)} of {len(pages)} known"]
    if reasons:
        lines.append("Not visited: " + ", ".join(f"{len(some)} {why}" for why, some in reasons.items()))
    lines += _format_tree(visited, pages)
    for why, some in reasons.items():
        lines += ["", f"Not visited, {why}:", *(_format_unvisited(page) for page in some[:_MAX_SHOWN_PAGES])]
        lines += [f"  ... and {len(some) - _MAX_SHOWN_PAGES} more"] if len(some) > _MAX_SHOWN_PAGES else []
    return _cut_to_whole_lines(lines, most)


def _format_tree(visited: list[SitemapPage], pages: tuple[SitemapPage, ...]) -> Iterator[str]:
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
        yield "  " * level + _format_page(page)
        waiting += [(child, level + 1) for child in reversed(below.get(page.url, []))]


def _format_page(page: SitemapPage) -> str:
    name = clean_page_text(page.title or page.link_text, _MAX_NAME_CHARACTERS)
    sections = f" [{page.section_count} sections]" if page.section_count else ""
    summary = f": {clean_page_text(page.summary, _MAX_SUMMARY_CHARACTERS)}" if page.summary else ""
    where = f"{name} ({_shorten_address(page)})" if name else _shorten_address(page)
    return f"- {where}{sections}{summary}"


def _format_unvisited(page: SitemapPage) -> str:
    why = f": {page.failure}" if page.failure else f" ({page.link_text})" if page.link_text else ""
    return f"  - {_shorten_address(page)}{why}"


def _shorten_address(page: SitemapPage) -> str:
    return (
        page.url if len(page.url) <= _MAX_ADDRESS_CHARACTERS else page.url[:_MAX_ADDRESS_CHARACTERS] + "..."
    )


def _cut_to_whole_lines(lines: list[str], most: int) -> str:
    text = "\n".join(lines)
    if len(text) <= most:
        return text
    mark = "\n..."
    end = text.rfind("\n", 0, max(0, most - len(mark) + 1))
    return text[:end].rstrip("\n") + mark if end > 0 else ""


__all__ = ["LinkReport", "LinkType", "SitemapGraph", "SitemapLimits", "SitemapPage"]

_VERSION = 1
_MAX_ENTRIES_PER_LINK = 20
"""Entries read for each link that a page may have: pages name the same link many times."""
_NOT_AN_ADDRESS = "is no address of a web page: use an http(s) one"


class SitemapGraph(NotebookDisplayable):
    """The pages of a site, the links between them and what is to be visited next.

    Addresses are compared in normal form; relative ones belong to the page where they stand, and to the
    homepage where none is named. A page that nobody linked to, as after a redirect, counts as linked from
    the homepage. No text as an address raises: what is none is reported, or answered with None.

    Args:
        homepage_url: Where the exploration starts; absolute.
        limits: How far it goes.

    Raises:
        InvalidInputError: The homepage is no web address.
    """

    def __init__(self, homepage_url: str, limits: SitemapLimits | None = None) -> None:
        home = normalize_url(homepage_url)
        if home is None:
            raise InvalidInputError(f"the homepage {format_value_for_error(homepage_url)} {_NOT_AN_ADDRESS}")
        self._graph = PageGraph(home, limits or SitemapLimits())
        self._graph.nodes[0].is_folder = is_folder(homepage_url)

    def __repr__(self) -> str:
        visited = self._graph.counts["visited"]
        return f"SitemapGraph({self.homepage_url!r}, {len(self):,} pages, {visited:,} visited)"

    def _to_display(self) -> DisplayContent:
        counts = self._graph.counts
        facts = {
            "pages known": len(self),
            "visited": counts["visited"],
            "failed": counts["failed"],
            "still to visit": self.remaining,
            "completeness": self.completeness,
            "next": self.next_page(),
        }
        first = build_table([self._to_page(node) for node in self._graph.nodes[:MAX_TABLE_ROWS]])
        return DisplayContent(
            f"SitemapGraph of {self.homepage_url}",
            facts,
            (replace(first, omitted_rows=max(0, len(self) - MAX_TABLE_ROWS)),),
        )

    def __len__(self) -> int:
        return len(self._graph.nodes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SitemapGraph) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]  # it changes

    @property
    def homepage_url(self) -> str:
        """Where the exploration starts, in normal form."""
        return self._graph.nodes[0].url

    @property
    def limits(self) -> SitemapLimits:
        """How far it goes."""
        return self._graph.limits

    def add_links(
        self,
        parent_url: str,
        links: Iterable[Mapping[str, Any] | str],
        link_type: str = LinkType.UNKNOWN,
    ) -> LinkReport:
        """Remember links found in a page; what cannot be used is refused with a reason, never raised.

        Args:
            parent_url: The page where they stand.
            links: Addresses, or mappings with ``url`` (or ``href``) and ``text`` (or ``label``); a
                ``link_type`` of their own goes before that of all.
            link_type: Where in the page they stand.
        """
        address = self._normalize(parent_url)
        problem = self._find_problem(self._graph.nodes[0], address, is_link=False)
        if address is None or problem:
            return LinkReport(
                refused=((clean_page_text(parent_url, MAX_QUOTED_VALUE_CHARACTERS), f"the page {problem}"),)
            )
        parent = self._get_or_add_node(address, parent_url)
        base, kind, known_before, known = _get_base_url(parent), to_link_type(link_type), len(self), 0
        refused: list[tuple[str, str]] = []
        for found in parse_links(links, self.limits.max_links_per_page * _MAX_ENTRIES_PER_LINK):
            target = None if found.problem else normalize_url(found.url, base)
            problem = found.problem or self._find_problem(parent, target)
            if target is None or problem:
                refused.append((clean_page_text(found.url, MAX_QUOTED_VALUE_CHARACTERS), problem))
                continue
            known += target in self._graph.order_by_url
            node = self._graph.link_page(parent, target, found.link_type or kind, found.text)
            node.is_folder = node.is_folder or is_folder(found.url)
        return LinkReport(added=len(self) - known_before, known=known, refused=tuple(refused))

    def mark_visited(
        self, url: str, *, title: str = "", summary: str = "", section_count: int = 0, at: float = 0.0
    ) -> SitemapPage | None:
        """Note that a page was seen, at `at` seconds since 1970; None if `url` is no web address.

        Where one page led on to another, the first is still to visit: `mark_failed` it, or mark both.

        Raises:
            InvalidInputError: The count or the time is no number that can be kept.
        """
        check_whole(section_count, 0, "section_count")
        seen_at = check_timestamp(at, "at")
        address = self._normalize(url)
        if address is None:
            return None
        node = self._get_or_add_node(address, url)
        node.visited_at, node.failure, node.section_count = seen_at, "", section_count
        node.title = clean_page_text(title, MAX_PAGE_TITLE_CHARACTERS) or node.title
        node.summary = clean_page_text(summary, MAX_PAGE_SUMMARY_CHARACTERS) or node.summary
        self._graph.update_state(node)
        return self._to_page(node)

    def mark_failed(self, url: str, reason: str = "") -> SitemapPage | None:
        """Note that a page cannot be visited, so that it is not offered again; one visited stays visited."""
        address = self._normalize(url)
        if address is None:
            return None
        node = self._get_or_add_node(address, url)
        if node.visited_at is None:
            node.failure = clean_page_text(reason, MAX_LINK_TEXT_CHARACTERS) or "no reason given"
            self._graph.update_state(node)
        return self._to_page(node)

    def next_page(self) -> str | None:
        """The page to visit now: the same one until it is marked, None if there is none within the limits.

        Those nearest to the homepage come first, among them those with the more prominent links, among
        these those found first.
        """
        node = self._graph.find_first_open()
        return None if node is None or self._is_full else node.url

    def pages(self, visited: bool | None = None) -> tuple[SitemapPage, ...]:  # noqa: FBT001 - as in the design
        """All pages in the order of discovery, or only those that were visited, or were not."""
        return tuple(
            self._to_page(node)
            for node in self._graph.nodes
            if visited is None or (node.visited_at is not None) == visited
        )

    def page(self, url: str) -> SitemapPage | None:
        """What is known of a page."""
        node = self._find_node(url)
        return None if node is None else self._to_page(node)

    def links(self, url: str) -> tuple[str, ...]:
        """The pages that a page links to, in the order in which the links were handed in."""
        node = self._find_node(url)
        return () if node is None else tuple(self._graph.nodes[order].url for order in node.links)

    def parents(self, url: str) -> tuple[str, ...]:
        """The pages that link to a page, in the order of their discovery."""
        node = self._find_node(url)
        return () if node is None else tuple(self._graph.nodes[one].url for one in sorted(node.linked_from))

    def depth_of(self, url: str) -> int | None:
        """How many links from the homepage, at the least; one above the limit stands for anything deeper."""
        node = self._find_node(url)
        return None if node is None else node.depth

    @property
    def remaining(self) -> int:
        """Pages still to visit within the limits, as far as they are known."""
        counts = self._graph.counts
        return min(counts["open"], max(0, self.limits.max_pages - counts["visited"]))

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left to visit."""
        return self.remaining == 0

    @property
    def completeness(self) -> float:
        """Visited pages of those within the limits; those that failed count as not visited."""
        counts = self._graph.counts
        within = counts["visited"] + counts["open"] + counts["failed"]
        return counts["visited"] / min(within, max(self.limits.max_pages, counts["visited"]))

    def format_summary(self, max_characters: int = 4000) -> str:
        """The site in lines for a prompt: visited pages as a tree, what was not visited and why."""
        most = check_whole(max_characters, 0, "max_characters")
        return format_site_summary(self.pages(), self.limits, is_full=self._is_full, most=most)

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain JSON."""
        return {
            "version": _VERSION,
            "limits": asdict(self.limits),
            "pages": [node_to_dict(node) for node in self._graph.nodes],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The map that `to_dict` wrote.

        Raises:
            InvalidInputError: It is damaged, or of a newer release; the message names what is wrong.
        """
        given: object = data
        if not isinstance(given, Mapping):
            raise make_damaged_error("all", "an object", given)
        if given.get("version") != _VERSION or isinstance(given.get("version"), bool):
            raise make_damaged_error("version", str(_VERSION), given.get("version"))
        rows = given.get("pages")
        if not isinstance(rows, list) or not rows or not isinstance(rows[0], Mapping):
            raise make_damaged_error("pages", "a list that starts with the homepage", rows)
        limits, home = _parse_limits(given.get("limits")), rows[0].get("url")
        if not isinstance(home, str) or normalize_url(home) != home:
            raise make_damaged_error("pages[0].url", "an address in normal form", home)
        graph = cls(home, limits)
        graph._graph = parse_page_graph(home, limits, rows)
        return graph

    @property
    def _is_full(self) -> bool:
        return self._graph.counts["visited"] >= self.limits.max_pages

    def _normalize(self, url: str) -> str | None:
        return normalize_url(url, _get_base_url(self._graph.nodes[0]))

    def _find_node(self, url: str) -> PageNode | None:
        order = self._graph.order_by_url.get(self._normalize(url) or "")
        return None if order is None else self._graph.nodes[order]

    def _get_or_add_node(self, address: str, url: str) -> PageNode:
        order = self._graph.order_by_url.get(address)
        home, kind = self._graph.nodes[0], LinkType.UNKNOWN.value
        node = self._graph.link_page(home, address, kind) if order is None else self._graph.nodes[order]
        node.is_folder = node.is_folder or is_folder(url)
        return node

    def _find_problem(self, parent: PageNode, target: str | None, *, is_link: bool = True) -> str:
        """Why a link is not taken; empty if it is."""
        if target is None:
            return _NOT_AN_ADDRESS
        order = self._graph.order_by_url.get(target)
        if order is None and len(self) >= self.limits.max_known_pages:
            return f"is left out: {self.limits.max_known_pages} pages are known already"
        is_more = is_link and (order is None or order not in parent.links)
        if is_more and len(parent.links) >= self.limits.max_links_per_page:
            return f"is left out: its page has {self.limits.max_links_per_page} links already"
        return ""

    def _to_page(self, node: PageNode) -> SitemapPage:
        values = {one.name: getattr(node, one.name) for one in fields(SitemapPage) if hasattr(node, one.name)}
        above = None if node.parent is None else self._graph.nodes[node.parent].url
        return SitemapPage(**{**values, "parent": above, "is_visited": node.visited_at is not None})


def _get_base_url(node: PageNode) -> str:
    """What relative links in a page are resolved against."""
    return to_folder_url(node.url) if node.is_folder else node.url


def _parse_limits(value: object) -> SitemapLimits:
    names = {one.name for one in fields(SitemapLimits)}
    if not isinstance(value, Mapping) or set(value) != names:
        raise make_damaged_error("limits", f"an object with {', '.join(sorted(names))}", value)
    try:
        return SitemapLimits(**value)
    except ValueError as error:  # an InvalidConfigError, or a number too long for its message
        raise InvalidInputError(f"limits of the site map: {error}") from error
