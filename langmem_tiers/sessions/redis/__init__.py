"""Redis as a shared cache of each session's newest messages."""
