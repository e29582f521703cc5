"""Where a backbone comes from: its training and its integer network."""
