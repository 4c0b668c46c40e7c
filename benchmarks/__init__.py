"""Benchmarks: each prints its measurements next to a baseline from the same run."""
