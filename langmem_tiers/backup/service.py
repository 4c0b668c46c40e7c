"""The verbs of an engine by which a memory is kept elsewhere, or goes elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from langmem_tiers.backup.models import BackupScope, BackupSource, RestoreRequest
from langmem_tiers.common.namespaces import check_namespace
from langmem_tiers.errors import InvalidInputError
from langmem_tiers.sessions.pending_writes import flush_all
from langmem_tiers.version import __version__

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

    from langmem_tiers.backup.models import (
        BackupProgressCallback,
        BackupReport,
        BackupStore,
        RestoreReport,
        SnapshotReport,
    )
    from langmem_tiers.common.ports import Embedder, TokenCounter
    from langmem_tiers.services import EngineServices


class BackupApi:
    """Backup, restore, move and snapshot."""

    _backups: BackupStore
    _services: EngineServices
    counter: TokenCounter
    embedder: Embedder | None

    def backup(
        self,
        path: str | os.PathLike[str],
        *,
        namespace: str | Iterable[str] | None = None,
        prefix: bool = False,
        overwrite: bool = False,
        progress: BackupProgressCallback | None = None,
    ) -> BackupReport:
        """Write the memory as it is at this moment to one file, while it is in use; what waits is stored first.

        Args:
            path: The file; it has this name once it is whole.
            namespace: This one alone; all, if left out.
            prefix: With all namespaces below it.
            overwrite: Whether a file that is there may be replaced.
            progress: Is told how far it is.

        Raises:
            BackupFileError: The file is there already, or cannot be written.
        """
        scope = BackupScope(None if namespace is None else check_namespace(namespace), prefix)
        flush_all(self._services)
        return self._backups.backup(
            Path(path), scope, self._build_backup_source(), overwrite=overwrite, progress=progress
        )

    def restore(
        self,
        path: str | os.PathLike[str],
        *,
        into: str | Iterable[str] | None = None,
        replace: bool = False,
        progress: BackupProgressCallback | None = None,
    ) -> RestoreReport:
        """Take back what ``backup()`` wrote, on whatever database: all of it, or nothing.

        The file is checked as a whole before anything is written. Vectors are taken if they are of this engine's
        embedder (all of them, if it has none); for others recall embeds anew, or ``namespace.embed()`` at once.

        Args:
            path: The file.
            into: Another namespace, for a backup of one.
            replace: Erase what is there first, in working memories too; otherwise the place must be empty.
            progress: Is told how far it is.

        Raises:
            BackupError: The file is no backup, damaged or of a newer release, or the place is taken.
        """
        wish = self._build_restore_request(into, progress, replace=replace)
        flush_all(self._services)  # what was taken before it is there before it
        report = self._backups.restore(Path(path), wish)
        self._invalidate_caches(report)
        return report

    def move_to(
        self,
        target: BackupApi,
        *,
        namespace: str | Iterable[str] | None = None,
        prefix: bool = False,
        into: str | Iterable[str] | None = None,
        progress: BackupProgressCallback | None = None,
    ) -> RestoreReport:
        """Write the memory as it is at this moment to another engine's database, which must be empty there.

        As ``backup()`` and ``restore()`` without a file between them: from SQLite to PostgreSQL or back, all or
        nothing. What is here stays as it is: erase it when the other is in use.

        Args:
            target: The engine on the other database.
            namespace: This one alone; all, if left out.
            prefix: With all namespaces below it.
            into: Another namespace, if one is moved.
            progress: Is told how far it is.

        Raises:
            RestoreConflictError: The target holds something already.
        """
        if not isinstance(target, BackupApi):
            raise InvalidInputError(f"target must be a MemoryEngine, got a {type(target).__name__}: open one")
        scope = BackupScope(None if namespace is None else check_namespace(namespace), prefix)
        wish = target._build_restore_request(into, progress)
        for parts in (self._services, target._services):
            flush_all(parts)
        report = self._backups.move(target._backups, scope, self._build_backup_source(), wish)
        target._invalidate_caches(report)
        return report

    def snapshot(
        self,
        path: str | os.PathLike[str],
        *,
        overwrite: bool = False,
        progress: BackupProgressCallback | None = None,
    ) -> SnapshotReport:
        """Copy the SQLite database to a file that an engine can open, while others read and write.

        Args:
            path: The file; it has this name once it is whole.
            overwrite: Whether a file that is there may be replaced.
            progress: Is told how far it is.

        Raises:
            BackupError: This is PostgreSQL: use ``backup()``.
        """
        flush_all(self._services)
        return self._backups.snapshot(Path(path), overwrite=overwrite, progress=progress)

    def _build_backup_source(self) -> BackupSource:
        return BackupSource(
            created_at=self._services.now(),
            release=__version__,
            embedder=None if self.embedder is None else self.embedder.identity,
            counter=self.counter.name,
        )

    def _build_restore_request(
        self,
        into: str | Iterable[str] | None,
        progress: BackupProgressCallback | None,
        *,
        replace: bool = False,
    ) -> RestoreRequest:
        return RestoreRequest(
            into=None if into is None else check_namespace(into),
            replace=replace,
            embedder=None if self.embedder is None else self.embedder.identity,
            progress=progress,
        )

    def _invalidate_caches(self, report: RestoreReport) -> None:
        # What is held in memory may be of what was replaced.
        if report.replaced:
            self._services.working.invalidate(report.scope)
        self._services.short_term.cache.invalidate()
        self._services.views.invalidate()
        self._services.retriever.invalidate()
