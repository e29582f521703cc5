"""Find models, data sets and backbones by name without importing any but the chosen one.

Each `*.py` file of a plug-in folder is parsed, not imported, for what it offers:

- a class with a constant `NAME = 'some-name'` (any public class of the file);
- a class or function under a decorator `@register_<kind>('some-name')`.

So `--help` lists every name in milliseconds, and a file that cannot be imported (a missing optional
dependency) is an error only for the run that chose it. Names are compared lower-case with `_` read as `-`. A
user's file takes precedence over one of `SHIPPED` that declares the same name, and a line says so.
"""
import ast
import importlib
import inspect
from pathlib import Path

from core.environment import warn_once
from core.mammoth import import_hint
from scroll.errors import InputError, did_you_mean

ROOT = Path(__file__).resolve().parents[1]
SHIPPED = {         # package -> its files that declare names and come with this project; others are a user's
    'models': {'agem', 'bic', 'der', 'derpp', 'ens', 'er', 'er_ace', 'er_aml', 'ewc_on', 'gdumb', 'gem',
               'icarl', 'joint', 'lwf', 'mir', 'scroll', 'sgd', 'ssil'},
    'datasets': {'seq_cifar10', 'seq_cifar100', 'seq_digits', 'seq_features', 'seq_folder', 'seq_miniimg'},
    'backbone': {'efficientnet_lite', 'feature_layers', 'libraries', 'resnet12', 'resnet18',
                 'resnet50_byol', 'resnet_cifar'},
}


def normalise(name: str) -> str:
    """Canonical form of a plug-in name: `ER_ACE` -> `er-ace`."""
    return str(name).strip().lower().replace('_', '-')


def backbone_name(name: str, options=()) -> str:
    """Canonical name of a backbone with these options, also as files and rows of before call it: Mammoth's
    `resnet18` was `resnet18-cifar`, and one with a `width` or a `stem_padding` is now `resnet18-md`."""
    name, given = normalise(name), set(options)
    if name == 'resnet18' and given & {'width', 'stem_padding'} and 'num_filters' not in given:
        return 'resnet18-md'
    return 'resnet18' if name == 'resnet18-cifar' else name


def names_of(package: str, **homes):
    """A module's `__getattr__`: names imported from their homes when asked for (`--help` needs no torch)."""
    def get(name: str):
        if name in homes:
            return getattr(importlib.import_module(homes[name]), name)
        raise AttributeError(f'module {package!r} has no attribute {name!r}')
    return get


class PluginFolder:
    """The plug-ins of one top-level package: its name, and the kind, for messages and `register_<kind>`."""

    def __init__(self, package: str, kind: str):
        self.package, self.kind = package, kind
        self.registered = {}        # name -> object, filled by register() when a file is imported
        self._files = None

    def register(self, name: str):
        """Decorator: make a class or function available under `name`; a user's takes precedence over ours.
        ValueError: two files of the user's, or two of ours, take one name."""
        key = normalise(name)

        def add(obj):
            known, ours = self.registered.get(key, obj), self._is_shipped(obj.__module__)
            if known.__module__ != obj.__module__:
                if self._is_shipped(known.__module__) == ours:
                    raise ValueError(f'{self.kind} {key!r} is registered by both {known.__module__} and '
                                     f'{obj.__module__}')
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
            self._files, paths = {}, sorted((ROOT / self.package).glob('[!_]*.py'))
            for path in sorted(paths, key=lambda path: self._is_shipped(f'{self.package}.{path.stem}')):
                for name, attribute in dict(_offers(path, f'register_{self.kind}')).items():
                    offer = f'{self.package}.{path.stem}', attribute
                    self._files.setdefault(normalise(name), []).append(offer)
        return self._files

    def names(self) -> list:
        """All known names, sorted."""
        return sorted(set(self.files()) | set(self.registered))

    def check(self, name: str) -> None:
        """InputError, with the nearest known name, if nothing is called `name`. Imports nothing."""
        known = self.names()
        if normalise(name) not in known:
            hint = did_you_mean(normalise(name), known) or f'; known: {", ".join(known)}'
            raise InputError(f'--{self.kind} {name}: no such {self.kind}{hint}')

    def get(self, name):
        """The class or function of a name, or of a run's arguments, which have the name. InputError: the name
        is unknown, or its file cannot be imported."""
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
        try:
            return getattr(importlib.import_module(first[0]), first[1])
        except InputError:
            raise
        except Exception as error:      # a file may do anything when it is imported
            raise InputError(f'--{self.kind} {name}: {_file(first)} cannot be imported: '
                             f'{type(error).__name__}: {error}{import_hint(error)}') from error


def _file(offer: tuple) -> str:
    return f"{offer[0].replace('.', '/')}.py"


def _offers(path: Path, decorator: str):
    """Yield (name, attribute) for each plug-in that a source file declares."""
    try:
        tree = ast.parse(path.read_text(encoding='utf-8'))
    except (SyntaxError, UnicodeDecodeError):
        yield path.stem, path.stem     # named after the file, so that choosing it shows what is wrong with it
        return
    for node in tree.body:
        for call in getattr(node, 'decorator_list', ()):
            if (isinstance(call, ast.Call) and call.args and isinstance(call.args[0], ast.Constant)
                    and ast.unparse(call.func).split('.')[-1] == decorator):
                yield call.args[0].value, node.name
        if isinstance(node, ast.ClassDef) and not node.name.startswith('_'):
            for line in node.body:
                target = getattr(line, 'targets', [getattr(line, 'target', None)])[0]
                value = getattr(getattr(line, 'value', None), 'value', None)
                if isinstance(target, ast.Name) and target.id == 'NAME' and isinstance(value, str):
                    yield value, node.name


def keyword_flags(build) -> dict:
    """name -> inspect.Parameter, of the parameters of a class or function that become command-line flags."""
    return {name: p for name, p in inspect.signature(build).parameters.items()
            if name not in ('self', 'args', 'num_classes', 'num_inputs')
            and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
