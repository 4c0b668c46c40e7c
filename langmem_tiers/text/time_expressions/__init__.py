"""The times that a text mentions: dates, durations, relative expressions."""
