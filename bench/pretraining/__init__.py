"""Where a psi comes from: training, widening, its integer network."""
