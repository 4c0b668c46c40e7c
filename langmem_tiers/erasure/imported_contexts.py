"""What is kept beside sessions that came from context files, after something of them was erased."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langmem_tiers.common.namespaces import CONTEXT_FILES_LABEL
from langmem_tiers.knowledge.models import name_from_id

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from langmem_tiers.common.namespaces import NamespacePath
    from langmem_tiers.erasure.models import ErasedIds
    from langmem_tiers.items.models import Item
    from langmem_tiers.items.service import Items

STRIPPED_CONTEXTS_KIND = "context files"
_PAGE_SIZE = 100


def strip_contexts(items: Items, erased: ErasedIds) -> dict[str, int]:
    """Take messages and facts that are gone out of what came with them; how many contexts held some.

    What went whole, sessions and namespaces, has taken its own along already.

    Args:
        items: Where it is kept.
        erased: What is gone.
    """
    done = 0
    for (namespace, session), ids in erased.messages.items():
        item = items.get((CONTEXT_FILES_LABEL, *namespace), session) if ids else None
        done += item is not None and _strip_item(items, item, messages=set(ids))
    for namespace, ids in erased.entries.items():
        names = {name for one in ids if (name := name_from_id(one)) is not None}
        for item in _list_items(items, (CONTEXT_FILES_LABEL, *namespace)) if names else ():
            done += _strip_item(items, item, known=names)
    return {STRIPPED_CONTEXTS_KIND: done} if done else {}


def _list_items(items: Items, place: NamespacePath) -> Iterator[Item]:
    found, offset = items.search(place, limit=_PAGE_SIZE), 0
    all_found = list(found)
    while len(found) == _PAGE_SIZE:
        offset += _PAGE_SIZE
        found = items.search(place, limit=_PAGE_SIZE, offset=offset)
        all_found += found
    return (one.item for one in all_found if one.item.namespace == place)  # not of namespaces below


def _strip_item(
    items: Items,
    item: Item,
    messages: Collection[str] = (),
    known: Collection[tuple[str, str]] = (),
) -> bool:
    value: dict[str, Any] = item.value
    gone = {fact for fact, *name in value.get("facts", ()) if tuple(name) in known}
    history = [one for one in value.get("history", ()) if one.get("id") not in messages]
    if not gone and len(history) == len(value.get("history", ())):
        return False
    context: dict[str, Any] = value["context"]
    kept = {
        **value,
        "history": history,
        "facts": [one for one in value.get("facts", ()) if one[0] not in gone],
        "context": {
            **context,
            # A summary may tell what was said; the engine makes its own anew.
            "long_term_summary": "" if messages else context.get("long_term_summary", ""),
            "facts": [fact for fact in context.get("facts", ()) if fact not in gone],
        },
    }
    items.put(item.namespace, item.key, kept, texts=())
    return True
