"""Features of images, by any network, as a file for `python -m scroll` and `--dataset
seq-features`.

    python scripts/embed_with.py --embedder timm:resnet50.tv2_in1k --dataset seq-cifar100 -o
    cifar100.npz
    python scripts/embed_with.py --embedder transformers:FOLDER,device=cuda --data_dir photos -o
    photos.npz

The file: X float32 (N, d), as the network gives them; y, names of classes (N,);
split, train or test (N,); of a folder id, paths in it (N,); and `made_by`, JSON: network, SHA-256
of its tensors and of all that determines a feature, preprocessing, versions, data and their
SHA-256. Images of a folder, train/<class>/ and test/<class>/, come to the network's preprocessing
at their own sizes.
"""

import hashlib
import json
import sys
from importlib import metadata
from pathlib import Path

import numpy as np

from core.arguments import ArgumentParser
from datasets import get_dataset_class
from datasets.utils.image_files import class_folders, image_files
from scroll.embedding.named import embedder_of
from scroll.files.features import SPLITS
from scroll.files.images import decode, decoders
from scroll.ground.archive import atomic_write, check_target, write_errors
from scroll.ground.errors import InputError
from scroll.ground.grid import sample_keys
from scroll.ground.progress import Progress

_LIBRARIES = 'timm', 'transformers'


def samples_of(args) -> list:
    """(split, class, path in the folder, image) of all samples, in order; of a folder the image is
    a path, of a data set uint8 (H, W, C), and there is no path. InputError: there are no images."""
    if args.data_dir:
        home = Path(args.data_dir)
        found = [
            (split, name, str(path.relative_to(home)), path)
            for split in SPLITS
            for name in class_folders(home / split)
            for path in image_files(home / split / name)[0]
        ]
        if {split for split, *_ in found} != set(SPLITS):
            raise InputError(
                f'--data_dir {home}: expected images below train/<class>/ and test/<class>/'
            )
        return found
    kind = get_dataset_class(args.dataset)
    if 'base_path' not in getattr(kind, 'READ_FLAGS', ()):
        raise InputError(
            f'--dataset {args.dataset}: expected a data set of images that is found by its name'
        )
    data = kind.read(args)
    kind.check(data)
    parts = zip(SPLITS, (data.train, data.test), (data.train_labels, data.test_labels))
    return [
        (split, data.class_names[label], '', image)
        for split, images, labels in parts
        for image, label in zip(images, labels)
    ]


def embed(embedder, samples: list) -> tuple:
    """(features float32 (N, d), hex SHA-256 of splits, classes and pixels) of `samples_of`."""
    rows = []
    digest = hashlib.sha256()
    size = embedder.chunk
    with Progress('Embedding', len(samples)) as progress:
        for start in range(0, len(samples), size):
            part = samples[start : start + size]
            images = [np.asarray(decode(x)) if isinstance(x, Path) else x for *_, x in part]
            for (split, name, *_), x in zip(part, images):
                digest.update(f'{split} {name} {x.shape} {sample_keys(x[None])[0]:016x}\n'.encode())
            rows.append(
                embedder.features(
                    images if len({x.shape for x in images}) > 1 else np.stack(images)
                )
            )
            progress.update(len(part))
    return np.concatenate(rows), digest.hexdigest()


def main() -> None:
    parser = ArgumentParser(prog='embed_with.py', description=__doc__)
    flag = parser.add_argument
    flag('--embedder', required=True, help='{timm,transformers,MODULE}:NAME; options behind commas')
    flag('--dataset', help='seq-cifar10, seq-cifar100, seq-digits, seq-miniimg, or one of yours')
    flag('--data_dir', help='in its place: folder with train/<class>/ and test/<class>/')
    flag('--base_path', default='./data/', help='where the files of data sets are')
    flag('-o', '--out', required=True, help='file to write: .npz')
    args = parser.parse_args()
    if bool(args.dataset) == bool(args.data_dir) or not args.out.endswith('.npz'):
        raise InputError('expected --dataset or --data_dir, one of them, and -o NAME.npz')
    check_target(args.out, '-o')
    with Progress(f'Loading {args.embedder}'):
        # '' would be none
        embedder = embedder_of(args.embedder or ' ')
        samples = samples_of(args)
    X, digest = embed(embedder, samples)
    facts = {
        'embedder': args.embedder,
        'psi_digest': embedder.psi_digest,
        'embedding_digest': embedder.digest,
        'preprocessing': repr(embedder.preprocessing),
        'dtype': embedder.dtype,
        'chunk': embedder.chunk,
        'holds_on': embedder.valid_on,
        'data': args.dataset or Path(args.data_dir).resolve().name,
        'data_digest': digest,
        'decoded_by': decoders() if args.data_dir else '',
        'versions': {
            name: metadata.version(name)
            for name in ('torch', 'numpy', *_LIBRARIES)
            if name in sys.modules
        },
    }
    splits, names, ids = map(np.array, zip(*(sample[:3] for sample in samples)))
    columns = {'X': X, 'y': names, 'split': splits} | ({'id': ids} if args.data_dir else {})
    with write_errors(args.out), atomic_write(args.out) as file:
        np.savez(file, made_by=json.dumps(facts), **columns)
    counts = ', '.join(f'{(splits == split).sum()} to {split}' for split in SPLITS)
    print(f'{args.out}: {counts}, d = {X.shape[1]}')
