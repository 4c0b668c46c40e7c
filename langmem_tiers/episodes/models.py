"""Episodes: moments of a conversation that matter, and the story that they tell."""

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
"""The significance from which on an episode is a key moment."""


class EpisodeKind(StrEnum):
    """What kind of moment it was."""

    DECISION_MADE = "decision_made"
    """An important choice, with its reasons."""
    PROBLEM_SOLVED = "problem_solved"
    BREAKTHROUGH = "breakthrough"
    """Significant progress, or an insight."""
    ISSUE_IDENTIFIED = "issue_identified"
    TASK_COMPLETED = "task_completed"
    PIVOT = "pivot"
    """The direction changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeDraft(Displayable):
    """A moment as it was found, before it is stored.

    Args:
        kind: What kind of moment.
        title: In a few words.
        summary: What happened.
        context: What was spoken of before it.
        participants: Who took part.
        outcome: What came of it.
        valence: How it felt, from -1 to 1.
        significance: How much it matters, from 0 to 1.
        linked: Ids of long-term entries that belong to it.
        first_turn: The number of its first message in its session; the first message of all is 1.
        last_turn: The number of its last message.
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
                raise InvalidInputError(f"an episode needs a {name}, got {value!r}: say what happened")
        check_score(self.significance, "significance")
        check_valence(self.valence)
        check_whole(self.first_turn, 1, "first_turn")
        check_whole(self.last_turn, 1, "last_turn")
        if self.last_turn < self.first_turn:
            raise InvalidInputError(
                f"last_turn {self.last_turn!r} must not lie before first_turn {self.first_turn!r}: swap them"
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
    """A moment that is remembered."""

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
        """Whether it is significant enough to tell the story by."""
        return self.significance >= MIN_KEY_MOMENT_SIGNIFICANCE


@dataclass(frozen=True, slots=True, kw_only=True)
class NarrativeArc(Displayable):
    """The episodes of one session as a story, each part in the order of its turns."""

    session: str
    turns: int
    """How many messages the session had."""
    beginning: tuple[Episode, ...]
    """Of the first third."""
    middle: tuple[Episode, ...]
    end: tuple[Episode, ...]
    """Of the final third."""
    key_moments: tuple[Episode, ...]
    """Those of a significance of 0.7 and more, from the whole session."""

    def _to_display(self) -> DisplayContent:
        parts = {"beginning": self.beginning, "middle": self.middle, "end": self.end}
        rows = [{"part": name, **to_display_row(one)} for name, those in parts.items() for one in those]
        facts = {"turns": self.turns, "episodes": len(rows), "key moments": len(self.key_moments)}
        told = (build_table(rows, first=MAX_TABLE_ROWS // 2, last=MAX_TABLE_ROWS // 2),) if rows else ()
        return DisplayContent(f"NarrativeArc of {self.session!r}", facts, told)


def check_episode_kind(kind: object) -> EpisodeKind:
    """The kind, or an error that lists those there are."""
    try:
        return EpisodeKind(kind)  # type: ignore[arg-type]
    except ValueError:
        known = ", ".join(kind.value for kind in EpisodeKind)
        raise InvalidInputError(f"unknown kind of episode {kind!r}: use one of {known}") from None


def check_valence(valence: object) -> float:
    """The valence, or an error for what lies outside [-1, 1]."""
    if isinstance(valence, bool) or not isinstance(valence, int | float) or not -1.0 <= valence <= 1.0:
        raise InvalidInputError(f"valence must lie in [-1, 1], got {valence!r}: scale it first")
    return valence
