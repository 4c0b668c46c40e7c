"""Cases of `benchmarks.growth` with one long text, mostly a repeated unit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.growth_cases import KNOWN, LINEAR, NOW, Case, repeat_to_size
from langmem_tiers import Compressor, ContentAwareCounter, Message, Role
from langmem_tiers.common.prompt_fences import FENCE_OPENING, neutralize_fence_tags, strip_fences
from langmem_tiers.compression.lenient_json import find_objects
from langmem_tiers.compression.tool_output.compressor import ContextCompressor
from langmem_tiers.episodes.detection import find_moments
from langmem_tiers.facts.extraction import FactExtractor
from langmem_tiers.facts.models import FactDraft
from langmem_tiers.facts.patterns import EXTRA_PATTERNS, EXTRACTION_PATTERNS
from langmem_tiers.facts.validation import validate_fact
from langmem_tiers.long_term.conflicts.comparison import compare
from langmem_tiers.long_term.conflicts.statement import read_statement
from langmem_tiers.long_term.records import NumberedMessage
from langmem_tiers.sessions.redundancy import compute_fingerprint
from langmem_tiers.text import FACT_PATTERNS
from langmem_tiers.text.facts import find_key_facts
from langmem_tiers.text.time_expressions.extraction import find_time_ranges
from langmem_tiers.text.topics import find_key_topics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


TOPIC_UNITS = ("a", "word ", "a.b", "数据", "'", "x-y_", "한국", "`")
TOKEN_UNITS = tuple('\n| \n|\t|<a |```|{|["|a|a\n|def |x=|)|@a|a:\n|我|ж|😀'.split("|"))
TIME_UNITS = tuple("the week before |before |1|1-|from 3 to |May |a few |2023-|last |,|月|9/|'".split("|"))
KEY_FACT_UNITS = tuple("http|class|//a|#|#a-|id=|api |get |step |token|a| ".split("|"))
FINGERPRINT_UNITS = tuple("a|1|a'|-|a1|not |n't|<| <|$|un|é".split("|"))
EXTRACTION_UNITS = ("to ", "my a ", "I really ", "A B C D ", "like ")
STATEMENT_UNITS = ("a.", "1,", "a/", "a@", "not ", "5 GB and ", "A uses B, ", "'")
CHECK_UNITS = ("ignore all ", "password is ", "a", "<", "://a:")
MOMENT_UNITS = tuple(
    "a| |\n|we |let's |cut from 4 |there is a |not, |finally |`|\"|?|. |1. |```|if it fails |switch from a "
    "|we decided |> |    x\n|fixed ".split("|")
)
MESSAGE_UNITS = ("```", "<pre>", ". ", "a", "- ", "'\"")
FENCE_UNITS = (FENCE_OPENING, "<", "< ", "<\u200b", f"{FENCE_OPENING}\n" + "x" * 100)
ITEM = '<div><a href="/i/%d?x=1&amp;y=2">Item</a> <p>Text $5 on 2024-01-02.</p><button id="b%d">Buy</button></div>\n'
PAGE_UNITS = {
    "page": ITEM,
    "prose": "Some words about https://e.org/%d and nothing else %d.\n",
    "broken": "<a href='%d%d",
}
FACT_SHAPES = (
    *(("", unit) for unit in "a 1 . - / \\ [ # ` ' é $ < \0".split(" ")),
    *(("", unit) for unit in (" ", "\n", " \n", "a ", "1.", "a.", "a-", "a/", "1:", "1,", "a:", "a@", "a'")),
    *(("", unit) for unit in ("//a[", "//a/", "[data-", 'class="', "id='", "://", "http://", "Error")),
    *(("", unit) for unit in ("error ", "Error:\n", "not ", "don't ", "n't", "USD", "1 of May ", "v1.1-")),
    *(("", unit) for unit in ("==1.", "C:\\a\\", "git ", "git a.b ", "make a b c d e ", "command ", "$ a\n")),
    *(("", unit) for unit in ("12:34 ", "a.py/", "::")),
    ("$", " "),
    (">", "\t"),
    ("git", " "),
    ("sudo", " "),
    ("command", " "),
    ("command:", " "),
    ("git ", "a"),
    ("git -", "a "),
    ("selector='", "a"),
    ("C:\\", "a "),
    ("not", " "),
    ("failed to ", "a"),
)
"""Head and repeated unit, for every kind of fact."""


def answer(head: str, unit: str, tail: str, size: int) -> str:
    """Return a damaged answer of a model: a head, a repeated unit and a repeated end, `size` characters."""
    count = max(1, (size - len(head)) // (len(unit) + len(tail)))
    return head + unit * count + tail * count


ANSWERS: dict[str, Callable[[int], str]] = {
    "nested lists": lambda size: "[" * size,
    "nested objects": lambda size: answer("", '{"a":', "", size),
    "empty braces": lambda size: answer("", "{", "}", size),
    "object in nested lists": lambda size: "[" * (size // 2) + '{"content": "x"}' + "]" * (size // 2),
    "spaced quotes": lambda size: answer("", "[ ' ' ", "", size),
    "strings without commas": lambda size: answer("", '["a" ', "", size),
    "open strings": lambda size: answer("", '["', "", size),
    "quotes without end": lambda size: answer('["a', '"  ', "", size),
    "backslashes": lambda size: answer("['", "\\", "", size),
    "brackets that do not match": lambda size: answer("", '{"a":[}', "", size),
    "objects without a list": lambda size: answer("", '{"content": "x"},', "", size),
    "objects in open lists": lambda size: answer("", '[{"content": "x"},', "", size),
    "a long number": lambda size: "[" + "9" * size + "]",
}
"""Answers of a model that are difficult to parse, by what they consist of."""


def _message(text: str, role: str = "user") -> Message:
    return Message(
        id="m", role=Role(role), content=text, created_at=NOW, token_count=1, token_counter="benchmark"
    )


def _per_unit(
    name: str,
    units: Iterable[str],
    size: int,
    call: Callable[[str], object],
    limit: float = LINEAR,
) -> Iterator[Case[str]]:
    for unit in units:
        yield Case(
            name=name,
            detail=repr(unit if len(unit) <= 30 else f"{unit[:20]}...{unit[-5:]}"),
            size=size,
            build=lambda n, unit=unit: repeat_to_size(unit, n),  # type: ignore[misc] # bound now
            call=call,
            limit=limit,
        )


def _compare_with_reverse(text: str) -> object:
    return compare(read_statement(text), read_statement(text[::-1]))


def _validate(text: str) -> object:
    return validate_fact(FactDraft(content=text, kind="decision", confidence=0.8), _message(text))


def _moments(text: str) -> object:
    messages = (_message(text), _message(text[:40_000], "assistant"), _message(text[:40_000], "tool"))
    return find_moments(
        [NumberedMessage(number=number, message=message) for number, message in enumerate(messages, 1)]
    )


def _extract(text: str) -> object:
    return FactExtractor().extract(_message(text))


def _search_patterns(text: str) -> object:
    return [row.pattern.search(text) for row in (*EXTRACTION_PATTERNS, *EXTRA_PATTERNS)]


def _facts(text: str) -> object:
    return [list(pattern.spans(text)) for pattern in FACT_PATTERNS]


def text_cases() -> Iterator[Case[Any]]:
    """Functions that read one long text."""
    yield from _per_unit("key_topics", TOPIC_UNITS, 250_000, lambda text: find_key_topics([text] * 10))
    yield from _per_unit("count_tokens", TOKEN_UNITS, 4_000, ContentAwareCounter().count)
    yield from _per_unit("time_ranges", TIME_UNITS, 250_000, lambda text: find_time_ranges(text, NOW))
    yield from _per_unit("key_facts", KEY_FACT_UNITS, 50_000, find_key_facts)
    yield from _per_unit("fingerprint", FINGERPRINT_UNITS, 50_000, compute_fingerprint)
    yield from _per_unit("extraction_patterns", EXTRACTION_UNITS, 2_500, _search_patterns)
    for unit in STATEMENT_UNITS:
        # Quadratic in the number of commas without a verb. Statements above 6,000 characters are not parsed.
        limit = KNOWN if unit == "1," else LINEAR
        yield from _per_unit("compare_statements", [unit], 1_475, _compare_with_reverse, limit)
    yield from _per_unit("validate_fact", CHECK_UNITS, 5_500, _validate)
    yield from _per_unit("find_moments", MOMENT_UNITS, 250_000, _moments)
    yield from _per_unit("extract_facts", MESSAGE_UNITS, 2_500, _extract)
    yield from _per_unit(
        "fences", FENCE_UNITS, 100_000, lambda text: (neutralize_fence_tags(text), strip_fences(text))
    )
    for head, unit in FACT_SHAPES:
        yield Case(
            name="fact_patterns",
            detail=f"{head!r} + {unit!r}" if head else repr(unit),
            size=25_000,
            build=lambda n, head=head, unit=unit: repeat_to_size(unit, n, head, "!"),  # type: ignore[misc] # bound now
            call=_facts,
        )
    for detail, build in ANSWERS.items():
        yield Case(
            name="objects_in",
            detail=detail,
            size=50_000,
            build=build,
            call=lambda text: find_objects(text, "content"),
        )
    for detail, unit in PAGE_UNITS.items():
        yield Case(
            name="compress_page",
            detail=detail,
            size=2_500_000,
            build=lambda n, unit=unit: page_of(unit, n),  # type: ignore[misc] # bound now
            call=ContextCompressor().compress,
        )
    yield Case(
        name="compress_text",
        detail="lines with numbers",
        size=500_000,
        build=lambda n: "".join(f"blah blah blah bla {line:07d}\n" for line in range(n // 27)),
        call=Compressor(ContentAwareCounter()).compress,
    )
    yield Case(
        name="extract_facts",
        detail="many sentences",
        size=250_000,
        build=lambda n: repeat_to_size("We must run and see. ", n, "We chose Go. "),
        call=_extract,
    )
    sentence = "the quick brown fox jumps over the lazy dog "
    for detail, change in (("long, same words", str.upper), ("long, one more word", "{}twice".format)):
        yield Case(
            name="compare_statements",
            detail=detail,
            size=275_000,
            build=lambda n: repeat_to_size(sentence, n),
            call=lambda text, change=change: compare(read_statement(text), read_statement(change(text))),  # type: ignore[misc] # bound now
        )


def page_of(unit: str, size: int) -> str:
    """Return a page of about `size` characters, with a number in each unit."""
    count = size // len(unit % (10**5, 10**5))
    return "<html><body>" * ("<div" in unit) + "".join(unit % (number, number) for number in range(count))
