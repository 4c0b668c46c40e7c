"""Sessions: the append-only record of each conversation and how it is shown."""
