"""Loop detection: when a run of an agent repeats itself without progress."""
