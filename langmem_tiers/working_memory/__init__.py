"""Working memory: what agents hold in this process, saved to their sessions."""
