"""Maintenance: retention, expiry, compaction and statistics of the database."""
