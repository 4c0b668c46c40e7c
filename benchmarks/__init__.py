"""Benchmarks: each prints what it measured on this run, beside a baseline from the same run."""
