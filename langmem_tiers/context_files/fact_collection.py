"""Extraction of facts from the history of a context."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from langmem_tiers.common.prompt_fences import strip_fences
from langmem_tiers.compression.fact_finder import FactFinder
from langmem_tiers.sessions.redundancy import find_redundant
from langmem_tiers.text.facts import FactKind
from langmem_tiers.text.key_facts import find_key_facts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langmem_tiers.context_files.models import ContextData, HistoryEntry

# A sentence of bounded length. Punctuation within a word, as in "1.2" or "example.com", does not end it. The escapes
# are the Chinese full stop, exclamation mark and question mark.
_SENTENCE = re.compile(
    r"[^\n.!?\u3002\uff01\uff1f]{1,400}(?:[.!?](?=\S)[^\n.!?\u3002\uff01\uff1f]{0,200}){0,20}[.!?\u3002\uff01\uff1f]?"
)
_KINDS = frozenset(
    {
        FactKind.DECISION,
        FactKind.EMAIL,
        FactKind.IP_ADDRESS,
        FactKind.MONEY,
        FactKind.PATH,
        FactKind.PERSONAL,
        FactKind.URL,
        FactKind.VERSION,
    }
)
_KEY_FACTS = frozenset({"url", "api", "selector"})
# Name of the key fact that find_key_facts() reports for passwords and keys.
_SECRET = "credential"
_MAX_FACT_CHARACTERS, _MIN_FACT_CHARACTERS = 300, 8
_MAX_FACTS_PER_ENTRY = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class FactsReport:
    """Result of a fact extraction."""

    context: ContextData
    """The context with the added facts."""
    added: tuple[str, ...]
    known: int
    """Number of facts that were left out because the context or an earlier sentence already contains them."""


def extract_facts(
    context: ContextData, *, since: float | None = None, finder: FactFinder | None = None
) -> FactsReport:
    """Add facts from the history to a copy of the context: decisions, preferences, addresses, amounts.

    A fact is a complete, unchanged sentence. Questions, tool results, system messages and sentences with a password
    or a key are skipped. Sentences that differ in a number, a name or a negation are different facts.

    Args:
        context: The context to search. It is not changed.
        since: Search only entries after this time, in seconds since 1970. Default: all entries.
        finder: Recognizes facts. Default: `FactFinder()`.
    """
    finder = FactFinder() if finder is None else finder
    entries = [entry for entry in context.recent_history if since is None or entry.timestamp > since]
    found = list(dict.fromkeys(fact for entry in entries for fact in _find_facts(entry, finder)))
    # find_redundant() keeps the last of several equivalent texts. Reverse the new facts and append the present ones,
    # so that a present fact wins over a new one, and the first of the new ones over later ones.
    redundant = find_redundant([*reversed(found), *context.facts])
    new = tuple(fact for index, fact in enumerate(found) if len(found) - 1 - index not in redundant)
    return FactsReport(
        context=replace(context, facts=(*context.facts, *new)), added=new, known=len(found) - len(new)
    )


def _find_facts(entry: HistoryEntry, finder: FactFinder) -> Iterator[str]:
    if entry.role.lower() in {"tool", "function", "system"}:
        return
    count = 0
    for match in _SENTENCE.finditer(strip_fences(entry.content)):
        sentence = " ".join(match[0].split()).strip("-*•>#| ")
        if _is_fact(sentence, finder):
            yield sentence
            count += 1
        if count >= _MAX_FACTS_PER_ENTRY:
            return


def _is_fact(sentence: str, finder: FactFinder) -> bool:
    if not _MIN_FACT_CHARACTERS <= len(sentence) <= _MAX_FACT_CHARACTERS or sentence.endswith(
        ("?", "\uff1f")
    ):
        return False
    keys = find_key_facts(sentence)
    if _SECRET in keys:
        return False
    return not _KEY_FACTS.isdisjoint(keys) or any(fact.kind in _KINDS for fact in finder.find(sentence))
