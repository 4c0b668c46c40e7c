"""Recall: query in, ranked entries with reasons out."""
