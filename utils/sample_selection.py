"""The row of a full replay buffer, if any, that a newly offered sample takes.

A strategy gives a row for each sample of a batch, -1 for none. Several samples may get the same
row: the last one has it, as if they had come one by one. `reservoir`: Vitter 1985; `greedy`: GDumb,
Prabhu et al. 2020.
"""

from collections import Counter

import numpy as np
import torch


def reservoir(buffer, count: int, labels) -> np.ndarray:
    """After n samples each has been kept with probability |M| / n, whatever the batches."""
    rows = buffer.generator.integers(0, buffer.num_seen_examples + np.arange(count) + 1)
    rows[rows >= buffer.buffer_size] = -1
    free = rows[: buffer.buffer_size - len(buffer)]  # also of a buffer that has lost rows
    free[:] = len(buffer) + np.arange(len(free))
    return rows


def greedy(buffer, count: int, labels) -> np.ndarray:
    """Balanced: |M| / (classes seen) rows for each class; a sample of a smaller one replaces a
    random sample of a largest class."""
    kept = buffer.labels[: len(buffer)].tolist() if len(buffer) else []
    seen = buffer.classes_seen
    sizes = Counter(kept)
    capacity = buffer.buffer_size
    seen.update(kept)  # also what was loaded, or put in by `fill_buffer`
    rows = np.full(count, -1)
    for i, label in enumerate(torch.as_tensor(labels).tolist()):
        seen.add(label)
        if capacity == 0 or sizes[label] >= max(1, capacity // len(seen)):
            continue
        if len(kept) < capacity:
            rows[i] = len(kept)
            kept.append(label)
        else:
            largest = max(sizes.values())
            rows[i] = buffer.generator.choice(
                [row for row, own in enumerate(kept) if sizes[own] == largest]
            )
            sizes[kept[rows[i]]] -= 1
            kept[rows[i]] = label
        sizes[label] += 1
    return rows


STRATEGIES = {'reservoir': reservoir, 'greedy': greedy}
