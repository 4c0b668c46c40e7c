"""The table of fact patterns, which can be extended.

Where possible, a pattern starts with a literal character and checks the preceding context with a
lookbehind after it: the regex engine skips to such characters quickly. No pattern can restart in the
middle of a match, and repetitions are bounded or possessive, so any text is read in linear time.
"""

from __future__ import annotations

import re

from langmem_tiers.text.facts import WORD_PATTERN, FactKind, FactPattern
from langmem_tiers.text.time_expressions.vocabulary import MONTHS
from langmem_tiers.text.word_lists import load_words

_MONTH = (
    r"(?i:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sept?(?:ember)?"
    r"|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)"
)
# Programs whose name is not an English word: the rest of the line is a command.
_PROGRAM = rf"(?:{'|'.join(load_words(__name__, 'programs_and_files', 'programs'))})"
# Programs whose name is also an English word: only with an option, a path or a value after it.
_PROGRAM_OR_WORD = rf"(?:{'|'.join(load_words(__name__, 'programs_and_files', 'programs named like words'))})"
_SUFFIXES = load_words(__name__, "programs_and_files", "file suffixes")
_DOT_FILES = load_words(__name__, "programs_and_files", "dot files")
_VERSIONED_NAMES = load_words(__name__, "programs_and_files", "versioned names")
_ELEMENTS = load_words(__name__, "programs_and_files", "html elements")
_CURRENCIES = ("usd", "eur", "gbp", "jpy", "chf", "inr", "sek")
_CURRENCY_CODE = "|".join(_CURRENCIES).upper()
_FOLLOWING_WORDS = rf"(?: [\"'`(]?{WORD_PATTERN}[\"'`)]?){{1,6}}"
_ERROR_WORD = (
    r"(?:(?:[A-Za-z_][\w.]{0,80})?(?:Error|Exception)|(?i:errors?|exception|failed|failure|fatal|panic))"
)

# Pattern and priority per kind. The first eight kinds are those of the design document. The others
# preserve what agents need most and summaries lose first.
FACT_PATTERNS: tuple[FactPattern, ...] = (
    FactPattern(
        FactKind.URL,
        re.compile(
            r"\b(?i:https?|ftp|wss?|s3|gs|file|git|ssh|postgres(?:ql)?|mysql|redis|sqlite|mongodb)://"
            r"(?:\[[0-9A-Fa-f:.]{2,45}\])?(?:\([^\s()<>\"'`]{0,200}\)|[^\s<>\"'`\\|{}\[\]()])+"
        ),
        95,
        ("://",),
    ),
    FactPattern(
        FactKind.URL,
        re.compile(r"\bwww\.[\w.-]{1,200}\.\w{2,20}(?:/[^\s<>\"'`\\|{}\[\]()]*)?"),
        95,
        ("www.",),
    ),
    FactPattern(
        FactKind.EMAIL, re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}"), 85, ("@",)
    ),
    # An error word followed by its message: "TypeError: ...", "error [E11] ...", "failed to ...", "error 404".
    FactPattern(
        FactKind.ERROR,
        re.compile(
            rf"(?<![\w.]){_ERROR_WORD}\b(?:['\"\]]?\s?[:=]\s?[^\n]{{1,160}}|\]\s[^\n]{{1,160}}|\([^\n()]{{1,120}}\)"
            r"|\s\d{1,6}\b|\s(?:to|with|at|in|on|for|because|after|while)\s[^\n.;!?]{1,120})"
        ),
        90,
        ("error", "exception", "fail", "fatal", "panic"),
    ),
    # A failure without a message: the words before it say what failed.
    FactPattern(
        FactKind.ERROR,
        re.compile(r"\b(?i:failed|crashed|timed out|was refused|was rejected)\b"),
        70,
        ("failed", "crashed", "timed out", "was refused", "was rejected"),
        words_before=4,
    ),
    # A selector that is named as such, in any syntax.
    FactPattern(
        FactKind.SELECTOR,
        re.compile(
            r"(?i:\b(?:selector|xpath|css)\b['\"]?\s?[:=]\s?(?:'[^'\n]{1,160}'|\"[^\"\n]{1,160}\"|[^\s,;]{1,160}))"
        ),
        70,
        ("selector", "xpath", "css"),
    ),
    # #id, .class-name (only with a hyphen, because ".com" is not a class), [data-...] and XPath.
    FactPattern(
        FactKind.SELECTOR,
        re.compile(
            r"#(?<![\w/&#.]#)[A-Za-z][\w-]{0,80}"
            r"|\.(?<![\w.)/\]-]\.)[A-Za-z]\w{0,40}-[\w-]{1,80}"
            r"|\[data-[\w-]{1,60}(?:[~|^$*]?=[^\]\n]{1,80})?\]"
            r"|/(?<![:\w/]/)/[a-zA-Z*][\w-]{0,40}(?:\[[^\]\n]{1,120}\]|/{1,2}[\w*@:-]{1,40}(?:\(\))?){1,12}"
        ),
        70,
        ("#", ".", "[data-", "//"),
    ),
    # An HTML element with a class, an id or an attribute: button.primary, input[name=q].
    FactPattern(
        FactKind.SELECTOR,
        re.compile(
            rf"\b(?:{'|'.join(_ELEMENTS)})(?:[.#][A-Za-z][\w-]{{0,60}}|\[[\w-]{{1,40}}[~|^$*]?=[^\]\n]{{1,80}}\]){{1,6}}"
        ),
        70,
        tuple(f"{element}{mark}" for element in _ELEMENTS for mark in ".#["),
    ),
    FactPattern(
        FactKind.CLASS_NAME,
        re.compile(r"\bclass(?:Name)?=(?:\"[^\"\n]{1,200}\"|'[^'\n]{1,200}')"),
        60,
        ("class=", "classname="),
    ),
    FactPattern(
        FactKind.ELEMENT_ID, re.compile(r"\bid=(?:\"[^\"\n]{1,200}\"|'[^'\n]{1,200}')"), 60, ("id=",)
    ),
    FactPattern(
        FactKind.IP_ADDRESS,
        re.compile(r"\d(?<![\w.]\d)\d{0,2}(?:\.\d{1,3}){3}(?:[:/]\d{1,5})?(?![\w-]|\.\d)"),
        85,
        (".",),
    ),
    # IPv6: eight groups, a form shortened with "::", or the loopback address.
    FactPattern(
        FactKind.IP_ADDRESS,
        re.compile(
            r"[0-9A-Fa-f](?<![\w:][0-9A-Fa-f])[0-9A-Fa-f]{0,3}:(?:(?:[0-9A-Fa-f]{1,4}:){6}[0-9A-Fa-f]{1,4}"
            r"|(?:[0-9A-Fa-f]{1,4}:){0,5}:[0-9A-Fa-f]{1,4}(?::[0-9A-Fa-f]{1,4}){0,5})(?![\w:])"
            r"|::1(?<![\w:]::1)(?![\w:])"
        ),
        85,
        (":",),
    ),
    # Numbers of at least two digits, and decimals. Single digits are too frequent to preserve.
    FactPattern(
        FactKind.NUMBER,
        re.compile(
            r"[-+\d](?<![\w.][-+\d])\d?[\d,_]{0,40}\d(?:\.\d{1,20})?(?:\s?%)?(?!\w)|\d(?<![\w.]\d)\.\d{1,20}(?:\s?%)?(?![\w.])"
        ),
        35,
    ),
    # Words with two digits in a row, or of at least 16 characters with a digit: order numbers, hashes, tokens.
    FactPattern(
        FactKind.IDENTIFIER, re.compile(r"(?<![\w-])(?:[\w-]*?\d\d[\w-]*|(?=[\w-]{16})[\w-]*?\d[\w-]*)"), 50
    ),
    # Paths: absolute ones; relative ones with a file extension, and those that start with ~ or dots; Windows
    # paths; file names with a known extension.
    FactPattern(
        FactKind.PATH, re.compile(r"/(?<![\w/.<)\]}~-]/)[\w.+@%-]{1,120}(?:/[\w.+@%-]{1,120})*/?"), 80, ("/",)
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
        re.compile(r"\b[A-Za-z]:[\\/](?![\\/])(?:[\w.+@ -]{1,120}[\\/]){0,40}[\w.+@-]{1,120}"),
        80,
        (":\\", ":/"),
    ),
    FactPattern(
        FactKind.PATH,
        re.compile(
            rf"(?<![\w:/@-])\.?[\w-]{{1,120}}(?:\.[\w-]{{1,40}}){{0,3}}\.(?:{'|'.join(_SUFFIXES)})\b"
            rf"|(?<![\w./])\.(?:{'|'.join(_DOT_FILES)})\b"
        ),
        80,
        tuple(f".{suffix}" for suffix in (*_SUFFIXES, *_DOT_FILES)),
    ),
    FactPattern(
        FactKind.DATE,
        re.compile(
            r"\d(?<!\w\d)(?:\d{3}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?(?:Z|[+-]\d{2}:?\d{2})?)?\b"
            r"|\d{3}/\d{1,2}/\d{1,2}\b|\d?/\d{1,2}/\d{2,4}\b|\d?\.\d{1,2}\.\d{4}\b"
            rf"|\d?(?:st|nd|rd|th)?\s(?:of\s)?{_MONTH}(?:,?\s\d{{4}})?\b)"
        ),
        70,
    ),
    FactPattern(
        FactKind.DATE,
        re.compile(rf"\b{_MONTH}(?:\.?\s\d{{1,2}}(?:st|nd|rd|th)?(?:,?\s\d{{4}})?|\s\d{{4}})\b"),
        70,
        tuple(name[:3] for name in MONTHS),
    ),
    FactPattern(
        FactKind.TIME,
        re.compile(
            r"\d(?<![\w:.]\d)\d?(?::[0-5]\d(?::[0-5]\d)?(?:\s?[AaPp]\.?[Mm]\b)?(?:\s(?:UTC|GMT|[ECMP][SD]T))?(?![\d:])"
            r"|\s?[AaPp](?:[Mm]\b|\.[Mm]\.))"
        ),
        45,
        (":", "am", "pm", "a.m", "p.m"),
        keeps_end=True,
    ),
    FactPattern(
        FactKind.MONEY,
        re.compile(
            rf"(?:[$€£¥₹]\s?|\b(?:{_CURRENCY_CODE})\s?)\d[\d,]{{0,20}}(?:\.\d{{1,4}})?"
            r"(?:\s?(?:[kKmMbB]n?|million|billion)\b)?"
        ),
        75,
        ("$", "€", "£", "¥", "₹", *_CURRENCIES),
    ),
    FactPattern(
        FactKind.MONEY,
        re.compile(
            r"\d(?<!\w\d)[\d,]{0,20}(?:\.\d{1,4})?\s?"
            rf"(?:€|£|\$|{_CURRENCY_CODE}|dollars?|euros?|pounds?|cents?)(?![\w])"
        ),
        75,
        ("€", "£", "$", *_CURRENCIES, "dollar", "pound", "cent"),
    ),
    # "v1", "1.2.3" (two numbers could be a decimal) and constraints such as ">=1.2".
    FactPattern(
        FactKind.VERSION,
        re.compile(
            r"[v\d](?<![\w.][v\d])(?:(?<=v)\d{1,6}(?:\.\d{1,6}){0,4}|(?<=\d)\d{0,5}(?:\.\d{1,6}){2,4})"
            r"(?:[-+.][0-9A-Za-z]{1,20}){0,4}\b"
            r"|[<>=!~]=\s?\d{1,4}(?:\.\d{1,4}){1,3}"
        ),
        65,
    ),
    # Two numbers are a version after the name of a program: "python 3.12".
    FactPattern(
        FactKind.VERSION,
        re.compile(
            rf"(?i:\b(?:{'|'.join(_VERSIONED_NAMES)})[\s-]v?)\d{{1,4}}\.\d{{1,4}}(?:\.\d{{1,4}}){{0,3}}\b"
        ),
        65,
        _VERSIONED_NAMES,
    ),
    # Commands: lines after a prompt or "command:", JSON members, and lines that start with a known program.
    FactPattern(
        FactKind.COMMAND,
        re.compile(
            r"(?m:^[ \t]*+(?:[$%❯][ \t]++|(?i:(?:[\w-]{1,20}[ \t]){0,2}(?:command|cmd)[ \t]?[:=][ \t]*+['\"]?))"
            r"(?=[^\n]{0,300}[A-Za-z])([^\s][^\n]{1,300})$)"
        ),
        100,
        keeps_end=True,
    ),
    FactPattern(
        FactKind.COMMAND,
        re.compile(r"\"(?:command|cmd)\"\s?:\s?\"((?:[^\"\\\n]|\\.){2,300})\""),
        100,
        ('"command"', '"cmd"'),
        keeps_end=True,
    ),
    FactPattern(
        FactKind.COMMAND,
        re.compile(
            r"(?m:^[ \t]*+((?:sudo[ \t]++)?(?:"
            rf"{_PROGRAM}[ \t]++(?:(?=[^\n]{{0,300}}(?:[ \t]-{{1,2}}\w|/|\w\.\w|\||=|\*|&&|\.))[^\s][^\n]{{0,300}}"
            r"|[\w:@.-]{1,40}(?:[ \t][\w:@.-]{1,40}){0,3})"
            rf"|{_PROGRAM_OR_WORD}[ \t]++(?:[-./~$\"'*]|[^\s]{{0,60}}[/=]|[\w-]{{1,60}}\.\w|\d)[^\n]{{0,300}}"
            r"|make[ \t][\w-]{2,30}|go[ \t](?:build|test|run|mod|get|install|vet|fmt)\b[^\n]{0,300}"
            r"))[ \t]*+$)"
        ),
        100,
        keeps_end=True,
    ),
    FactPattern(
        FactKind.CODE, re.compile(r"(?<!`)`[^`\n]{1,300}`(?!`)|(?<!`)``[^`\n]{1,300}``(?!`)"), 70, ("`",)
    ),
    # Negations with the words around them: without them a summary could state the opposite.
    FactPattern(
        FactKind.NEGATION,
        re.compile(
            rf"\b(?i:(?:not|never|cannot){_FOLLOWING_WORDS}|(?<=\w )(?:not|never|cannot)\b"
            rf"|(?:no|none of|without|instead of|rather than|neither|nor|avoid)\b{_FOLLOWING_WORDS})"
        ),
        80,
        (
            "not",
            "never",
            "cannot",
            "no ",
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
        FactKind.DECISION,
        re.compile(
            r"\b(?i:decided|decision|agreed|chosen?|replaces|switch(?:ed)? to|settled on|we will use|let['’]s use):?"
            rf"(?: [\"'`(]?{WORD_PATTERN}[\"'`)]?){{1,9}}"
        ),
        90,
        (
            "decided",
            "decision",
            "agreed",
            "chose",
            "replaces",
            "switch",
            "settled on",
            "we will use",
            "s use",
        ),
        words_before=2,
    ),
    FactPattern(
        FactKind.PERSONAL,
        re.compile(
            r"\b(?i:my name is|i am called|call me|i prefer|i like|i hate|i am allergic to|i['’]m allergic to"
            rf"|i live in|i work (?:at|for|as)|remember that|please remember)(?: [\"'`(]?{WORD_PATTERN}[\"'`)]?){{1,9}}"
        ),
        95,
        (
            "my name is",
            "called",
            "call me",
            "i prefer",
            "i like",
            "i hate",
            "allergic",
            "i live",
            "i work",
            "remember",
        ),
    ),
    FactPattern(
        FactKind.NEGATION,
        re.compile(rf"[nN]['’][tT]\b(?:{_FOLLOWING_WORDS})?"),
        80,
        ("n't", "n’t"),
        words_before=3,
    ),
)
