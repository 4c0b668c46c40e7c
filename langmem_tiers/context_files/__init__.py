"""Context files: a session's state as JSON on disk or in the database."""
