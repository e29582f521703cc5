"""SCROLL, schedule-robust online continual learning, as a library: `from scroll import Scroll`.

It needs torch, numpy and scipy, and nothing else of this project.
"""
_HOME = {'Scroll': 'learner', 'Adaptation': 'adaptation', 'Embedder': 'embedding.embedder', 'Statistics': 'statistics',
         'Preprocessing': 'embedding.images', 'Augmentation': 'embedding.images',
         'Schedule': 'schedules', 'make_schedule': 'schedules',
         'InputError': 'errors'}
__all__ = sorted(_HOME)


def __getattr__(name):
    """Import a public name when it is first used, so that `import scroll` stays cheap."""
    if name not in _HOME:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    import importlib
    return getattr(importlib.import_module(f'{__name__}.{_HOME[name]}'), name)
