"""Shared building blocks of the framework adapters."""
