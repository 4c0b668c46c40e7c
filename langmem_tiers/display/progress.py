"""Progress bars for long work, in notebooks and terminals (``pip install 'langmem-tiers[notebook]'``).

::

    from langmem_tiers.display.progress import bar

    with bar("embedding") as progress:
        namespace.embed(progress)

Nothing of tqdm is imported before the first bar.
"""

from __future__ import annotations

import warnings
from typing import Any

from langmem_tiers.backup.models import BackupProgress
from langmem_tiers.common.closeable import Closeable
from langmem_tiers.errors import MissingExtraError

__all__ = ["ProgressBar", "bar"]


class ProgressBar(Closeable):
    """A bar that is told how far a work is, by whatever takes ``progress=``: ``embed``, ``backup``, ``restore``,
    ``move_to``, ``snapshot`` and ``maintenance.run``. Get it from ``bar(...)``; leaving its block ends it.
    """  # noqa: D205 - one sentence

    def __init__(self, what: str, bar_of_tqdm: Any) -> None:  # noqa: ANN401 - a widget or a line of text
        self._description = what
        self._stage = ""
        self._tqdm = bar_of_tqdm

    def __call__(self, done: int | BackupProgress, total: int | None = None) -> None:
        """So much is done, of so much.

        Args:
            done: How much, or a report that says it all.
            total: Of how much, as far as it is known.
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
        self._tqdm.update(done - self._tqdm.n)

    def close(self) -> None:
        """End it."""
        self._tqdm.close()


def bar(what: str, *, unit: str = "it", **options: Any) -> ProgressBar:  # noqa: ANN401 - tqdm's own
    """A progress bar to hand in as ``progress=``.

    Args:
        what: What is being done.
        unit: What is counted.
        **options: Of ``tqdm``, such as ``leave=False`` or ``disable=True``.

    Raises:
        MissingExtraError: There is no tqdm.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that there are no widgets: the bar is a line of text then
            from tqdm.auto import tqdm  # noqa: PLC0415 - an extra, and not before it is needed
    except ImportError as error:
        raise MissingExtraError("bar() needs tqdm: pip install 'langmem-tiers[notebook]'") from error
    return ProgressBar(what, tqdm(desc=what, unit=unit, **options))
