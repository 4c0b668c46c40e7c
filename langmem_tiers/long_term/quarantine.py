"""Quarantine: unsafe text is stored as an extracted fact, and must be promoted before it is used."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from langmem_tiers.facts.models import ExtractedFact, FactState
from langmem_tiers.long_term.models import Outcome, Receipt
from langmem_tiers.long_term.records import MemoryWrite
from langmem_tiers.text.prompt_injection import MAX_INSPECTED_CHARACTERS, find_unsafe_reason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.long_term.dependencies import LongTermDependencies
    from langmem_tiers.long_term.models import EntryDraft

_SPACES = re.compile(r"[ \t]{2,}")
_OVERLAP_CHARACTERS = 500  # longer than any injection pattern, so that none is missed at a boundary


def quarantine_if_unsafe(
    dependencies: LongTermDependencies, namespace: NamespacePath, draft: EntryDraft
) -> Receipt | None:
    """Quarantine a draft if it is unsafe. Return its receipt, or None if the draft is safe."""
    reason = next(filter(None, map(find_unsafe_reason, _split_windows(draft.content))), "")
    if not reason:
        return None
    now = dependencies.now()
    fact = ExtractedFact(
        id=dependencies.new_id(),
        content=draft.content,
        kind=draft.kind,
        confidence=0.0,
        session=draft.session,
        source_message_id=None,
        extracted_at=now,
        state=FactState.QUARANTINED,
        reason=reason,
        category=draft.category,
        tags=tuple(sorted(draft.tags)),
        importance=draft.importance,
        source=draft.source,
        valid_from=draft.valid_from,
        valid_until=draft.valid_until,
    )
    dependencies.store.commit(namespace, MemoryWrite(facts=(fact,)), now)
    return Receipt(outcome=Outcome.QUARANTINED, reason=reason, fact=fact.id)


def _split_windows(text: str) -> Iterator[str]:
    # find_unsafe_reason reads a limited number of characters, so a long text is checked in overlapping parts.
    # Runs of spaces are collapsed, so that padding cannot stretch a pattern beyond a part.
    text = _SPACES.sub(" ", text)
    step = MAX_INSPECTED_CHARACTERS - _OVERLAP_CHARACTERS
    return (
        text[start : start + MAX_INSPECTED_CHARACTERS]
        for start in range(0, max(1, len(text) - _OVERLAP_CHARACTERS), step)
    )
