"""Compression of tool results: pages, listings, errors and JSON."""
