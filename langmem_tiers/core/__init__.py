"""The words and the contracts: standard library only, no I/O, no clock."""
