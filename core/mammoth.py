"""The user's own Mammoth checkout next to this project: `--mammoth PATH`, or the variable
MAMMOTH_PATH.

Its models, data sets, backbones and configurations are found by name (`core.plugins`,
`core.configs`), and modules that this project does not have, and names that a module of ours lacks,
are imported from it. What this project has takes precedence; the checkout's module of that name is
`mammoth_checkout.<name>`; but the checkout's methods have the checkout's buffer. Nothing of it is
imported before it is asked for; of the `__init__` files of folders that are here, too, only that of
`utils` may run.
"""

import ast
import importlib
import importlib.util
import os
import sys
from contextlib import contextmanager, suppress
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path

from scroll.ground.errors import InputError

PACKAGES = ('backbone', 'datasets', 'models', 'utils')
ROOT = Path(__file__).resolve().parents[1]
# modules of the checkout that this project has, too, are below this name
THEIRS = 'mammoth_checkout'


class Ours:
    """Finds our own modules, before others do: what they lack comes from the checkout."""

    def find_spec(self, name: str, path=None, target=None):
        spec = PathFinder.find_spec(name, path) if _may_be_completed(name) else None
        if spec is None or spec.origin is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_complete(module):
            execute(module)
            complete(module)

        spec.loader.exec_module = execute_and_complete
        return spec


def _may_be_completed(name: str) -> bool:
    return name == 'utils' or ('.' in name and name.partition('.')[0] in PACKAGES)


class Checkout:
    """Finds modules below our packages, as the last of `sys.meta_path`: for what we lack."""

    def __init__(self, root: Path):
        self.root = root

    def find_spec(self, name: str, path=None, target=None):
        parts = name.split('.')
        below = parts[1:] if parts[0] == THEIRS else parts
        place = self.root.joinpath(*below)
        if (file := place.with_suffix('.py')).is_file():
            loader = _MethodLoader(name, str(file)) if below[0] == 'models' else None
            return importlib.util.spec_from_file_location(name, file, loader=loader)
        if not place.is_dir():
            return None
        init = place / '__init__.py'
        if init.is_file() and not ROOT.joinpath(*below).is_dir():
            # no search locations: this finder is asked for all below it
            return importlib.util.spec_from_file_location(name, init, submodule_search_locations=[])
        return ModuleSpec(name, None, is_package=True)


class _MethodLoader(SourceFileLoader):
    """Imports a method of the checkout with its own buffer and the checkout's other methods.

    Source is rewritten because one process has one module `utils.buffer`, or `models.er`, which is
    ours: other methods of the same run, and of the user, rely on it, while methods of Mammoth pass
    the buffer arguments that only theirs knows, and derive from theirs. Keeps no bytecode, which
    Mammoth itself would run."""

    def get_code(self, fullname: str):
        tree = ast.parse(self.get_data(self.path), self.path)
        package = fullname.removeprefix(f'{THEIRS}.').rpartition('.')[0]
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                name = importlib.util.resolve_name('.' * node.level + node.module, package)
                is_theirs = name.count('.') == 1 and name.startswith(('models.', 'utils.buffer'))
                if is_theirs and _has(ROOT, name) and _has(checkout(), name):
                    name = f'{THEIRS}.{name}'
                node.module = name
                node.level = 0
        return compile(tree, self.path, 'exec')


def use_checkout(path=None) -> None:
    """Take what we lack from the checkout at `path`, or else at MAMMOTH_PATH; without both nothing
    changes. InputError: there is no Mammoth."""
    source = '--mammoth' if path else 'MAMMOTH_PATH'
    path = path or os.environ.get('MAMMOTH_PATH')
    if not path:
        return
    root = Path(os.path.expanduser(path)).resolve()
    if not (root / 'models').is_dir():  # forks rename other folders
        raise InputError(
            f'{source} {path}: expected a Mammoth checkout, a folder with models and utils'
        )
    if root != checkout():
        sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, Checkout)]
        for name in [name for name in sys.modules if name.partition('.')[0] == THEIRS]:
            del sys.modules[name]
        sys.meta_path.append(Checkout(root))
        if not any(isinstance(finder, Ours) for finder in sys.meta_path):
            sys.meta_path.insert(0, Ours())
            for name, module in list(sys.modules.items()):
                if _may_be_completed(name):
                    complete(module)


def checkout():
    """The folder of the checkout, or None."""
    return next((finder.root for finder in sys.meta_path if isinstance(finder, Checkout)), None)


@contextmanager
def in_checkout():
    """Let paths be relative to the checkout, as files of before 2022 read its folders."""
    before = Path.cwd()
    os.chdir(checkout())
    try:
        yield
    finally:
        os.chdir(before)


def their_module(name: str):
    """The checkout's module of this name, imported; None if it has none."""
    return importlib.import_module(f'{THEIRS}.{name}') if _has(checkout(), name) else None


def _has(root, name: str) -> bool:
    """Return whether a folder, if any, has the file of a module."""
    return root and root.joinpath(*name.split('.')).with_suffix('.py').is_file()


def complete(module) -> None:
    """Let a module of ours give what it lacks from the checkout's module of that name, also to
    `from ... import *` where it does not say what that is."""
    name = module.__name__
    before = getattr(module, '__getattr__', None)
    place = name if '.' in name else f'{name}.__init__'

    def get(attribute: str):
        own = ()
        if before is not None:
            with suppress(AttributeError):
                own = before(attribute)
                if attribute != '__all__':
                    return own
        root = checkout()
        theirs = None
        if root and (attribute == '__all__' or not attribute.startswith('__')):
            is_module = (root / name / f'{attribute}.py').is_file()  # for Python to import
            theirs = None if is_module else their_module(place)
        if attribute == '__all__' and (own or theirs):
            names = {*own, *vars(module), *vars(theirs or module)}
            return sorted(name for name in names if not name.startswith('_'))
        if hasattr(theirs, attribute):
            return getattr(theirs, attribute)
        raise AttributeError(f'module {name!r} has no attribute {attribute!r}')

    module.__getattr__ = get


def import_hint(error: Exception) -> str:
    """Say what to do about an import that failed because it needs a Mammoth checkout; '' for other
    errors.
    """
    package = str(getattr(error, 'name', None)).partition('.')[0]
    if not isinstance(error, ImportError) or package not in PACKAGES:
        return ''
    if root := checkout():
        return f'; {root} does not have it either, but for __init__ files, which do not run here'
    return '; if it is part of Mammoth, --mammoth PATH takes it from your checkout'
