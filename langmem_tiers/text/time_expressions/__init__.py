"""Time expressions in text: dates, durations and relative expressions."""
