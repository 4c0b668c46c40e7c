"""Comparing two statements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langmem_tiers.scoring.statements.aligning import aligned, rephrased
from langmem_tiers.scoring.statements.contradictions import contradiction
from langmem_tiers.scoring.statements.differences import difference
from langmem_tiers.scoring.statements.sameness import why_not_same
from langmem_tiers.scoring.statements.verdicts import Comparison, Verdict

if TYPE_CHECKING:
    from langmem_tiers.scoring.statements.aligning import Kin
    from langmem_tiers.scoring.statements.differences import Difference
    from langmem_tiers.scoring.statements.reading import Statement


def compare(old: Statement, new: Statement, kin: Kin | None = None) -> Comparison:
    """What the new statement is to the old one.

    Args:
        old: What is in memory.
        new: What may be stored.
        kin: The cosine of two words, to match words that no table knows; without it, tables and endings decide.
    """
    if old.plain == new.plain:
        return Comparison(Verdict.SAME, "word for word the same", 1.0)
    if not old.atoms or not new.atoms:
        return Comparison(Verdict.DIFFERENT, "nothing to compare", 0.0)
    written = new
    found = difference(old, new)
    if found.old and found.new and (matched := aligned(new, found, kin)) is not new:
        new = matched
        found = difference(old, new)
    if not (why_not := why_not_same(old, new, found)) or (kin and _is_same_phrased(old, new, found, kin)):
        return Comparison(Verdict.SAME, "the same in other words", 1.0)
    if why := contradiction(old, new, found):
        return Comparison(Verdict.CONTRADICTS, why, found.similarity)
    for part in written.parts if "question" not in written.flags else ():
        if why := _part_against(old, part, kin):
            return Comparison(Verdict.CONTRADICTS, why, found.similarity)
    return Comparison(Verdict.DIFFERENT, why_not, found.similarity)


def _is_same_phrased(old: Statement, new: Statement, found: Difference, kin: Kin) -> bool:
    if not found.old or not found.new or (other := rephrased(new, found, kin)) is new:
        return False
    return not why_not_same(old, other, difference(old, other))


def _part_against(old: Statement, part: Statement, kin: Kin | None) -> str:
    """Why one clause of the new statement contradicts the old one; nothing if it does not."""
    found = difference(old, part)
    if found.old and found.new:
        part = aligned(part, found, kin)
        found = difference(old, part)
    return contradiction(old, part, found) if why_not_same(old, part, found) else ""
