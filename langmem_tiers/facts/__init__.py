"""Facts learned from messages: patterns, extraction, validation, storage."""
