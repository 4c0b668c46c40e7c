"""Maintenance: retention, expiry, compaction and statistics of the database."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langmem_tiers.common.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from langmem_tiers.maintenance.models import (
        DatabaseCompactionReport,
        MaintenanceReport,
        NamespaceUsage,
        Statistics,
        TableStatistics,
        TierStatistics,
    )
    from langmem_tiers.maintenance.service import Maintenance
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            ".models": (
                "DatabaseCompactionReport MaintenanceReport NamespaceUsage Statistics "
                "TableStatistics TierStatistics"
            ),
            ".service": "Maintenance",
        },
    )

__all__ = [
    "DatabaseCompactionReport",
    "Maintenance",
    "MaintenanceReport",
    "NamespaceUsage",
    "Statistics",
    "TableStatistics",
    "TierStatistics",
]
