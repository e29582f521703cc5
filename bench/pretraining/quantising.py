"""`pretrain.py quantise`: the integer network of weights, made once and kept in a file next to
them.

Of weights that come with a package only the scales are kept (`backbone.recorded_scales`).
"""

import argparse

import numpy as np
import torch

from backbone import recorded_scales, weight_files, weights
from bench.pretraining.training import centroid_accuracy, divide
from core.arguments import ArgumentParser, whole
from datasets.utils.readers import mini_split
from scroll.embedding.embedder import state_digest
from scroll.embedding.quantisation import quantise_network


def parse_args(words) -> argparse.Namespace:
    """The words behind `pretrain.py quantise`."""
    parser = ArgumentParser(prog='pretrain.py quantise', description=__doc__)
    parser.add_argument('weights', help='name of shipped weights, or a file')
    parser.add_argument('--base_path', default='./data/', help='folder that holds MINIIMAGENET')
    parser.add_argument(
        '--images', type=whole(1), default=256, help='training images that scales are taken from'
    )
    return parser.parse_args(words)


def quantise(args) -> str:
    """Write the integer network of `args.weights`, with scales from images of the classes that it
    was trained on; returns a line on its size and accuracy."""
    path = weights.integer_file(args.weights)
    found = weights.load(args.weights, tensors=False)
    net, preprocessing = weights.network(args.weights)
    data = divide(*mini_split(args.base_path, 'train'), found.info.get('left_out', {}))
    chosen = np.random.default_rng(0).choice(
        len(data.images), min(args.images, len(data.images)), replace=False
    )
    images = data.images[torch.from_numpy(np.sort(chosen))].numpy()
    about = {'weights': found.digest, 'images': len(chosen), 'seed': 0, 'data': data.digest}
    if args.weights in weight_files.PACKAGED:
        recorded = recorded_scales.record(path, net, preprocessing, images, about)
        networks = [
            f'{size} px {facts["digest"][:16]}' for size, facts in recorded['networks'].items()
        ]
        return f'{path}: {len(recorded["scales"])} scales; networks for {", ".join(networks)}'
    network = quantise_network(net, preprocessing, images)
    network.golden = network.check()
    network.save(path, about | {'psi': state_digest(net)})
    before, after = (
        centroid_accuracy(*pair, data.probe, data.tested)
        for pair in ((net, preprocessing), (network, network.prepare))
    )
    what = 'unseen' if data.unseen else 'seen'
    return (
        f'{path}: {path.stat().st_size / 1e6:.1f} MB, digest {network.digest()[:16]}, '
        'nearest centroid '
        f'on {what} classes {before:.2f} % in floating point, {after:.2f} % in integers'
    )
