"""Where a backbone comes from: training, widening, its integer network."""
