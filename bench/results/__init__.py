"""Results rows, metrics, pictures, trackers."""
