"""Numbers from text: pure functions, no I/O, no clock."""
