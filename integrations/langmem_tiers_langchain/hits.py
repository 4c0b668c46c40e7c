"""What was recalled, in LangChain's form."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langchain_core.documents import Document

from langmem_tiers.integration_kit.hit_metadata import build_hit_metadata

if TYPE_CHECKING:
    from langmem_tiers.recall.models import Hit


def to_document(hit: Hit) -> Document:
    """A memory as a document; its metadata is plain JSON, without what is not known."""
    return Document(page_content=hit.entry.content, id=hit.entry.id, metadata=build_hit_metadata(hit))
