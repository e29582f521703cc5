"""MNIST-360: a stream without tasks, of two neighbouring digits at a time, which turn slowly as it goes."""
import numpy as np

from datasets.seq_mnist import SequentialMNIST
from datasets.transforms.rotation import turned
from datasets.utils.gcl_dataset import GCLDataset
from datasets.utils.own_stream import OwnStreamDataset
from scroll.randomness import numpy_stream
from scroll.schedules import Schedule

_ROUNDS = 3


class MNIST360(OwnStreamDataset, SequentialMNIST, GCLDataset):
    """Buzzega et al. 2020, appendix: digits 0 to 8 (an upside-down 9 is a 6), each image once.

    The pairs 0 1, 1 2, ..., 7 8, 8 0 come one after the other, three times. The images of a digit go once
    round the circle while they come, as do its test images: image k of n is turned by 360 k / n degrees.
    Segments are batches.
    """
    NAME = 'mnist-360'
    SETTING = 'general-continual'
    N_CLASSES = N_CLASSES_PER_TASK = 9

    def _make_stream(self):
        super()._make_stream()
        train, order = np.array(self.images.train), self.schedule.order
        files = self.train_ids[order]
        train[files] = turned(train[files], 360 * progress(self.train_labels[order]))
        self.images = self.images._replace(train=train)
        self.test_images = turned(self.test_images, 360 * progress(self.test_labels))

    def _make_schedule(self) -> Schedule:
        order = in_pairs(self.train_labels, self.N_CLASSES, numpy_stream(self.args.seed, 'schedule'))
        ends = np.array([0, len(order)])
        cuts = np.append(np.arange(0, len(order), self.args.batch_size), len(order))
        return Schedule(order, cuts, ends, self.NAME, task_free=True)

    @staticmethod
    def get_batch_size() -> int:
        return 16


def progress(labels: np.ndarray) -> np.ndarray:
    """float (N,) in [0, 1): of each sample, the share of its class that has come before it."""
    share = np.zeros(len(labels))
    for label in np.unique(labels):
        ids = np.flatnonzero(labels == label)
        share[ids] = np.arange(len(ids)) / len(ids)
    return share


def in_pairs(labels: np.ndarray, n_classes: int, random: np.random.Generator) -> np.ndarray:
    """int64 (N,): the sample ids in the order of the stream; the two classes of a phase are evenly mixed."""
    waiting = []                            # of each class, the parts for its phases: two a round
    for c in range(n_classes):
        waiting.append(np.array_split(random.permutation(np.flatnonzero(labels == c)), 2 * _ROUNDS))
    phases = []
    for phase in range(_ROUNDS * n_classes):
        parts = [waiting[(phase + i) % n_classes].pop(0) for i in (0, 1)]
        moments = np.concatenate([(np.arange(len(part)) + 0.5) / max(1, len(part)) for part in parts])
        phases.append(np.concatenate(parts)[np.argsort(moments, kind='stable')])
    return np.concatenate(phases)
