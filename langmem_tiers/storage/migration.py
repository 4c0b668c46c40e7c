"""What a step from one schema version to the next is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Migration:
    """One step, from ``version - 1`` to ``version``, as SQL for each database."""

    version: int
    sqlite: tuple[str, ...]
    postgresql: tuple[str, ...]
