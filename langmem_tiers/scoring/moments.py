"""Moments of a conversation that matter, found by rules: decided, solved, found, broken, done, turned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langmem_tiers.core.episodes import EpisodeDraft, EpisodeKind
from langmem_tiers.core.messages import Message, Role
from langmem_tiers.scoring.moment_patterns import MOMENT_PATTERNS
from langmem_tiers.scoring.moment_reading import Told, is_question, said, told_by
from langmem_tiers.scoring.moment_weights import significance_of, valence_of
from langmem_tiers.scoring.sentences import shortened
from langmem_tiers.scoring.terms import terms_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langmem_tiers.core.memory_store import Turn
    from langmem_tiers.scoring.moment_rows import MomentPattern

TITLE_CHARACTERS = 60
SUMMARY_CHARACTERS = 400
CONTEXT_CHARACTERS = 160
"""Of each message in the context."""
LOOK_BACK_TURNS = 10
"""How far before its solution a problem is looked for."""


def find_moments(
    turns: Sequence[Turn], *, after: int = 0, patterns: Sequence[MomentPattern] = MOMENT_PATTERNS
) -> tuple[EpisodeDraft, ...]:
    """The moments that messages tell of, at most one a message, in their order.

    Args:
        turns: Consecutive messages of one session, oldest first.
        after: Only messages behind this number are asked; give ten before them as context.
        patterns: What to look for. Add rows of your own: ``(*MOMENT_PATTERNS, mine)``.
    """
    told = {
        index: found
        for index, turn in enumerate(turns)
        if turn.number > after - LOOK_BACK_TURNS and (found := told_by(turn.message, patterns)) is not None
    }
    return tuple(_draft(turns, index, told) for index in told if turns[index].number > after)


def speaker(message: Message) -> str:
    """Who speaks: by name, where there is one, or by role."""
    return message.name or message.role.value


def _draft(turns: Sequence[Turn], index: int, told: dict[int, Told]) -> EpisodeDraft:
    found, turn = told[index], turns[index]
    first = _start(turns, index, told)
    return EpisodeDraft(
        kind=found.kind,
        title=shortened(found.sentence, TITLE_CHARACTERS),
        summary=shortened(found.sentences, SUMMARY_CHARACTERS),
        context=_context(turns, index),
        participants=tuple(dict.fromkeys(speaker(one.message) for one in turns[first : index + 1])),
        outcome=found.outcome,
        valence=valence_of(found.kind, found.sentences),
        significance=significance_of(
            found.kind, found.sentences, is_assistant=turn.message.role is Role.ASSISTANT
        ),
        first_turn=turns[first].number,
        last_turn=turn.number,
    )


def _start(turns: Sequence[Turn], index: int, told: dict[int, Told]) -> int:
    if told[index].kind is EpisodeKind.PROBLEM_SOLVED:
        issue = _issue_of(turns, index, told)
        if issue is not None:
            return issue
    before = index - 1
    if before < 0 or before in told or turns[index].message.role is Role.TOOL:
        return index
    asked = turns[before].message
    is_asked = asked.role in {Role.USER, Role.ASSISTANT} and is_question(said(asked))
    return before if is_asked else index


def _issue_of(turns: Sequence[Turn], index: int, told: dict[int, Told]) -> int | None:
    words = set(terms_of(said(turns[index].message)))
    for earlier in range(index - 1, -1, -1):
        if turns[index].number - turns[earlier].number > LOOK_BACK_TURNS:
            break
        issue = told.get(earlier)
        if issue is None or issue.kind is not EpisodeKind.ISSUE_IDENTIFIED:
            continue
        if words & set(terms_of(said(turns[earlier].message))):
            return earlier
    return None


def _context(turns: Sequence[Turn], index: int) -> str:
    lines = []
    for turn in turns[max(0, index - 2) : index]:
        text = "" if turn.message.role is Role.SYSTEM else shortened(said(turn.message), CONTEXT_CHARACTERS)
        if text:
            lines.append(f"{speaker(turn.message)}: {text}")
    return "\n".join(lines)
