"""The working parts of a site map: pages and links, shortest ways, the queue, and all of it as JSON."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

from langmem_tiers.errors import InvalidInputError
from langmem_tiers.tasks.sitemap_pages import (
    MAX_LINK_TEXT_CHARACTERS,
    MAX_LINK_TYPE_CHARACTERS,
    MAX_PAGE_SUMMARY_CHARACTERS,
    MAX_PAGE_TITLE_CHARACTERS,
    LinkType,
    SitemapLimits,
    clean_page_text,
    format_value_for_error,
    get_link_rank,
    to_link_type,
)
from langmem_tiers.text.urls import get_url_host, is_document, is_same_host, normalize_url

_TEXT_FIELDS = {
    "title": MAX_PAGE_TITLE_CHARACTERS,
    "summary": MAX_PAGE_SUMMARY_CHARACTERS,
    "link_type": MAX_LINK_TYPE_CHARACTERS,
    "link_text": MAX_LINK_TEXT_CHARACTERS,
    "failure": MAX_LINK_TEXT_CHARACTERS,
}
_COUNT_FIELDS = ("section_count", "depth")
_MAX_NUMBER = 2**40
_NEXT_STEP = "save the map again, or start a new one"


@dataclass(slots=True)
class PageNode:
    """A page and its links; pages name each other by the order in which they were found."""

    url: str
    order: int
    depth: int
    parent: int | None
    is_external: bool
    """Whether it is of another site."""
    is_file: bool
    link_type: str = LinkType.UNKNOWN.value
    link_text: str = ""
    title: str = ""
    summary: str = ""
    section_count: int = 0
    visited_at: float | None = None
    failure: str = ""
    is_folder: bool = False
    """Whether a link to it ended with a slash: its relative links lie inside of it."""
    links: dict[int, None] = field(default_factory=dict)
    linked_from: list[int] = field(default_factory=list)
    state: str = ""
    queue_key: tuple[int, int, int] | None = None
    """Its place in the queue; what differs there is outdated."""


class PageGraph:
    """Pages by address and by order. Depths are those of the shortest ways, and so is the queue's order.

    Depths are counted up to one above the limit: each page moves up that often at the most, so that links
    cost a constant each, however late the short ways are found.
    """

    def __init__(self, homepage: str, limits: SitemapLimits) -> None:
        self.limits = limits
        self.nodes: list[PageNode] = []
        self.order_by_url: dict[str, int] = {}
        self.counts: Counter[str] = Counter()
        self._queue: list[tuple[int, int, int]] = []
        self._host = get_url_host(homepage)
        self._max_counted_depth = limits.max_depth + 1
        self.update_state(self.add_page(homepage, None))

    def add_page(self, url: str, parent: PageNode | None) -> PageNode:
        """A page not known before; to be linked and settled by the caller."""
        depth = 0 if parent is None else min(parent.depth + 1, self._max_counted_depth)
        above = None if parent is None else parent.order
        is_outside = not is_same_host(get_url_host(url), self._host)
        node = PageNode(url, len(self.nodes), depth, above, is_outside, is_document(url))
        if is_outside and self.limits.stay_on_site:
            node.link_type = LinkType.EXTERNAL.value
        self.nodes.append(node)
        self.order_by_url[url] = node.order
        return node

    def link_page(self, parent: PageNode, url: str, link_type: str, text: str = "") -> PageNode:
        """The page at an address, now linked from another."""
        order = self.order_by_url.get(url)
        is_new = order is None
        node = self.add_page(url, parent) if order is None else self.nodes[order]
        if node.order not in parent.links:
            self.add_link(parent, node)
            self._shorten_paths(parent, node)
        is_fixed = node.is_external and self.limits.stay_on_site
        if not is_fixed and (is_new or get_link_rank(link_type) < get_link_rank(node.link_type)):
            node.link_type = link_type
        node.link_text = node.link_text or text
        self.update_state(node)
        return node

    def add_link(self, parent: PageNode, node: PageNode) -> None:
        """Note a link, and nothing else."""
        parent.links[node.order] = None
        node.linked_from.append(parent.order)

    def _shorten_paths(self, parent: PageNode, node: PageNode) -> None:
        """Take the way over `parent` if it is shorter, for all that lies behind the page too."""
        waiting = deque([(parent, node)])
        while waiting:
            above, below = waiting.popleft()
            if above.depth + 1 < below.depth:
                below.depth, below.parent = above.depth + 1, above.order
                self.update_state(below)
                waiting.extend((below, self.nodes[order]) for order in below.links)

    def update_state(self, node: PageNode) -> None:
        """Count a page by its state, and queue it if it is to be visited and not queued as it is now."""
        state = self._compute_state(node)
        if state != node.state:
            self.counts[node.state] -= 1
            self.counts[state] += 1
            node.state = state
        key = (node.depth, get_link_rank(node.link_type), node.order)
        if state == "open" and key != node.queue_key:
            node.queue_key = key
            heappush(self._queue, key)

    def _compute_state(self, node: PageNode) -> str:
        if node.visited_at is not None:
            return "visited"
        if node.failure:
            return "failed"
        if node.order == 0:
            return "open"
        is_left_alone = self.limits.stay_on_site and (
            node.is_external or node.link_type == LinkType.EXTERNAL.value
        )
        return "closed" if is_left_alone or node.is_file or node.depth > self.limits.max_depth else "open"

    def find_first_open(self) -> PageNode | None:
        """The page to visit first, whatever the limit of pages says."""
        while self._queue:
            node = self.nodes[self._queue[0][2]]
            if node.state == "open" and node.queue_key == self._queue[0]:
                return node
            heappop(self._queue)
        return None


def node_to_dict(node: PageNode) -> dict[str, Any]:
    """A page as plain JSON."""
    return {
        "url": node.url,
        "parent": node.parent,
        **{name: getattr(node, name) for name in (*_TEXT_FIELDS, *_COUNT_FIELDS, "visited_at", "is_folder")},
        "links": list(node.links),
    }


def parse_page_graph(homepage: str, limits: SitemapLimits, rows: list[Any]) -> PageGraph:
    """A site from its pages as `node_to_dict` wrote them.

    Raises:
        InvalidInputError: Something in them is damaged; the message names it.
    """
    site = PageGraph(homepage, limits)
    for order, row in enumerate(rows):
        where = f"pages[{order}]"
        if not isinstance(row, Mapping):
            raise make_damaged_error(where, "an object", row)
        _read_page(site, order, row, where)
    for order, row in enumerate(rows):
        for other in _read_links(row, len(rows), f"pages[{order}].links"):
            site.add_link(site.nodes[order], site.nodes[other])
    _check_paths(site)
    for node in site.nodes:
        site.update_state(node)
    return site


def make_damaged_error(where: str, what: str, value: object) -> InvalidInputError:
    """The error for a part of a stored map that is not what it must be."""
    return InvalidInputError(
        f"{where} of the site map must be {what}, got {format_value_for_error(value)}: {_NEXT_STEP}"
    )


def _read_page(site: PageGraph, order: int, row: Mapping[str, Any], where: str) -> None:
    url = row.get("url")
    if not isinstance(url, str) or normalize_url(url) != url or (order == 0) != (url in site.order_by_url):
        what = "the homepage" if order == 0 else "an address in normal form, of no other page"
        raise make_damaged_error(f"{where}.url", what, url)
    node = site.nodes[0] if order == 0 else site.add_page(url, None)
    for name, most in _TEXT_FIELDS.items():
        value = row.get(name)
        if not isinstance(value, str) or clean_page_text(value, most) != value:
            raise make_damaged_error(f"{where}.{name}", f"one line of up to {most} characters", value)
        setattr(node, name, value)
    if to_link_type(node.link_type) != node.link_type:
        raise make_damaged_error(f"{where}.link_type", "a type of link in lower case", node.link_type)
    for name in _COUNT_FIELDS:
        setattr(node, name, _check_number(row.get(name), _MAX_NUMBER, f"{where}.{name}"))
    if not isinstance(row.get("is_folder"), bool):
        raise make_damaged_error(f"{where}.is_folder", "true or false", row.get("is_folder"))
    node.is_folder = row["is_folder"]
    parent, seen = row.get("parent"), row.get("visited_at")
    node.parent = None if parent is None else _check_number(parent, _MAX_NUMBER, f"{where}.parent")
    node.visited_at = None if seen is None else check_timestamp(seen, f"{where}.visited_at of the site map")


def _read_links(row: Mapping[str, Any], pages: int, where: str) -> Iterator[int]:
    links = row.get("links")
    if not isinstance(links, list):
        raise make_damaged_error(where, "a list", links)
    numbers = [_check_number(one, pages - 1, where) for one in links]
    if len(set(numbers)) != len(numbers):
        raise make_damaged_error(where, "pages that differ", links)
    return iter(numbers)


def _check_paths(site: PageGraph) -> None:
    """See that the depths are those of the shortest ways, and that each page has the one before it."""
    deepest = site.limits.max_depth + 1
    depths = {0: 0}
    waiting = deque([0])
    while waiting:
        order = waiting.popleft()
        for other in site.nodes[order].links:
            if other not in depths:
                depths[other] = min(depths[order] + 1, deepest)
                waiting.append(other)
    for node in site.nodes:
        where = f"pages[{node.order}]"
        if node.depth != depths.get(node.order):
            raise make_damaged_error(
                f"{where}.depth", f"that of its shortest way, {depths.get(node.order)}", node.depth
            )
        if not _is_shortest_parent(site, node, deepest):
            raise make_damaged_error(f"{where}.parent", "the page before it on its shortest way", node.parent)


def _is_shortest_parent(site: PageGraph, node: PageNode, deepest: int) -> bool:
    if node.order == 0 or node.parent is None or node.parent >= len(site.nodes):
        return node.order == 0 and node.parent is None
    parent = site.nodes[node.parent]
    if node.order not in parent.links:
        return False
    return parent.depth + 1 == node.depth or (
        parent.depth == node.depth == deepest and parent.order < node.order
    )


def _check_number(value: object, most: int, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise make_damaged_error(where, f"a whole number from 0 to {most}", value)
    return value


def check_timestamp(value: object, where: str) -> float:
    """Seconds since 1970 that JSON can hold."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not isinstance(value, int | float) or not abs(value) <= _MAX_NUMBER:
        raise InvalidInputError(
            f"{where} must be seconds since 1970, got {format_value_for_error(value)}: use a number"
        )
    return float(value)
