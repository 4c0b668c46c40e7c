"""Progress bars for long operations, in notebooks and terminals (``pip install 'langmem-tiers[notebook]'``).

::

    from langmem_tiers.display import bar

    with bar("embedding") as progress:
        namespace.embed(progress)

tqdm is imported only when the first bar is created.
"""

from __future__ import annotations

import warnings
from typing import Any

from langmem_tiers.backup.models import BackupProgress
from langmem_tiers.common.closeable import Closeable
from langmem_tiers.errors import MissingExtraError

__all__ = ["ProgressBar", "bar"]


class ProgressBar(Closeable):
    """A progress bar for any operation with a ``progress=`` argument; create it with ``bar(...)``.

    These are ``embed``, ``backup``, ``restore``, ``move_to``, ``snapshot`` and ``maintenance.run``. The end of the
    ``with`` block closes the bar.
    """

    def __init__(self, what: str, bar_of_tqdm: Any) -> None:  # noqa: ANN401 - a widget or a line of text
        self._description = what
        self._stage = ""
        self._tqdm = bar_of_tqdm

    def __call__(self, done: int | BackupProgress, total: int | None = None) -> None:
        """Update the bar.

        Args:
            done: Amount done, or a report that also contains the total.
            total: Total amount, if known.
        """
        if isinstance(done, BackupProgress):
            self._start_stage(done.stage)
            self._update(done.done, done.total)
        else:
            self._update(done, total)

    def _start_stage(self, stage: str) -> None:
        if stage != self._stage:
            self._stage = stage
            self._tqdm.reset()
            self._tqdm.set_description(f"{self._description}, {stage}", refresh=False)

    def _update(self, done: int, total: int | None) -> None:
        if total is not None and total != self._tqdm.total:
            self._tqdm.total = total
            self._tqdm.refresh()
        # tqdm expects the difference, callers report the amount done so far.
        self._tqdm.update(done - self._tqdm.n)

    def close(self) -> None:
        """Close the bar."""
        self._tqdm.close()


def bar(what: str, *, unit: str = "it", **options: Any) -> ProgressBar:  # noqa: ANN401 - passed to tqdm
    """Create a progress bar to pass as ``progress=``.

    Args:
        what: Description of the operation.
        unit: Unit of the amounts.
        **options: Options of ``tqdm``, such as ``leave=False`` or ``disable=True``.

    Raises:
        MissingExtraError: tqdm is not installed.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # without notebook widgets tqdm warns and draws a line of text
            from tqdm.auto import tqdm  # noqa: PLC0415 - optional dependency, imported on demand
    except ImportError as error:
        raise MissingExtraError("bar() needs tqdm: pip install 'langmem-tiers[notebook]'") from error
    return ProgressBar(what, tqdm(desc=what, unit=unit, **options))
