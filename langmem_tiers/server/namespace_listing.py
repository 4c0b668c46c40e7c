"""Which namespaces hold anything."""

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
"""How the first label of items begins that stand beside sessions."""
_MAX_NAMESPACES = 1_000_000


def find_used_namespaces(engine: MemoryEngine, path: NamespacePath) -> set[NamespacePath]:
    """Some of the namespaces that begin with these labels and hold sessions, memories or items.

    The namespace itself is among them, if it holds any.
    """
    found = set(engine.namespaces(path, limit=1))
    return found if path in found else found | set(engine.items.namespaces([NamespaceMatch("prefix", path)]))


def find_only_namespace(engine: MemoryEngine) -> NamespacePath | None:
    """The namespace that holds something, if there is just one."""
    found = set(engine.namespaces(limit=2))
    if len(found) < 2:
        found |= {
            path
            for path in engine.items.namespaces(limit=_MAX_NAMESPACES)
            if not path[0].startswith(_INTERNAL_LABEL_PREFIX)
        }
    return found.pop() if len(found) == 1 else None


def get_namespace_usage(namespace: Namespace) -> NamespaceUsage | None:
    """What it holds; None if that is nothing but items."""
    try:
        return namespace.holdings()
    except NotFoundError:
        return None
