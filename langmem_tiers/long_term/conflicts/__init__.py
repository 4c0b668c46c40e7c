"""Conflict rules: a new entry duplicates an existing one, contradicts it, or neither."""
