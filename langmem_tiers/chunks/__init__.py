"""Chunks: runs of older messages of a session, with summary and topics."""
