"""The replay buffer of the baselines, with Mammoth's interface: samples and what belongs to them,
row by row.

Our own methods store un-augmented `uint8` images (B, H, W, C) (`raw=True`), those written for
Mammoth floats (B, C, H, W) in [0, 1]. Rows and draws come from a random stream of the buffer's own.
SCROLL has another kind of buffer, `scroll.sums.exemplars`.
"""

from collections import defaultdict
from contextlib import contextmanager
from functools import partial

import numpy as np
import torch

from core.loss_watch import Diverged
from scroll.ground.arguments import check_memory
from scroll.ground.errors import InputError
from scroll.ground.grid import GRID
from scroll.sums.exemplars import herding_order, quotas
from utils.augmentations import apply_transform
from utils.evaluate import eval_mode
from utils.sample_selection import STRATEGIES

_AT_ONCE = 256  # images that pass the network together
ATTRIBUTES = ('examples', 'labels', 'logits', 'task_labels', 'true_labels')


class Buffer:
    """A store of at most `buffer_size` rows on one device.

    buffer_size: |M|. device: where the rows are kept. sample_selection_strategy: 'reservoir' or
    'greedy'.
    raw: what `fill_buffer` puts in is then `uint8` (B, H, W, C). seed: of insertion and draws;
    default: from numpy's global generator. of_others: refused, with the strategies that they are
    for.

    Attributes:
        examples, labels, logits, task_labels, true_labels: tensors of buffer_size rows, of which
        the first
            `len(self)` are filled; only those that were given to `add_data` exist. Names that
            end in "labels" are int64, images keep `uint8`, the rest is float32.
        num_seen_examples: samples offered so far. classes_seen: of 'greedy': labels offered so
        far."""

    open = True

    def __init__(
        self,
        buffer_size: int,
        device='cpu',
        sample_selection_strategy: str = 'reservoir',
        raw: bool = False,
        seed=None,
        **of_others,
    ):
        if sample_selection_strategy not in STRATEGIES or of_others or buffer_size < 0:
            others = ''.join(f', {name}' for name in of_others)
            raise InputError(
                f'buffer of {buffer_size}, {sample_selection_strategy}{others}: expected 0 or '
                f'more, {" or ".join(STRATEGIES)}; a file in models/ of the checkout that '
                '--mammoth PATH names has the buffer of that checkout: leave it there'
            )
        self.buffer_size = buffer_size
        self.device = torch.device(device)
        self.raw = raw
        self.generator = np.random.default_rng(np.random.randint(2**31) if seed is None else seed)
        self.sample_selection_fn = STRATEGIES[sample_selection_strategy]
        self.empty()

    def __len__(self) -> int:
        return min(self._filled, self.buffer_size)

    @contextmanager
    def closed(self):
        """Within, what is offered (`add_data`) is neither kept nor counted."""
        try:
            self.open = False
            yield
        finally:
            vars(self).pop('open', None)

    def is_empty(self) -> bool:
        return len(self) == 0

    def is_full(self) -> bool:
        return len(self) == self.buffer_size

    def empty(self) -> None:
        """Forget everything, the counter of samples seen included."""
        for name in self.used_attributes:
            delattr(self, name)
        self.num_seen_examples = 0
        self.classes_seen = set()
        self._filled = 0

    @property
    def used_attributes(self) -> list:
        """Names of the attributes that exist, in fixed order."""
        return [name for name in ATTRIBUTES if hasattr(self, name)]

    def to(self, device) -> 'Buffer':
        """Move all rows; returns itself."""
        self.device = torch.device(device)
        for name in self.used_attributes:
            setattr(self, name, getattr(self, name).to(self.device))
        return self

    def add_data(
        self, examples, labels=None, logits=None, task_labels=None, true_labels=None
    ) -> None:
        """Offer a batch, (B, ...) each, from any device; what is kept is up to the selection
        strategy.
        InputError: other attributes than the rows so far have, or images of another kind."""
        if not self.open:
            return
        columns = {}
        for name, values in zip(ATTRIBUTES, (examples, labels, logits, task_labels, true_labels)):
            if values is not None:
                columns[name] = torch.as_tensor(values).detach()
        self._check(columns)
        rows = self.sample_selection_fn(self, len(examples), labels)
        self.num_seen_examples += len(examples)
        last = {row: i for i, row in enumerate(rows.tolist()) if row >= 0}  # of several it stays
        if not last:
            return
        self._filled = max(self._filled, max(last) + 1)
        source = list(last.values())
        self._write(list(last), {name: values[source] for name, values in columns.items()})

    def _write(self, rows: list | slice, columns: dict) -> None:
        """Put samples, attribute -> (B, ...), into these rows."""
        for name, values in columns.items():
            store = self._rows(name, values)
            store[rows] = values.to(store.device, store.dtype)

    def _check(self, columns: dict) -> None:
        """Make sure that rows will be whole, whichever of them are taken."""
        lengths = {name: len(values) for name, values in columns.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f'a batch for the buffer has columns of different lengths: {lengths}')
        if self.is_empty():
            return
        of_bytes = [images.dtype == torch.uint8 for images in (self.examples, columns['examples'])]
        if list(columns) != self.used_attributes or len(set(of_bytes)) > 1:
            raise InputError(
                f"the buffer's samples have {', '.join(self.used_attributes)} and images of "
                f'{self.examples.dtype}, new ones {", ".join(columns)} and '
                f'{columns["examples"].dtype}: start with an empty buffer'
            )

    def _rows(self, name: str, like: torch.Tensor) -> torch.Tensor:
        """The tensor of an attribute, made or grown where needed."""
        wanted = max(self.buffer_size, self._filled)
        store = getattr(self, name, None)
        if store is None:
            kind = like.dtype if like.dtype == torch.uint8 else torch.float32
            if name.endswith('labels'):
                kind = torch.int64
            check_memory(f'a buffer of {wanted} samples', wanted * like[:1].numel() * kind.itemsize)
            store = torch.zeros(wanted, *like.shape[1:], dtype=kind, device=self.device)
        elif len(store) < wanted:
            store = torch.cat([store, store.new_zeros(wanted - len(store), *store.shape[1:])])
        setattr(self, name, store)
        return store

    def get_data(
        self, size: int, transform=None, return_index: bool = False, device=None, mask_task_out=None
    ) -> tuple:
        """([rows], examples, then the other attributes) of up to `size` random samples.
        mask_task_out: leave out the samples of this task, by `task_labels`."""
        rows = np.arange(len(self))
        if mask_task_out is not None:
            rows = np.flatnonzero(self.task_labels[: len(self)].cpu() != mask_task_out)
        rows = torch.as_tensor(self.generator.choice(rows, min(size, len(rows)), replace=False))
        out = self.get_data_by_index(rows, transform, device)
        return (rows.to(device or self.device), *out) if return_index else out

    def get_data_by_index(self, indexes, transform=None, device=None) -> tuple:
        """(examples, then the other attributes) of these rows."""
        rows = torch.as_tensor(indexes).to(self.device)
        device = torch.device(device or self.device)
        examples, *others = (getattr(self, name)[rows].to(device) for name in self.used_attributes)
        return apply_transform(examples, transform), *others

    def get_all_data(self, transform=None, device=None) -> tuple:
        """(examples, then the other attributes) of all samples, in row order."""
        return self.get_data_by_index(torch.arange(len(self)), transform, device)

    def append(self, columns: dict) -> None:
        """Put samples, attribute -> (B, ...), after the last row, whatever the selection
        strategy.
        """
        start = len(self)
        self._filled += len(columns['examples'])
        self.num_seen_examples += len(columns['examples'])
        self._write(slice(start, self._filled), columns)

    def keep(self, rows) -> None:
        """Keep only these rows, in this order."""
        for name in self.used_attributes:
            store = getattr(self, name)
            index = torch.as_tensor(rows, dtype=torch.int64, device=store.device)
            store[: len(rows)] = store[index]
        self._filled = len(rows)

    def serialize(self, out_device='cpu') -> dict:
        """Return what is stored as a dict of tensors (copies) and numbers for `load`."""
        tensors = {
            name: getattr(self, name)[: len(self)].to(out_device, copy=True)
            for name in self.used_attributes
        }
        return {**tensors, 'num_seen_examples': self.num_seen_examples}

    def load(self, content: dict) -> 'Buffer':
        """Become what `serialize` described; returns itself. InputError if that is no buffer."""
        stored = {name: content[name] for name in ATTRIBUTES if name in content}
        shapes = [isinstance(v, torch.Tensor) and v.shape[:1] for v in stored.values()]
        if stored and (not shapes[0] or len(set(shapes)) > 1 or 'examples' not in stored):
            raise InputError(
                'what is to be loaded is no buffer: expected examples, and tensors with the same '
                'number of rows'
            )
        self.empty()
        if stored:
            self.append(stored)
        self.num_seen_examples = int(content.get('num_seen_examples', self._filled))
        return self


def plain_samples(dataset, raw: bool) -> tuple:
    """(examples, labels) of a data set before augmentation: uint8 (N, H, W, C) with `raw`, if it
    holds such; else float (N, C, H, W) in [0, 1]."""
    if raw and hasattr(dataset, 'raw'):
        return dataset.raw(slice(None)), torch.as_tensor(dataset.targets)
    rows = [dataset[i] for i in range(len(dataset))]
    return torch.stack([row[2] for row in rows]), torch.as_tensor([int(row[1]) for row in rows])


@torch.no_grad()
def logits_of(net, examples: torch.Tensor, transform, device, returnt: str = 'out') -> torch.Tensor:
    """Logits (N, K), on the CPU, of un-augmented examples, in eval mode; or what else the network
    returns.
    """
    with eval_mode(net):
        parts = (apply_transform(part.to(device), transform) for part in examples.split(_AT_ONCE))
        return torch.cat([net(part, returnt=returnt).cpu() for part in parts])


features_of = partial(logits_of, returnt='features')  # (N, F)


def fill_buffer(
    buffer: Buffer,
    dataset,
    t_idx: int,
    net=None,
    use_herding: bool = False,
    required_attributes=None,
    normalize_features: bool = False,
    extend_equalize_buffer: bool = False,
) -> None:
    """Update at the end of task `t_idx`: shrink the classes in the buffer and add those of the
    task, the same number of each class; if tasks are stored, too, of each class of each task (tasks
    may share classes).

    Old classes keep the first of what they have. New ones, of `dataset.train_loader.dataset`, are
    chosen at random, or, with `use_herding`, by greedily keeping the mean of their features (iCaRL,
    algorithm 4), of unit length with `normalize_features`. The shares fill the buffer, so
    `extend_equalize_buffer` changes nothing. required_attributes: of 'examples', 'labels' (both by
    default), 'logits', 'task_labels'."""
    wanted = required_attributes or ['examples', 'labels']
    examples, labels = plain_samples(dataset.train_loader.dataset, buffer.raw)
    labels = labels.cpu().numpy()
    of_class = {int(c): np.flatnonzero(labels == c) for c in dataset.task_classes(t_idx)}
    groups = defaultdict(list)  # (class, task) -> rows of the buffer
    if len(buffer):
        tasks = [t_idx] * len(buffer)
        if 'task_labels' in wanted:
            tasks = buffer.task_labels.tolist()
        for row, group in enumerate(zip(buffer.labels[: len(buffer)].tolist(), tasks)):
            groups[group].append(row)
    old = [rows for (c, t), rows in sorted(groups.items()) if c not in of_class or t != t_idx]
    counts = [len(rows) for rows in (*old, *of_class.values())]
    remaining, added = np.split(quotas(counts, buffer.buffer_size), [len(old)])
    buffer.keep([row for rows, count in zip(old, remaining) for row in rows[:count]])
    transform = dataset.get_normalization_transform()
    # of all classes together: of a thousand, each may be small
    if use_herding and added.any():
        rows = torch.from_numpy(np.concatenate(list(of_class.values())))
        features = features_of(net, examples[rows], transform, net.device)
        features = features.split(counts[len(old) :])
    for i, (rows, share) in enumerate(zip(of_class.values(), added)):
        chosen = buffer.generator.permutation(rows)[:share]
        if use_herding and len(chosen):
            chosen = rows[_herd(features[i], share, normalize_features)]
        columns = {
            'examples': examples[chosen],
            'labels': torch.from_numpy(labels[chosen]),
            'task_labels': torch.full((len(chosen),), t_idx),
        }
        if 'logits' in wanted:
            columns['logits'] = logits_of(net, examples[chosen], transform, net.device)
        buffer.append({name: values for name, values in columns.items() if name in wanted})


def _herd(features: torch.Tensor, count: int, normalise: bool) -> np.ndarray:
    """Positions of the `count` herded samples."""
    values = features.double().numpy()
    if not np.isfinite(values).all():
        raise Diverged('the network no longer gives finite features: try a smaller --lr')
    longest = np.linalg.norm(values, axis=1, keepdims=True)
    longest = longest if normalise else longest.max()
    # exact sums: the order of a tie cannot depend on rounding
    whole = np.rint(values / np.where(longest > 0, longest, 1) * GRID).astype(np.int64)
    return herding_order(whole, whole.sum(axis=0), len(whole), count)


def icarl_replay(model, dataset) -> None:
    """Add the buffer's samples to `dataset.train_loader.dataset` (iCaRL, BiC). Extra fields, which
    they lack, no longer come with batches."""
    if model.buffer.is_empty():
        return
    train = dataset.train_loader.dataset
    train.extra_return_fields = ()
    data = train.data
    targets = torch.as_tensor(train.targets)
    examples, labels, *_ = model.buffer.get_all_data(device='cpu')
    if (
        examples.dtype != torch.uint8
        and examples.dim() == 4
        and hasattr(train, 'not_aug_transform')
    ):
        examples = (examples * 255).round().to(torch.uint8).permute(0, 2, 3, 1)
    examples = examples.squeeze(-1) if data.ndim == 3 else examples
    train.data = (
        np.concatenate([data, examples.numpy()])
        if isinstance(data, np.ndarray)
        else torch.cat([data, examples])
    )
    train.targets = torch.cat([targets, labels])
