"""Version 11: past knowledge says where it comes from, so that it is forgotten with that."""

from __future__ import annotations

from langmem_tiers.storage.migration import Migration

TO_SOURCES = Migration(
    11,
    sqlite=("ALTER TABLE lmt_knowledge_history ADD COLUMN source TEXT",),
    postgresql=("ALTER TABLE lmt_knowledge_history ADD COLUMN source TEXT",),
)
