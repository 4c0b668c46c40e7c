"""Embedders: the offline default, adapters for other models, validation and caching."""
