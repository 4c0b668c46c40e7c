"""Scope, reports and requests of backups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

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
"""Version of the file format. The header also contains the version of the database schema."""


@dataclass(frozen=True, slots=True)
class BackupScope:
    """Part of a memory: everything, one namespace, or a namespace and its children."""

    namespace: NamespacePath | None = None
    """The namespace. None means everything."""
    prefix: bool = False
    """True to include the children of the namespace."""

    def __post_init__(self) -> None:
        if self.prefix and self.namespace is None:
            raise InvalidInputError("prefix=True needs a namespace: pass the one whose children are included")

    def __str__(self) -> str:
        if self.namespace is None:
            return "the whole memory"
        return f"the namespace {'/'.join(self.namespace)!r}" + (" and its children" if self.prefix else "")

    def contains(self, path: NamespacePath) -> bool:
        """Return True if a namespace belongs to this part."""
        # Context files and conversations are items under a reserved first label, followed by their namespace.
        own = path[1:] if path[0] in SESSION_ITEM_LABELS else path
        if self.namespace is None or self.namespace in (path, own):
            return True
        return self.prefix and self.namespace in (path[: len(self.namespace)], own[: len(self.namespace)])

    def with_namespace(self, into: NamespacePath | None) -> Self:
        """Return this scope with another namespace, or unchanged if ``into`` is None.

        Raises:
            InvalidInputError: This is the whole memory.
        """
        if into is None:
            return self
        if self.namespace is None:
            raise InvalidInputError(
                f"a backup of the whole memory cannot be restored into {into!r}: "
                "omit into, or make a backup of one namespace"
            )
        return type(self)(into, self.prefix)

    def rename_path(self, path: str, into: NamespacePath | None) -> str:
        """Return the stored key of a namespace after this scope was moved to another namespace.

        Args:
            path: Stored key of a namespace. Keys outside of this scope are returned unchanged.
            into: The new namespace. None changes nothing.
        """
        labels = parse_namespace_key(path)
        if into is None or self.namespace is None or not self.contains(labels):
            return path
        # A reserved first label (see contains) stays in front.
        before = labels[:1] if labels[: len(self.namespace)] != self.namespace else ()
        return build_namespace_key((*before, *into, *labels[len(before) + len(self.namespace) :]))


@dataclass(frozen=True, slots=True)
class BackupProgress:
    """Progress of a backup, restore, move or snapshot."""

    stage: str
    """``checking`` or ``writing``."""
    done: int
    total: int
    """Number of records, or of database pages for a snapshot."""


BackupProgressCallback: TypeAlias = Callable[[BackupProgress], None]
"""Callback for progress, called from time to time in the working thread.

An exception from it cancels the operation, and nothing is changed. It must not use the engine.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupInfo(Displayable):
    """Header of a backup."""

    schema: int
    """Version of the database schema that the backup was made from."""
    release: str
    created_at: datetime
    scope: BackupScope
    embedder: str | None
    """Identity of the engine's embedder."""
    dimension: int | None
    """Length of its vectors, None if there are none."""
    counter: str
    """Name of the engine's token counter."""
    counts: Mapping[str, int]
    """Number of records of each kind."""
    spans: Mapping[str, int]
    """Highest key of each kind of record in this backup. Keys start at 1 and may have gaps."""

    @property
    def total(self) -> int:
        """Total number of records."""
        return sum(self.counts.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupReport(Displayable):
    """Result of a backup."""

    path: Path
    scope: BackupScope
    counts: Mapping[str, int]
    """Number of records of each kind."""
    size_bytes: int
    sha256: str
    """Checksum of the records, without the header. Equal for equal contents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreReport(Displayable):
    """Result of a restore or a move."""

    scope: BackupScope
    """Restored part of the memory, under its new name if there is one."""
    counts: Mapping[str, int]
    """Number of written records of each kind."""
    vectors_left_out: int
    """Number of skipped vectors, of embedders other than this engine's. Recall embeds their texts again."""
    embedders_left_out: tuple[str, ...]
    """Identities of the embedders whose vectors were skipped."""
    replaced: bool
    """True if existing data was erased."""
    created_at: datetime
    """Creation time of the backup."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotReport(Displayable):
    """Result of a snapshot: a copy of the database file."""

    path: Path
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupSource:
    """Information about the engine, for the header of a backup."""

    created_at: datetime
    release: str
    embedder: str | None
    counter: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreRequest:
    """Options of a restore or a move."""

    into: NamespacePath | None = None
    """New namespace. None restores under the original name."""
    replace: bool = False
    """True to erase existing data first."""
    embedder: str | None = None
    """Identity of the embedder whose vectors are restored. None restores all vectors."""
    progress: BackupProgressCallback | None = None
