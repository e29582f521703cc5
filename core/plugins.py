"""Find models, data sets and backbones by name without importing any but the chosen one.

Each `*.py` file of a plug-in folder is parsed, not imported, for what it offers:

- a class with a constant `NAME = 'some-name'` (any public class of the file);
- a class or function under a decorator `@register_<kind>('some-name')`.

So `--help` lists every name in milliseconds, and a file that cannot be imported (a missing optional
dependency) is an error only for the run that chose it. Names are compared lower-case with `_` read as `-`. A
user's file takes precedence over one of `SHIPPED` that declares the same name, and a line says so.
"""
import ast
import difflib
import importlib
import inspect
from collections.abc import Mapping
from pathlib import Path

from core.environment import warn_once
from core.mammoth import import_hint
from scroll.errors import InputError

ROOT = Path(__file__).resolve().parents[1]
SHIPPED = {         # package -> its files that declare names and come with this project; others are a user's
    'models': {'agem', 'bic', 'der', 'derpp', 'ens', 'er', 'er_ace', 'er_aml', 'ewc_on', 'gdumb', 'gem',
               'icarl', 'joint', 'lwf', 'mir', 'scroll', 'sgd', 'ssil'},
    'datasets': {'mnist_360', 'perm_mnist', 'rot_mnist', 'seq_cifar10', 'seq_cifar100', 'seq_digits',
                 'seq_features', 'seq_folder', 'seq_miniimg', 'seq_mnist', 'seq_tinyimg'},
    'backbone': {'MNISTMLP', 'efficientnet_lite', 'feature_layers', 'libraries', 'resnet12', 'resnet18',
                 'resnet50_byol', 'resnet_cifar'},
}


def normalise(name: str) -> str:
    """Canonical form of a plug-in name: `ER_ACE` -> `er-ace`."""
    return str(name).strip().lower().replace('_', '-')


def backbone_name(name: str, options=()) -> str:
    """Canonical name of a backbone with these options, also as files and rows of before call it.

    Mammoth's `resnet18` was `resnet18-cifar`, and `resnet18`, with a `width` or a `stem_padding`, was what is
    now `resnet18-md`.
    """
    name, given = normalise(name), set(options)
    if name == 'resnet18' and given & {'width', 'stem_padding'} and 'num_filters' not in given:
        return 'resnet18-md'
    return 'resnet18' if name == 'resnet18-cifar' else name


def nearest(name: str, known) -> str:
    """`': did you mean ...?'` for the known names closest to `name`, or
    the whole list where none is close."""
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=2, cutoff=0.5)
    return f"did you mean {' or '.join(close)}?" if close else f"known: {', '.join(known)}"


def names_of(package: str, **homes):
    """A module's `__getattr__`: names imported from their homes when asked for (`--help` needs no torch)."""
    def get(name: str):
        if name in homes:
            return getattr(importlib.import_module(homes[name]), name)
        raise AttributeError(f'module {package!r} has no attribute {name!r}')
    return get


class PluginFolder:
    """The plug-ins of one top-level package.

    Args:
        package: importable name and folder below the project root, for example `'models'`.
        kind: word for messages and for the decorator `register_<kind>`, for example `'model'`.
    """

    def __init__(self, package: str, kind: str):
        self.package, self.kind = package, kind
        self.registered = {}        # name -> object, filled by register() when a file is imported
        self._files = None

    def register(self, name: str):
        """Decorator: make a class or function available under `name`; a user's takes precedence over ours.

        Raises:
            ValueError: two files of the user's, or two of ours, take one name.
        """
        key = normalise(name)

        def add(obj):
            known, ours = self.registered.get(key), self._is_shipped(obj.__module__)
            if known is not None and known.__module__ != obj.__module__:
                if self._is_shipped(known.__module__) == ours:
                    both = f'{known.__module__} and {obj.__module__}'
                    raise ValueError(f'{self.kind} {key!r} is registered by both {both}')
                if ours:
                    return obj
            offers = self.files().get(key)
            if offers and self._is_shipped(offers[0][0]) and not ours:
                self._tell(key, obj.__module__, offers)
            self.registered[key] = obj
            if isinstance(obj, type) and 'NAME' not in obj.__dict__:
                obj.NAME = key
            return obj
        return add

    def _tell(self, name: str, first: str, others: list) -> None:
        warn_once(f'--{self.kind} {name} is that of {first}, which takes precedence over '
                  f'{" and ".join(map(_file, others))}')

    def _is_shipped(self, module: str) -> bool:
        package, _, stem = module.rpartition('.')
        return package == self.package and stem in SHIPPED.get(package, ())

    def files(self) -> dict:
        """name -> [(module name, attribute), ...] as read from the source files, the user's first."""
        if self._files is None:
            self._files = {}
            for path in sorted((ROOT / self.package).glob('[!_]*.py')):
                for name, attribute in _offers(path, f'register_{self.kind}'):
                    offers = self._files.setdefault(normalise(name), [])
                    if (offer := (f'{self.package}.{path.stem}', attribute)) not in offers:
                        offers.append(offer)
            for offers in self._files.values():
                offers.sort(key=lambda offer: self._is_shipped(offer[0]))
        return self._files

    def names(self) -> list:
        """All known names, sorted."""
        return sorted(set(self.files()) | set(self.registered))

    def mapping(self) -> Mapping:
        """name -> class or function, imported when asked for; the error where that fails."""
        return _Named(self)

    def check(self, name: str) -> None:
        """InputError, with the nearest known names, if nothing is called `name`. Imports nothing."""
        if normalise(name) not in self.names():
            raise InputError(f"--{self.kind} {name}: no such {self.kind}; "
                             f"{nearest(normalise(name), self.names())}")

    def get(self, name):
        """The class or function of a name, or of a run's arguments, which have the name.

        Raises:
            InputError: the name is unknown (with the nearest known), or its file cannot be imported.
        """
        name = getattr(name, self.kind, name)
        key = normalise(name)
        found, offers = self.registered.get(key), self.files().get(key, [])
        of_user = [offer for offer in offers if not self._is_shipped(offer[0])]
        if found is not None and not (of_user and self._is_shipped(found.__module__)):
            return found
        self.check(key)
        first, *others = of_user or offers
        if others:
            raise InputError(f'--{self.kind} {name}: declared in both {_file(first)} and {_file(others[-1])}:'
                             ' rename one of them')
        if len(offers) > 1:
            self._tell(key, _file(first), offers[1:])
        module, attribute = first
        try:
            return getattr(importlib.import_module(module), attribute)
        except InputError:
            raise
        except Exception as error:      # a file may do anything when it is imported
            raise InputError(f'--{self.kind} {name}: {_file(first)} cannot be imported: '
                             f'{type(error).__name__}: {error}{import_hint(error)}') from error


class _Named(Mapping):
    """See `PluginFolder.mapping`."""

    def __init__(self, folder: PluginFolder):
        self.folder = folder

    def __getitem__(self, name: str):
        if normalise(name) not in self.folder.names():
            raise KeyError(name)
        try:
            return self.folder.get(name)
        except InputError as error:
            return error

    def __iter__(self):
        return iter(self.folder.names())

    def __len__(self):
        return len(self.folder.names())


def _file(offer: tuple) -> str:
    return f"{offer[0].replace('.', '/')}.py"


def _offers(path: Path, decorator: str):
    """Yield (name, attribute) for each plug-in that a source file declares;
    nothing for a file that does not parse."""
    try:
        tree = ast.parse(path.read_text(encoding='utf-8'))
    except (SyntaxError, UnicodeDecodeError):
        yield path.stem, path.stem     # named after the file, so that choosing it shows what is wrong with it
        return
    for node in tree.body:
        if not isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            continue
        for call in node.decorator_list:
            if (isinstance(call, ast.Call) and call.args and isinstance(call.args[0], ast.Constant)
                    and ast.unparse(call.func).split('.')[-1] == decorator):
                yield call.args[0].value, node.name
        if isinstance(node, ast.ClassDef) and not node.name.startswith('_'):
            for statement in node.body:
                target = getattr(statement, 'targets', [getattr(statement, 'target', None)])[0]
                value = getattr(statement, 'value', None)
                if (isinstance(target, ast.Name) and target.id == 'NAME'
                        and isinstance(value, ast.Constant) and isinstance(value.value, str)):
                    yield value.value, node.name


def keyword_flags(build) -> dict:
    """name -> inspect.Parameter for the parameters of a class or function that become command-line flags.

    `self`, `args`, `num_classes`, `num_inputs`, `*args` and `**kwargs` are not flags.
    """
    parameters = inspect.signature(build).parameters
    return {name: p for name, p in parameters.items()
            if name not in ('self', 'args', 'num_classes', 'num_inputs')
            and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
