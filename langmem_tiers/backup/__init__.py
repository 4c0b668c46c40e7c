"""Backups of a database or a namespace, and moves between databases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langmem_tiers.common.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from langmem_tiers.backup.models import (
        BackupProgress,
        BackupReport,
        BackupScope,
        RestoreReport,
        SnapshotReport,
    )
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            ".models": "BackupProgress BackupReport BackupScope RestoreReport SnapshotReport",
        },
    )

__all__ = [
    "BackupProgress",
    "BackupReport",
    "BackupScope",
    "RestoreReport",
    "SnapshotReport",
]
