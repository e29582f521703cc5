"""Mammoth's names for the metrics of a run."""
from bench.results.metrics import backward_transfer, forgetting, forward_transfer  # noqa: F401
