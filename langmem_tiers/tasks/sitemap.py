"""Map of a site under exploration: known pages, visited pages and the next page to visit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, Any, Self

from langmem_tiers.common.checks import check_whole
from langmem_tiers.display.displayable import NotebookDisplayable, build_table
from langmem_tiers.display.tables import MAX_TABLE_ROWS, DisplayContent
from langmem_tiers.errors import InvalidInputError
from langmem_tiers.tasks.sitemap_graph import (
    MAX_LINK_TEXT_CHARACTERS,
    MAX_PAGE_SUMMARY_CHARACTERS,
    MAX_PAGE_TITLE_CHARACTERS,
    MAX_QUOTED_VALUE_CHARACTERS,
    LinkReport,
    LinkType,
    PageGraph,
    PageNode,
    SitemapLimits,
    SitemapPage,
    check_timestamp,
    clean_page_text,
    format_value_for_error,
    make_damaged_error,
    node_to_dict,
    parse_links,
    parse_page_graph,
    to_link_type,
)
from langmem_tiers.text.urls import is_document, is_folder, normalize_url, to_folder_url

if TYPE_CHECKING:
    from collections.abc import Iterator


_MAX_NAME_CHARACTERS, _MAX_SUMMARY_CHARACTERS, _MAX_ADDRESS_CHARACTERS = 100, 200, 300
_MAX_SHOWN_PAGES = 10
"""Maximum number of unvisited pages listed per reason."""


def explain_not_visited(page: SitemapPage, limits: SitemapLimits, *, is_full: bool) -> str:
    """Return the reason why a page was not visited; ``still to visit`` if it is still open."""
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
    pages: tuple[SitemapPage, ...], limits: SitemapLimits, *, is_full: bool, max_characters: int
) -> str:
    """Format a site as lines of text, cut to whole lines.

    Args:
        pages: All known pages in the order of discovery.
        limits: Limits of the exploration.
        is_full: True if the maximum number of pages was visited.
        max_characters: Maximum number of characters.
    """
    visited = [page for page in pages if page.is_visited]
    reasons: dict[str, list[SitemapPage]] = {}
    for page in pages:
        if not page.is_visited:
            reasons.setdefault(explain_not_visited(page, limits, is_full=is_full), []).append(page)
    lines = [f"Site: {_shorten_address(pages[0])}", f"Pages visited: {len(visited)} of {len(pages)} known"]
    if reasons:
        counts = (f"{len(unvisited)} {reason}" for reason, unvisited in reasons.items())
        lines.append("Not visited: " + ", ".join(counts))
    lines += _format_tree(visited, pages)
    for reason, unvisited in reasons.items():
        shown = (_format_unvisited(page) for page in unvisited[:_MAX_SHOWN_PAGES])
        lines += ["", f"Not visited, {reason}:", *shown]
        if len(unvisited) > _MAX_SHOWN_PAGES:
            lines += [f"  ... and {len(unvisited) - _MAX_SHOWN_PAGES} more"]
    return _cut_to_whole_lines(lines, max_characters)


def _format_tree(visited: list[SitemapPage], pages: tuple[SitemapPage, ...]) -> Iterator[str]:
    """Format each visited page below its nearest visited ancestor."""
    by_url = {page.url: page for page in pages}
    children: dict[str | None, list[SitemapPage]] = {}
    for page in visited:
        ancestor = page.parent
        while ancestor is not None and not by_url[ancestor].is_visited:
            ancestor = by_url[ancestor].parent
        children.setdefault(ancestor, []).append(page)
    # Depth-first with a stack, because recursion could exceed the limit in a deep site. Children are pushed in reverse
    # order, so that the first one is popped first.
    stack = [(page, 0) for page in reversed(children.get(None, []))]
    if stack:
        yield from ("", "Visited:")
    while stack:
        page, level = stack.pop()
        yield "  " * level + _format_page(page)
        stack += [(child, level + 1) for child in reversed(children.get(page.url, []))]


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


def _cut_to_whole_lines(lines: list[str], max_characters: int) -> str:
    text = "\n".join(lines)
    if len(text) <= max_characters:
        return text
    ellipsis_line = "\n..."
    # The last line break that leaves room for the ellipsis. Without one, not even the first line fits.
    end = text.rfind("\n", 0, max(0, max_characters - len(ellipsis_line) + 1))
    return text[:end].rstrip("\n") + ellipsis_line if end > 0 else ""


__all__ = ["LinkReport", "LinkType", "SitemapGraph", "SitemapLimits", "SitemapPage"]

_VERSION = 1
_MAX_ENTRIES_PER_LINK = 20
"""Number of entries read per allowed link of a page, because pages often repeat the same link."""
_NOT_AN_ADDRESS = "is not a web address: use an http(s) URL"


class SitemapGraph(NotebookDisplayable):
    """Pages of a site, the links between them, and the next page to visit.

    Addresses are compared in normalized form. Relative links are resolved against their page, other relative addresses
    against the homepage. A page without known links, for example after a redirect, counts as linked from the
    homepage. Invalid addresses never raise: links are reported as refused, and page methods return None.

    Args:
        homepage_url: Absolute address at which the exploration starts.
        limits: Limits of the exploration. Default: `SitemapLimits()`.

    Raises:
        InvalidInputError: The homepage is not a web address.

    Example::

        graph = SitemapGraph("https://example.com")
        graph.add_links("https://example.com", ["/about", "/shop"])
        graph.mark_visited("https://example.com", title="Home")
        graph.next_page()  # "https://example.com/about"
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

    __hash__ = None  # type: ignore[assignment]  # mutable

    @property
    def homepage_url(self) -> str:
        """Normalized address of the homepage."""
        return self._graph.nodes[0].url

    @property
    def limits(self) -> SitemapLimits:
        """Limits of the exploration."""
        return self._graph.limits

    def add_links(
        self,
        parent_url: str,
        links: Iterable[Mapping[str, Any] | str],
        link_type: str = LinkType.UNKNOWN,
    ) -> LinkReport:
        """Add the links of a page. Unusable links are reported with a reason; they never raise.

        Args:
            parent_url: Address of the page that contains the links.
            links: Addresses, or mappings with ``url`` (or ``href``), ``text`` (or ``label``) and optionally
                ``link_type``.
            link_type: Type of links without their own type. Default: ``unknown``.
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
        for link in parse_links(links, self.limits.max_links_per_page * _MAX_ENTRIES_PER_LINK):
            target = None if link.problem else normalize_url(link.url, base)
            problem = link.problem or self._find_problem(parent, target)
            if target is None or problem:
                refused.append((clean_page_text(link.url, MAX_QUOTED_VALUE_CHARACTERS), problem))
                continue
            known += target in self._graph.order_by_url
            node = self._graph.link_page(parent, target, link.link_type or kind, link.text)
            # Normalizing removes the trailing slash, but relative links of the page depend on it.
            node.is_folder = node.is_folder or is_folder(link.url)
        return LinkReport(added=len(self) - known_before, known=known, refused=tuple(refused))

    def mark_visited(
        self, url: str, *, title: str = "", summary: str = "", section_count: int = 0, at: float = 0.0
    ) -> SitemapPage | None:
        """Mark a page as visited and return it, or None if ``url`` is not a web address.

        After a redirect, also mark the original address, as visited or as failed. Otherwise it remains to be visited.

        Args:
            url: Address of the page.
            title: Title of the page. Default: unchanged.
            summary: Summary of the content. Default: unchanged.
            section_count: Number of sections. Default: 0.
            at: Time of the visit in seconds since 1970. Default: 0.

        Raises:
            InvalidInputError: ``section_count`` or ``at`` is invalid.
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
        """Mark a page as failed, so that it is not suggested again, and return it.

        A visited page stays visited. Returns None if ``url`` is not a web address.
        """
        address = self._normalize(url)
        if address is None:
            return None
        node = self._get_or_add_node(address, url)
        if node.visited_at is None:
            node.failure = clean_page_text(reason, MAX_LINK_TEXT_CHARACTERS) or "no reason given"
            self._graph.update_state(node)
        return self._to_page(node)

    def next_page(self) -> str | None:
        """Return the next page to visit, or None if none is left within the limits.

        Returns the same page until it is marked as visited or failed. Pages near the homepage come first, then pages
        with more prominent links, then pages found earlier.
        """
        node = self._graph.find_first_open()
        return None if node is None or self._is_full else node.url

    def pages(self, visited: bool | None = None) -> tuple[SitemapPage, ...]:  # noqa: FBT001 - as in the design
        """Return the pages in the order of discovery: all, or only the visited or unvisited ones."""
        return tuple(
            self._to_page(node)
            for node in self._graph.nodes
            if visited is None or (node.visited_at is not None) == visited
        )

    def page(self, url: str) -> SitemapPage | None:
        """Return a page, or None if it is not known."""
        node = self._find_node(url)
        return None if node is None else self._to_page(node)

    def links(self, url: str) -> tuple[str, ...]:
        """Return the addresses that a page links to, in the order in which the links were added."""
        node = self._find_node(url)
        return () if node is None else tuple(self._graph.nodes[order].url for order in node.links)

    def parents(self, url: str) -> tuple[str, ...]:
        """Return the addresses of the pages that link to a page, in the order of discovery."""
        node = self._find_node(url)
        return (
            () if node is None else tuple(self._graph.nodes[order].url for order in sorted(node.linked_from))
        )

    def depth_of(self, url: str) -> int | None:
        """Return the minimum number of links from the homepage, at most ``max_depth + 1``."""
        node = self._find_node(url)
        return None if node is None else node.depth

    @property
    def remaining(self) -> int:
        """Number of known pages that are still to be visited within the limits."""
        counts = self._graph.counts
        return min(counts["open"], max(0, self.limits.max_pages - counts["visited"]))

    @property
    def is_complete(self) -> bool:
        """True if no page is left to visit."""
        return self.remaining == 0

    @property
    def completeness(self) -> float:
        """Share of visited pages among the pages within the limits; failed pages count as not visited."""
        counts = self._graph.counts
        within = counts["visited"] + counts["open"] + counts["failed"]
        return counts["visited"] / min(within, max(self.limits.max_pages, counts["visited"]))

    def format_summary(self, max_characters: int = 4000) -> str:
        """Format the site for a prompt: visited pages as a tree, and unvisited pages with reasons."""
        check_whole(max_characters, 0, "max_characters")
        return format_site_summary(
            self.pages(), self.limits, is_full=self._is_full, max_characters=max_characters
        )

    def to_dict(self) -> dict[str, Any]:
        """Convert the map to plain JSON values."""
        return {
            "version": _VERSION,
            "limits": asdict(self.limits),
            "pages": [node_to_dict(node) for node in self._graph.nodes],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Restore a map from ``to_dict``.

        Raises:
            InvalidInputError: The data is damaged or was written by a newer release; the message names the position.
        """
        value: object = data
        if not isinstance(value, Mapping):
            raise make_damaged_error("all", "an object", value)
        # True == 1, so a boolean needs its own check.
        if value.get("version") != _VERSION or isinstance(value.get("version"), bool):
            raise make_damaged_error("version", str(_VERSION), value.get("version"))
        rows = value.get("pages")
        if not isinstance(rows, list) or not rows or not isinstance(rows[0], Mapping):
            raise make_damaged_error("pages", "a list that starts with the homepage", rows)
        limits, home = _parse_limits(value.get("limits")), rows[0].get("url")
        if not isinstance(home, str) or normalize_url(home) != home:
            raise make_damaged_error("pages[0].url", "a normalized address", home)
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
        """Return the reason why a link is refused, or an empty string."""
        if target is None:
            return _NOT_AN_ADDRESS
        order = self._graph.order_by_url.get(target)
        if order is None and len(self) >= self.limits.max_known_pages:
            return f"is left out: the limit of {self.limits.max_known_pages} known pages is reached"
        # Links that the page already has do not count against its limit.
        is_new_link = is_link and (order is None or order not in parent.links)
        if is_new_link and len(parent.links) >= self.limits.max_links_per_page:
            return f"is left out: its page already has {self.limits.max_links_per_page} links"
        return ""

    def _to_page(self, node: PageNode) -> SitemapPage:
        values = {
            field.name: getattr(node, field.name)
            for field in fields(SitemapPage)
            if hasattr(node, field.name)
        }
        parent_url = None if node.parent is None else self._graph.nodes[node.parent].url
        return SitemapPage(**{**values, "parent": parent_url, "is_visited": node.visited_at is not None})


def _get_base_url(node: PageNode) -> str:
    """Return the address against which relative links of a page are resolved."""
    return to_folder_url(node.url) if node.is_folder else node.url


def _parse_limits(value: object) -> SitemapLimits:
    names = {field.name for field in fields(SitemapLimits)}
    if not isinstance(value, Mapping) or set(value) != names:
        raise make_damaged_error("limits", f"an object with {', '.join(sorted(names))}", value)
    try:
        return SitemapLimits(**value)
    except ValueError as error:
        # An InvalidConfigError, or the ValueError of repr() for an integer with too many digits.
        raise InvalidInputError(f"invalid limits of the site map: {error}") from error
