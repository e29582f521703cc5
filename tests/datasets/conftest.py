"""Shared by tests of data sets."""

from bench.run.building import initialize
from bench.run.training import train


def walk(dataset):
    """Yield (train loader, test loader) of every task."""
    for _ in range(dataset.N_TASKS):
        yield dataset.get_data_loaders()


def run(args) -> dict:
    model, dataset, args = initialize(args)
    return train(model, dataset, args)
