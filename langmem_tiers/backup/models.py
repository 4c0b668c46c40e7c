"""Backups: what of a memory is in one, what came of it, and the contract of what makes and restores them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from langmem_tiers.common.namespaces import SESSION_ITEM_LABELS, build_namespace_key, parse_namespace_key
from langmem_tiers.display.displayable import Displayable
from langmem_tiers.errors import InvalidInputError

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path
    from typing import Self

    from langmem_tiers.common.namespaces import NamespacePath

BACKUP_FORMAT = "langmem-tiers backup"
BACKUP_VERSION = 1
"""Of the file; the version of the tables is beside it."""


@dataclass(frozen=True, slots=True)
class BackupScope:
    """Which part of a memory: all of it, one namespace, or one with all below it."""

    namespace: NamespacePath | None = None
    prefix: bool = False

    def __post_init__(self) -> None:
        if self.prefix and self.namespace is None:
            raise InvalidInputError(
                "prefix=True needs a namespace: name the one whose children are meant too"
            )

    def __str__(self) -> str:
        if self.namespace is None:
            return "the whole memory"
        return f"the namespace {'/'.join(self.namespace)!r}" + (" with all below it" if self.prefix else "")

    def contains(self, path: NamespacePath) -> bool:
        """Whether a namespace is of this part."""
        own = path[1:] if path[0] in SESSION_ITEM_LABELS else path
        if self.namespace is None or self.namespace in (path, own):
            return True
        return self.prefix and self.namespace in (path[: len(self.namespace)], own[: len(self.namespace)])

    def with_namespace(self, into: NamespacePath | None) -> Self:
        """The same part under another name."""
        if into is None:
            return self
        if self.namespace is None:
            raise InvalidInputError(
                f"a backup of the whole memory cannot go into {into!r}: "
                "leave into out, or make a backup of one namespace"
            )
        return type(self)(into, self.prefix)

    def rename_path(self, path: str, into: NamespacePath | None) -> str:
        """The stored form of a namespace in the part that this one is moved to; one that is not of it stays."""
        labels = parse_namespace_key(path)
        if into is None or self.namespace is None or not self.contains(labels):
            return path
        before = labels[:1] if labels[: len(self.namespace)] != self.namespace else ()
        return build_namespace_key((*before, *into, *labels[len(before) + len(self.namespace) :]))


@dataclass(frozen=True, slots=True)
class BackupProgress:
    """How far a long work is."""

    stage: str
    """``checking``, ``reading`` or ``writing``."""
    done: int
    total: int
    """Records; of a snapshot pages."""


BackupProgressCallback: TypeAlias = Callable[[BackupProgress], None]
"""Called from time to time, in the thread that does the work; what it raises stops the work, with nothing done.

It may not use the engine, which is in the middle of it.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupInfo(Displayable):
    """What the first line of a backup says."""

    schema: int
    """The version of the tables that it was made from."""
    release: str
    created_at: datetime
    scope: BackupScope
    embedder: str | None
    """The identity of the engine's embedder."""
    dimension: int | None
    """Of its vectors, if there are any."""
    counter: str
    """The name of the engine's token counter."""
    counts: Mapping[str, int]
    """Records of each kind."""
    spans: Mapping[str, int]
    """The highest number by which a record of each kind is named in this backup."""

    @property
    def total(self) -> int:
        """Records in all."""
        return sum(self.counts.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupReport(Displayable):
    """What was written to a file."""

    path: Path
    scope: BackupScope
    counts: Mapping[str, int]
    """Records of each kind."""
    size_bytes: int
    sha256: str
    """Of the records; the same memory gives the same records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreReport(Displayable):
    """What was taken from a backup, or from another engine."""

    scope: BackupScope
    """Where it is now."""
    counts: Mapping[str, int]
    """Records of each kind that were written."""
    vectors_left_out: int
    """Vectors of other embedders than this engine's; what they stood for is embedded anew when it is recalled."""
    embedders_left_out: tuple[str, ...]
    replaced: bool
    """Whether something was erased to make room."""
    created_at: datetime
    """Of the backup."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotReport(Displayable):
    """A copy of a database file."""

    path: Path
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupSource:
    """What an engine says about itself in a backup."""

    created_at: datetime
    release: str
    embedder: str | None
    counter: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreRequest:
    """How something is to be restored."""

    into: NamespacePath | None = None
    replace: bool = False
    embedder: str | None = None
    """Vectors of others are left out; None keeps all."""
    progress: BackupProgressCallback | None = None


class BackupStore(Protocol):
    """Makes backups of a database and restores them. What fails leaves everything as it was."""

    def backup(
        self,
        path: Path,
        scope: BackupScope,
        source: BackupSource,
        *,
        overwrite: bool = False,
        progress: BackupProgressCallback | None = None,
    ) -> BackupReport:
        """Write a part of the memory, as it is at one moment, to a file."""
        ...

    def restore(self, path: Path, wish: RestoreRequest) -> RestoreReport:
        """Check a file as a whole, then write all of it in one transaction."""
        ...

    def move(
        self, target: BackupStore, scope: BackupScope, source: BackupSource, wish: RestoreRequest
    ) -> RestoreReport:
        """Write a part of the memory, as it is at one moment, to another database of the same kind of store."""
        ...

    def snapshot(
        self, path: Path, *, overwrite: bool = False, progress: BackupProgressCallback | None = None
    ) -> SnapshotReport:
        """Copy the database file while it is in use."""
        ...
