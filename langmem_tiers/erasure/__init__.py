"""Erasure: what ``forget()`` deletes, in which order, and how bytes are scrubbed."""
