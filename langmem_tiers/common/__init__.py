"""Value types and helpers that every feature uses."""
