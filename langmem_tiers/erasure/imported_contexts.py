"""Removal of erased data from the items that accompany sessions imported from context files."""

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
    """Remove erased messages and facts from imported contexts; return the number of changed contexts.

    Sessions and namespaces that were erased completely are not handled here: their items were deleted with them.

    Args:
        items: Service that stores the imported contexts.
        erased: Ids of the erased data.
    """
    changed = 0
    for (namespace, session), ids in erased.messages.items():
        item = items.get((CONTEXT_FILES_LABEL, *namespace), session) if ids else None
        changed += item is not None and _strip_item(items, item, messages=set(ids))
    for namespace, ids in erased.entries.items():
        names = {name for entry_id in ids if (name := name_from_id(entry_id)) is not None}
        for item in _list_items(items, (CONTEXT_FILES_LABEL, *namespace)) if names else ():
            changed += _strip_item(items, item, known=names)
    return {STRIPPED_CONTEXTS_KIND: changed} if changed else {}


def _list_items(items: Items, namespace: NamespacePath) -> Iterator[Item]:
    # All pages are read before the first item is changed, because a change could shift the following pages.
    found, offset = items.search(namespace, limit=_PAGE_SIZE), 0
    all_found = list(found)
    while len(found) == _PAGE_SIZE:
        offset += _PAGE_SIZE
        found = items.search(namespace, limit=_PAGE_SIZE, offset=offset)
        all_found += found
    # The search also returns items of namespaces below this one.
    return (match.item for match in all_found if match.item.namespace == namespace)


def _strip_item(
    items: Items,
    item: Item,
    messages: Collection[str] = (),
    known: Collection[tuple[str, str]] = (),
) -> bool:
    value: dict[str, Any] = item.value
    # Each of "facts" is a list: the fact, then category and key of the knowledge that was stored for it.
    erased_facts = {fact for fact, *name in value.get("facts", ()) if tuple(name) in known}
    history = [message for message in value.get("history", ()) if message.get("id") not in messages]
    if not erased_facts and len(history) == len(value.get("history", ())):
        return False
    context: dict[str, Any] = value["context"]
    stripped = {
        **value,
        "history": history,
        "facts": [row for row in value.get("facts", ()) if row[0] not in erased_facts],
        "context": {
            **context,
            # The imported summary may repeat an erased message. The engine builds its own summary.
            "long_term_summary": "" if messages else context.get("long_term_summary", ""),
            "facts": [fact for fact in context.get("facts", ()) if fact not in erased_facts],
        },
    }
    items.put(item.namespace, item.key, stripped, texts=())
    return True
