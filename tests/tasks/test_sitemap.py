"""Site maps: known pages, the next page, and the summary."""

import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.growth_lists import build_crawled_sitemap, build_shortened_sitemap
from langmem_tiers.errors import InvalidConfigError, InvalidInputError
from langmem_tiers.tasks.sitemap import LinkReport, LinkType, SitemapGraph, SitemapLimits, SitemapPage
from langmem_tiers.text.urls import is_same_site
from tests.hypothesis_settings import examples
from tests.work_counters import count_function_calls

HOME = "https://example.com/"


def build_url(path: str) -> str:
    return HOME + path


def crawl(graph: SitemapGraph) -> list[str]:
    """Visit the offered pages until none is left."""
    seen = []
    while (url := graph.next_page()) is not None:
        graph.mark_visited(url)
        seen.append(url.removeprefix(HOME))
    return seen


def test_the_example_of_the_design_runs() -> None:
    graph = SitemapGraph("https://example.com", SitemapLimits(max_depth=2, max_pages=50))
    links = [{"url": build_url("products"), "text": "Products"}, {"url": build_url("about"), "text": "About"}]
    assert graph.add_links("https://example.com", links, "main_nav") == LinkReport(added=2)
    page = graph.mark_visited(
        build_url("products"), title="Products", summary="50 items", section_count=5, at=9
    )
    assert page == SitemapPage(
        url=build_url("products"),
        title="Products",
        summary="50 items",
        depth=1,
        link_type="main_nav",
        link_text="Products",
        parent=HOME,
        is_visited=True,
        section_count=5,
        visited_at=9.0,
        order=1,
    )
    assert crawl(graph) == ["", "about"]
    assert graph.is_complete


def test_the_limits_are_those_of_the_design() -> None:
    limits = SitemapLimits()
    assert (limits.max_depth, limits.max_pages, limits.max_links_per_page) == (2, 50, 500)
    assert limits.stay_on_site


@pytest.mark.parametrize(
    "settings", [{"max_depth": -1}, {"max_pages": 0}, {"max_links_per_page": 1.5}, {"stay_on_site": 1}]
)
def test_an_invalid_limit_is_rejected_by_name(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfigError, match=next(iter(settings))):
        SitemapLimits(**settings)


@pytest.mark.parametrize("url", ["", "example.com", "/a", "mailto:a@b.c", "https://\ud800/", None])
def test_an_invalid_homepage_is_rejected(url: Any) -> None:
    with pytest.raises(InvalidInputError, match="homepage"):
        SitemapGraph(url)


def test_spellings_of_the_same_url_are_one_page() -> None:
    graph = SitemapGraph("HTTPS://EXAMPLE.com:443")
    spellings = ["/a", "a/", "https://example.com/a#part", "./b/../a?utm_source=x", "//example.com/a"]
    report = graph.add_links(HOME, spellings)
    assert (report.added, report.known, report.refused) == (1, 4, ())
    assert graph.links(HOME) == (build_url("a"),)


def test_links_are_read_from_texts_and_from_mappings_in_both_spellings() -> None:
    graph = SitemapGraph(HOME)
    graph.add_links(HOME, ["a", {"url": "b", "text": " The\n B "}, {"href": "c", "label": "C"}])
    assert [(page.url, page.link_text) for page in graph.pages()][1:] == [
        (build_url("a"), ""),
        (build_url("b"), "The B"),
        (build_url("c"), "C"),
    ]
    assert graph.add_links(HOME, {"url": "d"}).added == 1
    assert graph.add_links(HOME, "e").added == 1


def test_a_link_can_have_its_own_type() -> None:
    graph = SitemapGraph(HOME)
    graph.add_links(HOME, [{"url": "a", "link_type": "footer"}, "b"], "section")
    assert [page.link_type for page in graph.pages()] == ["unknown", "footer", "section"]


class UnreadableMapping(Mapping[str, Any]):
    """Mapping that raises on every access."""

    def __getitem__(self, key: str) -> Any:
        raise RuntimeError(key)

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError

    def __len__(self) -> int:
        return 1


def test_invalid_links_are_rejected_with_a_reason_each() -> None:
    no_text = "is neither a string nor a mapping with 'url'"
    no_url = "has no string under 'url'"
    refused: list[tuple[Any, str, str]] = [
        (None, "None", no_text),
        (3, "3", no_text),
        (b"a", "a bytes", no_text),
        (["a"], "a list", no_text),
        ({}, "", no_url),
        ({"url": 7}, "", no_url),
        ({"label": "no  url"}, "no url", no_url),
        (UnreadableMapping(), "a UnreadableMapping", "cannot be read: RuntimeError"),
    ]
    report = SitemapGraph(HOME).add_links(HOME, [*(entry for entry, _, _ in refused), "ok"])
    assert report == LinkReport(added=1, refused=tuple((shown, reason) for _, shown, reason in refused))


@pytest.mark.parametrize("text", ["mailto:a@b.c", ""])
def test_a_text_without_a_page_url_is_rejected_with_a_reason(text: str) -> None:
    report = SitemapGraph(HOME).add_links(HOME, [text, "ok"])
    assert report.added == 1
    ((shown, reason),) = report.refused
    assert (shown, bool(reason)) == (text, True)


def _yield_then_raise() -> Iterator[str]:
    yield "a"
    raise OSError


def _yield_forever() -> Iterator[str]:
    while True:
        yield "a"


@pytest.mark.parametrize(
    ("links", "reason"),
    [
        (None, "not a list"),
        (3, "not a list"),
        (_yield_then_raise(), "OSError"),
        (_yield_forever(), "were read"),
    ],
)
def test_a_list_that_cannot_be_read_to_its_end_is_reported(links: Any, reason: str) -> None:
    report = SitemapGraph(HOME, SitemapLimits(max_links_per_page=3)).add_links(HOME, links)
    assert reason in report.refused[0][1]


def test_links_of_a_page_without_a_web_address_are_rejected() -> None:
    graph = SitemapGraph(HOME)
    assert "the page is not a web address" in graph.add_links("mailto:a@b.c", ["a"]).refused[0][1]
    assert len(graph) == 1


def test_pages_of_one_depth_are_ordered_by_link_type() -> None:
    graph = SitemapGraph(HOME)
    for kind in ("footer", "product", "unknown", "pagination", "content", "section", "main_nav"):
        graph.add_links(HOME, [kind], kind)
    order = ["", "main_nav", "section", "content", "pagination", "product", "unknown", "footer"]
    assert crawl(graph) == order


def test_depth_takes_precedence_over_the_link_type() -> None:
    graph = SitemapGraph(HOME)
    graph.add_links(HOME, ["a"], "footer")
    graph.add_links("/a", ["b"], LinkType.MAIN_NAV)
    assert crawl(graph) == ["", "a", "b"]


def test_the_most_prominent_link_to_a_page_counts() -> None:
    graph = SitemapGraph(HOME)
    graph.add_links(HOME, ["a", "b"], "footer")
    graph.add_links(HOME, ["b"], "main_nav")
    graph.add_links(HOME, ["b"], "content")
    assert crawl(graph) == ["", "b", "a"]


def test_a_page_is_offered_until_it_is_marked() -> None:
    graph = SitemapGraph(HOME)
    assert [graph.next_page(), graph.next_page()] == [HOME, HOME]
    graph.mark_failed(HOME, "500")
    assert graph.next_page() is None


def test_a_failed_page_is_not_offered_but_can_be_visited_later() -> None:
    graph = SitemapGraph(HOME)
    graph.add_links(HOME, ["a"])
    graph.mark_visited(HOME)
    failed = graph.mark_failed("/a", "404\nnot found")
    assert failed is not None
    assert (failed.failure, failed.is_visited) == ("404 not found", False)
    assert (graph.next_page(), graph.is_complete, graph.completeness) == (None, True, 0.5)
    visited = graph.mark_visited("/a")
    assert visited is not None
    assert (visited.failure, graph.completeness) == ("", 1.0)
    assert graph.mark_failed("/a", "too late") == visited


@pytest.mark.parametrize("link", ["https://other.example/", "report.pdf"])
def test_other_sites_and_files_are_known_but_never_offered(link: str) -> None:
    graph = SitemapGraph(HOME)
    assert graph.add_links(HOME, [link], "main_nav").added == 1
    assert crawl(graph) == [""]
    assert graph.completeness == 1.0


def test_an_external_link_is_not_offered_until_another_link_leads_there() -> None:
    graph = SitemapGraph(HOME)
    graph.add_links(HOME, ["a"], "external")
    assert crawl(graph) == [""]
    graph.add_links(HOME, ["a"], "footer")
    assert crawl(graph) == ["a"]


def test_subdomains_belong_to_the_site() -> None:
    graph = SitemapGraph("https://www.example.com")
    graph.add_links(graph.homepage_url, ["https://shop.example.com/"])
    assert graph.remaining == 2


def test_other_sites_are_offered_without_stay_on_site() -> None:
    graph = SitemapGraph(HOME, SitemapLimits(stay_on_site=False))
    graph.add_links(HOME, ["https://other.example/x"], "main_nav")
    assert crawl(graph) == ["", "https://other.example/x"]


def test_a_homepage_that_is_a_file_is_offered() -> None:
    assert SitemapGraph("https://example.com/a.pdf").next_page() == build_url("a.pdf")


def test_pages_beyond_the_depth_are_known_but_not_offered() -> None:
    graph = SitemapGraph(HOME, SitemapLimits(max_depth=1))
    graph.add_links(HOME, ["a"])
    graph.add_links("/a", ["b"])
    graph.add_links("/b", ["c"])
    assert crawl(graph) == ["", "a"]
    assert [graph.depth_of(url) for url in ("/", "/a", "/b", "/c", "/d")] == [0, 1, 2, 2, None]


def test_at_most_max_pages_pages_are_offered() -> None:
    graph = SitemapGraph(HOME, SitemapLimits(max_pages=3))
    graph.add_links(HOME, ["a", "b", "c", "d"])
    assert (graph.remaining, graph.completeness) == (3, 0.0)
    assert len(crawl(graph)) == 3
    assert (graph.remaining, graph.completeness, graph.is_complete) == (0, 1.0, True)


def test_links_per_page_and_pages_per_site_are_limited() -> None:
    graph = SitemapGraph(HOME, SitemapLimits(max_links_per_page=2, max_known_pages=4))
    report = graph.add_links(HOME, ["a", "b", "c", "a"])
    assert (report.added, report.known) == (2, 1)
    assert "already has 2 links" in report.refused[0][1]
    assert "limit of 4 known pages" in graph.add_links("/a", ["b", "c", "d"]).refused[0][1]
    assert "the page is left out" in graph.add_links("/new", ["b"]).refused[0][1]
    assert len(graph) == 4


def test_a_visited_page_is_added_even_to_a_full_map() -> None:
    graph = SitemapGraph(HOME, SitemapLimits(max_known_pages=1))
    assert graph.mark_visited("/a") is not None
    assert [page.url for page in graph.pages(visited=True)] == [build_url("a")]


def test_a_page_without_links_to_it_counts_as_linked_from_the_homepage() -> None:
    graph = SitemapGraph(HOME)
    graph.add_links("/landing", ["a"])
    assert (graph.depth_of("/landing"), graph.depth_of("/a")) == (1, 2)
    assert graph.parents("/landing") == (HOME,)


def test_a_shorter_path_reduces_the_depth_of_a_page_and_its_descendants() -> None:
    graph = SitemapGraph(HOME, SitemapLimits(max_depth=9))
    for above, below in [("/", "a"), ("/a", "b"), ("/b", "c"), ("/c", "d"), ("/d", "a")]:
        graph.add_links(above, [below])
    assert graph.depth_of("/d") == 4
    graph.add_links("/", ["c"])
    assert [graph.depth_of(url) for url in ("/a", "/b", "/c", "/d")] == [1, 2, 1, 2]
    page = graph.page("/c")
    assert page is not None
    assert page.parent == HOME
    assert graph.parents("/c") == (HOME, build_url("b"))


def test_a_shorter_path_brings_pages_within_the_depth() -> None:
    graph = SitemapGraph(HOME, SitemapLimits(max_depth=2))
    for above, below in [("/", "a"), ("/a", "b"), ("/b", "c")]:
        graph.add_links(above, [below])
    assert crawl(graph) == ["", "a", "b"]
    graph.add_links("/", ["b"])
    assert crawl(graph) == ["c"]


def test_relative_links_are_resolved_below_a_page_linked_with_a_slash() -> None:
    graph = SitemapGraph("https://example.com/en/")
    graph.add_links(graph.homepage_url, ["docs/", "plain"])
    graph.add_links(build_url("en/docs"), ["intro"])
    graph.add_links(build_url("en/plain"), ["other"])
    assert [page.url.removeprefix(HOME) for page in graph.pages()] == [
        *("en", "en/docs", "en/plain", "en/docs/intro", "en/other")
    ]


@pytest.mark.parametrize(
    "arguments", [{"at": float("nan")}, {"at": "now"}, {"section_count": -1}, {"at": 10**400}]
)
def test_an_invalid_number_is_rejected_and_no_page_is_added(arguments: dict[str, Any]) -> None:
    graph = SitemapGraph(HOME)
    with pytest.raises(InvalidInputError, match=next(iter(arguments))):
        graph.mark_visited("/a", **arguments)
    assert len(graph) == 1


def test_texts_of_any_size_are_truncated_to_short_lines() -> None:
    graph = SitemapGraph(HOME)
    page = graph.mark_visited(HOME, title="\ud800 t\n" * 10**6, summary="s" * 10**7)
    assert page is not None
    assert len(page.title) <= 300
    assert len(page.summary) <= 2000
    assert "\n" not in page.title
    page.title.encode()


def test_a_second_visit_keeps_the_title_of_the_first() -> None:
    graph = SitemapGraph(HOME)
    graph.mark_visited(HOME, title="Home", summary="Start", at=1)
    page = graph.mark_visited(HOME, summary="Start again", at=2)
    assert page is not None
    assert (page.title, page.summary, page.visited_at) == ("Home", "Start again", 2.0)


def build_explored_sitemap() -> SitemapGraph:
    graph = SitemapGraph(HOME, SitemapLimits(max_depth=2, max_pages=9))
    graph.add_links(HOME, [{"url": "products/", "text": "Products"}, "about", "a.pdf"], "main_nav")
    graph.add_links("/products", [{"url": "1", "text": "One"}, "https://other.example/"], "content")
    graph.add_links("/products/1", ["deep"])
    graph.mark_visited(HOME, title="Home", at=1.5)
    graph.mark_visited("/products", title="Products", summary="Catalog with\n50 items", section_count=5)
    graph.mark_failed("/about", "404")
    return graph


def test_the_summary_contains_the_tree_and_the_unvisited_pages_with_reasons() -> None:
    assert build_explored_sitemap().format_summary().splitlines() == [
        "Site: https://example.com/",
        "Pages visited: 2 of 7 known",
        "Not visited: 1 failed, 1 files, 1 still to visit, 1 on other sites, 1 more than 2 links from the homepage",
        "",
        "Visited:",
        "- Home (https://example.com/)",
        "  - Products (https://example.com/products) [5 sections]: Catalog with 50 items",
        "",
        "Not visited, failed:",
        "  - https://example.com/about: 404",
        "",
        "Not visited, files:",
        "  - https://example.com/a.pdf",
        "",
        "Not visited, still to visit:",
        "  - https://example.com/products/1 (One)",
        "",
        "Not visited, on other sites:",
        "  - https://other.example/",
        "",
        "Not visited, more than 2 links from the homepage:",
        "  - https://example.com/products/deep",
    ]


def test_a_page_below_an_unvisited_page_is_listed_below_the_nearest_visited_one() -> None:
    graph = SitemapGraph(HOME)
    graph.add_links(HOME, ["a"])
    graph.add_links("/a", ["b"])
    graph.mark_visited("/b", title="B")
    assert "\n- B (https://example.com/b)" in graph.format_summary()
    graph.mark_visited(HOME, title="Home")
    assert "\n- Home (https://example.com/)\n  - B (https://example.com/b)" in graph.format_summary()


def test_the_summary_reports_the_page_limit() -> None:
    graph = SitemapGraph(HOME, SitemapLimits(max_pages=1))
    graph.add_links(HOME, [f"{number}" for number in range(12)])
    crawl(graph)
    assert "Not visited: 12 beyond the limit of 1 pages" in graph.format_summary()
    assert "... and 2 more" in graph.format_summary()


@given(st.integers(0, 800))
def test_the_summary_is_truncated_at_whole_lines(limit: int) -> None:
    graph = build_explored_sitemap()
    whole, cut = graph.format_summary(), graph.format_summary(limit)
    assert len(cut) <= limit
    if len(whole) <= limit:
        assert cut == whole
    elif cut:
        kept = cut.removesuffix("\n...").splitlines()
        assert kept == whole.splitlines()[: len(kept)]
        assert cut.endswith("\n...")


def test_an_invalid_summary_length_is_rejected() -> None:
    with pytest.raises(InvalidInputError, match="max_characters"):
        build_explored_sitemap().format_summary(-1)


def test_a_map_comes_back_equal_from_json_and_can_be_continued() -> None:
    graph = build_explored_sitemap()
    restored = SitemapGraph.from_dict(json.loads(json.dumps(graph.to_dict())))
    assert restored == graph
    assert restored.pages() == graph.pages()
    assert [restored.parents(page.url) for page in graph.pages()] == [
        graph.parents(page.url) for page in graph.pages()
    ]
    for sitemap in (restored, graph):
        sitemap.add_links("/products", ["2"], "main_nav")  # inside the folder
    assert crawl(restored) == crawl(graph) == ["products/2", "products/1"]
    assert restored != SitemapGraph(HOME)


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("version",), 2),
        (("version",), True),
        (("limits",), None),
        (("limits",), {}),
        (("limits", "max_depth"), -1),
        (("limits", "max_pages"), "many"),
        (("pages",), {}),
        (("pages",), []),
        (("pages",), [None]),
        (("pages", 2), None),
        (("pages", 0, "url"), "mailto:a@b.c"),
        (("pages", 0, "url"), "https://example.com/about"),
        (("pages", 1, "url"), "https://EXAMPLE.com/products"),
        (("pages", 1, "url"), None),
        (("pages", 1, "url"), HOME),
        (("pages", 1, "title"), 5),
        pytest.param(("pages", 1, "title"), "x" * 10**6, id="long title"),
        (("pages", 1, "link_text"), "two\nlines"),
        (("pages", 1, "link_type"), "Main"),
        (("pages", 1, "section_count"), -1),
        (("pages", 1, "section_count"), True),
        pytest.param(("pages", 1, "section_count"), 10**5000, id="long number"),
        pytest.param(("limits", "max_pages"), 10**5000, id="long limit"),
        (("pages", 1, "is_folder"), "yes"),
        (("pages", 1, "visited_at"), float("inf")),
        (("pages", 1, "depth"), 2),
        (("pages", 1, "parent"), None),
        (("pages", 1, "parent"), 1),
        (("pages", 1, "parent"), 99),
        (("pages", 0, "parent"), 1),
        (("pages", 1, "links"), None),
        (("pages", 1, "links"), [99]),
        (("pages", 1, "links"), [1, 1]),
        (("pages", 1, "links"), []),
    ],
)
def test_a_damaged_map_is_rejected_by_name(where: tuple[Any, ...], value: Any) -> None:
    data = build_explored_sitemap().to_dict()
    part: Any = data
    for step in where[:-1]:
        part = part[step]
    part[where[-1]] = value
    with pytest.raises(InvalidInputError, match=r"pages|version|limits") as caught:
        SitemapGraph.from_dict(data)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("data", [None, [], "map", 3, {}])
def test_an_invalid_map_is_rejected(data: Any) -> None:
    with pytest.raises(InvalidInputError, match="site map"):
        SitemapGraph.from_dict(data)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.data())
def test_a_map_with_any_part_replaced_is_read_or_rejected(data: st.DataObject) -> None:
    stored = build_explored_sitemap().to_dict()
    part: Any = stored
    for _ in range(data.draw(st.integers(0, 3))):
        keys = [
            key
            for key in (part if isinstance(part, dict) else range(len(part)))
            if isinstance(part[key], list | dict)
        ]
        if keys:
            part = part[data.draw(st.sampled_from(keys))]
    if part:
        part[data.draw(st.sampled_from(list(part) if isinstance(part, dict) else range(len(part))))] = (
            data.draw(JSON)
        )
    try:
        graph = SitemapGraph.from_dict(stored)
    except InvalidInputError:
        return
    crawl(graph)
    graph.format_summary()


class BruteForceSitemap:
    """Brute-force reference that recomputes all paths for each query."""

    def __init__(self, limits: SitemapLimits) -> None:
        self.limits = limits
        self.links: dict[str, list[str]] = {HOME: []}
        self.types = {HOME: "unknown"}
        self.done: set[str] = set()
        self.visited: set[str] = set()

    def reach(self, url: str) -> None:
        if url not in self.links:
            self.link(HOME, url, "unknown")

    def link(self, above: str, below: str, kind: str) -> None:
        if below not in self.links[above]:
            self.links[above].append(below)
        ranks = {kind: rank for rank, kind in enumerate("main_nav content unknown footer external".split())}
        self.links.setdefault(below, [])
        self.types[below] = min(self.types.get(below, kind), kind, key=ranks.__getitem__)

    def depths(self) -> dict[str, int]:
        found, waiting = {HOME: 0}, deque([HOME])
        while waiting:
            above = waiting.popleft()
            for below in self.links[above]:
                if below not in found:
                    found[below] = found[above] + 1
                    waiting.append(below)
        return {url: min(depth, self.limits.max_depth + 1) for url, depth in found.items()}

    def next(self) -> str | None:
        ranks = {kind: rank for rank, kind in enumerate("main_nav content unknown footer".split())}
        depths, order = self.depths(), list(self.links)
        offered = [
            (depths[url], ranks.get(self.types[url], 9), order.index(url), url)
            for url in order
            if url not in self.done
            and depths[url] <= self.limits.max_depth
            and (url == HOME or self.types[url] != "external")
        ]
        return min(offered)[-1] if offered and len(self.visited) < self.limits.max_pages else None


PATHS = st.sampled_from(["", *"abcdefgh"])
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("add"),
            PATHS,
            st.lists(PATHS, max_size=4),
            st.sampled_from("main_nav content unknown footer external".split()),
        ),
        st.tuples(st.sampled_from(["visit", "fail"]), PATHS),
        st.tuples(st.just("next")),
    ),
    max_size=25,
)


def apply_step(graph: SitemapGraph, reference: BruteForceSitemap, step: tuple[Any, ...]) -> None:
    if step[0] == "add":
        graph.add_links(build_url(step[1]), ["/" + path for path in step[2]], step[3])
        reference.reach(build_url(step[1]))
        for path in step[2]:
            reference.link(build_url(step[1]), build_url(path), step[3])
        return
    url = build_url(step[1]) if len(step) > 1 else graph.next_page()
    if url is None:
        return
    reference.reach(url)
    reference.done.add(url)
    if step[0] == "fail":
        graph.mark_failed(url, "reason")
    else:
        graph.mark_visited(url)
        reference.visited.add(url)


@examples(400)
@given(STEPS, st.integers(0, 4), st.integers(1, 6))
def test_any_exploration_matches_brute_force_and_survives_json(
    steps: list[tuple[Any, ...]], max_depth: int, max_pages: int
) -> None:
    limits = SitemapLimits(max_depth=max_depth, max_pages=max_pages)
    graph, reference = SitemapGraph(HOME, limits), BruteForceSitemap(limits)
    for step in steps:
        apply_step(graph, reference, step)
        assert graph.next_page() == reference.next()
        assert (graph.remaining == 0) == graph.is_complete == (reference.next() is None)
        assert 0 <= graph.completeness <= 1
    assert {page.url: page.depth for page in graph.pages()} == reference.depths()
    assert {page.url: graph.links(page.url) for page in graph.pages()} == {
        url: tuple(links) for url, links in reference.links.items()
    }
    restored = SitemapGraph.from_dict(json.loads(json.dumps(graph.to_dict())))
    assert restored == graph
    before = {page.url for page in graph.pages(visited=True)}
    after = [HOME + path for path in crawl(graph)]
    assert [HOME + path for path in crawl(restored)] == after
    assert len(after) == len(set(after) - before)
    assert len(after) <= max(0, max_pages - len(before))


@examples(200)
@given(
    st.lists(st.one_of(st.text(max_size=30), st.text(max_size=20).map(build_url)), min_size=1, max_size=6),
    st.text(),
)
def test_any_text_is_accepted_as_a_url_and_stays_on_the_site(urls: list[str], text: str) -> None:
    graph = SitemapGraph(HOME)
    for url in urls:
        graph.add_links(url, [*urls, {"url": url, "text": text}], text)
        graph.mark_failed(text + url, text)
        graph.page(url), graph.links(url), graph.parents(url), graph.depth_of(url)
    graph.mark_visited(urls[0], title=text, summary=text)
    while (offered := graph.next_page()) is not None:
        assert is_same_site(offered, HOME)
        graph.mark_visited(offered)
    assert len(graph.format_summary()) <= 4000
    assert SitemapGraph.from_dict(json.loads(json.dumps(graph.to_dict()))) == graph


@pytest.mark.parametrize("work", [build_crawled_sitemap, build_shortened_sitemap])
def test_the_cost_of_a_sitemap_is_linear_in_its_pages(work: Callable[[int], SitemapGraph]) -> None:
    assert count_function_calls(lambda: work(200)) < 2.2 * count_function_calls(lambda: work(100))


def test_a_crawl_of_linked_pages_visits_each_of_them() -> None:
    assert len(build_crawled_sitemap(200).pages(visited=True)) == 200


def test_links_from_the_homepage_reduce_the_depth_of_a_long_path_to_1() -> None:
    graph = build_shortened_sitemap(100)
    assert {graph.depth_of(f"/{number}") for number in range(100)} == {1}
