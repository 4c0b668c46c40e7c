"""Compression of messages: fewer tokens, the same facts."""
