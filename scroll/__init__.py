"""SCROLL, schedule-robust online continual learning, as a library: `from scroll import Scroll`.

Learning from feature vectors, files, merging and unlearning need numpy and scipy; images and
adaptation need torch, too (`pip install ".[images]"`). Wang, Ciccone, Luise, Yapp, Pontil,
Ciliberto, "Schedule-Robust Online Continual Learning", arXiv 2210.05561.
"""

import importlib
import os

if os.name != 'posix':
    raise ImportError('scroll runs on Linux, macOS and other POSIX systems; on Windows use WSL')

_HOME = {
    'Scroll': 'learners.learner',
    'ScrollClassifier': 'learners.estimators',
    'ScrollRegressor': 'learners.regression',
    'Adaptation': 'adaptation.settings',
    'Embedder': 'embedding.embedder',
    'SideBySide': 'embedding.side_by_side',
    'Statistics': 'sums.statistics',
    'mask_statistics': 'sums.masking',
    'sum_masked': 'sums.masking',
    'Preprocessing': 'embedding.images',
    'Augmentation': 'embedding.images',
    'Schedule': 'streams.schedules',
    'make_schedule': 'streams.schedules',
    'InputError': 'ground.errors',
}
__all__ = sorted(_HOME)
__version__ = '0.4.0'


def __getattr__(name):
    """Import a public name when it is first used, so that `import scroll` stays cheap."""
    if name not in _HOME:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    try:
        return getattr(importlib.import_module(f'{__name__}.{_HOME[name]}'), name)
    except ModuleNotFoundError as error:
        if error.name != 'torch':
            raise
        from scroll.ground.arguments import not_installed

        raise ImportError(str(not_installed(f'{__name__}.{name}', 'torch', 'images'))) from None
