"""The contract of stores that keep contexts, what they report, and the limits that hold."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from langmem_tiers.common.checks import check_positive, check_whole
from langmem_tiers.display.displayable import Displayable
from langmem_tiers.errors import InvalidConfigError

if TYPE_CHECKING:
    from datetime import datetime

    from langmem_tiers.context_files.models import ContextData, Recovery


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionConfig:
    """When a context is made smaller, and by how much."""

    max_history: int = 50
    """More entries than this are too many."""
    keep_history: int = 30
    """So many of the newest stay when there are too many."""
    max_tokens: int = 100_000
    """If the history takes more than this, the older half of it goes."""
    completed_hours: float = 24.0
    """How long a task that is completed stays."""
    line_characters: int = 200
    """Of an entry in a summary that no model wrote; facts that are cut off are named behind it."""
    max_summary_tokens: int = 25_000
    """If the long-term summary takes more than this, what is old in it is summarised again."""

    def __post_init__(self) -> None:
        check_whole(self.max_history, 1, "max_history")
        check_whole(self.keep_history, 0, "keep_history")
        if self.keep_history > self.max_history:
            raise InvalidConfigError(
                f"keep_history must be at most max_history, which is {self.max_history}, "
                f"got {self.keep_history!r}: lower it"
            )
        check_whole(self.max_tokens, 1, "max_tokens")
        check_positive(self.completed_hours, "completed_hours")
        check_whole(self.line_characters, 20, "line_characters")
        check_whole(self.max_summary_tokens, 100, "max_summary_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextFilesConfig:
    """How contexts are kept."""

    compaction: CompactionConfig = field(default_factory=CompactionConfig)
    keep_versions: int = 10
    """So many of the newest versions of each session are kept, the one in force among them."""
    max_bytes: int = 64 * 1024 * 1024
    """A larger context is neither written nor read."""
    busy_timeout_seconds: float = 10.0
    """How long a save of a file waits for others who save the same session."""

    def __post_init__(self) -> None:
        if not isinstance(self.compaction, CompactionConfig):
            raise InvalidConfigError(
                f"compaction must be a CompactionConfig, got a {type(self.compaction).__name__}"
            )
        check_whole(self.keep_versions, 1, "keep_versions", most=100_000)
        check_whole(self.max_bytes, 1000, "max_bytes")
        check_positive(self.busy_timeout_seconds, "busy_timeout_seconds", most=86_400)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextVersion(Displayable):
    """One version of a context, as it was saved."""

    number: int
    """Counts up with each save of the session."""
    saved_at: datetime
    size_bytes: int
    revision: str
    """What a context that was made from it is ``based_on``."""
    is_current: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveReport(Displayable):
    """A context as it was saved. Go on with it: the one that was handed in is now outdated."""

    context: ContextData
    version: int
    size_bytes: int
    is_merged: bool = False
    """Whether somebody else had saved in between, and both were merged."""
    recovery: Recovery | None = None
    """What was done if the version before could not be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextDeleteReport(Displayable):
    """What was erased."""

    was_there: bool
    versions: int


class ContextStore(Protocol):
    """Keeps the context of each session, its last versions, and what was damaged.

    Session ids are told apart exactly. A save is seen whole or not at all, whoever reads and whatever happens to the
    one who saves. A context that cannot be read is set aside, never erased, and the last good version takes its place.
    """

    def load(self, session_id: str) -> ContextData | None:
        """The context with what it is ``based_on`` and its ``recovery``, if there had to be one; None if there is none.

        Raises:
            StorageCorruptError: It could not be read, and there is no good version; it was set aside.
        """
        ...

    def save(self, context: ContextData, now: datetime, *, overwrite: bool = False) -> SaveReport:
        """Keep the context as the next version; older ones than are to be kept go.

        Args:
            context: What to keep.
            now: When.
            overwrite: Whatever is stored now. Its version stays in the list.

        Raises:
            ContextConflictError: It is based on another version than the one in force; nothing was written.
        """
        ...

    def delete(self, session_id: str) -> ContextDeleteReport:
        """Erase the context with all its versions. What was set aside as damaged stays."""
        ...

    def sessions(self) -> tuple[str, ...]:
        """The ids of all sessions that have a context, sorted."""
        ...

    def versions(self, session_id: str) -> tuple[ContextVersion, ...]:
        """The versions that are kept, newest first."""
        ...

    def version(self, session_id: str, number: int) -> ContextData | None:
        """The context as it was in a version; None if that is not kept, or cannot be read."""
        ...

    def close(self) -> None:
        """Give back what is held open; harmless to call twice."""
        ...
