"""What counts as a fact: one table of patterns, open to more.

A fact is a piece of text that must survive word for word: whoever reads the compressed
text can still open the address, run the command or quote the number. No pattern can start
in the middle of a word, and every repetition is bounded or ends the match, so a text of any
shape is read in linear time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from langmem_tiers.core.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterator


class FactKind(StrEnum):
    """The classes of facts that compression promises to keep."""

    URL = "url"
    EMAIL = "email"
    ERROR = "error"
    SELECTOR = "selector"
    CLASS_NAME = "class_name"
    ELEMENT_ID = "element_id"
    IP_ADDRESS = "ip_address"
    NUMBER = "number"
    IDENTIFIER = "identifier"
    PATH = "path"
    DATE = "date"
    TIME = "time"
    COMMAND = "command"
    CODE = "code"
    VERSION = "version"
    MONEY = "money"
    NEGATION = "negation"


@dataclass(frozen=True, slots=True)
class Fact:
    """A piece of text that must survive word for word."""

    kind: str
    text: str
    priority: int = 50


@dataclass(frozen=True, slots=True)
class FactPattern:
    """One row of the table.

    Args:
        kind: The class; a name of your own for patterns of your own.
        pattern: What to look for. Group 1 is the fact, if there is one, otherwise the whole match.
        priority: Facts of a higher priority stay longer when not all of them fit.
        needles: Lower-case texts of which a match always holds one; spares the search where there is none.
        words_before: So many words before the match belong to the fact, as far as no punctuation parts them.
    """

    kind: str
    pattern: re.Pattern[str]
    priority: int = 50
    needles: tuple[str, ...] = ()
    words_before: int = 0

    def __post_init__(self) -> None:
        pattern: object = self.pattern
        if not isinstance(pattern, re.Pattern) or not isinstance(pattern.pattern, str):
            raise InvalidInputError(
                f"a fact pattern must be a compiled text pattern, got a {type(pattern).__name__}: "
                "use re.compile(r'...')"
            )
        if self.pattern.search("") is not None:
            raise InvalidInputError(
                f"the pattern {self.pattern.pattern!r} matches the empty text: ask for one character at least"
            )

    def spans(self, text: str, lowered: str | None = None) -> Iterator[tuple[int, int]]:
        """Where each fact stands in the text, without the punctuation behind it.

        Args:
            text: Where to look.
            lowered: The text in lower case, if you have it.
        """
        if self.needles:
            lowered = text.lower() if lowered is None else lowered
            if not any(needle in lowered for needle in self.needles):
                return
        group = 1 if self.pattern.groups else 0
        for match in self.pattern.finditer(text):
            start, end = match.span(group)
            while end > start and text[end - 1] in _BEHIND:
                end -= 1
            if self.words_before:
                start = _led_by(text, start, self.words_before)
            if end > start >= 0:
                yield start, end


def _led_by(text: str, start: int, words: int) -> int:
    # The start of the word that this place is in, and of as many words before it.
    while start > 0 and (text[start - 1].isalnum() or text[start - 1] in "_'’"):
        start -= 1
    for _ in range(words):
        begin = start - 1
        while begin > 0 and start - begin < _LONGEST_WORD and not text[begin - 1].isspace():
            begin -= 1
        if begin < 0 or text[start - 1] != " " or not _WORD.fullmatch(text, begin, start - 1):
            break
        start = begin
    return start


_BEHIND = " \t\r\n.,;:!?"  # ends a sentence around a fact rather than the fact

_MONTH = (
    r"(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sept?(?:ember)?"
    r"|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)"
)
_PROGRAM = (
    r"(?:ansible|apt(?:-get)?|awk|aws|az|bash|brew|bundle|cargo|cat|cd|chmod|chown|cmake|composer|conda|cp|curl|dig|"
    r"docker(?:-compose)?|echo|export|find|gcloud|gem|gh|git|go|gradle|grep|head|helm|java|javac|journalctl|kill|"
    r"kubectl|ls|make|mkdir|mv|mvn|mypy|mysql|node|npm|npx|nvm|perl|php|ping|pip3?|pipx|pnpm|podman|poetry|ps|psql|"
    r"pytest|python3?|redis-cli|rg|rm|rsync|ruby|ruff|rustc|scp|sed|sh|source|sqlite3|ssh|systemctl|tail|tar|"
    r"terraform|touch|tox|unzip|uv|uvicorn|wget|which|xargs|yarn|zip|zsh)"
)
_SUFFIXES = tuple(
    """
    py pyi js mjs ts tsx jsx json jsonl yaml yml toml md rst txt csv tsv html htm css scss sql sh rb rs go java kt c h
    cc cpp hpp cs php ini cfg conf env lock log db sqlite xml ipynb parquet pdf doc docx xls xlsx png jpg jpeg gif svg
    zip tar gz whl proto vue swift scala lua ex exs tf gradle patch diff bak
    """.split()
)
_VERSIONED = tuple(
    "version release python node java ruby php postgres postgresql sqlite redis django numpy pandas".split()
)
_TOKEN = r"[$€£]?\w[\w'’/%-]{0,40}(?:\.\w[\w/%-]{0,20}){0,3}"
_WORD = re.compile(_TOKEN)
_LONGEST_WORD = 60
_FOLLOWING = rf"(?: [\"'`(]?{_TOKEN}[\"'`)]?){{1,6}}"
_ERROR_WORD = (
    r"(?:(?:[A-Za-z_][\w.]{0,80})?(?:Error|Exception)|(?i:errors?|exception|failed|failure|fatal|panic))"
)

# The classes and their order of worth. The first eight kinds are those of the design document; the
# others keep what agents need most and summaries lose first. Where it can, a pattern begins with the
# character that it needs and looks behind it only then: the engine skips to such characters at once.
FACT_PATTERNS: tuple[FactPattern, ...] = (
    FactPattern(
        FactKind.URL,
        re.compile(
            r"\b(?:https?|ftp|wss?|s3|gs|file|git|ssh|postgres(?:ql)?|mysql|redis|sqlite|mongodb)://[^\s<>\"'`\\|{}\[\]]+"
        ),
        90,
        ("://",),
    ),
    FactPattern(
        FactKind.EMAIL, re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}"), 85, ("@",)
    ),
    FactPattern(
        FactKind.ERROR,
        re.compile(
            rf"(?<![\w.]){_ERROR_WORD}\b(?:['\"]?\s?[:=]\s?[^\n]{{1,160}}"
            r"|\s(?:to|with|at|in|on|for|because|after|while)\s[^\n.;!?]{1,120})"
        ),
        80,
        ("error", "exception", "fail", "fatal", "panic"),
    ),
    FactPattern(
        FactKind.SELECTOR,
        re.compile(
            r"(?i:\b(?:selector|xpath|css)\b['\"]?\s?[:=]\s?(?:'[^'\n]{1,160}'|\"[^\"\n]{1,160}\"|[^\s,;]{1,160}))"
        ),
        70,
        ("selector", "xpath", "css"),
    ),
    FactPattern(
        FactKind.SELECTOR,
        re.compile(
            r"#(?<![\w/&#.]#)[A-Za-z][\w-]{0,80}"
            r"|\.(?<![\w.)/\]-]\.)[A-Za-z]\w{0,40}-[\w-]{1,80}"
            r"|\[data-[\w-]{1,60}(?:[~|^$*]?=[^\]\n]{1,80})?\]"
            r"|/(?<![:\w/]/)/[a-zA-Z*][\w-]{0,40}(?:\[[^\]\n]{1,120}\]|/{1,2}[\w*@:-]{1,40}(?:\(\))?){1,12}"
        ),
        70,
        ("#", " .", "[data-", "//", "'.", '".', "`.", "(."),
    ),
    FactPattern(
        FactKind.CLASS_NAME,
        re.compile(r"\bclass(?:Name)?=(?:\"[^\"\n]{1,200}\"|'[^'\n]{1,200}')"),
        65,
        ("class=", "classname="),
    ),
    FactPattern(
        FactKind.ELEMENT_ID, re.compile(r"\bid=(?:\"[^\"\n]{1,200}\"|'[^'\n]{1,200}')"), 65, ("id=",)
    ),
    FactPattern(
        FactKind.IP_ADDRESS,
        re.compile(r"\d(?<![\w.]\d)\d{0,2}(?:\.\d{1,3}){3}(?:[:/]\d{1,5})?(?![\w-]|\.\d)"),
        85,
        (".",),
    ),
    FactPattern(
        FactKind.IP_ADDRESS,
        re.compile(
            r"(?<![\w:])(?:[0-9A-Fa-f]{1,4}:){7}[0-9A-Fa-f]{1,4}(?![\w:])"
            r"|(?<![\w:])(?:[0-9A-Fa-f]{1,4}:){1,6}:[0-9A-Fa-f]{1,4}(?::[0-9A-Fa-f]{1,4}){0,5}(?![\w:])"
        ),
        85,
        ("::", ":0:", ":db8:", ":fe"),
    ),
    FactPattern(
        FactKind.NUMBER,
        re.compile(
            r"[-+\d](?<![\w.][-+\d])\d?[\d,_]{0,40}\d(?:\.\d{1,20})?%?(?!\w)|\d(?<![\w.]\d)\.\d{1,20}%?(?![\w.])"
        ),
        60,
    ),
    FactPattern(FactKind.IDENTIFIER, re.compile(r"(?<![\w-])[\w-]{0,60}\d{2,}[\w-]{0,60}"), 60),
    FactPattern(
        FactKind.PATH,
        re.compile(r"/(?<![\w:/.<)\]}~-]/)[\w.+@%-]{1,120}(?:/[\w.+@%-]{1,120})*/?"),
        80,
        ("/",),
    ),
    FactPattern(
        FactKind.PATH,
        re.compile(
            r"(?<![\w:/.@<-])[\w.+@-]{1,120}(?:/[\w.+@-]{1,120}){0,40}/[\w+@-]{1,120}\.[A-Za-z]\w{0,7}\b"
            r"|(?<![\w./~])(?:~|\.\.?)(?:/[\w.+@%-]{1,120})+/?"
        ),
        80,
        ("/",),
    ),
    FactPattern(
        FactKind.PATH,
        re.compile(r"\b[A-Za-z]:\\(?:[\w.+@ -]{1,120}\\){0,40}[\w.+@-]{1,120}"),
        80,
        (":\\",),
    ),
    FactPattern(
        FactKind.PATH,
        re.compile(rf"(?<![\w:/@-])\.?[\w-]{{1,120}}(?:\.[\w-]{{1,40}}){{0,3}}\.(?:{'|'.join(_SUFFIXES)})\b"),
        80,
        tuple(f".{suffix}" for suffix in _SUFFIXES),
    ),
    FactPattern(
        FactKind.DATE,
        re.compile(
            r"\d(?<!\w\d)(?:\d{3}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?(?:Z|[+-]\d{2}:?\d{2})?)?\b"
            rf"|\d?/\d{{1,2}}/\d{{2,4}}\b|\d?\.\d{{1,2}}\.\d{{4}}\b"
            rf"|\d?(?:st|nd|rd|th)?\s(?:of\s)?{_MONTH}(?:,?\s\d{{4}})?\b)"
        ),
        80,
    ),
    FactPattern(
        FactKind.DATE,
        re.compile(rf"\b{_MONTH}(?:\.?\s\d{{1,2}}(?:st|nd|rd|th)?(?:,?\s\d{{4}})?|\s\d{{4}})\b"),
        80,
        ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"),
    ),
    FactPattern(
        FactKind.TIME,
        re.compile(
            r"\d(?<![\w:.]\d)\d?(?::[0-5]\d(?::[0-5]\d)?(?:\s?[AaPp]\.?[Mm]\b)?(?:\s(?:UTC|GMT|[ECMP][SD]T))?(?![\d:])"
            r"|\s?[AaPp][Mm]\b)"
        ),
        75,
        (":", "am", "pm"),
    ),
    FactPattern(
        FactKind.MONEY,
        re.compile(
            r"(?:[$€£¥₹]\s?|\b(?:USD|EUR|GBP|JPY|CHF|INR)\s?)\d[\d,]{0,20}(?:\.\d{1,4})?"
            r"(?:\s?(?:[kKmMbB]n?|million|billion)\b)?"
        ),
        80,
        ("$", "€", "£", "¥", "₹", "usd", "eur", "gbp", "jpy", "chf", "inr"),
    ),
    FactPattern(
        FactKind.MONEY,
        re.compile(
            r"\d(?<!\w\d)[\d,]{0,20}(?:\.\d{1,4})?\s?(?:€|£|USD|EUR|GBP|JPY|CHF|INR|dollars?|euros?|pounds?|cents)(?!\w)"
        ),
        80,
        ("€", "£", "usd", "eur", "gbp", "jpy", "chf", "inr", "dollar", "pound", "cents"),
    ),
    FactPattern(
        FactKind.VERSION,
        re.compile(
            r"[v\d](?<![\w.][v\d])(?:(?<=v)\d{1,6}(?:\.\d{1,6}){0,4}|(?<=\d)\d{0,5}(?:\.\d{1,6}){2,4})"
            r"(?:[-+.][0-9A-Za-z]{1,20}){0,4}\b"
            r"|[<>=!~]=\s?\d{1,4}(?:\.\d{1,4}){1,3}"
        ),
        75,
    ),
    FactPattern(
        FactKind.VERSION,
        re.compile(rf"(?i:\b(?:{'|'.join(_VERSIONED)})[\s-]v?)\d{{1,4}}\.\d{{1,4}}(?:\.\d{{1,4}}){{0,3}}\b"),
        75,
        _VERSIONED,
    ),
    FactPattern(
        FactKind.COMMAND,
        re.compile(
            r"(?m:^[ \t]*(?:[$%>❯][ \t]+|(?i:[\w \t]{0,20}\b(?:command|cmd)\b['\"]?[ \t]?[:=][ \t]?['\"]?))"
            r"((?=[^\n]*[A-Za-z])[^\n]{2,300})$)"
        ),
        85,
    ),
    FactPattern(
        FactKind.COMMAND,
        re.compile(
            rf"(?m:^[ \t]*((?:sudo[ \t]+)?{_PROGRAM}[ \t]+"
            r"(?:(?=[^\n]{0,300}(?:[ \t]-{1,2}\w|/|\w\.\w|\||=|\*|&&))[^\n]{1,300}"
            r"|[\w:@.-]{1,40}(?:[ \t][\w:@.-]{1,40}){0,3}))[ \t]*$)"
        ),
        85,
    ),
    FactPattern(
        FactKind.CODE, re.compile(r"(?<!`)`[^`\n]{1,300}`(?!`)|(?<!`)``[^`\n]{1,300}``(?!`)"), 75, ("`",)
    ),
    FactPattern(
        FactKind.NEGATION,
        re.compile(
            r"\b(?i:not|never|no longer|none of|cannot|without|instead of|rather than|neither|nor|avoid)"
            + _FOLLOWING
        ),
        55,
        (
            "not",
            "never",
            "no longer",
            "none of",
            "without",
            "instead of",
            "rather than",
            "neither",
            "nor",
            "avoid",
        ),
        words_before=3,
    ),
    FactPattern(
        FactKind.NEGATION, re.compile(r"[nN]['’][tT]\b" + _FOLLOWING), 55, ("n't", "n’t"), words_before=3
    ),
)
