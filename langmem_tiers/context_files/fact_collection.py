"""Facts that nobody wrote down: sentences of the history that hold what is worth keeping."""

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
_SECRET = "credential"  # the name of a key fact
_MAX_FACT_CHARACTERS, _MIN_FACT_CHARACTERS = 300, 8
_MAX_FACTS_PER_ENTRY = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class FactsReport:
    """A context with the facts of its history, and which of them are new."""

    context: ContextData
    added: tuple[str, ...]
    known: int
    """How many were left out because the context says them already."""


def extract_facts(
    context: ContextData, *, since: float | None = None, finder: FactFinder | None = None
) -> FactsReport:
    """The context with the facts that its history holds: decisions, preferences, addresses, versions, sums.

    A fact is a whole sentence, as it was said. Questions are none, results of tools are not searched, and sentences
    with a password or a key are left where they are. Two that differ in a number, a name or a negation are two facts.

    Args:
        context: As it is.
        since: Only of entries after that time, in seconds since 1970.
        finder: What counts as a fact.
    """
    finder = FactFinder() if finder is None else finder
    entries = [entry for entry in context.recent_history if since is None or entry.timestamp > since]
    found = list(dict.fromkeys(fact for entry in entries for fact in _find_facts(entry, finder)))
    # Of two that say the same, what the context has stays, and then what was said first.
    redundant = find_redundant([*reversed(found), *context.facts])
    new = tuple(fact for at, fact in enumerate(found) if len(found) - 1 - at not in redundant)
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
