"""Graph behind a site map: pages, links, shortest paths, the visit queue, and its JSON form."""

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
    """A page and its links. Pages refer to each other by their order of discovery."""

    url: str
    order: int
    depth: int
    parent: int | None
    is_external: bool
    """True if the page belongs to another site."""
    is_file: bool
    link_type: str = LinkType.UNKNOWN.value
    link_text: str = ""
    title: str = ""
    summary: str = ""
    section_count: int = 0
    visited_at: float | None = None
    failure: str = ""
    is_folder: bool = False
    """True if a link to the page ended with a slash. Relative links are then resolved below its address."""
    links: dict[int, None] = field(default_factory=dict)
    linked_from: list[int] = field(default_factory=list)
    state: str = ""
    queue_key: tuple[int, int, int] | None = None
    """Present key in the queue. Queue items with another key are outdated."""


class PageGraph:
    """Pages by address and by order, with the depths of their shortest paths and the visit queue.

    Depths above ``max_depth`` are stored as ``max_depth + 1``. The depth of a page can therefore decrease only a few
    times, which bounds the cost of each link even if short paths are found late.
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
        """Add an unknown page and return it. The caller adds its links and calls ``update_state``."""
        depth = 0 if parent is None else min(parent.depth + 1, self._max_counted_depth)
        parent_order = None if parent is None else parent.order
        is_external = not is_same_host(get_url_host(url), self._host)
        node = PageNode(url, len(self.nodes), depth, parent_order, is_external, is_document(url))
        if is_external and self.limits.stay_on_site:
            node.link_type = LinkType.EXTERNAL.value
        self.nodes.append(node)
        self.order_by_url[url] = node.order
        return node

    def link_page(self, parent: PageNode, url: str, link_type: str, text: str = "") -> PageNode:
        """Link a page from another and return it; an unknown page is added."""
        order = self.order_by_url.get(url)
        is_new = order is None
        node = self.add_page(url, parent) if order is None else self.nodes[order]
        if node.order not in parent.links:
            self.add_link(parent, node)
            self._shorten_paths(parent, node)
        # The most prominent link determines the type. Pages of other sites keep the type EXTERNAL.
        is_fixed = node.is_external and self.limits.stay_on_site
        if not is_fixed and (is_new or get_link_rank(link_type) < get_link_rank(node.link_type)):
            node.link_type = link_type
        node.link_text = node.link_text or text
        self.update_state(node)
        return node

    def add_link(self, parent: PageNode, node: PageNode) -> None:
        """Add a link without updating depths, types or the queue."""
        parent.links[node.order] = None
        node.linked_from.append(parent.order)

    def _shorten_paths(self, parent: PageNode, node: PageNode) -> None:
        """Use the path over ``parent`` if it is shorter, and update all pages behind ``node``."""
        pending = deque([(parent, node)])
        while pending:
            source, target = pending.popleft()
            if source.depth + 1 < target.depth:
                target.depth, target.parent = source.depth + 1, source.order
                self.update_state(target)
                pending.extend((target, self.nodes[order]) for order in target.links)

    def update_state(self, node: PageNode) -> None:
        """Update the counts by state, and queue an open page if its queue key has changed."""
        # The old queue item stays in the heap; find_first_open() skips it because its key is outdated.
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
        is_ignored = self.limits.stay_on_site and (
            node.is_external or node.link_type == LinkType.EXTERNAL.value
        )
        return "closed" if is_ignored or node.is_file or node.depth > self.limits.max_depth else "open"

    def find_first_open(self) -> PageNode | None:
        """Return the next page to visit, regardless of ``max_pages``, or None."""
        while self._queue:
            node = self.nodes[self._queue[0][2]]
            if node.state == "open" and node.queue_key == self._queue[0]:
                return node
            heappop(self._queue)
        return None


def node_to_dict(node: PageNode) -> dict[str, Any]:
    """Convert a page to plain JSON values."""
    return {
        "url": node.url,
        "parent": node.parent,
        **{name: getattr(node, name) for name in (*_TEXT_FIELDS, *_COUNT_FIELDS, "visited_at", "is_folder")},
        "links": list(node.links),
    }


def parse_page_graph(homepage: str, limits: SitemapLimits, rows: list[Any]) -> PageGraph:
    """Restore a graph from the pages that ``node_to_dict`` wrote.

    Raises:
        InvalidInputError: A value is damaged; the message names its position.
    """
    site = PageGraph(homepage, limits)
    # Three passes: links may refer to later pages, and paths can be checked only when all links are known.
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
    """Return the error for an invalid value in a stored map."""
    return InvalidInputError(
        f"{where} of the site map must be {what}, got {format_value_for_error(value)}: {_NEXT_STEP}"
    )


def _read_page(site: PageGraph, order: int, row: Mapping[str, Any], where: str) -> None:
    url = row.get("url")
    if not isinstance(url, str) or normalize_url(url) != url or (order == 0) != (url in site.order_by_url):
        expected = "the homepage" if order == 0 else "a normalized address that occurs only once"
        raise make_damaged_error(f"{where}.url", expected, url)
    node = site.nodes[0] if order == 0 else site.add_page(url, None)
    for name, most in _TEXT_FIELDS.items():
        value = row.get(name)
        if not isinstance(value, str) or clean_page_text(value, most) != value:
            raise make_damaged_error(f"{where}.{name}", f"one line of up to {most} characters", value)
        setattr(node, name, value)
    if to_link_type(node.link_type) != node.link_type:
        raise make_damaged_error(f"{where}.link_type", "a link type in lower case", node.link_type)
    for name in _COUNT_FIELDS:
        setattr(node, name, _check_number(row.get(name), _MAX_NUMBER, f"{where}.{name}"))
    if not isinstance(row.get("is_folder"), bool):
        raise make_damaged_error(f"{where}.is_folder", "true or false", row.get("is_folder"))
    node.is_folder = row["is_folder"]
    parent, visited_at = row.get("parent"), row.get("visited_at")
    node.parent = None if parent is None else _check_number(parent, _MAX_NUMBER, f"{where}.parent")
    node.visited_at = (
        None if visited_at is None else check_timestamp(visited_at, f"{where}.visited_at of the site map")
    )


def _read_links(row: Mapping[str, Any], pages: int, where: str) -> Iterator[int]:
    links = row.get("links")
    if not isinstance(links, list):
        raise make_damaged_error(where, "a list", links)
    orders = [_check_number(order, pages - 1, where) for order in links]
    if len(set(orders)) != len(orders):
        raise make_damaged_error(where, "a list without duplicates", links)
    return iter(orders)


def _check_paths(site: PageGraph) -> None:
    """Verify that depth and parent of each page belong to a shortest path from the homepage."""
    deepest = site.limits.max_depth + 1
    # Breadth-first search from the homepage.
    depths = {0: 0}
    pending = deque([0])
    while pending:
        order = pending.popleft()
        for linked in site.nodes[order].links:
            if linked not in depths:
                depths[linked] = min(depths[order] + 1, deepest)
                pending.append(linked)
    for node in site.nodes:
        where = f"pages[{node.order}]"
        if node.depth != depths.get(node.order):
            raise make_damaged_error(
                f"{where}.depth", f"that of its shortest path, {depths.get(node.order)}", node.depth
            )
        if not _is_shortest_parent(site, node, deepest):
            raise make_damaged_error(
                f"{where}.parent", "the page before it on its shortest path", node.parent
            )


def _is_shortest_parent(site: PageGraph, node: PageNode, deepest: int) -> bool:
    if node.order == 0 or node.parent is None or node.parent >= len(site.nodes):
        return node.order == 0 and node.parent is None
    parent = site.nodes[node.parent]
    if node.order not in parent.links:
        return False
    # Beyond the limit all depths are equal. There the parent must be an earlier page, which rules out cycles.
    return parent.depth + 1 == node.depth or (
        parent.depth == node.depth == deepest and parent.order < node.order
    )


def _check_number(value: object, most: int, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise make_damaged_error(where, f"a whole number from 0 to {most}", value)
    return value


def check_timestamp(value: object, where: str) -> float:
    """Return a time in seconds since 1970 that can be stored as JSON."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not isinstance(value, int | float) or not abs(value) <= _MAX_NUMBER:
        raise InvalidInputError(
            f"{where} must be in seconds since 1970, got {format_value_for_error(value)}: use a number"
        )
    return float(value)
