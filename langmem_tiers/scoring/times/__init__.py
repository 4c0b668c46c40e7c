"""The times that a question speaks of."""
