"""Models of batch writers: configuration, unsaved messages, reports and the report file."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from langmem_tiers.common.checks import check_positive, check_whole
from langmem_tiers.display.displayable import Displayable
from langmem_tiers.errors import InvalidConfigError

if TYPE_CHECKING:
    from langmem_tiers.common.messages import Message
    from langmem_tiers.common.namespaces import NamespacePath


class Acknowledge(StrEnum):
    """Point at which a writer acknowledges a message."""

    STORED = "stored"
    """After the transaction: the message is as durable as ``EngineConfig.durability`` says."""
    QUEUED = "queued"
    """After queuing: the message is in the memory of this process and will be stored soon. It is lost if the
    process is killed, unless there is a report file. That file survives a killed process, but not a power failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterConfig:
    """Configuration of a batch writer."""

    max_messages: int = 100
    """Messages per batch."""
    max_wait_ms: float = 1000.0
    """Longest time in milliseconds that a queued message waits before its batch starts."""
    max_pending: int = 10_000
    """Limit of messages not stored yet; further calls of ``add()`` block."""
    acknowledge: Acknowledge = Acknowledge.STORED
    """Point at which ``add()`` returns."""
    timeout_seconds: float = 60.0
    """Time limit of ``add()``, ``flush()`` and ``close()``."""
    report_path: Path | None = None
    """File for messages that were not stored."""

    def __post_init__(self) -> None:
        check_whole(self.max_messages, 1, "max_messages", max_value=100_000)
        check_positive(self.max_wait_ms, "max_wait_ms", max_value=86_400_000)
        check_whole(self.max_pending, 1, "max_pending", max_value=100_000_000)
        check_positive(self.timeout_seconds, "timeout_seconds", max_value=86_400)
        try:
            object.__setattr__(self, "acknowledge", Acknowledge(self.acknowledge))
        except ValueError:
            raise InvalidConfigError(
                f"unknown acknowledge {self.acknowledge!r}: use 'stored' or 'queued'"
            ) from None
        if self.report_path is not None:
            object.__setattr__(self, "report_path", check_report_path(self.report_path))


def check_report_path(path: object) -> Path:
    """Return the path of a report file.

    Raises:
        InvalidConfigError: The argument is not a path.
    """
    try:
        return Path(path)  # type: ignore[arg-type]
    except TypeError:
        raise InvalidConfigError(f"report path must be a str or a Path, got {path!r}") from None


@dataclass(frozen=True, slots=True)
class UnsavedMessages:
    """Messages of one ``add()`` call that are not stored."""

    namespace: NamespacePath
    session: str
    messages: tuple[Message, ...]
    problem: str | None = None
    """Reason why the messages were rejected; None if they are still pending."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterReport(Displayable):
    """Counters of a writer since it was created."""

    stored: int
    """Stored messages."""
    duplicates: int
    """Messages whose ids were stored before."""
    pending: int
    """Messages not stored yet."""
    refused: int
    """Messages rejected by the store, for example because of an id conflict; see ``writer.unsaved``."""
    batches: int
    """Completed transactions."""
    retries: int
    """Failed transactions that were retried."""
    problem: str | None
    """Error of the latest transaction; None if it succeeded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashReport(Displayable):
    """Messages that a closed writer did not store. False in a boolean context if there are none."""

    unsaved: tuple[UnsavedMessages, ...]
    path: Path | None = None
    """File that contains the messages; None if there are none, or no file was configured."""
    problem: str | None = None
    """Latest error of the database."""

    @property
    def messages(self) -> int:
        """Number of messages that were not stored."""
        return sum(len(unsaved.messages) for unsaved in self.unsaved)

    def __bool__(self) -> bool:
        return bool(self.unsaved)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverReport(Displayable):
    """Result of recovering the messages of a crash report, in messages."""

    stored: int
    duplicates: int
    """Messages that had been stored after all."""
    refused: int
    """Rejected messages, which stay in the file."""
