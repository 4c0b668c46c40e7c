"""Interface, reports and configuration of context stores."""

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
    """Limits of a context and the amount that compaction keeps."""

    max_history: int = 50
    """Maximum number of history entries. A longer history is compacted."""
    keep_history: int = 30
    """Number of newest entries that remain when the history is too long."""
    max_tokens: int = 100_000
    """Maximum number of history tokens. Above it, the older half of the history is summarized."""
    completed_hours: float = 24.0
    """Hours after which a completed task is removed."""
    line_characters: int = 200
    """Maximum characters per entry in a summary without a model. Facts that are cut off are appended."""
    max_summary_tokens: int = 25_000
    """Maximum size of the long-term summary. Above it, the older part of the summary is condensed."""

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
    """Configuration of `ContextFiles` and its stores."""

    compaction: CompactionConfig = field(default_factory=CompactionConfig)
    keep_versions: int = 10
    """Number of newest versions kept per session, including the current one."""
    max_bytes: int = 64 * 1024 * 1024
    """Maximum size of a context. A larger one is neither written nor read."""
    busy_timeout_seconds: float = 10.0
    """Maximum time that a file store waits for the lock of a session."""

    def __post_init__(self) -> None:
        if not isinstance(self.compaction, CompactionConfig):
            raise InvalidConfigError(
                f"compaction must be a CompactionConfig, got {type(self.compaction).__name__}: "
                "use CompactionConfig(...)"
            )
        check_whole(self.keep_versions, 1, "keep_versions", max_value=100_000)
        check_whole(self.max_bytes, 1000, "max_bytes")
        check_positive(self.busy_timeout_seconds, "busy_timeout_seconds", max_value=86_400)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextVersion(Displayable):
    """A stored version of a context."""

    number: int
    """Version number; increases with each save of the session."""
    saved_at: datetime
    size_bytes: int
    revision: str
    """Content hash; equals ``based_on`` of a context that was loaded from this version."""
    is_current: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveReport(Displayable):
    """Result of a save. Continue with its ``context``: the context that was passed is now outdated."""

    context: ContextData
    version: int
    size_bytes: int
    is_merged: bool = False
    """True if another process had saved in between and both contexts were merged."""
    recovery: Recovery | None = None
    """Report about the previous version if it was damaged, otherwise None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextDeleteReport(Displayable):
    """Result of deleting the context of a session."""

    was_there: bool
    versions: int


class ContextStore(Protocol):
    """Stores the context of each session, its newest versions and damaged copies.

    Session ids are compared exactly. A save is atomic: readers see all of it or nothing, even if the writer crashes.
    A damaged context is set aside, never deleted, and replaced by the newest readable version.
    """

    def load(self, session_id: str) -> ContextData | None:
        """Return the context with ``based_on`` and ``recovery`` set, or None if the session has no context.

        Raises:
            StorageCorruptError: The context is damaged and no version is readable. It was set aside.
        """
        ...

    def save(self, context: ContextData, now: datetime, *, overwrite: bool = False) -> SaveReport:
        """Store the context as the next version and delete versions beyond ``keep_versions``.

        Args:
            context: The context to store.
            now: Time of the save.
            overwrite: Replace the stored context even if it has changed. The replaced one remains as a version.

        Raises:
            ContextConflictError: The context is not based on the current version. Nothing was written.
        """
        ...

    def delete(self, session_id: str) -> ContextDeleteReport:
        """Delete the context with all its versions. Damaged copies that were set aside are kept."""
        ...

    def sessions(self) -> tuple[str, ...]:
        """Return the sorted ids of all sessions that have a context."""
        ...

    def versions(self, session_id: str) -> tuple[ContextVersion, ...]:
        """Return the stored versions, newest first."""
        ...

    def version(self, session_id: str, number: int) -> ContextData | None:
        """Return the context of a version, or None if the version does not exist or is damaged."""
        ...

    def close(self) -> None:
        """Release open resources. Calling it twice is harmless."""
        ...
