"""`torch`'s loader, with randomness that belongs to the sample: results do not depend
on the number of worker processes."""
import random

import numpy as np
import torch
from torch.utils.data import DataLoader

from scroll.randomness import stream_seed


class SeededLoader(DataLoader):
    """A `DataLoader` whose order and augmentations follow from a seed alone; `dataset`
    may be given other data at any time.

    While an item is made, the global generators of python, numpy and torch are seeded from
    (seed, pass, index); afterwards they are as they were. Workers are started for each pass,
    and so see the data set as it is then.

    Args:
        dataset: a map-style data set. seed: of the order and of the items. options: those of `DataLoader`.
    """

    def __init__(self, dataset, seed: int, **options):
        super().__init__(dataset, generator=torch.Generator().manual_seed(seed), **options)
        self.seed, self.passes = seed, 0

    def __iter__(self):
        items = _SeededItems(self.dataset, self.seed, self.passes)
        self.passes += 1
        batches = dict(batch_size=None, sampler=self.sampler)
        if self.batch_sampler is not None:
            batches = dict(batch_sampler=self.batch_sampler)
        own = torch.Generator().manual_seed(self.seed)              # for what torch draws for its workers
        return iter(DataLoader(items, **batches, num_workers=self.num_workers, collate_fn=self.collate_fn,
                               pin_memory=self.pin_memory, timeout=self.timeout,
                               worker_init_fn=self.worker_init_fn,
                               multiprocessing_context=self.multiprocessing_context,
                               prefetch_factor=self.prefetch_factor, generator=own))


class _SeededItems(torch.utils.data.Dataset):
    """The items of a data set in one pass."""

    def __init__(self, dataset, seed: int, number: int):
        self.dataset, self.seed, self.number = dataset, seed, number

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index):
        return self.__getitems__([index])[0]

    def __getitems__(self, indexes) -> list:
        """A batch's items, asked for at once by `torch`."""
        before = random.getstate(), np.random.get_state(), torch.get_rng_state()
        try:
            return [self._item(index) for index in indexes]
        finally:
            random.setstate(before[0])
            np.random.set_state(before[1])
            torch.set_rng_state(before[2])

    def _item(self, index):
        seed = stream_seed(self.seed, f'{self.number}/{index}')
        random.seed(seed)
        np.random.seed(seed % 2 ** 32)
        torch.default_generator.manual_seed(seed)          # torch.manual_seed would reset GPU generators, too
        return self.dataset[index]
