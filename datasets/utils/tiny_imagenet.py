"""TinyImageNet, in its official folder or in the parts that Mammoth uses."""
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
    wnids; or the parts that Mammoth uses, `processed/{x,y}_{train,val}_{01..20}.npy`: classes as their labels
    say, without names.
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
    files = {'train': [(path, y) for y, wnid in enumerate(wnids)
                       for path in sorted((official / 'train' / wnid / 'images').glob('*.JPEG'))],
             'val': _of_table(official / 'val', wnids)}
    parts = []
    for split, pairs in files.items():
        if not pairs:
            raise InputError(f'{official / split}: no images; unpack tiny-imagenet-200.zip again')
        parts += [read_images([path for path, _ in pairs], 64, official / split),
                  np.array([y for _, y in pairs], np.int64)]
    return Images(*parts, _class_names(official / 'words.txt', wnids), decoders())


def _of_table(home: Path, wnids: list) -> list:
    """(file, class) of each validation image, as `val_annotations.txt` says."""
    table, number = home / 'val_annotations.txt', {wnid: y for y, wnid in enumerate(wnids)}
    try:
        lines = [line.split('\t') for line in table.read_text(encoding='utf-8').splitlines()]
        return [(home / 'images' / Path(line[0]).name, number[line[1]]) for line in lines]
    except (OSError, ValueError, IndexError, KeyError) as error:
        raise InputError(f'{table}: expected lines of a file name and the wnid of a folder in train '
                         f'({error!r})') from error


def _class_names(path: Path, wnids: list) -> list:
    """The first word for each wnid; the wnid, where the file has none."""
    if not path.is_file():
        return wnids
    lines = (line.partition('\t') for line in path.read_text(encoding='utf-8', errors='replace').splitlines())
    words = {wnid: text.split(',')[0] for wnid, tab, text in lines if tab}
    return [words.get(wnid, wnid) for wnid in wnids]


def _of_shards(home: Path, split: str) -> tuple:
    """(uint8 images (N, 64, 64, 3), int64 labels (N,)) of parts that hold floats in [0, 1]."""
    images, labels = [], []
    for i in range(1, _SHARDS + 1):
        pixels, y = (_part(home / f'{kind}_{split}_{i:02d}.npy') for kind in 'xy')
        if pixels.shape != (len(y), 64, 64, 3) or pixels.dtype.kind != 'f' or y.ndim != 1:
            raise InputError(f'{home}: part {i} of {split} holds {pixels.dtype} {pixels.shape} and {len(y)} '
                             'labels: expected floats (N, 64, 64, 3) and N labels')
        images += [np.rint(np.clip(pixels[a:a + 500], 0, 1) * 255).astype(np.uint8)
                   for a in range(0, len(y), 500)]
        labels.append(np.asarray(y, np.int64))
    return np.concatenate(images), np.concatenate(labels)


def _part(path: Path) -> np.ndarray:
    try:
        return np.lib.format.open_memmap(path, 'r')     # unlike np.load, no archive, whatever is in the file
    except Exception as error:              # damaged headers raise almost anything
        raise InputError(f'{path}: cannot be read ({" ".join(str(error).split())[:200]}): all {_SHARDS} '
                         'parts belong there') from error
