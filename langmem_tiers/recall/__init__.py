"""Recall: rank stored memories by a query and explain each score."""
