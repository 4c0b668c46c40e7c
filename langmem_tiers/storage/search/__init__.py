"""Full-text search, the only part with different SQL per database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langmem_tiers.storage.search import postgres, sqlite

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langmem_tiers.recall.records import IndexText


def build_index_columns(text: IndexText, namespace: int, is_sqlite: bool) -> dict[str, Any]:  # noqa: FBT001
    """Return the columns of a message that recall searches.

    Every term starts with the namespace's key, so that terms of different tenants are separate: other tenants
    affect neither search costs nor term rarity.
    """
    return {
        "namespace_pk": namespace,
        "term_count": text.length,
        "is_question": int(text.is_question),
        "importance": text.importance,
        "speaker": text.speaker,
        "terms": _pack_terms(text.terms, namespace, is_sqlite),
    }


def build_knowledge_columns(terms: Sequence[str], namespace: int, is_sqlite: bool) -> dict[str, Any]:  # noqa: FBT001
    """Return the columns of a knowledge entry that a search uses; its terms are also separate per namespace."""
    return {"term_count": len(terms), "terms": _pack_terms(terms, namespace, is_sqlite)}


def _pack_terms(terms: Sequence[str], namespace: int, is_sqlite: bool) -> str:  # noqa: FBT001
    pack = sqlite.pack_terms if is_sqlite else postgres.pack_terms
    return pack([f"{namespace}_{term}" for term in terms])
