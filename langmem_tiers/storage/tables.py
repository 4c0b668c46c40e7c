"""All tables together: what a new database is made of, and what a backup goes through."""

from __future__ import annotations

from langmem_tiers.storage.context_tables import metadata as context_metadata
from langmem_tiers.storage.memory_tables import metadata as memory_metadata
from langmem_tiers.storage.pool_tables import metadata as pool_metadata
from langmem_tiers.storage.schema import metadata

SCHEMAS = (metadata, context_metadata, memory_metadata, pool_metadata)
"""In the order in which they are created."""
