"""The benchmark: speed and memory."""
