"""The adaptive optimizer: parameters, measurements, snapshots."""
