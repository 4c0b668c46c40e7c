"""Version 8: a database has an id, so that one that was made anew is not taken for the one before."""

from __future__ import annotations

from langmem_tiers.storage.migration import Migration

TO_IDENTITY = Migration(
    8,
    sqlite=(
        """CREATE TABLE lmt_database (
            id VARCHAR(32) NOT NULL,
            PRIMARY KEY (id)
        )""",
        "INSERT INTO lmt_database (id) VALUES (lower(hex(randomblob(16))))",
    ),
    postgresql=(
        """CREATE TABLE lmt_database (
            id VARCHAR(32) NOT NULL,
            PRIMARY KEY (id)
        )""",
        "INSERT INTO lmt_database (id) VALUES (replace(CAST(gen_random_uuid() AS text), '-', ''))",
    ),
)
