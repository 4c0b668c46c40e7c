"""Version 6: how messages stand in the list that a framework keeps of a session."""

from __future__ import annotations

from langmem_tiers.storage.migration import Migration

TO_LISTS = Migration(
    6,
    sqlite=(
        """CREATE TABLE lmt_listings (
            message_pk INTEGER NOT NULL,
            listing VARCHAR(8) NOT NULL,
            PRIMARY KEY (message_pk),
            FOREIGN KEY(message_pk) REFERENCES lmt_messages (pk) ON DELETE CASCADE
        )""",
    ),
    postgresql=(
        """CREATE TABLE lmt_listings (
            message_pk BIGINT NOT NULL,
            listing VARCHAR(8) NOT NULL,
            PRIMARY KEY (message_pk),
            FOREIGN KEY(message_pk) REFERENCES lmt_messages (pk) ON DELETE CASCADE
        )""",
    ),
)
