"""Integer networks of weights outside the repository, made at first use from recorded scales.

`backbone/weights/<name>.scales.json` has the scale of each activation, recorded once (`pretrain.py
quantise`), and for each input size the digests of the network and of its features of built-in
images. All else follows from the weights, correctly rounded. A network made, in ten seconds, is
kept in the cache.
"""

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from scroll.embedding.embedder import state_digest
from scroll.embedding.images import Preprocessing
from scroll.embedding.integer_network import IntegerNetwork
from scroll.embedding.quantisation import quantise_with_scales, scales_of
from scroll.ground.archive import read_json, write_text
from scroll.ground.errors import InputError

FORMAT = 'scroll-scales-2'
RECORDED_AT = 96  # pixels; those of other sizes are within a factor of 1.6
INPUT_SIZES = 64, 96, 128, 160, 192  # and what the weights were trained at


def record(path: Path, net, preprocessing: Preprocessing, images: np.ndarray, about: dict) -> dict:
    """Write the scales of `net`'s activations on these images; return the content of the file.

    preprocessing: of the weights, with the size that they were trained at.
    images: uint8 (N, H, W, C), of the data that the weights were trained on.
    about: the origin of the images, as JSON has it."""
    scales = scales_of(net, replace(preprocessing, input_size=RECORDED_AT), images)
    networks = {}
    for size in sorted({*INPUT_SIZES, RECORDED_AT, preprocessing.input_size}):
        made = quantise_with_scales(net, replace(preprocessing, input_size=size), scales)
        networks[str(size)] = {'digest': made.digest(), 'golden': made.check()}
    content = {
        'format': FORMAT,
        'psi': state_digest(net),
        'scales': scales,
        'networks': networks,
        'about': about,
    }
    write_text(path, f'{json.dumps(content, indent=1)}\n')
    return content


def read(path: Path) -> dict:
    """Read what `record` wrote; InputError if it is something else."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        content = read_json(path)
        if content['format'] == FORMAT and content.keys() >= {'psi', 'scales', 'networks'}:
            return content
    raise InputError(f'{path} cannot be read, is damaged, or no file of recorded scales')


def sizes(path: Path) -> list:
    """Pixels of the images that a file of recorded scales has networks for."""
    return sorted(map(int, read(path)['networks']))


def check_source(psi: str, net, path: Path, name: str) -> None:
    """InputError unless an integer network, or scales, were made from the weights of `net`."""
    if psi != state_digest(net):
        raise InputError(
            f'--dtype integer: {path} was made from other weights than --weights '
            f'{name}: python pretrain.py quantise {name}'
        )


def network(path: Path, name: str, net, preprocessing: Preprocessing, cache=None) -> IntegerNetwork:
    """The integer network of the weights `name`, which `net` has, kept in the folder `cache`.

    InputError: the scales are of other weights, or not for images of this size, or give another
    network on this machine than where they were recorded."""
    recorded = read(path)
    size = preprocessing.input_size
    check_source(recorded['psi'], net, path, name)
    expected = recorded['networks'].get(str(size))
    if expected is None:
        raise InputError(
            f'--dtype integer: --weights {name} has integer networks for images of '
            f'{", ".join(map(str, sizes(path)))} pixels, and none for {size}: give --input_size '
            'one of these'
        )
    copy = cache and Path(cache) / f'{Path(name).stem}-{size}-{expected["digest"][:16]}.npz'
    if copy and copy.is_file():
        with suppress(InputError):  # it can be made again
            loaded, _ = IntegerNetwork.load(copy)
            if loaded.digest() == expected['digest']:
                loaded.golden = expected['golden']
                return loaded
    made = quantise_with_scales(net, preprocessing, recorded['scales'])
    if made.digest() != expected['digest']:
        raise InputError(
            f'--dtype integer: --weights {name} give another integer network here '
            f'than where {path} was recorded: another version of torch may help'
        )
    made.golden = expected['golden']
    if copy:
        made.save(copy, {'psi': recorded['psi']})
    return made
