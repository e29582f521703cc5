"""Train a backbone and make its integer network."""
