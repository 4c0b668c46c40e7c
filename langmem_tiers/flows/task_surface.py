"""What an agent's memory offers by itself and its parts do: pages, patterns, the site."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterable, Mapping

    from langmem_tiers.core.tasks import LearnedPattern
    from langmem_tiers.flows.task_parts import TaskContextStore, TaskPatterns, TaskWorkingMemory
    from langmem_tiers.flows.task_sites import TaskSites
    from langmem_tiers.tiers.task.sitemap import LinkReport, SitemapGraph, SitemapLimits, SitemapPage


class TaskSurface(ABC):
    """The short ways to the parts of an agent's memory."""

    working: TaskWorkingMemory
    context_store: TaskContextStore
    long_term: TaskPatterns
    _sites: TaskSites
    _lock: threading.RLock

    @abstractmethod
    def mark_url_visited(self, url: str) -> None:
        """Note that a page was seen."""

    def add_inferred_context(self, key: str, value: object, source: str = "") -> None:
        """Keep what was found out on the way."""
        self.context_store.add_inferred(key, value, source)

    def store_page_map(self, url: str, page_map: object) -> None:
        """Keep what is where on a page."""
        self.working.store_page_map(url, page_map)

    def has_page_map(self, url: str) -> bool:
        """Whether a page is known."""
        return self.working.has_page_map(url)

    def get_page_map(self, url: str) -> Any:  # noqa: ANN401 - whatever was handed in
        """What is where on a page."""
        return self.working.get_page_map(url)

    def get_all_page_maps(self) -> dict[str, Any]:
        """All pages that are known."""
        return self.working.get_all_page_maps()

    def get_page_summary(self, url: str) -> str | None:
        """A page in one line."""
        return self.working.get_page_summary(url)

    def learn_pattern(self, pattern: LearnedPattern) -> None:
        """Keep steps that worked, for all tasks of the namespace."""
        with self._lock:
            self.long_term.learn(pattern)

    def get_patterns_for_domain(self, domain: str) -> list[LearnedPattern]:
        """What worked at a site, the best first."""
        return self.long_term.get_patterns_for_domain(domain)

    def init_sitemap_graph(self, homepage_url: str, limits: SitemapLimits | None = None) -> SitemapGraph:
        """Begin to explore a site; its first page is being looked at."""
        with self._lock:
            return self._sites.begin(homepage_url, limits)

    def add_sitemap_links(
        self, parent_url: str, links: Iterable[Mapping[str, Any] | str], link_type: str = "unknown"
    ) -> LinkReport:
        """Links that were found on a page."""
        with self._lock:
            report = self._sites.add_links(parent_url, links, link_type)
            self.mark_url_visited(parent_url)
            return report

    def update_sitemap_visited(
        self, url: str, title: str = "", summary: str = "", section_count: int = 0
    ) -> SitemapPage | None:
        """A page that was looked at."""
        with self._lock:
            self.mark_url_visited(url)
            return self._sites.visited(url, title, summary, section_count)

    def update_sitemap_failed(self, url: str, reason: str = "") -> SitemapPage | None:
        """A page that cannot be looked at, so that it is not offered again."""
        with self._lock:
            return self._sites.failed(url, reason)

    def get_next_page_to_visit(self) -> str | None:
        """Where to go next; None when all within the limits was seen."""
        with self._lock:
            return self._sites.get().next_page()

    def is_sitemap_exploration_complete(self) -> bool:
        """Whether all within the limits was seen."""
        with self._lock:
            return self._sites.get().is_complete

    def format_site_exploration_summary(self) -> str:
        """What was found at the site."""
        with self._lock:
            return self._sites.get().format_summary()
