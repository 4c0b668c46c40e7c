"""Public methods of the engine for backup, restore, move and snapshot."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from langmem_tiers.backup.models import BackupScope, BackupSource, RestoreRequest
from langmem_tiers.common.namespaces import check_namespace
from langmem_tiers.errors import InvalidInputError
from langmem_tiers.version import __version__

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

    from langmem_tiers.backup.models import (
        BackupProgressCallback,
        BackupReport,
        RestoreReport,
        SnapshotReport,
    )
    from langmem_tiers.backup.repository import BackupRepository
    from langmem_tiers.common.ports import Embedder, TokenCounter
    from langmem_tiers.services import EngineServices


class BackupApi:
    """Methods of ``MemoryEngine`` for backup and migration."""

    _backups: BackupRepository
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
        """Write a consistent backup of the memory to a file, while it is in use.

        Pending writes are stored first. The file gets its name after it is complete.

        Args:
            path: The file.
            namespace: Namespace to back up. Default: everything.
            prefix: True to include the children of the namespace. Default: False.
            overwrite: True to replace an existing file. Default: False.
            progress: Called from time to time with a ``BackupProgress``.

        Raises:
            BackupFileError: The file exists already, or cannot be written.
        """
        scope = BackupScope(None if namespace is None else check_namespace(namespace), prefix)
        self._services.flush()
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
        """Restore a backup to this database, which may be another kind of database than the original.

        The whole file is verified before anything is written, and all of it is written in one transaction. Vectors of
        embedders other than this engine's are skipped. Recall embeds their texts again, or ``namespace.embed()`` does
        so at once. An engine without an embedder restores all vectors.

        Args:
            path: The file.
            into: New namespace for a backup of one namespace. Default: the original one.
            replace: True to erase existing data first, including working memories. Default: False, which requires
                that the target is empty.
            progress: Called from time to time with a ``BackupProgress``.

        Raises:
            BackupError: The file is not a backup, is damaged, or was written by a newer release, or the target is not
                empty.
        """
        request = self._build_restore_request(into, progress, replace=replace)
        # Store pending writes now. Stored later, they would be added to the restored data.
        self._services.flush()
        report = self._backups.restore(Path(path), request)
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
        """Copy the memory to another engine's database, for example from SQLite to PostgreSQL.

        Equivalent to ``backup()`` and ``restore()`` without a file. The target must not contain the data yet. The
        source is unchanged: erase it after the target is in use.

        Args:
            target: Engine on the other database.
            namespace: Namespace to copy. Default: everything.
            prefix: True to include the children of the namespace. Default: False.
            into: New namespace. Default: the original one.
            progress: Called from time to time with a ``BackupProgress``.

        Raises:
            RestoreConflictError: The target is not empty.
        """
        if not isinstance(target, BackupApi):
            raise InvalidInputError(
                f"target must be a MemoryEngine, got {type(target).__name__}: open one on the other database"
            )
        scope = BackupScope(None if namespace is None else check_namespace(namespace), prefix)
        request = target._build_restore_request(into, progress)
        for services in (self._services, target._services):
            services.flush()
        report = self._backups.move(target._backups, scope, self._build_backup_source(), request)
        target._invalidate_caches(report)
        return report

    def snapshot(
        self,
        path: str | os.PathLike[str],
        *,
        overwrite: bool = False,
        progress: BackupProgressCallback | None = None,
    ) -> SnapshotReport:
        """Copy the SQLite database to a file that an engine can open, while it is in use.

        The file gets its name after it is complete.

        Args:
            path: The file.
            overwrite: True to replace an existing file. Default: False.
            progress: Called from time to time with a ``BackupProgress``.

        Raises:
            BackupError: The database is PostgreSQL. Use ``backup()``.
        """
        self._services.flush()
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
        # Caches may contain data that was replaced. Working memories are not caches: they are only dropped if their
        # sessions were replaced.
        if report.replaced:
            self._services.working.invalidate(report.scope)
        self._services.short_term.cache.invalidate()
        self._services.views.invalidate()
        self._services.retriever.invalidate()
