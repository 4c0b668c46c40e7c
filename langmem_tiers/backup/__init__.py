"""Backups of a database or a namespace, and moves between databases."""
