"""Agent task memory: cycles, loops, failures, patterns, site maps."""
