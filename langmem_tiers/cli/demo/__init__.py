"""The demo: a bundled conversation, two agents that answer questions about it, and tables of the results."""
