"""URLs in one normal form."""

import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from langmem_tiers.text.urls import (
    MAX_URL_CHARACTERS,
    get_domain,
    get_url_host,
    is_document,
    is_folder,
    is_same_site,
    normalize_url,
    to_folder_url,
)
from tests.hypothesis_settings import examples

BASE = "https://example.com/docs/guide?v=2#top"
PIECES = st.sampled_from(
    "http https HTTPS : / // ? # #/ #!/ & = ; ;jsessionid=1 % %2e %2F %zz .. . /. @ [ ] \\ + a B ü ß İ Σ 。 ․ ℀ "
    "example.com xn--bcher-kva.de 127.0.0.1 0x7f.1 [::1] :80 :443 :0008080 utm_x=1 utm%5Fx ref=1 sid=2 www. "
    "\ud800 \x00 \n \t \u200b javascript: mailto: b=2&a=1 user:pw@".split(" ")
)
TEXTS = st.one_of(
    st.text(max_size=60),
    st.lists(PIECES, max_size=12).map("".join),
    st.lists(PIECES, max_size=8).map(lambda some: "https://example.com/" + "".join(some)),
    st.text(alphabet=string.printable, max_size=40).map(lambda some: "http://" + some),
)


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        ("HTTPS://Example.COM/Path", "https://example.com/Path"),
        ("https://example.com", "https://example.com/"),
        ("https://example.com?a=1", "https://example.com/?a=1"),
        ("https://example.com./a", "https://example.com/a"),
        ("https://bücher.example/ü", "https://xn--bcher-kva.example/%C3%BC"),
        ("https://ｅxample。com/", "https://example.com/"),
        ("http://example.com:80/a", "http://example.com/a"),
        ("https://example.com:443/a", "https://example.com/a"),
        ("https://example.com:/a", "https://example.com/a"),
        ("http://example.com:443/a", "http://example.com:443/a"),
        ("http://example.com:08080/a", "http://example.com:8080/a"),
        ("https://user:secret@example.com/a", "https://example.com/a"),
        ("https://good.example@bad.example/", "https://bad.example/"),
        ("https://good.example\\@bad.example/", "https://good.example/@bad.example"),
        ("https://[2001:DB8:0::1]:443/a", "https://[2001:db8::1]/a"),
        ("https://[::1]:8080/a", "https://[::1]:8080/a"),
        ("http://localhost:3000/a", "http://localhost:3000/a"),
        ("https://example.com/%7euser/%c3%bc", "https://example.com/~user/%C3%BC"),
        ("https://example.com/a b", "https://example.com/a%20b"),
        ("https://example.com/100%", "https://example.com/100%25"),
        ("https://example.com/a%2fb", "https://example.com/a%2Fb"),
        ("https://example.com/a/./b/../c", "https://example.com/a/c"),
        ("https://example.com/../../a", "https://example.com/a"),
        ("https://example.com/a/%2e%2e/b", "https://example.com/b"),
        ("https://example.com/a/", "https://example.com/a"),
        ("https://example.com/a//", "https://example.com/a"),
        ("https://example.com/a/?x=1", "https://example.com/a?x=1"),
        ("https://example.com/a?", "https://example.com/a"),
        ("https://example.com/a;jsessionid=AB.c1?x=1", "https://example.com/a?x=1"),
        ("  https://example.com/a\n", "https://example.com/a"),
    ],
)
def test_a_url_has_one_normal_form(written: str, normal: str) -> None:
    assert normalize_url(written) == normal


@pytest.mark.parametrize(
    ("query", "kept"),
    [
        ("b=2&a=1", "?a=1&b=2"),
        ("a=2&b=0&a=1", "?a=2&a=1&b=0"),
        ("utm_source=x&UTM_Medium=y&gclid=1&fbclid=2&utm%5fterm=z", ""),
        ("PHPSESSID=1&jsessionid=2&session_id=3&page=4", "?page=4"),
        ("ref=main&sid=12", "?ref=main&sid=12"),
        ("&&a=1&", "?a=1"),
        ("a=x%20y&b=[1]", "?a=x%20y&b=%5B1%5D"),
        ("utm=1&gclids=2", "?gclids=2&utm=1"),
    ],
)
def test_parameters_are_sorted_by_name_and_tracking_ones_dropped(query: str, kept: str) -> None:
    assert normalize_url(f"https://example.com/a?{query}") == f"https://example.com/a{kept}"


@pytest.mark.parametrize(
    ("fragment", "kept"),
    [
        ("top", ""),
        ("/x", "#/x"),
        ("!/x", "#!/x"),
        ("!page", "#!page"),
        ("/", ""),
        ("!/", ""),
        ("/a#b", "#/a%23b"),
    ],
)
def test_a_fragment_is_kept_only_if_it_is_a_route(fragment: str, kept: str) -> None:
    assert normalize_url(f"https://example.com/a#{fragment}") == f"https://example.com/a{kept}"


@pytest.mark.parametrize(
    ("written", "resolved"),
    [
        ("intro", "https://example.com/docs/intro"),
        ("./intro", "https://example.com/docs/intro"),
        ("../about", "https://example.com/about"),
        ("../../../about", "https://example.com/about"),
        ("/about/", "https://example.com/about"),
        ("//other.example/x", "https://other.example/x"),
        ("?page=2", "https://example.com/docs/guide?page=2"),
        ("#part", "https://example.com/docs/guide?v=2"),
        ("#/route", "https://example.com/docs/guide?v=2#/route"),
        ("http://other.example", "http://other.example/"),
        ("\\about", "https://example.com/about"),
        ("?q=a\\b", "https://example.com/docs/guide?q=a%5Cb"),
    ],
)
def test_a_relative_url_is_resolved_against_its_page(written: str, resolved: str) -> None:
    assert normalize_url(written, BASE) == resolved


@pytest.mark.parametrize(
    "written",
    [
        *(
            "",
            "   ",
            "mailto:a@example.com",
            "javascript:void(0)",
            "tel:+123",
            "data:text/html,x",
            "about:blank",
        ),
        *("blob:https://example.com/1", "ftp://example.com/", "file:///etc/passwd", "JavaScript:alert(1)"),
        *(
            "https://",
            "https:///a",
            "https:example.com",
            "https:/example.com",
            "http://?a",
            "https://a b.com/",
        ),
        *("https://a..b/", "https://.com/", "https://exa<mple.com/", "https://example.com:99999/"),
        *(
            "https://example.com:x/",
            "https://[::1",
            "https://[::1%25eth0]/",
            "https://[nonsense]/",
            "https://[]/",
        ),
        *(
            "https://1.2.3/",
            "https://1.2.3.4.5/",
            "https://256.1.1.1/",
            "https://0x7f.1/",
            "https://010.1.1.1/",
        ),
        *("https://℀.example/", "https://" + "a" * 64 + ".example/", "https://" + "a." * 130 + "example/"),
        *(
            "https://example.com/a\x00b",
            "https://example.com/a\nb",
            "https://example.com/\x7f",
            "https://e\u0085x.com",
        ),
        *(
            "https://example.com/\ud800",
            "https://\ud800.example/",
            "https://example.com/" + "a" * MAX_URL_CHARACTERS,
        ),
        "https://example.com/" + "ü" * (MAX_URL_CHARACTERS // 3),
    ],
)
def test_a_url_that_is_not_a_web_page_has_no_normal_form(written: str) -> None:
    assert normalize_url(written, BASE) is None


@pytest.mark.parametrize("base", ["", "docs", "mailto:a@b", "https:", "\x00", "https://" + "a" * 9000])
def test_a_relative_url_without_a_usable_base_has_no_normal_form(base: str) -> None:
    assert normalize_url("/about", base) is None


def test_a_value_that_is_not_a_string_has_no_normal_form() -> None:
    values: list[object] = [None, 3, b"https://example.com", ["https://example.com"]]
    assert [normalize_url(value) for value in values] == [None] * 4  # type: ignore[arg-type]


@examples(600)
@given(url=TEXTS, base=TEXTS)
@example(url="https://example.com/%2%35", base="")
@example(url="https://example.com/a/.;jsessionid=1./b", base="")
def test_normalizing_is_idempotent(url: str, base: str) -> None:
    for normal in (normalize_url(url), normalize_url(url, base), normalize_url(url, BASE)):
        if normal is not None:
            assert normalize_url(normal) == normal
            assert normalize_url(normal, base) == normal
            assert normal.isascii()
            assert normal.startswith(("http://", "https://"))
            assert len(normal) <= MAX_URL_CHARACTERS
            assert get_url_host(normal)


@examples(200)
@given(TEXTS, TEXTS)
def test_url_functions_raise_for_no_text(a: str, b: str) -> None:
    get_domain(a), is_document(a), is_folder(a), to_folder_url(a)
    assert is_same_site(a, b) == is_same_site(b, a)
    assert is_same_site(a, a) == (get_domain(a) != "")


@given(st.permutations(["b=1", "a=2", "c", "a=2", "utm_source=x"]))
def test_the_order_of_parameters_does_not_matter(query: list[str]) -> None:
    assert normalize_url("https://example.com/?" + "&".join(query)) == "https://example.com/?a=2&a=2&b=1&c"


@pytest.mark.parametrize(
    ("url", "domain"),
    [
        ("https://www.Example.com:8080/a", "example.com"),
        ("https://shop.example.com", "shop.example.com"),
        ("https://www.com/", "www.com"),
        ("http://localhost:3000", "localhost"),
        ("https://[::1]:8080/", "[::1]"),
        ("https://[::1]/", "[::1]"),
        ("https://example.com?x=://y", "example.com"),
        ("not an address", ""),
    ],
)
def test_the_domain_is_the_host_without_www(url: str, domain: str) -> None:
    assert get_domain(url) == domain


@pytest.mark.parametrize(
    ("a", "b", "is_same"),
    [
        ("https://example.com/a", "http://www.example.com:81/b", True),
        ("https://example.com", "https://shop.example.com", True),
        ("https://www.example.com", "https://shop.example.com", True),
        ("https://example.com", "https://badexample.com", False),
        ("https://a.example.com", "https://b.example.com", False),
        ("https://com/", "https://example.com", False),
        ("https://localhost", "https://localhost", True),
        ("https://1.2.3.4", "https://1.2.3.5", False),
        ("nothing", "nothing", False),
    ],
)
def test_a_site_is_a_host_with_its_subdomains(a: str, b: str, is_same: bool) -> None:  # noqa: FBT001
    assert is_same_site(a, b) is is_same
    assert is_same_site(b, a) is is_same


@pytest.mark.parametrize(
    "url", ["https://e.com/a.PDF", "/x/y.zip?download=1", "photo.jpeg#x", "https://e.com/a.b.tar.gz"]
)
def test_a_file_to_download_is_a_document(url: str) -> None:
    assert is_document(url)


@pytest.mark.parametrize(
    "url",
    [
        *(
            "https://e.com/",
            "https://e.zip",
            "https://e.com/a.html",
            "https://e.com/a.php?file=x.pdf",
            "pdf",
            ".zip",
        ),
        *(
            "https://w.org/wiki/Node.js",
            "https://w.org/wiki/File:Cat.jpg",
            "https://e.com/v1.2",
            "",
            "\x00.pdf",
        ),
    ],
)
def test_a_page_is_not_a_document(url: str) -> None:
    assert not is_document(url)


@pytest.mark.parametrize("url", ["https://e.com/", "a/", "a/?x=1", "a/#b", ".", "..", "a/..", "a\\", " a/ "])
def test_a_path_with_a_slash_at_its_end_is_a_folder(url: str) -> None:
    assert is_folder(url)


@pytest.mark.parametrize("url", ["https://e.com/a", "a?x=/", "a#/", "", "a..", "v1."])
def test_other_paths_are_not_folders(url: str) -> None:
    assert not is_folder(url)


@pytest.mark.parametrize(
    ("address", "folder"),
    [
        ("https://e.com/a", "https://e.com/a/"),
        ("https://e.com/a?x=1", "https://e.com/a/?x=1"),
        ("https://e.com/a#/r", "https://e.com/a/#/r"),
        ("https://e.com/", "https://e.com/"),
    ],
)
def test_a_folder_gets_its_trailing_slash_as_a_base(address: str, folder: str) -> None:
    assert to_folder_url(address) == folder
    assert normalize_url(folder) == address
