"""A session as the list that a framework keeps of it: what is in the list, and what was taken out."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from langmem_tiers.core.showing import Told

if TYPE_CHECKING:
    from langmem_tiers.core.messages import Message


class Listing(StrEnum):
    """How a message stands in the list of its session. The record keeps it in any case."""

    ACTIVE = "active"
    """In the list. Messages are, unless something else was said of them."""
    ARCHIVED = "archived"
    """In the list, and done with: a framework has moved it out of what it shows."""
    REPLACED = "replaced"
    """No longer in the list, because another list was put in its place; recall still finds it."""
    REMOVED = "removed"
    """Taken out of the list by name; neither contexts nor recall show it."""


IN_LIST = (Listing.ACTIVE, Listing.ARCHIVED)
"""What the list is made of."""
OUT_OF_LIST = (Listing.REPLACED, Listing.REMOVED)
"""What is no longer in it."""


@dataclass(frozen=True, slots=True)
class ListChange:
    """A change of a list, all of it or nothing."""

    listed: dict[str, Listing]
    """What becomes of messages that are there, by their ids."""
    added: tuple[Message, ...]
    """What comes behind them."""
    added_as: Listing = Listing.ACTIVE


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceReport(Told):
    """What became of a list that was put in place of another."""

    kept: int
    """How many of its messages were there already."""
    added: tuple[Message, ...]
    replaced: int
    """How many of the former list are no longer in it."""
