"""The tables of contexts.

``context_files`` rows say which version is in force; 0 if none is. ``last`` is the highest number that was ever given,
so that no number comes twice. ``context_versions`` rows are written once; one that could not be read is marked as
damaged and stays.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, ForeignKey, MetaData, Table, Text, UniqueConstraint

from langmem_tiers.storage.column_types import KEY, NAME, UtcDateTime
from langmem_tiers.storage.schema import namespaces

metadata = MetaData()

context_files = Table(
    "lmt_context_files",
    metadata,
    Column("pk", KEY, primary_key=True),
    Column("namespace_pk", KEY, ForeignKey(namespaces.c.pk, ondelete="CASCADE"), nullable=False),
    Column("session_id", NAME, nullable=False),
    Column("current", BigInteger, nullable=False),
    Column("last", BigInteger, nullable=False),
    UniqueConstraint("namespace_pk", "session_id"),
)

context_versions = Table(
    "lmt_context_versions",
    metadata,
    Column("file_pk", KEY, ForeignKey(context_files.c.pk, ondelete="CASCADE"), primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("body", Text, nullable=False),
    Column("saved_at", UtcDateTime, nullable=False),
    Column("damage", Text),
)
