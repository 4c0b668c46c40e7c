"""The adaptive optimizer: parameters, measurements, snapshots."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langmem_tiers.common.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from langmem_tiers.tuning.models import (
        EfficiencyReport,
        TuningParameters,
        TuningSnapshot,
        TuningSnapshotPage,
    )
    from langmem_tiers.tuning.service import Optimizer
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            ".models": "EfficiencyReport TuningParameters TuningSnapshot TuningSnapshotPage",
            ".service": "Optimizer",
        },
    )

__all__ = [
    "EfficiencyReport",
    "Optimizer",
    "TuningParameters",
    "TuningSnapshot",
    "TuningSnapshotPage",
]
