"""The tables of pools: their members, and where copies come from.

A ``pools`` row is the lock of its pool, for whoever contributes, syncs, changes members or erases. Nobody shares it:
on PostgreSQL those who share a row go before one who wants it alone, and a busy pool could not be left. It comes before
the rows of namespaces, several of either in the order of their keys: two that lock in another order wait for ever.

``origins`` rows stand beside entries that are copies, in a pool or synced from one, and outlive the pool: by them the
copies are found when what they were made of is erased.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Double, ForeignKey, Index, MetaData, Table

from langmem_tiers.storage.column_types import KEY, NAME, UtcDateTime
from langmem_tiers.storage.memory_tables import memories
from langmem_tiers.storage.schema import namespaces

metadata = MetaData()

pools = Table(
    "lmt_pools",
    metadata,
    Column("pk", KEY, primary_key=True),
    Column("id", NAME, nullable=False, unique=True),
    Column("name", NAME, nullable=False, unique=True),
    Column("namespace_pk", KEY, ForeignKey(namespaces.c.pk, ondelete="CASCADE"), nullable=False, unique=True),
    Column("created_at", UtcDateTime, nullable=False),
    sqlite_autoincrement=True,  # a key is never used again: a stale handle finds nothing
)

pool_members = Table(
    "lmt_pool_members",
    metadata,
    Column("pool_pk", KEY, ForeignKey(pools.c.pk, ondelete="CASCADE"), primary_key=True),
    Column("namespace", NAME, primary_key=True),  # by name: a member need not have stored anything yet
    Column("can_read", Boolean, nullable=False),
    Column("can_write", Boolean, nullable=False),
    Column("is_owner", Boolean, nullable=False),
    Column("joined_at", UtcDateTime, nullable=False),
    Column("synced", BigInteger, nullable=False),  # up to which revision of the pool's memory
    Index("lmt_pool_members_by_namespace", "namespace"),
)

origins = Table(
    "lmt_origins",
    metadata,
    Column(
        "memory_pk",
        KEY,
        ForeignKey(memories.c.pk, ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
    ),
    Column("namespace", NAME, nullable=False),
    Column("entry_id", NAME),
    Column("copied_at", UtcDateTime, nullable=False),
    Column("confidence", Double, nullable=False),
    Column("ends_at", UtcDateTime),
    # The entry that says so already; this one is archived, and takes its place once that one is erased.
    Column("same_as_pk", KEY, ForeignKey(memories.c.pk, ondelete="SET NULL")),
    Index("lmt_origins_by_namespace", "namespace", "entry_id"),
    Index("lmt_origins_by_same", "same_as_pk"),
)
