"""TinyImageNet, from its official folder or from the parts that Mammoth uses."""
from pathlib import Path

import numpy as np

from datasets.utils.image_files import read_images
from datasets.utils.readers import Images
from scroll.errors import InputError
from scroll.files.images import decoders

_SHARDS, _CLASSES = 20, 200


def tiny_imagenet(base_path) -> Images:
    """TinyImageNet: 200 classes, 500 training and 50 test images each, 64x64, from `<base_path>/TINYIMG`.

    Either the official folder, `tiny-imagenet-200` with `train` and `val`: classes in the order of their
    wnids; or Mammoth's parts, `processed/{x,y}_{train,val}_{01..20}.npy`: classes without names.
    """
    home = Path(base_path) / 'TINYIMG'
    if (home / 'processed').is_dir():
        parts = [array for split in ('train', 'val') for array in _of_shards(home / 'processed', split)]
        return Images(*parts, [f'class {y}' for y in range(_CLASSES)])
    official = next((p for p in (home / 'tiny-imagenet-200', home) if (p / 'train').is_dir()), None)
    if official is None:
        raise InputError(f'TinyImageNet is missing: unpack tiny-imagenet-200.zip into {home}, or put the '
                         'folder processed with its parts x_train_01.npy ... y_val_20.npy there')
    wnids = sorted(p.name for p in (official / 'train').iterdir() if p.is_dir())
    train = [(path, y) for y, wnid in enumerate(wnids)
             for path in sorted((official / 'train' / wnid / 'images').glob('*.JPEG'))]
    parts = []
    for split, pairs in (('train', train), ('val', _validation_files(official / 'val', wnids))):
        if not pairs:
            raise InputError(f'{official / split}: no images; unpack tiny-imagenet-200.zip again')
        files, labels = zip(*pairs)
        parts += [read_images(files, 64, official / split), np.array(labels, np.int64)]
    return Images(*parts, _class_names(official / 'words.txt', wnids), decoders())


def _validation_files(home: Path, wnids: list) -> list:
    """(file, class) of each validation image, from `val_annotations.txt`."""
    table = home / 'val_annotations.txt'
    try:
        lines = [line.split('\t') for line in table.read_text(encoding='utf-8').splitlines()]
        return [(home / 'images' / Path(line[0]).name, wnids.index(line[1])) for line in lines]
    except (OSError, ValueError, IndexError) as error:
        raise InputError(f'{table}: expected lines of a file name and the wnid of a folder in train '
                         f'({error!r})') from error


def _class_names(path: Path, wnids: list) -> list:
    """The first word of each wnid; the wnid, where the file has none."""
    text = path.read_text(encoding='utf-8', errors='replace') if path.is_file() else ''
    words = dict(line.split('\t', 1) for line in text.splitlines() if '\t' in line)
    return [words.get(wnid, wnid).split(',')[0] for wnid in wnids]


def _of_shards(home: Path, split: str) -> tuple:
    """(uint8 images (N, 64, 64, 3), int64 labels (N,)) of parts that hold floats in [0, 1]."""
    images, labels = [], []
    for i in range(1, _SHARDS + 1):
        pixels, y = (_part(home / f'{kind}_{split}_{i:02d}.npy') for kind in 'xy')
        if pixels.shape != (len(y), 64, 64, 3) or pixels.dtype.kind != 'f' or y.ndim != 1:
            raise InputError(f'{home}: part {i} of {split} holds {pixels.dtype} {pixels.shape} and {len(y)} '
                             'labels: expected floats (N, 64, 64, 3) and N labels')
        images += [np.rint(np.clip(block, 0, 1) * 255).astype(np.uint8)
                   for block in np.array_split(pixels, max(1, len(y) // 500))]      # a few at once in float
        labels.append(np.asarray(y, np.int64))
    return np.concatenate(images), np.concatenate(labels)


def _part(path: Path) -> np.ndarray:
    try:
        return np.lib.format.open_memmap(path, 'r')     # reads no pickle and no archive, unlike np.load
    except Exception as error:              # damaged headers raise almost anything
        raise InputError(f'{path}: cannot be read ({" ".join(str(error).split())[:200]}): all {_SHARDS} '
                         'parts belong there') from error
