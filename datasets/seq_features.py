"""Feature vectors from files as a stream, of anything, from anywhere; five tasks.

    python main.py --model scroll --dataset seq-features --features train.parquet
        --test_features test.npz

Without a split and `--test_features`, a fifth of the samples tests.
"""

import inspect
import os

import numpy as np

from backbone import get_backbone_class
from core.arguments import share
from datasets.utils import readers
from datasets.utils.scheduled_dataset import ScheduledDataset
from scroll.files.arrays import columns_of
from scroll.files.features import open_files, read_blocks
from scroll.ground.errors import InputError
from scroll.ground.grid import GRID, quantise, sample_keys

_TEST_SHARE = 0.2


def unchanged(batch):
    return batch


unchanged.batched = True


class SequentialFeatures(ScheduledDataset):
    """X and y of npz and Parquet files (`scroll.files.features`).

    Features are put on SCROLL's grid, unit vectors in whole multiples of 2^-18, which float32 holds
    exactly; every method gets these. Classes are the sorted labels. Without a split and
    `--test_features`, a sample tests if the key of its id, or else of its features, is among the
    lowest `--test_share` of all possible keys, so that neither order nor other samples matter."""

    NAME = 'seq-features'
    N_CLASSES = 0  # known once the files are read
    SIZE = ()
    DEFAULT_SPLITS = 5
    DEFAULT_WEIGHTS = 'none'
    BACKBONE = 'linear'
    READ_FLAGS = ('features', 'test_features', 'feature_columns', 'test_share')
    REFUSED_FLAGS = dict.fromkeys(
        (
            'input_size',
            'embed_dtype',
            'embed_chunk',
            'channels_last',
            'feature_cache',
            'adapt_padding',
            'adapt_flip',
            'adapt_jitter',
            'cutmix_alpha',
            'cutmix_prob',
        ),
        'its samples are no images',
    )

    @staticmethod
    def get_parser(parser):
        parser = ScheduledDataset.get_parser(parser)
        flag = parser.add_argument_group(
            'seq-features', 'example: --features train.parquet --feature_columns y=label'
        ).add_argument
        flag(
            '--features',
            affects='content',
            nargs='+',
            metavar='FILE',
            help='npz, npy or Parquet files: X, y, and optionally id and split',
        )
        flag(
            '--test_features',
            affects='content',
            nargs='+',
            metavar='FILE',
            help='such files, all of whose samples test; those of --features then train, unless '
            'their split '
            'says test',
        )
        flag(
            '--feature_columns',
            metavar='X=NAME,y=NAME',
            help='other names of columns; where=COLUMN=VALUE',
        )
        flag(
            '--test_share',
            type=share,
            help=(
                f'of samples that test, without split and --test_features (default: {_TEST_SHARE})'
            ),
        )
        return parser

    @staticmethod
    def check_args(args):
        if not args.features:
            raise InputError(
                '--features is missing: seq-features needs npz, npy or Parquet files of X and y'
            )
        files = list(map(os.path.realpath, [*args.features, *(args.test_features or ())]))
        if len(set(files)) < len(files):
            raise InputError('--features, --test_features: a file is named twice')
        options = inspect.signature(get_backbone_class(args.backbone)).parameters
        if args.weights != 'none' or 'num_inputs' not in options:
            raise InputError(
                f'--weights {args.weights}, --backbone {args.backbone}: seq-features has no '
                'images, but vectors: leave --weights out, use linear or mlp'
            )

    @classmethod
    def read(cls, args):
        columns = args.feature_columns and columns_of(args.feature_columns)
        parts, names = _parts('features', args, columns)
        if args.test_features:
            parts += _parts('test_features', args, columns, names)[0]
        if len({(part.shape[1], labels.dtype.kind == 'i') for part, labels, _ in parts}) > 1:
            raise InputError(
                '--test_features: other number of features or kind of labels than --features'
            )
        units, labels, test = (np.concatenate(part) for part in zip(*parts))
        classes, labels = np.unique(labels, return_inverse=True)
        return readers.Images(
            units[~test],
            labels[~test],
            units[test],
            labels[test],
            list(map(str, classes)),
            feature_names=names,
            labels=classes.tolist(),
        )

    @classmethod
    def check(cls, images) -> None:
        readers.check_classes(cls.NAME, images)

    @property
    def num_inputs(self) -> int:
        return self.images.train.shape[1]

    def _make_preprocessing(self) -> None:
        return None

    def get_transform(self):
        return unchanged

    _test_transform = get_transform
    get_normalization_transform = get_denormalization_transform = _make_preprocessing


def _parts(flag: str, args, columns: dict, names: tuple | None = None) -> tuple:
    """([(features float32 (n, d), labels (n,), tests bool (n,)), ...], names of features).

    flag: of the files; all samples of `test_features` test.
    names: the wanted columns, in order."""
    test_share = args.test_share
    if test_share is None:
        test_share = 0 if args.test_features else _TEST_SHARE
    parts = []
    try:
        files = open_files(getattr(args, flag), columns, ('X', 'y'), names)
        if args.test_share is not None and (args.test_features or 'split' in files[0].has):
            raise InputError(
                f'{files[0].path}: --test_share has no effect with a split or --test_features: '
                'leave it out'
            )
        for file, block in read_blocks(files, 'all'):
            units = quantise(block.X, as_float32=True)
            if flag == 'test_features':
                test = np.ones(len(block.X), bool)
            elif block.split is not None:
                test = block.split == 'test'
            else:
                keys = _keys(block.id) if 'id' in file.has else sample_keys(units)
                test = keys / 2.0**64 < test_share
            parts.append((units.astype(np.float32) / np.float32(GRID), block.y, test))
        if not parts:
            raise InputError(f'{files[0].path}: no samples: where let none through')
    except InputError as error:
        raise InputError(f'--{flag} {error}') from error
    return parts, files[0].names


def _keys(names: np.ndarray) -> np.ndarray:
    """uint64 (n,): keys of the names as text."""
    texts = [np.frombuffer(f'{name} '.encode(), np.uint8) for name in names.tolist()]
    return np.array([sample_keys(text[None])[0] for text in texts], np.uint64)
