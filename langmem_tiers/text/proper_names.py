"""Detection of proper names by capitalization: inside a sentence, in a row, or within a word."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from langmem_tiers.text.stop_words import STOP_WORDS
from langmem_tiers.text.word_lists import load_words

if TYPE_CHECKING:
    from collections.abc import Iterator

_WORD = re.compile(r"[^\W_][\w&+-]*(?:['’](?!s\b)\w+)*")
# Allowed between two parts of a name: a space (after a title also a period) and particles such as "van der".
_NAME_JOINT = re.compile(r"\.? (?:(?:de|van|von|der|da|di|la|of) ){0,2}")
_SENTENCE_START = re.compile(r"(?:\A|[\w)\"]{2}[.!?:]|\n)[\s\"'`“\u2018(\[*_#>-]*\Z")
_VERBS = (*load_words(__name__, "names", "verbs after a name"), "[a-z]+ed")
_VERB_BEHIND = re.compile(rf"(?:['’]s)? (?:{'|'.join(_VERBS)}|and [A-Z])\b".replace("'t", "['’]t"))
_TITLES = frozenset("dr mr mrs ms prof st".split())
_SHORT_FORMS = frozenset("i'm i'd i'll i've it's that's we're we've we'll let's don't can't".split())
# Capitalized at the start of sentences and headings, but not names unless part of a longer name.
_NEVER_ALONE = frozenset(load_words(__name__, "names", "never alone"))
_NEVER_NAMES = STOP_WORDS | _SHORT_FORMS
_UNLIKELY_NAME_END = re.compile(r"(?:s|ing|ed|ion|ment|ity|ness|ly)\Z")


def find_proper_names(text: str) -> list[tuple[int, int]]:
    """Return start and end of the names in a text, in order; empty for a text without lower-case letters.

    A single capitalized word at the start of a sentence is a name only if a verb follows: "Anna prefers tea".
    """
    if not any(map(str.islower, text)):
        return []
    found: list[tuple[int, int]] = []
    for start, end in _iter_capitalized_words(text):
        # A period joins only after a title: "Dr. Smith" is one name, "with Anna. Bob" are two.
        joint = text[found[-1][1] : start] if found else ""  # the text since the previous name
        is_title = joint == ". " and text[slice(*found[-1])].lower().split()[-1] in _TITLES
        is_joined = bool(joint) and (is_title or ("." not in joint and _NAME_JOINT.fullmatch(joint)))
        if is_joined:
            found[-1] = (found[-1][0], end)
        else:
            found.append((start, end))
    return [(start, end) for start, end in found if not _is_ordinary_word(text, start, end)]


def _iter_capitalized_words(text: str) -> Iterator[tuple[int, int]]:
    for match in _WORD.finditer(text):
        word = match[0]
        if (
            any(map(str.isupper, word))
            and len(word) > 1
            and word.lower().replace("’", "'") not in _NEVER_NAMES
        ):
            yield match.span()


def _is_ordinary_word(text: str, start: int, end: int) -> bool:
    word = text[start:end]
    if word.lower() in _NEVER_ALONE:
        return True
    if not word[0].isupper() or any(map(str.isupper, word[1:])) or not word.isalpha():
        return False  # inner capitals, digits or several words are deliberate, so it is a name
    if not _SENTENCE_START.search(text, max(0, start - 20), start):
        return False
    return _VERB_BEHIND.match(text, end) is None or _UNLIKELY_NAME_END.search(word) is not None
