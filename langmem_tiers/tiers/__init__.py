"""What each tier holds and how it behaves, over the ports of core."""
