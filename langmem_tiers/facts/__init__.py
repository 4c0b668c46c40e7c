"""Facts learned from messages: patterns, extraction, validation and storage."""
