"""The words of a question that are worth looking for."""

from __future__ import annotations

import re

_WORD = re.compile(r"\w+")
MAX_WORDS = 64
"""Of a search; the rest of a long text adds cost, not sense."""
STOP_WORDS = frozenset(
    """
    a about after all also am an and any are as at be because been before being but by can could did do does doing
    for from had has have he her here him his how i if in into is it its just let like me more most my no not now of
    on only or other our out over please she should so some such tell than that the their them then there these they
    this those to too up us very was we were what when where which while who why will with would you your
    """.split()
)
"""English words that are in every text."""


def all_words(text: str) -> list[str]:
    """The first distinct words in lower case."""
    return list(dict.fromkeys(_WORD.findall(text.lower())))[:MAX_WORDS]


def query_words(text: str) -> list[str]:
    """The words that say what is looked for; all of them, if none does."""
    words = all_words(text)
    return [word for word in words if word not in STOP_WORDS] or words
