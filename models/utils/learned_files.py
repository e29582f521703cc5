"""SCROLL's files: flags, what is written after the last task, what a run begins with.

    python main.py --model scroll --dataset seq-cifar100 --shard 1/2 --save_statistics 1.npz  # one machine
    python main.py --model scroll --dataset seq-cifar100 --shard 2/2 --save_statistics 2.npz  # another
    python -m scroll merge 1.npz 2.npz -o all.npz
    python main.py --model scroll --dataset seq-cifar100 --load_statistics all.npz --inference_only 1
"""
import tempfile
from pathlib import Path

import numpy as np

from scroll import archive
from scroll.errors import InputError
from scroll.exemplars import ExemplarBuffer
from scroll.export import check_export, export
from scroll.files.shards import shard
from scroll.learner import Scroll
from scroll.state import KIND, State
from scroll.statistics import Statistics
from utils import binary_to_boolean_type


def add_file_args(parser) -> None:
    """Shares of a data set, statistics and states."""
    flag = parser.add_argument_group('SCROLL, files').add_argument
    flag('--shard', affects='stream', type=shard,
         help='i/n: learn only the i-th of n shares of the samples, cut by their pixels, so that the shares '
              'of n runs are the whole whatever their schedules and seeds')
    flag('--save_statistics', affects='place', metavar='FILE',
         help='write the statistics after the last task (python -m scroll)')
    flag('--by_class', affects='record', type=binary_to_boolean_type, default=False,
         help='--save_statistics is a folder, and gets a file a class (8 (d + 1)^2 bytes each)')
    flag('--save_state', affects='place', metavar='FILE',
         help='write statistics and buffer after the last task (scroll.Scroll.load)')
    flag('--save_scores', affects='place', metavar='FILE',
         help='write what f_T says of each training sample as if it had not been learned, in the format that '
              "cleanlab's find_label_issues takes: labels, pred_probs (npz)")
    flag('--keep_keys', affects='record', type=binary_to_boolean_type,
         help='--save_state keeps the key of every sample (8 bytes each), so that unlearning '
              'knows what was learned (default: 1 with --save_state)')
    flag('--export', affects='place', metavar='FOLDER',
         help='write f_T and f* after the last task, for other programs, to a new folder (scroll.export)')
    flag('--load_state', '--load_statistics', affects='content', dest='load_state', metavar='FILE',
         help='with --inference_only 1: evaluate what a file of --save_statistics or --save_state holds')


def check_file_args(args) -> None:
    """InputError, before any work, for what is invalid or would have no effect."""
    if args.keep_keys is None:
        args.keep_keys = bool(args.save_state)
    for flag, needed in (('by_class', 'save_statistics'), ('keep_keys', 'save_state')):
        if getattr(args, flag) and not getattr(args, needed):
            raise InputError(f'--{flag} has no effect in this run: it needs --{needed}')
    if args.load_state and not args.inference_only:
        raise InputError(f'--load_state {args.load_state}: evaluates what was learned and learns nothing: '
                         'give --inference_only 1')
    if args.inference_only and not args.load_state and not getattr(args, 'loadcheck', None):
        raise InputError('--inference_only 1: scroll knows nothing before it has learned; give --load_state')
    for flag in ('shard', 'save_statistics', 'save_state'):
        if args.inference_only and getattr(args, flag):
            raise InputError(f'--{flag} has no effect with --inference_only 1: nothing is learned')
    if args.export:
        check_export(args.export)
    for flag, path, folder in _written(args):
        if folder.exists() and not folder.is_dir() or folder != path and path.is_dir():
            kind = 'folder' if folder == path else 'file in a folder'
            raise InputError(f'--{flag} {path}: expected a {kind}')
        if folder != path and flag != 'export':
            archive.check_target(path, f'--{flag}')


def _written(args) -> list:
    """(flag, its path, the folder that takes files) of each flag that writes."""
    flags = 'save_statistics', 'save_state', 'save_scores', 'export'
    paths = {flag: Path(getattr(args, flag)) for flag in flags if getattr(args, flag)}
    return [(flag, path, path if flag == 'save_statistics' and args.by_class else path.parent)
            for flag, path in paths.items()]


def check_writable(args) -> None:
    """InputError, before anything is learned, for a folder that cannot be made or takes no files."""
    for flag, path, folder in _written(args):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise InputError(f'--{flag} {path}: {folder} takes no files ({error.strerror})') from error


class ClassStatistics:
    """Statistics of each class by itself, of the kind that a learner keeps."""

    def __init__(self, learner: Scroll):
        self.parts, self._learner = {}, learner

    def add(self, features: np.ndarray, labels: np.ndarray) -> None:
        for label in np.unique(labels).tolist():
            at = labels == label
            part = self.parts.setdefault(label, self._learner.new_statistics(features.shape[1]))
            part.add(features[at], labels[at])

    def state_dict(self) -> dict:
        return {label: part.state_dict() for label, part in self.parts.items()}

    def load_state_dict(self, state: dict) -> None:
        self.parts = {}
        for label, arrays in state.items():
            size = arrays['sums'].shape[1] - 1
            self.parts[label] = self._learner.new_statistics(self._learner.dim_of(size))
            self.parts[label].load_state_dict(arrays)


def check_learned(learner: Scroll, args) -> None:
    """InputError at the end of a run that has seen no sample."""
    if not hasattr(learner, 'statistics_'):
        raise InputError('this run has seen no sample, so there is nothing to write' +
                         (f': --shard {args.shard} has none of the stream' if args.shard else ''))


def save(learner: Scroll, by_class: ClassStatistics, args, dataset=None) -> None:
    """Write the files that the flags ask for, each whole or not at all; InputError if one cannot be."""
    images = getattr(dataset, 'images', None)
    digest = _backbone(learner)
    if args.save_statistics and args.by_class:
        for label, part in by_class.parts.items():
            part.save(Path(args.save_statistics) / f'class-{label}.npz', digest)
    elif args.save_statistics:
        learner.statistics_.save(args.save_statistics, digest)
    if args.save_state:
        learner.save(args.save_state)
    if args.export:
        names = None if images is None else [images.class_names[y] for y in learner.classes_]
        export(learner, args.export, names)


def load(learner: Scroll, path, n_classes: int) -> None:
    """Give the learner what a file of statistics, or of statistics and buffer, holds. InputError: it is
    neither, or damaged, or of another backbone, or has classes that the data set lacks."""
    if archive.kind_of(path) == KIND:
        state = State.read(path)
    else:
        statistics, digest, *_ = Statistics.load_with_facts(path)
        state = State({}, digest, statistics,
                      ExemplarBuffer(learner.buffer_size, learner.strategy) if learner.buffer_size else None)
    if state.psi != _backbone(learner):
        theirs, ours = (digest[:16] or 'features of its own' for digest in (state.psi, _backbone(learner)))
        raise InputError(f'{path}: made with another backbone ({theirs}) than this run has ({ours}): '
                         'weights, input and --embedding_dtype must be equal, and in floating point kind of '
                         'machine and version of torch, too')
    classes = state.statistics.classes
    if not len(classes) or classes.dtype.kind != 'i' or classes[0] < 0 or classes[-1] >= n_classes:
        shown = ', '.join(map(str, classes[:3].tolist())) + ', ...' * (len(classes) > 3)
        raise InputError(f'{path}: its classes are {shown or "none"}: this data set has 0..{n_classes - 1}')
    if state.buffer is not None and len(state.buffer):
        samples = state.buffer.content().samples
        if learner.embedder is not None and (samples.ndim != 4 or samples.dtype != np.uint8):
            raise InputError(f'{path}: its buffer holds no images')
    learner.set_state(state)


def _backbone(learner: Scroll) -> str:
    return '' if learner.embedder is None else learner.embedder.digest
