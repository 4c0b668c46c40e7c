"""Cross-session knowledge: values under keys, with confidence and history."""
