"""Batch writers: their settings, what they hold, and what they report."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from langmem_tiers.common.checks import check_positive, check_whole
from langmem_tiers.display.displayable import Displayable
from langmem_tiers.errors import InvalidConfigError

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable
    from contextlib import AbstractContextManager

    from langmem_tiers.common.messages import Message
    from langmem_tiers.common.namespaces import NamespacePath


class Acknowledge(StrEnum):
    """What it means that a writer took a message."""

    STORED = "stored"
    """It is in the database, as durable as ``EngineConfig.durability`` says."""
    QUEUED = "queued"
    """It is in this process's memory and will be stored soon. Whoever kills the process loses it, unless a report
    is kept: then it is in that file too, which survives the process and not a power cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterConfig:
    """How a writer gathers messages."""

    max_messages: int = 100
    """So many make a batch."""
    max_wait_ms: float = 1000.0
    """So long a message that nobody waits for stays at most before its batch begins."""
    max_pending: int = 10_000
    """Messages that are not stored yet; whoever adds more waits."""
    acknowledge: Acknowledge = Acknowledge.STORED
    timeout_seconds: float = 60.0
    """How long ``add()``, ``flush()`` and ``close()`` wait."""
    report_path: Path | None = None
    """Where what was not stored is written."""

    def __post_init__(self) -> None:
        check_whole(self.max_messages, 1, "max_messages", most=100_000)
        check_positive(self.max_wait_ms, "max_wait_ms", most=86_400_000)
        check_whole(self.max_pending, 1, "max_pending", most=100_000_000)
        check_positive(self.timeout_seconds, "timeout_seconds", most=86_400)
        try:
            object.__setattr__(self, "acknowledge", Acknowledge(self.acknowledge))
        except ValueError:
            raise InvalidConfigError(
                f"unknown acknowledge {self.acknowledge!r}: use 'stored' or 'queued'"
            ) from None
        if self.report_path is not None:
            object.__setattr__(self, "report_path", check_report_path(self.report_path))


def check_report_path(path: object) -> Path:
    """The path of a report, or an error for what is none."""
    try:
        return Path(path)  # type: ignore[arg-type]
    except TypeError:
        raise InvalidConfigError(f"a report's path must be a str or a Path, got {path!r}") from None


@dataclass(frozen=True, slots=True)
class UnsavedMessages:
    """What one ``add()`` handed in, and is not stored."""

    namespace: NamespacePath
    session: str
    messages: tuple[Message, ...]
    problem: str | None = None
    """Why it was refused; None for what still waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterReport(Displayable):
    """What a writer did so far, in messages."""

    stored: int
    duplicates: int
    """Known by their ids already."""
    pending: int
    """Not stored yet."""
    refused: int
    """Which the store will not take, such as an id that stands for another message; see ``writer.unsaved``."""
    batches: int
    """Transactions."""
    retries: int
    """Transactions that failed and were tried again."""
    problem: str | None
    """Why the latest transaction failed; None if it did not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashReport(Displayable):
    """What a writer that is closed did not store."""

    unsaved: tuple[UnsavedMessages, ...]
    path: Path | None = None
    """Where it was written; None if there was nothing, or no path."""
    problem: str | None = None
    """What the database said last."""

    @property
    def messages(self) -> int:
        """How many messages that are."""
        return sum(len(one.messages) for one in self.unsaved)

    def __bool__(self) -> bool:
        return bool(self.unsaved)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverReport(Displayable):
    """What became of the messages of a crash report."""

    stored: int
    duplicates: int
    """Which had been stored after all."""
    refused: int
    """Which stay in the file."""


class UnsavedFile(Protocol):
    """A file of messages that are not stored."""

    def append(self, one: UnsavedMessages) -> None:
        """Write it behind the others; it survives this process."""
        ...

    def replace(self, left: Iterable[UnsavedMessages]) -> None:
        """Hold these and no others; no file at all where there are none."""
        ...

    @property
    def size_bytes(self) -> int:
        """What was appended since it was last replaced."""
        ...

    def close(self, *, quietly: bool = False) -> None:
        """Let go of it; quietly in a forked child, whose parent still has it."""
        ...


class UnsavedFileStore(Protocol):
    """Opens and reads such files."""

    def open(self, path: str | os.PathLike[str]) -> UnsavedFile:
        """A new file.

        Raises:
            InvalidConfigError: There is one with messages that nobody has taken in yet, or another writer's.
        """
        ...

    def lock(self, path: str | os.PathLike[str]) -> AbstractContextManager[None]:
        """Keep writers from a file meanwhile.

        Raises:
            InvalidInputError: One is at work.
        """
        ...

    def rewrite(self, path: str | os.PathLike[str], left: Iterable[UnsavedMessages]) -> None:
        """Leave these in a file and no others; no file where there are none."""
        ...

    def read(self, path: str | os.PathLike[str]) -> tuple[UnsavedMessages, ...]:
        """What a file holds, oldest first.

        Raises:
            InvalidInputError: It is no such file, or damaged.
        """
        ...
