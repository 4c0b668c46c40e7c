"""Search for namespaces with content."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langmem_tiers.errors import NotFoundError
from langmem_tiers.items.models import NamespaceMatch

if TYPE_CHECKING:
    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.engine import MemoryEngine
    from langmem_tiers.maintenance.models import NamespaceUsage
    from langmem_tiers.namespace import Namespace

_INTERNAL_LABEL_PREFIX = "langmem-tiers: "
"""Prefix of the first label of internal items, which do not make a namespace count as used."""
_MAX_NAMESPACES = 1_000_000


def find_used_namespaces(engine: MemoryEngine, path: NamespacePath) -> set[NamespacePath]:
    """Return some of the namespaces that start with these labels and contain sessions, memories or items.

    The namespace itself is included if it has content.
    """
    found = set(engine.namespaces(path, limit=1))
    return found if path in found else found | set(engine.items.namespaces([NamespaceMatch("prefix", path)]))


def find_only_namespace(engine: MemoryEngine) -> NamespacePath | None:
    """Return the namespace with content if there is exactly one, else None."""
    found = set(engine.namespaces(limit=2))
    if len(found) < 2:
        found |= {
            path
            for path in engine.items.namespaces(limit=_MAX_NAMESPACES)
            if not path[0].startswith(_INTERNAL_LABEL_PREFIX)
        }
    return found.pop() if len(found) == 1 else None


def get_namespace_usage(namespace: Namespace) -> NamespaceUsage | None:
    """Return the contents of a namespace, or None if it contains only items."""
    try:
        return namespace.holdings()
    except NotFoundError:
        return None
