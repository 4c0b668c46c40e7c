"""The site that a task explores, and what is told of the task at its end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from langmem_tiers.common.lock_wrapper import synchronize_methods
from langmem_tiers.errors import InvalidInputError
from langmem_tiers.tasks.models import ExecutionOutcome
from langmem_tiers.tasks.sitemap import LinkType, SitemapGraph, SitemapLimits
from langmem_tiers.tasks.sitemap_pages import parse_links

if TYPE_CHECKING:
    import threading
    from collections import Counter
    from collections.abc import Callable

    from langmem_tiers.tasks.cycles import RecentCycles
    from langmem_tiers.tasks.sitemap import LinkReport, SitemapPage
    from langmem_tiers.tasks.working_state import WorkingState

_MAX_LINKS_PER_NOTE = 1_000  # in one note
_MAX_SHOWN_PAGES, _MAX_SHOWN_TOOLS, _MAX_SUMMARY_CHARACTERS = 10, 5, 60


@synchronize_methods
class JournaledSitemap(SitemapGraph):
    """A site whose changes are tried, written down, and then made.

    Args:
        homepage_url: Where it begins.
        limits: How far it goes.
        note: Writes a change down.
        lock: Changes are made one at a time.
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
        """A site as it was."""
        whole = cls(graph.homepage_url, graph.limits, note, lock)
        whole._graph = graph._graph  # noqa: SLF001 - its own kind
        return whole

    def add_links(
        self,
        parent_url: str,
        links: Iterable[Mapping[str, Any] | str],
        link_type: str = LinkType.UNKNOWN,
    ) -> LinkReport:
        """Links that were found on a page."""
        given: Any = links
        read, broken = _read_links(given) if isinstance(given, Iterable) else ([], None)
        usable = [one for one in parse_links(read, len(read)) if not one.problem]
        found = [{"url": one.url, "text": one.text, "link_type": one.link_type} for one in usable]
        for place in range(0, max(1, len(found)), _MAX_LINKS_PER_NOTE):
            self._write_note("links", [parent_url, found[place : place + _MAX_LINKS_PER_NOTE], link_type])
        links = (
            _repeat_links(read, broken) if isinstance(given, Iterable) else links
        )  # what is none is refused below
        return super().add_links(parent_url, links, link_type)

    def mark_visited(
        self, url: str, *, title: str = "", summary: str = "", section_count: int = 0, at: float = 0.0
    ) -> SitemapPage | None:
        """A page that was looked at."""
        told = {"title": title, "summary": summary, "section_count": section_count}
        SitemapGraph(self.homepage_url, self.limits).mark_visited(url, **told, at=at)  # type: ignore[arg-type]
        self._write_note("page", [url, title, summary, section_count])
        return super().mark_visited(url, **told, at=at)  # type: ignore[arg-type]

    def mark_failed(self, url: str, reason: str = "") -> SitemapPage | None:
        """A page that cannot be looked at."""
        self._write_note("no page", [url, reason])
        return super().mark_failed(url, reason)


class SiteExploration:
    """The site of a task; its changes are written down.

    Args:
        now: The time in seconds since 1970.
        note: Writes a change down.
        lock: Changes are made one at a time.
    """

    def __init__(
        self, now: Callable[[], float], note: Callable[[str, object], None], lock: threading.RLock
    ) -> None:
        self.graph: JournaledSitemap | None = None
        self._now = now
        self._write_note = note
        self._lock = lock

    def require(self) -> JournaledSitemap:
        """The site.

        Raises:
            InvalidInputError: None is explored.
        """
        if self.graph is None:
            raise InvalidInputError("no site is explored: call init_sitemap_graph(homepage_url) first")
        return self.graph

    def begin(self, homepage_url: str, limits: SitemapLimits | None) -> JournaledSitemap:
        """Begin to explore a site."""
        graph = JournaledSitemap(homepage_url, limits, self._write_note, self._lock)
        self._write_note("sitemap", graph.to_dict())
        self.graph = graph
        return graph

    def add_links(
        self, parent_url: str, links: Iterable[Mapping[str, Any] | str], link_type: str
    ) -> LinkReport:
        """Links that were found on a page: whoever finds them is looking at it."""
        graph = self.require()
        report = graph.add_links(parent_url, links, link_type)
        page = graph.page(parent_url)
        if page is None or not page.is_visited:
            SitemapGraph.mark_visited(graph, parent_url, at=self._now())  # said by the links already
        return report

    def mark_visited(self, url: str, title: str, summary: str, section_count: int) -> SitemapPage | None:
        """A page that was looked at."""
        return self.require().mark_visited(
            url, title=title, summary=summary, section_count=section_count, at=self._now()
        )

    def mark_failed(self, url: str, reason: str) -> SitemapPage | None:
        """A page that cannot be looked at."""
        return self.require().mark_failed(url, reason)

    def replay_note(self, kind: str, value: Any) -> None:  # noqa: ANN401 - JSON
        """Do again what was written down."""
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
        """The task in a few lines."""
        failed = sum(count for outcome, count in counts.items() if outcome.is_failure)
        other = counts.total() - counts[ExecutionOutcome.SUCCESS] - failed
        told = f"{counts[ExecutionOutcome.SUCCESS]} successful, {failed} failed" + (
            f", {other} other" if other else ""
        )
        lines = [
            f"Goal: {working.current_goal or '-'}",
            f"Actions: {counts.total()} total ({told})",
            f"Current page: {url or '-'}",
            f"Pages visited: {visited}",
        ]
        seen = () if self.graph is None else self.graph.pages(visited=True)
        if seen:
            lines += ["", f"Explored pages ({len(seen)} total):"]
            lines += [_format_page(page) for page in seen[:_MAX_SHOWN_PAGES]]
        done = [one.action.tool_name for one in short_term.entries if one.outcome is ExecutionOutcome.SUCCESS]
        tools = list(dict.fromkeys(reversed(done)))[:_MAX_SHOWN_TOOLS]
        if tools:
            lines += ["", f"Recent successful actions: {', '.join(tools)}"]
        return "\n".join(lines)


def _read_links(links: Iterable[Any]) -> tuple[list[Any], Exception | None]:
    """The links, as far as they can be read, and what broke them off."""
    read: list[Any] = []
    try:
        read.extend([links] if isinstance(links, str | Mapping) else links)
    except Exception as error:  # noqa: BLE001 - of the caller's own iterator
        return read, error
    return read, None


def _repeat_links(read: list[Any], broken: Exception | None) -> Iterator[Any]:
    yield from read
    if broken is not None:
        raise broken


def _format_page(page: SitemapPage) -> str:
    name = page.title or page.url
    return f"  - {name}: {_shorten(page.summary)}" if page.summary else f"  - {name}"


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_SUMMARY_CHARACTERS else f"{text[:_MAX_SUMMARY_CHARACTERS].rstrip()}..."
