"""Contexts: what goes to the model, assembled under a budget."""
