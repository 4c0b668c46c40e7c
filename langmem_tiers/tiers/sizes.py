"""How much memory values take, measured and not guessed."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum


def size_of(value: object) -> int:
    """The bytes of a value and of all that it holds, each object once; what everybody shares takes none."""
    seen: set[int] = set()
    waiting, size = [value], 0
    while waiting:
        one = waiting.pop()
        if one is None or isinstance(one, bool | Enum | type) or id(one) in seen:
            continue
        seen.add(id(one))
        size += sys.getsizeof(one)
        if isinstance(one, Mapping):
            waiting += [*one.keys(), *one.values()]
        elif isinstance(one, tuple | list | set | frozenset):
            waiting += one
        elif is_dataclass(one):
            waiting += [getattr(one, field.name) for field in fields(one)]
    return size
