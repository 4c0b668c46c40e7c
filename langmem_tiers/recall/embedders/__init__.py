"""Embedding models: the offline one, adapters for others, validation and caching."""
