"""Data models of episodic memory: drafts, episodes and narrative arcs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from langmem_tiers.common.checks import check_whole
from langmem_tiers.common.entries import check_score
from langmem_tiers.display.displayable import Displayable, build_table, to_display_row
from langmem_tiers.display.tables import MAX_TABLE_ROWS, DisplayContent
from langmem_tiers.errors import InvalidInputError

if TYPE_CHECKING:
    from datetime import datetime

    from langmem_tiers.common.namespaces import NamespacePath

MIN_KEY_MOMENT_SIGNIFICANCE = 0.7
"""Minimum significance of a key moment."""


class EpisodeKind(StrEnum):
    """Kind of an episode."""

    DECISION_MADE = "decision_made"
    """Important choice, with its reasons."""
    PROBLEM_SOLVED = "problem_solved"
    BREAKTHROUGH = "breakthrough"
    """Significant progress, or an insight."""
    ISSUE_IDENTIFIED = "issue_identified"
    TASK_COMPLETED = "task_completed"
    PIVOT = "pivot"
    """Change of direction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeDraft(Displayable):
    """An episode before it is stored.

    Args:
        kind: Kind of the episode.
        title: Title in a few words.
        summary: Description of the event.
        context: Text of the messages just before it.
        participants: Names or roles of the participants.
        outcome: Result of the event, if any.
        valence: Emotional tone, from -1 (negative) to 1 (positive).
        significance: Significance, from 0 to 1.
        linked: Ids of related long-term entries.
        first_turn: Number of its first message in the session, starting with 1.
        last_turn: Number of its last message.
    """

    kind: EpisodeKind
    title: str
    summary: str
    context: str = ""
    participants: tuple[str, ...] = ()
    outcome: str | None = None
    valence: float = 0.0
    significance: float = 0.5
    linked: tuple[str, ...] = ()
    first_turn: int
    last_turn: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", check_episode_kind(self.kind))
        for name in ("title", "summary"):
            value = getattr(self, name)
            if not isinstance(value, str) or not value.strip():
                raise InvalidInputError(f"an episode needs a {name}, got {value!r}: describe what happened")
        check_score(self.significance, "significance")
        check_valence(self.valence)
        check_whole(self.first_turn, 1, "first_turn")
        check_whole(self.last_turn, 1, "last_turn")
        if self.last_turn < self.first_turn:
            raise InvalidInputError(
                f"last_turn {self.last_turn!r} must not precede first_turn {self.first_turn!r}: swap them"
            )

    def _to_row(self) -> dict[str, object]:
        return {
            "turns": f"{self.first_turn:,} to {self.last_turn:,}",
            "kind": self.kind.replace("_", " "),
            "significance": self.significance,
            "valence": self.valence,
            "title": self.title,
        }

    def _to_line(self) -> str:
        return self.title


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode(EpisodeDraft):
    """A stored episode."""

    id: str
    namespace: NamespacePath
    session: str
    created_at: datetime
    token_count: int = 0
    access_count: int = 0
    last_access_at: datetime | None = None
    is_archived: bool = False

    @property
    def is_key_moment(self) -> bool:
        """True if the significance is at least 0.7."""
        return self.significance >= MIN_KEY_MOMENT_SIGNIFICANCE


@dataclass(frozen=True, slots=True, kw_only=True)
class NarrativeArc(Displayable):
    """Episodes of one session in three parts, each ordered by turn."""

    session: str
    turns: int
    """Number of messages in the session."""
    beginning: tuple[Episode, ...]
    """Episodes that begin in the first third."""
    middle: tuple[Episode, ...]
    end: tuple[Episode, ...]
    """Episodes that begin in the last third."""
    key_moments: tuple[Episode, ...]
    """Episodes of the whole session with a significance of at least 0.7."""

    def _to_display(self) -> DisplayContent:
        parts = {"beginning": self.beginning, "middle": self.middle, "end": self.end}
        rows = [
            {"part": name, **to_display_row(episode)}
            for name, episodes in parts.items()
            for episode in episodes
        ]
        facts = {"turns": self.turns, "episodes": len(rows), "key moments": len(self.key_moments)}
        tables = (build_table(rows, first=MAX_TABLE_ROWS // 2, last=MAX_TABLE_ROWS // 2),) if rows else ()
        return DisplayContent(f"NarrativeArc of {self.session!r}", facts, tables)


def check_episode_kind(kind: object) -> EpisodeKind:
    """Return the kind as an ``EpisodeKind``, or raise an error that lists all kinds."""
    try:
        return EpisodeKind(kind)  # type: ignore[arg-type]
    except ValueError:
        known = ", ".join(kind.value for kind in EpisodeKind)
        raise InvalidInputError(f"unknown kind of episode {kind!r}: use one of {known}") from None


def check_valence(valence: object) -> float:
    """Return the valence, or raise an error if it is not a number from -1 to 1."""
    if isinstance(valence, bool) or not isinstance(valence, int | float) or not -1.0 <= valence <= 1.0:
        raise InvalidInputError(f"valence must be in [-1, 1], got {valence!r}: scale it first")
    return valence
