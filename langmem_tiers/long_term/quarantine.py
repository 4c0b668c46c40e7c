"""What must not be believed or followed unless somebody says so: kept aside as an extracted fact."""

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
_OVERLAP_CHARACTERS = 500  # characters; no order is longer


def quarantine_if_unsafe(
    parts: LongTermDependencies, namespace: NamespacePath, draft: EntryDraft
) -> Receipt | None:
    """The receipt of a draft that was kept aside; None if there is nothing against it."""
    reason = next(filter(None, map(find_unsafe_reason, _split_windows(draft.content))), "")
    if not reason:
        return None
    now = parts.now()
    fact = ExtractedFact(
        id=parts.new_id(),
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
    parts.store.commit(namespace, MemoryWrite(facts=(fact,)), now)
    return Receipt(outcome=Outcome.QUARANTINED, reason=reason, fact=fact.id)


def _split_windows(text: str) -> Iterator[str]:
    # A check reads so far and no further: a long text is read in parts that overlap.
    text = _SPACES.sub(" ", text)
    step = MAX_INSPECTED_CHARACTERS - _OVERLAP_CHARACTERS
    return (
        text[start : start + MAX_INSPECTED_CHARACTERS]
        for start in range(0, max(1, len(text) - _OVERLAP_CHARACTERS), step)
    )
