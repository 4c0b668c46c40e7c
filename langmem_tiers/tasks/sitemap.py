"""A site as an agent explores it: which pages there are, which were visited, which comes next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, Any, Self

from langmem_tiers.common.checks import check_whole
from langmem_tiers.display.displayable import Showing, table_of
from langmem_tiers.display.tables import ROWS, Sheet
from langmem_tiers.errors import InvalidInputError
from langmem_tiers.tasks.sitemap_graph import Node, Site, a_time, damaged, node_to_dict, site_from_rows
from langmem_tiers.tasks.sitemap_pages import (
    LINK_TEXT_CHARACTERS,
    SHOWN_CHARACTERS,
    SUMMARY_CHARACTERS,
    TITLE_CHARACTERS,
    LinkReport,
    LinkType,
    SitemapLimits,
    SitemapPage,
    as_link_type,
    clean,
    found_links,
    short,
)
from langmem_tiers.text.urls import as_folder, is_document, is_folder, normalized

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


__all__ = ["LinkReport", "LinkType", "SitemapGraph", "SitemapLimits", "SitemapPage"]

_VERSION = 1
_READ_PER_LINK = 20
"""Entries read for each link that a page may have: pages name the same link many times."""
_NO_ADDRESS = "is no address of a web page: use an http(s) one"


class SitemapGraph(Showing):
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
        home = normalized(homepage_url)
        if home is None:
            raise InvalidInputError(f"the homepage {short(homepage_url)} {_NO_ADDRESS}")
        self._site = Site(home, limits or SitemapLimits())
        self._site.nodes[0].is_folder = is_folder(homepage_url)

    def __repr__(self) -> str:
        visited = self._site.counts["visited"]
        return f"SitemapGraph({self.homepage_url!r}, {len(self):,} pages, {visited:,} visited)"

    def _sheet(self) -> Sheet:
        counts = self._site.counts
        facts = {
            "pages known": len(self),
            "visited": counts["visited"],
            "failed": counts["failed"],
            "still to visit": self.remaining,
            "completeness": self.completeness,
            "next": self.next_page(),
        }
        first = table_of([self._page(node) for node in self._site.nodes[:ROWS]])
        return Sheet(
            f"SitemapGraph of {self.homepage_url}",
            facts,
            (replace(first, left_out=max(0, len(self) - ROWS)),),
        )

    def __len__(self) -> int:
        return len(self._site.nodes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SitemapGraph) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]  # it changes

    @property
    def homepage_url(self) -> str:
        """Where the exploration starts, in normal form."""
        return self._site.nodes[0].url

    @property
    def limits(self) -> SitemapLimits:
        """How far it goes."""
        return self._site.limits

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
        address = self._normal(parent_url)
        problem = self._problem(self._site.nodes[0], address, is_link=False)
        if address is None or problem:
            return LinkReport(refused=((clean(parent_url, SHOWN_CHARACTERS), f"the page {problem}"),))
        parent = self._reached(address, parent_url)
        base, kind, known_before, known = _base(parent), as_link_type(link_type), len(self), 0
        refused: list[tuple[str, str]] = []
        for found in found_links(links, self.limits.max_links_per_page * _READ_PER_LINK):
            target = None if found.problem else normalized(found.url, base)
            problem = found.problem or self._problem(parent, target)
            if target is None or problem:
                refused.append((clean(found.url, SHOWN_CHARACTERS), problem))
                continue
            known += target in self._site.orders
            node = self._site.link(parent, target, found.link_type or kind, found.text)
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
        seen_at = a_time(at, "at")
        address = self._normal(url)
        if address is None:
            return None
        node = self._reached(address, url)
        node.visited_at, node.failure, node.section_count = seen_at, "", section_count
        node.title = clean(title, TITLE_CHARACTERS) or node.title
        node.summary = clean(summary, SUMMARY_CHARACTERS) or node.summary
        self._site.settle(node)
        return self._page(node)

    def mark_failed(self, url: str, reason: str = "") -> SitemapPage | None:
        """Note that a page cannot be visited, so that it is not offered again; one visited stays visited."""
        address = self._normal(url)
        if address is None:
            return None
        node = self._reached(address, url)
        if node.visited_at is None:
            node.failure = clean(reason, LINK_TEXT_CHARACTERS) or "no reason given"
            self._site.settle(node)
        return self._page(node)

    def next_page(self) -> str | None:
        """The page to visit now: the same one until it is marked, None if there is none within the limits.

        Those nearest to the homepage come first, among them those with the more prominent links, among
        these those found first.
        """
        node = self._site.first()
        return None if node is None or self._is_full else node.url

    def pages(self, visited: bool | None = None) -> tuple[SitemapPage, ...]:  # noqa: FBT001 - as in the design
        """All pages in the order of discovery, or only those that were visited, or were not."""
        return tuple(
            self._page(node)
            for node in self._site.nodes
            if visited is None or (node.visited_at is not None) == visited
        )

    def page(self, url: str) -> SitemapPage | None:
        """What is known of a page."""
        node = self._known(url)
        return None if node is None else self._page(node)

    def links(self, url: str) -> tuple[str, ...]:
        """The pages that a page links to, in the order in which the links were handed in."""
        node = self._known(url)
        return () if node is None else tuple(self._site.nodes[order].url for order in node.links)

    def parents(self, url: str) -> tuple[str, ...]:
        """The pages that link to a page, in the order of their discovery."""
        node = self._known(url)
        return () if node is None else tuple(self._site.nodes[one].url for one in sorted(node.linked_from))

    def depth_of(self, url: str) -> int | None:
        """How many links from the homepage, at the least; one above the limit stands for anything deeper."""
        node = self._known(url)
        return None if node is None else node.depth

    @property
    def remaining(self) -> int:
        """Pages still to visit within the limits, as far as they are known."""
        counts = self._site.counts
        return min(counts["open"], max(0, self.limits.max_pages - counts["visited"]))

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left to visit."""
        return self.remaining == 0

    @property
    def completeness(self) -> float:
        """Visited pages of those within the limits; those that failed count as not visited."""
        counts = self._site.counts
        within = counts["visited"] + counts["open"] + counts["failed"]
        return counts["visited"] / min(within, max(self.limits.max_pages, counts["visited"]))

    def format_summary(self, max_characters: int = 4000) -> str:
        """The site in lines for a prompt: visited pages as a tree, what was not visited and why."""
        most = check_whole(max_characters, 0, "max_characters")
        return written_summary(self.pages(), self.limits, is_full=self._is_full, most=most)

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain JSON."""
        return {
            "version": _VERSION,
            "limits": asdict(self.limits),
            "pages": [node_to_dict(node) for node in self._site.nodes],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The map that `to_dict` wrote.

        Raises:
            InvalidInputError: It is damaged, or of a newer release; the message names what is wrong.
        """
        given: object = data
        if not isinstance(given, Mapping):
            raise damaged("all", "an object", given)
        if given.get("version") != _VERSION or isinstance(given.get("version"), bool):
            raise damaged("version", str(_VERSION), given.get("version"))
        rows = given.get("pages")
        if not isinstance(rows, list) or not rows or not isinstance(rows[0], Mapping):
            raise damaged("pages", "a list that starts with the homepage", rows)
        limits, home = _limits(given.get("limits")), rows[0].get("url")
        if not isinstance(home, str) or normalized(home) != home:
            raise damaged("pages[0].url", "an address in normal form", home)
        graph = cls(home, limits)
        graph._site = site_from_rows(home, limits, rows)
        return graph

    @property
    def _is_full(self) -> bool:
        return self._site.counts["visited"] >= self.limits.max_pages

    def _normal(self, url: str) -> str | None:
        return normalized(url, _base(self._site.nodes[0]))

    def _known(self, url: str) -> Node | None:
        order = self._site.orders.get(self._normal(url) or "")
        return None if order is None else self._site.nodes[order]

    def _reached(self, address: str, url: str) -> Node:
        order = self._site.orders.get(address)
        home, kind = self._site.nodes[0], LinkType.UNKNOWN.value
        node = self._site.link(home, address, kind) if order is None else self._site.nodes[order]
        node.is_folder = node.is_folder or is_folder(url)
        return node

    def _problem(self, parent: Node, target: str | None, *, is_link: bool = True) -> str:
        """Why a link is not taken; empty if it is."""
        if target is None:
            return _NO_ADDRESS
        order = self._site.orders.get(target)
        if order is None and len(self) >= self.limits.max_known_pages:
            return f"is left out: {self.limits.max_known_pages} pages are known already"
        is_more = is_link and (order is None or order not in parent.links)
        if is_more and len(parent.links) >= self.limits.max_links_per_page:
            return f"is left out: its page has {self.limits.max_links_per_page} links already"
        return ""

    def _page(self, node: Node) -> SitemapPage:
        values = {one.name: getattr(node, one.name) for one in fields(SitemapPage) if hasattr(node, one.name)}
        above = None if node.parent is None else self._site.nodes[node.parent].url
        return SitemapPage(**{**values, "parent": above, "is_visited": node.visited_at is not None})


def _base(node: Node) -> str:
    """What relative links in a page are resolved against."""
    return as_folder(node.url) if node.is_folder else node.url


def _limits(value: object) -> SitemapLimits:
    names = {one.name for one in fields(SitemapLimits)}
    if not isinstance(value, Mapping) or set(value) != names:
        raise damaged("limits", f"an object with {', '.join(sorted(names))}", value)
    try:
        return SitemapLimits(**value)
    except ValueError as error:  # an InvalidConfigError, or a number too long for its message
        raise InvalidInputError(f"limits of the site map: {error}") from error
