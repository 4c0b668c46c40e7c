"""Sessions: the append-only record of each conversation, and the view of it that goes into prompts."""
