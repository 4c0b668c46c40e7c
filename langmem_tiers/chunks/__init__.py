"""Chunks: runs of older messages of a session, each with a summary and topics."""
