"""The demo: the bundled conversation, two agents that are asked about it, and the tables that show the result."""
