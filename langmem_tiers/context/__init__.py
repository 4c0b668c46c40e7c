"""Contexts: the messages for a model, assembled within a token budget."""
