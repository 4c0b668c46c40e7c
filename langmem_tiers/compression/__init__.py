"""Fewer tokens, the same facts."""
