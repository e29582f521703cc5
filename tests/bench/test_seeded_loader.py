"""Loaders of foreign data sets: whatever an item draws follows from the seed, not from who makes
it.
"""

import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset

from core.seeded_loader import create_seeded_dataloader


class Draws(Dataset):
    """Items are what the three global generators give."""

    def __init__(self, count: int = 7):
        self.values = list(range(count))

    def __len__(self):
        return len(self.values)

    def __getitem__(self, index):
        return self.values[index], torch.tensor(
            [random.random(), np.random.rand(), torch.rand(1).item()], dtype=torch.float64
        )


def batches(seed=0, workers=None, passes=2, **options):
    loader = create_seeded_dataloader(
        SimpleNamespace(seed=seed, num_workers=workers), Draws(), batch_size=3, **options
    )
    return [(ids.tolist(), draws.tolist()) for _ in range(passes) for ids, draws in loader]


def test_workers_change_nothing():
    assert (
        batches(shuffle=True)
        == batches(shuffle=True, workers=0)
        == batches(shuffle=True, workers=2)
    )


def test_passes_samples_seeds_and_concerns_differ_and_nothing_else_does():
    here = batches()
    rows = {tuple(row) for _, draws in here for row in draws}
    assert len(rows) == 14
    assert here == batches()
    assert here != batches(seed=1)
    assert here != batches(concern='other')
    shuffled = batches(shuffle=True)
    order = [i for ids, _ in shuffled for i in ids]
    assert sorted(order[:7]) == sorted(order[7:]) == list(range(7))
    assert order[:7] != order[7:]
    drawn = {(n >= 3, i): row for n, (ids, draws) in enumerate(here) for i, row in zip(ids, draws)}
    assert all(
        drawn[n >= 3, i] == row
        for n, (ids, draws) in enumerate(shuffled)
        for i, row in zip(ids, draws)
    )


@pytest.mark.parametrize('shuffle', [False, True])
def test_global_generators_stay_where_they_are(shuffle):
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()
    batches(shuffle=shuffle)
    assert before[0] == random.getstate()
    assert before[1] == np.random.get_state()[1].tolist()
    assert torch.equal(before[2], torch.get_rng_state())


def test_options_reach_the_loader_and_other_data_are_seen():
    loader = create_seeded_dataloader(
        SimpleNamespace(), Draws(), True, batch_size=3, drop_last=True, collate_fn=len, shuffle=True
    )
    assert list(loader) == [3, 3]
    assert len(loader) == 2
    assert loader.batch_size == 3
    loader.dataset.values = list(range(11))
    assert list(loader) == [3, 3, 3]
    assert len(loader) == 3


class Flow(IterableDataset):
    def __iter__(self):
        return iter(range(5))


def test_single_items_and_iterables():
    assert [
        i for i, _ in create_seeded_dataloader(SimpleNamespace(seed=1), Draws(), batch_size=None)
    ] == list(range(7))
    assert torch.cat(
        list(create_seeded_dataloader(SimpleNamespace(seed=1, num_workers=0), Flow(), batch_size=2))
    ).tolist() == [*range(5)]
