"""Exploration of a site within a task, and the summary of the task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from langmem_tiers.common.lock_wrapper import synchronize_methods
from langmem_tiers.errors import InvalidInputError
from langmem_tiers.tasks.models import ExecutionOutcome
from langmem_tiers.tasks.sitemap import LinkType, SitemapGraph, SitemapLimits
from langmem_tiers.tasks.sitemap_graph import parse_links

if TYPE_CHECKING:
    import threading
    from collections import Counter
    from collections.abc import Callable

    from langmem_tiers.tasks.cycles import RecentCycles
    from langmem_tiers.tasks.sitemap import LinkReport, SitemapPage
    from langmem_tiers.tasks.working_state import WorkingState

# Maximum number of links in one note of the journal.
_MAX_LINKS_PER_NOTE = 1_000
_MAX_SHOWN_PAGES, _MAX_SHOWN_TOOLS, _MAX_SUMMARY_CHARACTERS = 10, 5, 60


@synchronize_methods
class JournaledSitemap(SitemapGraph):
    """Site map that validates each change, records it in the journal, and then applies it.

    Args:
        homepage_url: Homepage of the site.
        limits: Limits of the exploration. Default: `SitemapLimits()`.
        note: Records a change.
        lock: Lock for all changes of the task.
    """

    def __init__(
        self,
        homepage_url: str,
        limits: SitemapLimits | None,
        note: Callable[[str, object], None],
        lock: threading.RLock,
    ) -> None:
        self._lock = lock
        self._write_note = note
        super().__init__(homepage_url, limits)

    @classmethod
    def from_graph(
        cls, graph: SitemapGraph, note: Callable[[str, object], None], lock: threading.RLock
    ) -> JournaledSitemap:
        """Create a journaled site map with the pages of another map."""
        sitemap = cls(graph.homepage_url, graph.limits, note, lock)
        sitemap._graph = graph._graph  # noqa: SLF001 - the base class
        return sitemap

    def add_links(
        self,
        parent_url: str,
        links: Iterable[Mapping[str, Any] | str],
        link_type: str = LinkType.UNKNOWN,
    ) -> LinkReport:
        """Add links that were found on a page, see `SitemapGraph.add_links`."""
        links_value: Any = links
        is_iterable = isinstance(links_value, Iterable)
        # Read the links once, since they may be an iterator, and record only the usable ones. The base class then gets
        # the same links and the same exception, so that its report names all problems.
        read_links, error = _read_links(links_value) if is_iterable else ([], None)
        usable = [link for link in parse_links(read_links, len(read_links)) if not link.problem]
        recorded = [{"url": link.url, "text": link.text, "link_type": link.link_type} for link in usable]
        for start in range(0, max(1, len(recorded)), _MAX_LINKS_PER_NOTE):
            self._write_note("links", [parent_url, recorded[start : start + _MAX_LINKS_PER_NOTE], link_type])
        # A value that is not iterable is passed on unchanged; the base class reports it.
        links = _repeat_links(read_links, error) if is_iterable else links
        return super().add_links(parent_url, links, link_type)

    def mark_visited(
        self, url: str, *, title: str = "", summary: str = "", section_count: int = 0, at: float = 0.0
    ) -> SitemapPage | None:
        """Mark a page as visited and return it."""
        details = {"title": title, "summary": summary, "section_count": section_count}
        # Validate with an empty map first, so that an invalid change is never recorded.
        SitemapGraph(self.homepage_url, self.limits).mark_visited(url, **details, at=at)  # type: ignore[arg-type]
        self._write_note("page", [url, title, summary, section_count])
        return super().mark_visited(url, **details, at=at)  # type: ignore[arg-type]

    def mark_failed(self, url: str, reason: str = "") -> SitemapPage | None:
        """Mark a page as failed and return it."""
        self._write_note("no page", [url, reason])
        return super().mark_failed(url, reason)


class SiteExploration:
    """Site exploration of a task.

    Args:
        now: Returns the current time in seconds since 1970.
        note: Records a change in the journal.
        lock: Lock for all changes of the task.
    """

    def __init__(
        self, now: Callable[[], float], note: Callable[[str, object], None], lock: threading.RLock
    ) -> None:
        self.graph: JournaledSitemap | None = None
        self._now = now
        self._write_note = note
        self._lock = lock

    def require(self) -> JournaledSitemap:
        """Return the site map.

        Raises:
            InvalidInputError: No exploration was started.
        """
        if self.graph is None:
            raise InvalidInputError("no site is being explored: call init_sitemap_graph(homepage_url) first")
        return self.graph

    def begin(self, homepage_url: str, limits: SitemapLimits | None) -> JournaledSitemap:
        """Start exploring a site; it replaces the previous one."""
        graph = JournaledSitemap(homepage_url, limits, self._write_note, self._lock)
        self._write_note("sitemap", graph.to_dict())
        self.graph = graph
        return graph

    def add_links(
        self, parent_url: str, links: Iterable[Mapping[str, Any] | str], link_type: str
    ) -> LinkReport:
        """Add links that were found on a page; the page counts as visited."""
        graph = self.require()
        report = graph.add_links(parent_url, links, link_type)
        page = graph.page(parent_url)
        # Call the method of the base class, which does not record the visit: replaying the links implies it.
        if page is None or not page.is_visited:
            SitemapGraph.mark_visited(graph, parent_url, at=self._now())
        return report

    def mark_visited(self, url: str, title: str, summary: str, section_count: int) -> SitemapPage | None:
        """Mark a page as visited and return it."""
        return self.require().mark_visited(
            url, title=title, summary=summary, section_count=section_count, at=self._now()
        )

    def mark_failed(self, url: str, reason: str) -> SitemapPage | None:
        """Mark a page as failed and return it."""
        return self.require().mark_failed(url, reason)

    def replay_note(self, kind: str, value: Any) -> None:  # noqa: ANN401 - JSON
        """Apply a recorded change; unknown kinds are ignored."""
        if kind == "sitemap":
            self.graph = JournaledSitemap.from_graph(
                SitemapGraph.from_dict(value), self._write_note, self._lock
            )
        elif kind == "links" and self.graph is not None:
            self.add_links(*value)
        elif kind == "page" and self.graph is not None:
            self.mark_visited(*value)
        elif kind == "no page" and self.graph is not None:
            self.mark_failed(*value)

    def build_task_summary(
        self,
        working: WorkingState,
        counts: Counter[ExecutionOutcome],
        short_term: RecentCycles,
        url: str,
        visited: int,
    ) -> str:
        """Build a summary of the task in a few lines.

        Args:
            working: Working state with the goal.
            counts: Number of actions by outcome.
            short_term: Recent cycles.
            url: Address of the current page.
            visited: Number of visited pages.
        """
        failed = sum(count for outcome, count in counts.items() if outcome.is_failure)
        other = counts.total() - counts[ExecutionOutcome.SUCCESS] - failed
        outcomes = f"{counts[ExecutionOutcome.SUCCESS]} successful, {failed} failed" + (
            f", {other} other" if other else ""
        )
        lines = [
            f"Goal: {working.current_goal or '-'}",
            f"Actions: {counts.total()} total ({outcomes})",
            f"Current page: {url or '-'}",
            f"Pages visited: {visited}",
        ]
        pages = () if self.graph is None else self.graph.pages(visited=True)
        if pages:
            lines += ["", f"Explored pages ({len(pages)} total):"]
            lines += [_format_page(page) for page in pages[:_MAX_SHOWN_PAGES]]
        successful_tools = [
            cycle.action.tool_name
            for cycle in short_term.entries
            if cycle.outcome is ExecutionOutcome.SUCCESS
        ]
        # The latest tools, each once.
        tools = list(dict.fromkeys(reversed(successful_tools)))[:_MAX_SHOWN_TOOLS]
        if tools:
            lines += ["", f"Recent successful actions: {', '.join(tools)}"]
        return "\n".join(lines)


def _read_links(links: Iterable[Any]) -> tuple[list[Any], Exception | None]:
    """Return the links up to the first exception, and that exception."""
    read_links: list[Any] = []
    try:
        # A generator that raises has already yielded some links; extend() keeps those.
        read_links.extend([links] if isinstance(links, str | Mapping) else links)
    except Exception as error:  # noqa: BLE001 - an iterator of the caller may raise anything
        return read_links, error
    return read_links, None


def _repeat_links(read_links: list[Any], error: Exception | None) -> Iterator[Any]:
    yield from read_links
    if error is not None:
        raise error


def _format_page(page: SitemapPage) -> str:
    name = page.title or page.url
    return f"  - {name}: {_shorten(page.summary)}" if page.summary else f"  - {name}"


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_SUMMARY_CHARACTERS else f"{text[:_MAX_SUMMARY_CHARACTERS].rstrip()}..."
