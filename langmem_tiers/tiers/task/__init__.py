"""What an agent keeps while it works at a task: cycles, failures, patterns, pages, site maps."""
