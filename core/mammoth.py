"""Helper modules from the user's own Mammoth checkout: `--mammoth PATH`, or the variable MAMMOTH_PATH.

A file written for Mammoth may import `utils.ring_buffer`, say, which this project does not have: it is then
taken from the checkout. What this project has takes precedence. Nothing of the checkout is imported before a
file asks for it, and the `__init__` files of its folders never run.
"""
import importlib.util
import os
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

from scroll.errors import InputError

PACKAGES = ('backbone', 'datasets', 'models', 'utils')


class Checkout:
    """Finds modules below our packages, as the last of `sys.meta_path`: for what we lack."""

    def __init__(self, root: Path):
        self.root, self.loaded = root, {}

    def find_spec(self, name: str, path=None, target=None):
        if '.' not in name or name.partition('.')[0] not in PACKAGES:
            return None
        place = self.root.joinpath(*name.split('.'))
        if place.with_suffix('.py').is_file():
            return importlib.util.spec_from_file_location(name, place.with_suffix('.py'))
        if place.is_dir():          # a namespace without folders of its own: all below it is asked for here
            return ModuleSpec(name, None, is_package=True)
        return None

    def load_theirs(self, name: str):
        """The checkout's module of a name that we have, too; None if it has none."""
        if name not in self.loaded and (spec := self.find_spec(name)):
            self.loaded[name] = importlib.util.module_from_spec(spec)
            try:
                spec.loader.exec_module(self.loaded[name])
            except BaseException:
                del self.loaded[name]
                raise
        return self.loaded.get(name)


def use_checkout(path=None) -> None:
    """Take what we lack from the checkout at `path`, or else at MAMMOTH_PATH; without both nothing changes.
    InputError: there is no Mammoth."""
    source, path = ('--mammoth', path) if path else ('MAMMOTH_PATH', os.environ.get('MAMMOTH_PATH'))
    if not path:
        return
    root = Path(path).expanduser().resolve()
    if not all((root / package).is_dir() for package in PACKAGES):
        raise InputError(f'{source} {path}: expected the folder of a Mammoth checkout, with '
                         f'{", ".join(PACKAGES)} in it')
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, Checkout)]
    sys.meta_path.append(Checkout(root))


def _checkout():
    return next((finder for finder in sys.meta_path if isinstance(finder, Checkout)), None)


def names_from_checkout(module: str):
    """The `__getattr__` of a module of ours: what it lacks comes from the checkout's module of that name."""
    def get(name: str):
        found = None if name.startswith('__') else _checkout()
        theirs = found and found.load_theirs(module)
        if hasattr(theirs, name):
            return getattr(theirs, name)
        raise AttributeError(f'module {module!r} has no attribute {name!r}')
    return get


def import_hint(error: Exception) -> str:
    """What to do about an import that failed because it needs a Mammoth checkout; '' for other errors."""
    package = str(getattr(error, 'name', None)).partition('.')[0]
    if not isinstance(error, ImportError) or package not in PACKAGES:
        return ''
    if found := _checkout():
        return f'; {found.root} does not have it either'
    return '; if it is part of Mammoth, --mammoth PATH takes it from your checkout'
