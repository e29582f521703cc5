"""`torch`'s loader, with randomness that belongs to the sample: results do not depend
on the number of worker processes."""

import copy
import random

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset

from scroll.ground.randomness import stream_seed


def create_seeded_dataloader(
    args, dataset, non_verbose: bool = False, concern: str = 'loader', **options
):
    """A loader of any data set, seeded; its batches do not depend on `--num_workers`.

    non_verbose: Mammoth's; nothing is printed. concern: name of the random stream, which is the
    same for all loaders of one concern. options: those of `DataLoader`."""
    options = {'num_workers': getattr(args, 'num_workers', None) or 0} | options
    if isinstance(dataset, IterableDataset):
        return DataLoader(dataset, **options)
    options.pop('generator', None)
    seed = stream_seed(getattr(args, 'seed', None) or 0, f'loader {concern}')
    return SeededLoader(dataset, seed, **options)


class SeededLoader(DataLoader):
    """A `DataLoader` whose order and augmentations follow from a seed: while an item is made, the
    global generators of python, numpy and torch are seeded from (seed, pass, index), and then put
    back. Workers are started for each pass, and so see the data set as it is then."""

    def __init__(self, dataset, seed: int, **options):
        super().__init__(dataset, generator=torch.Generator().manual_seed(seed), **options)
        self.seed = seed
        self.passes = 0

    def __iter__(self):
        this_pass = copy.copy(self)  # vars(): a loader refuses another data set
        vars(this_pass).update(
            dataset=_SeededItems(self.dataset, self.seed, self.passes),
            # torch's, for its workers
            generator=torch.Generator().manual_seed(self.seed),
        )
        self.passes += 1
        return DataLoader.__iter__(this_pass)


class _SeededItems(torch.utils.data.Dataset):
    """The items of a data set in one pass."""

    def __init__(self, dataset, seed: int, number: int):
        self.dataset = dataset
        self.seed = seed
        self.number = number

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index):
        before = random.getstate(), np.random.get_state(), torch.get_rng_state()
        seed = stream_seed(self.seed, f'{self.number}/{index}')
        try:
            random.seed(seed)
            np.random.seed(seed % 2**32)
            # torch.manual_seed would reset GPU generators, too
            torch.default_generator.manual_seed(seed)
            return self.dataset[index]
        finally:
            random.setstate(before[0])
            np.random.set_state(before[1])
            torch.set_rng_state(before[2])
