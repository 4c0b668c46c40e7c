"""What an agent's memory offers by itself and its parts do: pages, patterns, the site."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langmem_tiers.flows.task_cycles import page_name

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterable, Mapping

    from langmem_tiers.core.tasks import LearnedPattern
    from langmem_tiers.flows.task_parts import (
        TaskContextStore,
        TaskGuard,
        TaskShortTerm,
        TaskWorkingMemory,
    )
    from langmem_tiers.flows.task_patterns import TaskPatterns
    from langmem_tiers.flows.task_run import TaskRun
    from langmem_tiers.tiers.task.guard_advice import GuardAdvice
    from langmem_tiers.tiers.task.sitemap import LinkReport, SitemapGraph, SitemapLimits, SitemapPage


class TaskSurface:
    """The parts of an agent's memory, and the short ways to them."""

    long_term: TaskPatterns
    _run: TaskRun
    _lock: threading.RLock

    @property
    def short_term(self) -> TaskShortTerm:
        """The newest cycles."""
        return self._run.short_term

    @property
    def working(self) -> TaskWorkingMemory:
        """Goal, path, scratch pad and page maps."""
        return self._run.working

    @property
    def context_store(self) -> TaskContextStore:
        """What the user said, what was found out, and what was extracted."""
        return self._run.context_store

    @property
    def guard(self) -> TaskGuard:
        """Notices when the agent goes in circles."""
        return self._run.guard

    @property
    def advice(self) -> GuardAdvice | None:
        """What the guard has to say to the last cycle."""
        return self._run.advice

    @property
    def sitemap(self) -> SitemapGraph | None:
        """The site that is explored."""
        return self._run.sites.graph

    @property
    def current_url(self) -> str:
        """The page that the agent is at; empty if none was named."""
        return self._run.url

    def mark_url_visited(self, url: str) -> None:
        """Note that a page was seen."""
        with self._lock:
            self._run.visit(url)

    def has_visited_url(self, url: str) -> bool:
        """Whether a page was seen, in whatever form its address is written."""
        return page_name(url) in self._run.visited

    @property
    def visited_urls(self) -> list[str]:
        """The pages that were seen, in that order."""
        with self._lock:
            return list(self._run.visited)

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
            return self._run.sites.begin(homepage_url, limits)

    def add_sitemap_links(
        self, parent_url: str, links: Iterable[Mapping[str, Any] | str], link_type: str = "unknown"
    ) -> LinkReport:
        """Links that were found on a page."""
        with self._lock:
            return self._run.add_links(parent_url, links, link_type)

    def update_sitemap_visited(
        self, url: str, title: str = "", summary: str = "", section_count: int = 0
    ) -> SitemapPage | None:
        """A page that was looked at."""
        with self._lock:
            self.mark_url_visited(url)
            return self._run.sites.visited(url, title, summary, section_count)

    def update_sitemap_failed(self, url: str, reason: str = "") -> SitemapPage | None:
        """A page that cannot be looked at, so that it is not offered again."""
        with self._lock:
            return self._run.sites.failed(url, reason)

    def get_next_page_to_visit(self) -> str | None:
        """Where to go next; None when all within the limits was seen."""
        with self._lock:
            return self._run.sites.get().next_page()

    def is_sitemap_exploration_complete(self) -> bool:
        """Whether all within the limits was seen."""
        with self._lock:
            return self._run.sites.get().is_complete

    def format_site_exploration_summary(self) -> str:
        """What was found at the site."""
        with self._lock:
            return self._run.sites.get().format_summary()
