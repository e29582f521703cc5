"""Which row of a full replay buffer, if any, a newly offered sample takes.

A strategy is called with a batch and returns a row for each sample, -1 for none. Several samples of a batch
may get the same row: the last one has it, as if they had come one by one. Sources: `reservoir`, Vitter 1985;
`greedy`, GDumb, Prabhu et al. 2020; `balancoir`, `lars`, `labrs`, Buzzega et al. 2021, "Rethinking experience
replay"; `abs`, Millunzi et al. 2024, for noisy labels.
"""
import copy
from functools import partial

import numpy as np
import torch


class Selection:
    """Base: `buffer` is what is selected for.

    Class attributes:
        REMEMBERED: names of the attributes that are its state. PER_ROW: those of them with a value for each
            row of the buffer.
    """
    REMEMBERED, PER_ROW = (), ()

    def __init__(self, buffer):
        self.buffer = buffer

    def __call__(self, count: int, labels, scores) -> np.ndarray:
        """Rows int64 (count,) for samples with these labels (count,) and scores
        (count,), either of which may be None."""
        raise NotImplementedError

    def update(self, indexes, values) -> None:
        """New scores (losses) of the samples in these rows; of interest to strategies that use losses."""

    def keep(self, rows: np.ndarray) -> None:
        """Only these rows of the buffer are left, in this order."""
        for name in self.PER_ROW:
            values = getattr(self, name)
            values[:len(rows)] = values[rows]

    def forget(self) -> None:
        """The buffer has been emptied."""

    def state_dict(self) -> dict:
        """The state, apart from the buffer's content."""
        return {name: copy.copy(getattr(self, name)) for name in self.REMEMBERED}

    def load_state_dict(self, state: dict) -> None:
        """Remember what `state_dict` gave."""
        vars(self).update({name: copy.copy(value) for name, value in state.items()})


class Reservoir(Selection):
    """After n samples each has been kept with probability |M| / n, whatever the batches."""

    def __call__(self, count, labels, scores):
        numbers = self.buffer.num_seen_examples + np.arange(count)
        size, filled = self.buffer.buffer_size, len(self.buffer)
        rows = self.buffer.generator.integers(0, numbers + 1)
        rows[rows >= size] = -1
        free = rows[:size - filled]                    # also of a buffer that has lost rows, or been enlarged
        free[:] = filled + np.arange(len(free))
        return rows


class Unlimited(Selection):
    """Every sample gets a row of its own."""

    def __call__(self, count, labels, scores):
        return len(self.buffer) + np.arange(count)


class _OneByOne(Selection):
    """Strategies that look at labels and losses of what is kept; unknown losses are infinite."""
    REMEMBERED = PER_ROW = ('losses',)

    def __init__(self, buffer):
        super().__init__(buffer)
        self.forget()

    def forget(self):
        self.losses = np.zeros(0)

    def __call__(self, count, labels, scores):
        size, filled = self.buffer.buffer_size, len(self.buffer)
        needed = min(size, filled + count)
        self._grow(needed)
        self.labels = np.full(needed, -1)
        if filled and hasattr(self.buffer, 'labels'):
            self.labels[:filled] = self.buffer.labels[:filled].cpu().numpy()
        labels = np.full(count, -1) if labels is None else torch.as_tensor(labels).cpu().numpy()
        losses = np.full(count, np.inf) if scores is None else torch.as_tensor(scores).detach().cpu().numpy()
        rows = np.full(count, -1, np.int64)
        for i in range(count):
            rows[i] = self.row_for(self.buffer.num_seen_examples + i, filled, int(labels[i]))
            if rows[i] >= 0:
                self.labels[rows[i]], self.losses[rows[i]] = labels[i], losses[i]
                filled = max(filled, int(rows[i]) + 1)
        return rows

    def _grow(self, rows: int) -> None:
        """Have losses of at least this many rows."""
        more = max(rows - len(self.losses), 0)
        self.losses = np.concatenate([self.losses, np.full(more, np.inf)])

    def keep(self, rows):
        self._grow(len(self.buffer))
        super().keep(rows)

    def update(self, indexes, values):
        indexes = torch.as_tensor(indexes).cpu().numpy()
        self._grow(int(np.max(indexes, initial=-1)) + 1)
        self.losses[indexes] = torch.as_tensor(values).detach().cpu().numpy()

    def row_for(self, number: int, filled: int, label: int) -> int:
        """The row of the `number`-th sample, -1 for none."""
        size, random = self.buffer.buffer_size, self.buffer.generator
        if filled < size:
            return filled
        if size == 0 or random.integers(0, number + 1) >= size:
            return -1
        weights = self.weights(label)
        return int(random.choice(size, p=weights / weights.sum()))

    def weights(self, label: int) -> np.ndarray:
        """How likely each row of the full buffer is to go."""
        raise NotImplementedError

    def largest(self) -> np.ndarray:
        """float64 (size,): 1 where a row holds a sample of a largest class."""
        classes, inverse, counts = np.unique(self.labels, return_inverse=True, return_counts=True)
        return (counts == counts.max())[inverse].astype(float)

    def low_loss(self) -> np.ndarray:
        """float64 (size,): how far each row's loss lies below the largest, as a share of
        the range; 1 where all are equal."""
        losses = self.losses[:self.buffer.buffer_size]
        finite = np.isfinite(losses)
        if not finite.any() or np.ptp(losses[finite]) == 0:
            return np.ones(len(losses))
        low, high = losses[finite].min(), losses[finite].max()
        share = np.where(finite, (high - losses) / (high - low), 0)
        return share + 1e-8                                     # every row can be drawn


class Weighted(_OneByOne):
    """A sample of a largest class goes (`balanced`), or one that has been learned (`by_loss`), or both."""

    def __init__(self, buffer, balanced: bool, by_loss: bool):
        super().__init__(buffer)
        self.balanced, self.by_loss = balanced, by_loss

    def weights(self, label):
        return (self.largest() if self.balanced else 1) * (self.low_loss() if self.by_loss else 1)


class Asymmetric(_OneByOne):
    """Rows are shared between current and earlier classes by their numbers. Of the larger part one goes: a
    current sample by its large loss, an earlier one by its small loss."""

    def __init__(self, buffer, dataset=None):
        super().__init__(buffer)
        if dataset is None:
            raise ValueError("sample_selection_strategy 'abs' needs dataset=")
        self.dataset = dataset

    def weights(self, label):
        task = max(self.dataset.current_task, 0)
        first, end = self.dataset.get_offsets(task)
        current = np.isin(self.labels, self.dataset.task_classes(task))
        if current.all() or current.mean() > (end - first) / end:
            # noisy labels of the newest classes have large losses
            return current * (1 - self.low_loss() + 1e-8)
        return ~current * self.low_loss()


class Greedy(_OneByOne):
    """Balanced: |M| / (classes seen) rows for each class; a sample of a smaller one replaces a random sample
    of a largest class."""
    REMEMBERED = ('losses', 'seen')

    def forget(self):
        super().forget()
        self.seen = set()

    def __call__(self, count, labels, scores):
        # also what was loaded, or put in by `fill_buffer`
        if not self.buffer.is_empty() and hasattr(self.buffer, 'labels'):
            self.seen.update(self.buffer.labels[:len(self.buffer)].tolist())
        return super().__call__(count, labels, scores)

    def row_for(self, number, filled, label):
        size = self.buffer.buffer_size
        self.seen.add(label)
        if (self.labels[:filled] == label).sum() >= max(1, size // len(self.seen)) or size == 0:
            return -1
        return filled if filled < size else int(self.buffer.generator.choice(np.flatnonzero(self.largest())))


STRATEGIES = dict(reservoir=Reservoir, greedy=Greedy, abs=Asymmetric, unlimited=Unlimited,
                  balancoir=partial(Weighted, balanced=True, by_loss=False),
                  lars=partial(Weighted, balanced=False, by_loss=True),
                  labrs=partial(Weighted, balanced=True, by_loss=True))


def make_selection(name: str, buffer, **options) -> Selection:
    """The strategy called `name`, for this buffer."""
    if name not in STRATEGIES:
        raise ValueError(f'sample_selection_strategy {name!r}: expected one of {", ".join(STRATEGIES)}')
    if (buffer.buffer_size < 0) != (name == 'unlimited'):
        raise ValueError(f"buffer_size {buffer.buffer_size} with sample_selection_strategy {name!r}: "
                         "'unlimited' goes with -1, the others with a size of 0 or more")
    return STRATEGIES[name](buffer, **options)
