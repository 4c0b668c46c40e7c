"""Stretches of ended tasks that worked and are no pattern yet, as they are kept: so many, and no more."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from langmem_tiers.core.entries import Entry, Tier
from langmem_tiers.core.memory_store import NewEntry
from langmem_tiers.tiers.task.stretches import Stretch, stretch_from_dict, stretch_to_dict

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence
    from datetime import datetime

    from langmem_tiers.core.memory_store import KeptEntry
    from langmem_tiers.core.names import NamespacePath

MOST_AT_SITE = 10
"""Stretches of one site that are kept, or of none."""
MOST_STEPS = 500
"""Steps of all of them together."""
_LONGEST = 100  # steps of one of them: its last
_MOST_CHARACTERS = 60_000  # of one of them
_STATUS = {"status": "candidate"}


@dataclass(frozen=True, slots=True)
class Tried:
    """A stretch, and the session of the task that it is from."""

    stretch: Stretch
    session_key: int | None

    @property
    def name(self) -> str:
        """The id of its entry: that of no other, whatever is cut off behind its first step."""
        return f"tried_{self.stretch.steps[0].cycle}"

    def details(self) -> dict[str, Any]:
        """As it is kept."""
        return {**_STATUS, "session": self.session_key, **stretch_to_dict(self.stretch)}


class TriedStretches:
    """The stretches of a namespace, beside its patterns."""

    def __init__(self, namespace: NamespacePath) -> None:
        self._namespace = namespace
        self._stored: dict[str, Any] = {}
        self._held: dict[str, Tried] = {}

    def read(self, kept: Iterable[KeptEntry]) -> Sequence[KeptEntry]:
        """Take them out of all that is kept; the others."""
        others: list[KeptEntry] = []
        self._stored, self._held = {}, {}
        for one in kept:
            if one.details.get("status") != _STATUS["status"]:
                others.append(one)
                continue
            self._stored[one.entry.id] = one.details
            with suppress(LookupError, TypeError, ValueError, AttributeError):  # what is damaged is dropped
                self._held[one.entry.id] = Tried(stretch_from_dict(one.details), one.details.get("session"))
        return others

    def without(self, cycles: Container[str]) -> list[Tried]:
        """All of them, but for what some cycles did."""
        return [
            Tried(rest, one.session_key) for one in self._held.values() for rest in one.stretch.rest(cycles)
        ]

    def keep(self, tried: Iterable[Tried]) -> None:
        """Keep these in place of all, as far as there is room: the newest first."""
        at_site: Counter[str] = Counter()
        steps = 0
        self._held = {}
        for one in sorted(tried, key=_last, reverse=True):
            cut = Tried(_cut(one.stretch), one.session_key)
            site, size = cut.stretch.site, len(cut.stretch.steps)
            has_room = at_site[site] < MOST_AT_SITE and steps + size <= MOST_STEPS
            if has_room and len(json.dumps(cut.details())) <= _MOST_CHARACTERS:
                at_site[site] += 1
                steps += size
                self._held[cut.name] = cut

    def changed(self, now: datetime) -> list[NewEntry]:
        """What has to be written."""
        return [
            NewEntry(
                entry=Entry(
                    id=name,
                    namespace=self._namespace,
                    tier=Tier.PROCEDURAL,
                    kind="tried_steps",
                    content=f"Steps that worked {f'at {one.stretch.site}' if one.stretch.site else 'once'}",
                    created_at=now,
                    importance=0.0,
                    category=one.stretch.site or None,
                ),
                terms="",  # nobody looks for them by words
                session_key=one.session_key,
                details=one.details(),
            )
            for name, one in self._held.items()
            if self._stored.get(name) != one.details()
        ]

    def gone(self) -> set[str]:
        """Ids of what has to be erased."""
        return self._stored.keys() - self._held.keys()


def _last(one: Tried) -> tuple[float, str]:
    last = one.stretch.steps[-1]
    return last.timestamp, last.cycle  # at the same moment, the later cycle has the later id


def _cut(stretch: Stretch) -> Stretch:
    return Stretch(stretch.site, stretch.steps[-_LONGEST:], is_fresh=False)
