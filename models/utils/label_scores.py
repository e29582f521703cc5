"""Out-of-sample scores of the training data (`--save_scores`): which of its labels look wrong.

    python main.py --model scroll --dataset seq-folder --data_dir photos --save_scores scores.npz

    scores = np.load('scores.npz')
    find_label_issues(scores['labels'], scores['pred_probs'])       # of cleanlab.filter

Exact leave-one-out, so nothing is trained again. With `--noise_rate` the run knows which labels are wrong,
and says how well the scores find them.
"""
from typing import NamedTuple

import numpy as np
from sklearn.metrics import roc_auc_score

from core.progress import Progress
from datasets.utils.scheduled_dataset import ScheduledDataset
from scroll.archive import atomic_write
from scroll.errors import InputError
from scroll.learner import Scroll

_PARTS = 'shard', 'start_from', 'stop_after', 'debug_mode'      # what keeps a run from some of the samples


class LabelScores(NamedTuple):
    """Scores of N training samples, in the order of the files.

    Attributes:
        ids: int64 (N,), positions in the files. labels: int64 (N,), columns of the labels that were learned.
        classes: (K,) names of the columns. pred_probs: float64 (N, K), as if each sample had not been
        learned; rows sum to one. wrong: bool (N,), labels that `--noise_rate` made wrong; None without.
    """
    ids: np.ndarray
    labels: np.ndarray
    classes: np.ndarray
    pred_probs: np.ndarray
    wrong: np.ndarray = None

    @property
    def auc(self) -> float | None:
        """Area under the ROC curve of wrong labels by self-confidence, the probability of the label, percent;
        None where it is not known which are wrong."""
        if self.wrong is None or self.wrong.all() or not self.wrong.any():
            return None
        own = self.pred_probs[np.arange(len(self.labels)), self.labels]
        return round(100 * float(roc_auc_score(self.wrong, -own)), 4)

    def summary(self) -> list:
        """Lines for the summary of a run."""
        return [] if self.auc is None else [
            f'wrong labels by out-of-sample self-confidence: ROC AUC {self.auc:.2f} % '
            f'({self.wrong.sum():,} of {len(self.wrong):,} labels are wrong)']

    def save(self, path) -> None:
        """Write an npz file of the arrays, whole or not at all; InputError if it cannot be written."""
        try:
            with atomic_write(path) as file:
                np.savez(file, **{name: array for name, array in self._asdict().items() if array is not None})
        except OSError as error:
            raise InputError(f'--save_scores {path}: cannot be written ({error.strerror})') from error


def check(args, dataset) -> None:
    """InputError, before anything is learned, where not every training sample will be learned once."""
    if not isinstance(dataset, ScheduledDataset):
        raise InputError(f'--save_scores: {args.dataset} hands out its samples itself; give a data set that '
                         'schedules can cut')
    withheld = [flag for flag in _PARTS if getattr(args, flag)]
    withheld += [flag for flag in ('label_perc', 'label_perc_by_class') if getattr(args, flag) < 1]
    if withheld or dataset.schedule.covers != 'all':
        why = f'--{withheld[0]}' if withheld else f'--schedule {dataset.schedule.spec}'
        raise InputError(f'--save_scores: scores are of data sets that are learned whole, each sample once; '
                         f'leave out {why}')


def of(learner: Scroll, dataset: ScheduledDataset, to_file: np.ndarray) -> LabelScores:
    """Scores of all training samples.

    Args:
        to_file: (K,) label in the files of each label in the stream.
    """
    labels = to_file[dataset.train_labels]
    with Progress('Out-of-sample scores', quiet=dataset.args.non_verbose):
        probabilities = learner.out_of_sample(dataset.images.train[dataset.train_ids], labels)
    wrong = labels != to_file[dataset.true_labels]
    return LabelScores(dataset.train_ids, np.searchsorted(learner.classes_, labels),
                       np.array(dataset.images.class_names)[learner.classes_], probabilities,
                       wrong if dataset.args.noise_rate else None)
