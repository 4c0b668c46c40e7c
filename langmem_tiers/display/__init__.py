"""Display of values: tables, HTML, text, data frames, plots and progress bars."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langmem_tiers.common.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from langmem_tiers.display.frames import frame
    from langmem_tiers.display.progress import ProgressBar, bar
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            ".frames": "frame",
            ".progress": "ProgressBar bar",
        },
    )

__all__ = [
    "ProgressBar",
    "bar",
    "frame",
]
