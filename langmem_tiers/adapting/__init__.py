"""What the adapters of all frameworks share."""
