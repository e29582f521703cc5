"""Shared by methods on a frozen backbone: their flags, and features that are computed once."""

from pathlib import Path

import numpy as np
import torch

from backbone import weights
from core.arguments import binary_to_boolean_type, spellings, whole
from core.plugins import is_shipped
from models.utils.continual_model import ContinualModel
from scroll.embedding.embedder import DTYPES, Embedder
from scroll.embedding.images import Preprocessing
from scroll.embedding.side_by_side import SideBySide
from scroll.ground.errors import InputError
from scroll.ground.grid import GRID, quantise, sample_keys

AUTO = 'auto'


class FrozenModel(ContinualModel):
    """A method on a frozen backbone, which sees each sample once.

    Attributes:
        embedder: the backbone as the flags say.
        features_of: features for evaluation, an `EvaluationFeatures`."""

    RAW_STREAM = ONLINE = True
    TRANSIENT = ('embedder', 'features_of')

    def __init__(self, backbone, loss, args, transform, dataset=None):
        super().__init__(backbone, loss, args, transform, dataset)
        self.net.requires_grad_(False)
        self.embedder = make_embedder(self.net, args, dataset, self.device)
        self.features_of = EvaluationFeatures(self.embedder)

    @classmethod
    def get_parser(cls, parser):
        add_embedding_args(parser)
        return super().get_parser(parser)

    def get_parameters(self):
        return []  # the backbone is frozen

    def end_eval(self, dataset, accs):
        if self.current_task == (self.args.stop_after or self.n_tasks):
            self.embedder.flush()


def _stages(text: str) -> str:
    return ','.join(map(str, sorted({whole(1)(stage) for stage in text.split(',') if text})))


def _others(text: str) -> str:
    for part in text.split('@')[1:]:
        whole(1)(part.split(',')[0])
    return text


def add_embedding_args(parser) -> None:
    """How the backbone runs."""
    flag = parser.add_argument_group(
        'frozen backbone', 'example: --stages 2,3 --mirror 1'
    ).add_argument
    flag(
        *spellings('embed_dtype'),
        dest='embed_dtype',
        choices=(AUTO, *DTYPES),
        default=AUTO,
        help='arithmetic of the backbone; integer: the same features on every machine; auto: '
        'integer where the weights have an integer network for images of this size, else float32',
    )
    flag(
        '--embed_chunk',
        affects='bits',
        type=whole(1, 4096),
        default=64,
        help='images it sees at once; part of what a feature is',
    )
    flag(
        '--channels_last',
        affects='bits',
        type=binary_to_boolean_type,
        default=True,
        help='its memory layout; contiguous where a convolution has fewer than 8 channels',
    )
    flag(
        '--stages',
        type=_stages,
        default='',
        metavar='S[,S]',
        help='add the features of these stages, numbered from 1; each part has unit length',
    )
    flag(
        '--mirror',
        type=binary_to_boolean_type,
        default=False,
        help='add the features of the mirror image to those of the image',
    )
    flag(
        '--more_weights',
        type=_others,
        default='',
        metavar='WEIGHTS[@SIZE]',
        help='weights of more networks (A,B@96), with the size of their images, whose features are '
        'laid next to those of --weights; there is no f* of several networks',
    )
    flag(
        '--feature_cache',
        affects='speed',
        type=binary_to_boolean_type,
        default=True,
        help='keep features below <base_path>/cache',
    )


def decide_dtype(args) -> None:
    """Decide `--dtype auto`: integers, unless `-O` asks for faster products."""
    if args.embed_dtype == AUTO:
        fits = weights.has_integers(args.weights, getattr(args, 'input_size', None))
        args.embed_dtype = 'integer' if fits and not args.code_optimization else 'float32'


class GivenFeatures:
    """Stand-in for an `Embedder`, for a data set of feature vectors, already on the grid."""

    digest = ''
    dtype = 'integer'
    valid_on = 'every machine'

    def __init__(self, dim: int):
        self.dim = dim

    def flush(self) -> None:
        """There is no cache."""

    def __call__(self, samples, progress=None) -> tuple:
        """(int32 (N, d), keys uint64 (N,)) of quantised or unit features on the grid."""
        units = as_images(torch.as_tensor(samples))
        if progress:
            progress(len(units))
        return units, sample_keys(units)


def make_embedder(net, args, dataset, device):
    """Build the `Embedder` that the flags ask for; `GivenFeatures` where samples are features."""
    if hasattr(dataset, 'num_inputs'):
        if args.stages or args.mirror or args.more_weights:
            raise InputError(
                f'--stages, --mirror, --more_weights: samples of {args.dataset} are features '
                'already'
            )
        return GivenFeatures(dataset.num_inputs)
    preprocessing = getattr(dataset, 'preprocessing', None) or _preprocessing(dataset, args)
    embedder = _embedder(args.weights, net, preprocessing, args, device)
    others = []
    for part in filter(None, args.more_weights.split(',')):
        name, _, size = part.partition('@')
        network = weights.network(name, int(size) if size else None)
        others.append(_embedder(name, *network, args, device))
    return SideBySide(embedder, *others) if others else embedder


def _embedder(name, net, preprocessing, args, device) -> Embedder:
    cache = Path(args.base_path) / 'cache' if args.feature_cache else None
    integers = None
    if args.embed_dtype == 'integer':
        folder = cache and cache / 'integers'
        integers = weights.integers_of(name, net, preprocessing, folder)
    return Embedder(
        net,
        preprocessing,
        args.embed_dtype,
        device,
        args.embed_chunk,
        args.channels_last and is_shipped(type(net)),  # others may view maps as vectors
        cache and cache / 'features',
        integers,
        [int(stage) for stage in args.stages.split(',') if stage],
        bool(args.mirror),
    )


def _preprocessing(dataset, args) -> Preprocessing:
    """Preprocessing of a third-party data set: of the weights, else by its SIZE, MEAN and STD."""
    if args.weights not in (None, 'none'):
        return weights.load(args.weights, tensors=False).preprocessing()
    if getattr(dataset, 'SIZE', None) is None:
        raise InputError(
            f'--model {args.model} needs to know how large images are: give the class of '
            f'{args.dataset} a SIZE, or use --weights'
        )
    levels = [tuple(getattr(dataset, name, ())) for name in ('MEAN', 'STD')]
    if {*map(len, levels)} != {3}:
        levels = []
    return Preprocessing(int(np.max(dataset.SIZE)), *levels)


class EvaluationFeatures:
    """Features for evaluation; those of test images, whose memory stays the same, are kept."""

    def __init__(self, embedder: Embedder):
        self.embedder = embedder
        self._features = {}

    def __call__(self, x: torch.Tensor) -> np.ndarray:
        """Quantised features int32 (B, d).

        x: uint8 images (B, H, W, C), network inputs (B, 3, S, S) or features on the grid (B, d)."""
        if x.is_floating_point() and x.dim() > 2:
            return quantise(self.embedder.features(x))
        if x._base is None:  # a batch of its own, not a test set's
            return self.embedder(x)[0]
        key = x.data_ptr(), len(x)
        if key not in self._features:
            self._features[key] = x, self.embedder(x)[0]  # x is kept, so its memory stays its own
        return self._features[key][1]


def as_images(batch: torch.Tensor) -> np.ndarray:
    """Convert a batch to uint8 images (B, H, W, C), or int32 features (B, d) in units of the grid.

    batch: such images, Mammoth's float (B, C, H, W) in [0, 1], or unit features on the grid."""
    if batch.is_floating_point() and batch.dim() == 2:
        return np.rint(batch.cpu().numpy() * GRID).astype(np.int32)
    if batch.is_floating_point():
        batch = (batch * 255).round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1)
    return np.ascontiguousarray(batch.cpu().numpy())
