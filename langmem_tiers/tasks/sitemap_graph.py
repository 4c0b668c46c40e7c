"""The working parts of a site map: pages and links, shortest ways, the queue, and all of it as JSON."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

from langmem_tiers.errors import InvalidInputError
from langmem_tiers.tasks.sitemap_pages import (
    LINK_TEXT_CHARACTERS,
    SUMMARY_CHARACTERS,
    TITLE_CHARACTERS,
    TYPE_CHARACTERS,
    LinkType,
    SitemapLimits,
    as_link_type,
    clean,
    link_rank,
    short,
)
from langmem_tiers.text.urls import host_of, is_document, normalized, same_hosts

_TEXTS = {
    "title": TITLE_CHARACTERS,
    "summary": SUMMARY_CHARACTERS,
    "link_type": TYPE_CHARACTERS,
    "link_text": LINK_TEXT_CHARACTERS,
    "failure": LINK_TEXT_CHARACTERS,
}
_COUNTS = ("section_count", "depth")
_MOST = 2**40
_NEXT = "save the map again, or start a new one"


@dataclass(slots=True)
class Node:
    """A page and its links; pages name each other by the order in which they were found."""

    url: str
    order: int
    depth: int
    parent: int | None
    is_outside: bool
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
    key: tuple[int, int, int] | None = None
    """Its place in the queue; what differs there is outdated."""


class Site:
    """Pages by address and by order. Depths are those of the shortest ways, and so is the queue's order.

    Depths are counted up to one above the limit: each page moves up that often at the most, so that links
    cost a constant each, however late the short ways are found.
    """

    def __init__(self, homepage: str, limits: SitemapLimits) -> None:
        self.limits = limits
        self.nodes: list[Node] = []
        self.orders: dict[str, int] = {}
        self.counts: Counter[str] = Counter()
        self._queue: list[tuple[int, int, int]] = []
        self._host = host_of(homepage)
        self._deepest = limits.max_depth + 1
        self.settle(self.add(homepage, None))

    def add(self, url: str, parent: Node | None) -> Node:
        """A page not known before; to be linked and settled by the caller."""
        depth = 0 if parent is None else min(parent.depth + 1, self._deepest)
        above = None if parent is None else parent.order
        is_outside = not same_hosts(host_of(url), self._host)
        node = Node(url, len(self.nodes), depth, above, is_outside, is_document(url))
        if is_outside and self.limits.stay_on_site:
            node.link_type = LinkType.EXTERNAL.value
        self.nodes.append(node)
        self.orders[url] = node.order
        return node

    def link(self, parent: Node, url: str, link_type: str, text: str = "") -> Node:
        """The page at an address, now linked from another."""
        order = self.orders.get(url)
        is_new = order is None
        node = self.add(url, parent) if order is None else self.nodes[order]
        if node.order not in parent.links:
            self.join(parent, node)
            self._shorten(parent, node)
        is_fixed = node.is_outside and self.limits.stay_on_site
        if not is_fixed and (is_new or link_rank(link_type) < link_rank(node.link_type)):
            node.link_type = link_type
        node.link_text = node.link_text or text
        self.settle(node)
        return node

    def join(self, parent: Node, node: Node) -> None:
        """Note a link, and nothing else."""
        parent.links[node.order] = None
        node.linked_from.append(parent.order)

    def _shorten(self, parent: Node, node: Node) -> None:
        """Take the way over `parent` if it is shorter, for all that lies behind the page too."""
        waiting = deque([(parent, node)])
        while waiting:
            above, below = waiting.popleft()
            if above.depth + 1 < below.depth:
                below.depth, below.parent = above.depth + 1, above.order
                self.settle(below)
                waiting.extend((below, self.nodes[order]) for order in below.links)

    def settle(self, node: Node) -> None:
        """Count a page by its state, and queue it if it is to be visited and not queued as it is now."""
        state = self._state(node)
        if state != node.state:
            self.counts[node.state] -= 1
            self.counts[state] += 1
            node.state = state
        key = (node.depth, link_rank(node.link_type), node.order)
        if state == "open" and key != node.key:
            node.key = key
            heappush(self._queue, key)

    def _state(self, node: Node) -> str:
        if node.visited_at is not None:
            return "visited"
        if node.failure:
            return "failed"
        if node.order == 0:
            return "open"
        is_left_alone = self.limits.stay_on_site and (
            node.is_outside or node.link_type == LinkType.EXTERNAL.value
        )
        return "closed" if is_left_alone or node.is_file or node.depth > self.limits.max_depth else "open"

    def first(self) -> Node | None:
        """The page to visit first, whatever the limit of pages says."""
        while self._queue:
            node = self.nodes[self._queue[0][2]]
            if node.state == "open" and node.key == self._queue[0]:
                return node
            heappop(self._queue)
        return None


def node_to_dict(node: Node) -> dict[str, Any]:
    """A page as plain JSON."""
    return {
        "url": node.url,
        "parent": node.parent,
        **{name: getattr(node, name) for name in (*_TEXTS, *_COUNTS, "visited_at", "is_folder")},
        "links": list(node.links),
    }


def site_from_rows(homepage: str, limits: SitemapLimits, rows: list[Any]) -> Site:
    """A site from its pages as `node_to_dict` wrote them.

    Raises:
        InvalidInputError: Something in them is damaged; the message names it.
    """
    site = Site(homepage, limits)
    for order, row in enumerate(rows):
        where = f"pages[{order}]"
        if not isinstance(row, Mapping):
            raise damaged(where, "an object", row)
        _read_page(site, order, row, where)
    for order, row in enumerate(rows):
        for other in _read_links(row, len(rows), f"pages[{order}].links"):
            site.join(site.nodes[order], site.nodes[other])
    _check_ways(site)
    for node in site.nodes:
        site.settle(node)
    return site


def damaged(where: str, what: str, value: object) -> InvalidInputError:
    """The error for a part of a stored map that is not what it must be."""
    return InvalidInputError(f"{where} of the site map must be {what}, got {short(value)}: {_NEXT}")


def _read_page(site: Site, order: int, row: Mapping[str, Any], where: str) -> None:
    url = row.get("url")
    if not isinstance(url, str) or normalized(url) != url or (order == 0) != (url in site.orders):
        what = "the homepage" if order == 0 else "an address in normal form, of no other page"
        raise damaged(f"{where}.url", what, url)
    node = site.nodes[0] if order == 0 else site.add(url, None)
    for name, most in _TEXTS.items():
        value = row.get(name)
        if not isinstance(value, str) or clean(value, most) != value:
            raise damaged(f"{where}.{name}", f"one line of up to {most} characters", value)
        setattr(node, name, value)
    if as_link_type(node.link_type) != node.link_type:
        raise damaged(f"{where}.link_type", "a type of link in lower case", node.link_type)
    for name in _COUNTS:
        setattr(node, name, _whole(row.get(name), _MOST, f"{where}.{name}"))
    if not isinstance(row.get("is_folder"), bool):
        raise damaged(f"{where}.is_folder", "true or false", row.get("is_folder"))
    node.is_folder = row["is_folder"]
    parent, seen = row.get("parent"), row.get("visited_at")
    node.parent = None if parent is None else _whole(parent, _MOST, f"{where}.parent")
    node.visited_at = None if seen is None else a_time(seen, f"{where}.visited_at of the site map")


def _read_links(row: Mapping[str, Any], pages: int, where: str) -> Iterator[int]:
    links = row.get("links")
    if not isinstance(links, list):
        raise damaged(where, "a list", links)
    numbers = [_whole(one, pages - 1, where) for one in links]
    if len(set(numbers)) != len(numbers):
        raise damaged(where, "pages that differ", links)
    return iter(numbers)


def _check_ways(site: Site) -> None:
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
            raise damaged(f"{where}.depth", f"that of its shortest way, {depths.get(node.order)}", node.depth)
        if not _is_way(site, node, deepest):
            raise damaged(f"{where}.parent", "the page before it on its shortest way", node.parent)


def _is_way(site: Site, node: Node, deepest: int) -> bool:
    if node.order == 0 or node.parent is None or node.parent >= len(site.nodes):
        return node.order == 0 and node.parent is None
    parent = site.nodes[node.parent]
    if node.order not in parent.links:
        return False
    return parent.depth + 1 == node.depth or (
        parent.depth == node.depth == deepest and parent.order < node.order
    )


def _whole(value: object, most: int, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise damaged(where, f"a whole number from 0 to {most}", value)
    return value


def a_time(value: object, where: str) -> float:
    """Seconds since 1970 that JSON can hold."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not isinstance(value, int | float) or not abs(value) <= _MOST:
        raise InvalidInputError(f"{where} must be seconds since 1970, got {short(value)}: use a number")
    return float(value)
