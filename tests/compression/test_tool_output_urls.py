from __future__ import annotations

import html
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.growth_texts import PAGE_UNITS, page_of
from langmem_tiers.compression.tool_output.compressor import ContextCompressor
from langmem_tiers.compression.tool_output.models import CompressedExtraction, CompressionContentType
from langmem_tiers.compression.tool_output.urls import MAX_URLS, ExtractedUrls, extract_all_urls
from tests.hypothesis_settings import examples

compressor = ContextCompressor()
NAMES = "abcXYZ0189-_äöüéñ中文страница"
segment = st.text(NAMES + ".~%+", min_size=1, max_size=8).map(lambda text: f"a{text}z")
in_brackets = st.builds("{}_({})".format, segment, segment)
path = st.lists(st.one_of(segment, in_brackets), max_size=4).map(
    lambda parts: "".join(f"/{part}" for part in parts)
)
query = st.lists(st.tuples(segment, segment), max_size=3).map(
    lambda pairs: "?" + "&".join(f"{key}={value}" for key, value in pairs) if pairs else ""
)
fragment = st.one_of(st.just(""), segment.map(lambda text: f"#{text}"))
host = st.builds(
    "{}.{}{}".format,
    st.text("abcxyz019äé中", min_size=1, max_size=8),
    st.sampled_from(["com", "org", "de", "co.uk", "中国"]),
    st.one_of(st.just(""), st.integers(1, 65535).map(lambda port: f":{port}")),
)
absolute = st.builds(
    "{}://{}{}{}{}".format,
    st.sampled_from(["http", "https", "HTTPS", "ftp", "wss"]),
    host,
    path,
    query,
    fragment,
)
relative = st.builds(
    "{}{}{}{}{}".format, st.sampled_from(["/", "./", "../", "../../", ""]), segment, path, query, fragment
)
address = st.one_of(absolute, relative)
some = st.lists(address, min_size=1, max_size=8, unique=True)
words = st.text("abc defg hij. klm, n", max_size=200)


def list_kept_values(data: object, kind: str | None, tier: int) -> set[str]:
    """What stands behind a name or a dash on the lines of the prompt."""
    text = compressor.compress(data, kind, tier).format_for_prompt()
    found = set()
    for line in text.splitlines():
        found.add(line.removeprefix("- "))
        found.update(line[index + 2 :] for index in range(len(line)) if line.startswith(": ", index))
    return found


def as_page(urls: list[str], text: str) -> str:
    links = [
        f"<p>{html.escape(text)}</p><a class=x href={quote}{html.escape(url)}{quote}>Go {number}</a>"
        for number, (url, quote) in enumerate(zip(urls, "\"'" * len(urls), strict=False))
    ]
    return f"<html><body>{''.join(links)}</body></html>"


def as_json(urls: list[str], text: str) -> str:
    return json.dumps([{"title": text, "url": url, "snippet": text} for url in urls])


def as_page_json(urls: list[str], text: str) -> str:
    return json.dumps(
        {"links": [{"text": text, "href": url} for url in urls], "html": text}, ensure_ascii=False
    )


def as_slashed_json(urls: list[str], text: str) -> str:
    return as_json(urls, text).replace("/", "\\/")


def as_markdown(urls: list[str], text: str) -> str:
    return "\n".join(f"{text} [name]({url}) {text}" for url in urls)


def as_tree(urls: list[str], text: str) -> str:
    return "\n".join(f'- link "name {number}":\n  - /url: {url}' for number, url in enumerate(urls))


FORMS = [as_page, as_json, as_page_json, as_slashed_json, as_markdown, as_tree]


@pytest.mark.sample(2)
@pytest.mark.parametrize("form", FORMS, ids=lambda form: str(form.__name__))
@given(
    urls=some,
    text=words,
    tier=st.integers(1, 3),
    kind=st.sampled_from([None, "page_state", "search_results"]),
)
@examples(40)
def test_every_url_of_the_input_is_in_the_prompt(
    form: Any, urls: list[str], text: str, tier: int, kind: str | None
) -> None:
    assert set(urls) <= list_kept_values(form(urls, text), kind, tier)


@given(urls=st.lists(absolute, min_size=1, max_size=8, unique=True), text=words, tier=st.integers(1, 3))
@examples(60)
def test_every_url_in_prose_is_in_the_prompt(urls: list[str], text: str, tier: int) -> None:
    marks = [
        ("", ""),
        ("(", ")."),
        ('"', '"'),
        ("'", "',"),
        ("<", ">"),
        ("[", "]"),
        ("**", "**"),
        ("", ","),
        ("“", "”"),
    ]
    prose = " ".join(
        f"{text} {left}{url}{right}" for url, (left, right) in zip(urls, marks * len(urls), strict=False)
    )
    assert set(urls) <= list_kept_values(prose, "page_state", tier)


nested = st.recursive(
    st.one_of(
        st.none(), st.integers(), st.text(max_size=20).filter(lambda text: "://" not in text), absolute
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=20,
)


def addresses_of(value: Any) -> set[str]:
    if isinstance(value, str):
        return {value} if value.lower().startswith(("http://", "https://", "ftp://", "wss://")) else set()
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return set().union(*map(addresses_of, inner))


@given(data=nested, tier=st.integers(1, 3))
def test_every_url_in_nested_data_is_in_the_prompt(data: Any, tier: int) -> None:
    wanted = addresses_of(data)
    assert wanted <= set(compressor.compress(data, None, tier).urls_mentioned)
    assert wanted <= set(compressor.compress(json.dumps(data), None, tier).urls_mentioned)


@pytest.mark.parametrize(
    ("text", "urls"),
    [
        ("see https://a.b/c.", ["https://a.b/c"]),
        ("(see https://a.b/c_(d))", ["https://a.b/c_(d)"]),
        ("[x](https://a.b/c_(d)), [y](d/e.md 'title')", ["https://a.b/c_(d)", "d/e.md"]),
        ("[https://a.b](https://a.b)", ["https://a.b"]),
        ("handlers[0](event)", []),
        ("https://a.b,https://c.d;https://e.f", ["https://a.b", "https://c.d", "https://e.f"]),
        ("https://web.archive.org/web/2020/https://a.b/", ["https://web.archive.org/web/2020/https://a.b/"]),
        ("'https://a.b/x', 'y'", ["https://a.b/x"]),
        ("https://a.b/O'Reilly said", ["https://a.b/O'Reilly"]),
        ("见https://a.b/中文。下", ["https://a.b/中文"]),
        ("www.a.org/x and WWW.B.ORG", ["www.a.org/x", "WWW.B.ORG"]),
        ("The end.https://a.b", ["https://a.b"]),
        ("http://[::1]:8080/x?a[]=1", ["http://[::1]:8080/x?a[]=1"]),
        ("https://a.b/{id}", ["https://a.b/{id}"]),
        ('<a href=x><img src="i.png" srcset="a.png 1x, b.png 2x">', ["x", "i.png", "a.png", "b.png"]),
        ('<a href="java&#10;x">', ["javax"]),
        ('<a href="javascript:void(0)"><img src="data:image/png;base64,AA"><a href="#top">', ["#top"]),
        ('<a HREF = "/x y.pdf">', ["/x y.pdf"]),
        ("<button onclick=\"location.href='/go'\">", ["/go"]),
        ('<script>var x={"url":"https:\\/\\/a.b\\/c?d=1\\u0026e=2"}</script>', ["https://a.b/c?d=1&e=2"]),
        ('[{"url": "https://a.b/1", "x": "cut of', ["https://a.b/1"]),
        ("[ref]: ../r.html\n[2]: note", ["../r.html"]),
        ('"https://a.b/\\u4e2d"', ["https://a.b/中"]),
        ("mailto:a@b.c", []),
        ("https://", []),
        ("nothing: here / there", []),
    ],
)
def test_urls_are_found_as_intended(text: str, urls: list[str]) -> None:
    assert list(extract_all_urls(text).urls) == urls


@pytest.mark.parametrize(
    ("data", "urls"),
    [
        ({"next": "/page/2", "action": "submit"}, ["/page/2"]),
        ({"url": "page.html", "imageUrl": "i.png", "base_url": "b"}, ["page.html", "i.png", "b"]),
        ({"links": ["/a", "b.html"]}, ["/a", "b.html"]),
        ({"selector": "#go", "url": "#go"}, ["#go"]),
        ({"selector": "#go"}, []),
        ({"https://a.b": "Title"}, ["https://a.b"]),
        ({"url": None, "href": "n/a", "link": "click here"}, []),
        ({"body": '{"url": "/inner"}'}, ["/inner"]),
        ({"body": b"https://a.b"}, ["https://a.b"]),
        ({"set": {"https://a.b"}, "tuple": ("https://c.d",)}, ["https://a.b", "https://c.d"]),
    ],
)
def test_urls_are_found_in_data(data: object, urls: list[str]) -> None:
    assert list(extract_all_urls(data).urls) == urls


def test_urls_are_found_in_every_json_text_of_a_list() -> None:
    results = [json.dumps({"url": f"/page/{number}", "tags": []}) for number in range(50)]
    assert list(extract_all_urls({"results": results}).urls) == [f"/page/{number}" for number in range(50)]


def in_json_texts(data: object, levels: int) -> object:
    """Return the data as JSON text inside of JSON text, and so on."""
    for _ in range(levels):
        data = {"body": json.dumps(data)}
    return data


def test_json_inside_of_json_is_parsed_up_to_6_levels_and_searched_as_text_below() -> None:
    data = ["/relative", "https://a.b/absolute"]
    for levels in range(7):
        assert list(extract_all_urls(in_json_texts(data, levels)).urls) == data
    assert list(extract_all_urls(in_json_texts(data, 7)).urls) == ["https://a.b/absolute"]
    assert list(extract_all_urls(in_json_texts(data, 10)).urls) == ["https://a.b/absolute"]


def test_a_url_of_more_than_8192_characters_is_counted_as_omitted() -> None:
    longest = "https://a.b/".ljust(8192, "x")
    for data in ("{}", {"url": "{}"}, {"next": "{}"}):
        kept_whole = json.loads(json.dumps(data).replace("{}", longest))
        too_long = json.loads(json.dumps(data).replace("{}", f"{longest}x"))
        assert extract_all_urls(kept_whole) == ExtractedUrls((longest,))
        assert extract_all_urls(too_long) == ExtractedUrls((), left_out_count=1)


def test_10000_distinct_urls_are_kept_and_others_counted_and_reported() -> None:
    assert MAX_URLS == 10_000
    text = " ".join(f"https://a.b/{number} https://a.b/{number}" for number in range(10_050))
    done = compressor.compress(text)
    assert len(done.urls_mentioned) == 10_000
    assert done.urls_left_out == 50
    assert "(50 more URLs were left out)" in done.format_for_prompt()
    assert done.validate_url_preservation(10_050) == (False, "50 of 10050 URLs lost")


def test_url_preservation_is_validated_by_count() -> None:
    done = CompressedExtraction(summary="", urls_mentioned=["/a", "/b"])
    assert done.validate_url_preservation(2) == (True, "all 2 URLs preserved")
    assert done.validate_url_preservation(3) == (False, "1 of 3 URLs lost")


def test_lost_urls_are_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    class Forgetful(ContextCompressor):
        def _build_draft(self, job: Any, told: Any) -> Any:
            draft, lines = super()._build_draft(job, told)
            return CompressedExtraction.from_dict(
                draft.to_dict() | {"urls_mentioned": [], "navigation_targets": []}
            ), lines

    done = Forgetful().compress("see https://a.b/c and https://d.e")
    assert done.urls_mentioned == ["https://a.b/c", "https://d.e"]
    assert done.problems == ("2 of 2 URLs lost, restored",)


@pytest.mark.sample(1)
@pytest.mark.parametrize(("name", "urls"), [("page", 8_695), ("prose", MAX_URLS), ("broken", 0)])
def test_all_urls_of_a_page_of_a_megabyte_are_kept_up_to_the_limit(name: str, urls: int) -> None:
    done = compressor.compress(page_of(PAGE_UNITS[name], 1_000_000))
    assert len(done.urls_mentioned) == urls
    assert done.problems == ("only a part of the text was searched for facts",)


def test_both_ends_of_a_page_of_2_mb_are_read_and_this_is_reported() -> None:
    text = "It begins with $11.11 here.\n" + "word " * 400_000 + "\nIt ends with $99.99 there."
    done = compressor.compress(text, CompressionContentType.TEXT_CONTENT)
    assert "It begins with $11.11 here." in done.format_for_prompt()
    assert "It ends with $99.99 there." in done.format_for_prompt()
    assert done.problems == ("only a part of the text was searched for facts",)
    assert done.compression_confidence == 0.9
