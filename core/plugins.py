"""Find models, data sets and backbones by name without importing any but the chosen one.

Each `*.py` file of a plug-in folder is parsed, not imported, for what it offers:

- a class with a constant `NAME = 'some-name'` (any public class of the file);
- a class or function under a decorator `@register_<kind>('some-name')`.

A file that cannot be imported (a missing optional dependency) is an error only for the run that
chose it. Names are compared lower-case with `_` read as `-`. A user's file takes precedence over
one of `SHIPPED`, and ours over one of the user's Mammoth checkout (`core.mammoth`);
`mammoth:<name>` is the checkout's.
"""

import ast
import functools
import importlib
import inspect
import json
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

from core.environment import warn_once
from core.mammoth import ROOT, THEIRS, checkout, import_hint, in_checkout
from scroll.ground.errors import InputError, did_you_mean

# package -> its files that declare names and come with this project; others are a user's
SHIPPED = json.loads(Path(__file__).with_name('shipped.json').read_text())
MAMMOTH = 'mammoth:'  # before a name: that of the checkout


def normalise(name: str) -> str:
    """Canonical form of a plug-in name: `ER_ACE` -> `er-ace`."""
    return str(name).strip().lower().replace('_', '-')


def is_shipped(kind: type) -> bool:
    """Return whether a class is of a plug-in file of this project."""
    package, _, stem = kind.__module__.rpartition('.')
    return stem in SHIPPED.get(package, ())


def names_of(package: str, **homes):
    """A module's `__getattr__`: names imported from their homes when asked for (`--help` needs no
    torch).
    """

    def get(name: str):
        if name in homes:
            return getattr(importlib.import_module(homes[name]), name)
        if name == '__all__':  # `from ... import *` gives these, too
            return [*homes, *(name for name in vars(sys.modules[package]) if name[0] != '_')]
        raise AttributeError(f'module {package!r} has no attribute {name!r}')

    return get


class Offer(NamedTuple):
    """A class or function that a source file declares as a plug-in.

    rank: whose it is: 0 the user's, 1 ours, 2 the checkout's."""

    rank: int
    module: str
    attribute: str
    file: str


class PluginFolder:
    """The plug-ins of one top-level package: its name, and the kind, for messages and
    `register_<kind>`.
    """

    def __init__(self, package: str, kind: str):
        self.package = package
        self.kind = kind
        self.registered = {}  # name -> object, filled by register() when a file is imported
        self._own = None
        self._read = functools.cache(self._read)

    def register(self, name: str):
        """Decorator: make a class or function available under `name`; a user's takes precedence
        over ours, and ours over the checkout's."""
        key = normalise(name)

        def add(obj):
            previous = self.registered.get(key)
            if previous is None or self._rank(obj) <= self._rank(previous):
                self.registered[key] = obj
                if isinstance(obj, type) and 'NAME' not in obj.__dict__:
                    obj.NAME = key
            return obj

        return add

    def _rank(self, obj) -> int:
        """Whose a registered class or function is, as `Offer.rank`."""
        if is_shipped(obj):
            return 1
        theirs = {offer.module for offers in self._read(checkout()).values() for offer in offers}
        return 2 if obj.__module__ in theirs else 0

    def files(self) -> dict[str, list[Offer]]:
        """name -> offers of the source files: the user's, ours, those of the checkout."""
        if self._own is None:
            self._own = self._read(ROOT)
        theirs = self._read(checkout())
        # of the checkout's with one name the last file counts, as in Mammoth
        return {
            name: sorted(self._own.get(name, [])) + theirs.get(name, [])[::-1]
            for name in self._own | theirs
        }

    def _read(self, root: Path | None) -> dict[str, list[Offer]]:
        """name -> offers of the files of a project, read once; None: of none."""
        offers = {}
        paths = (root / self.package).glob('[!_]*.py') if root else ()
        for path in sorted(filter(Path.is_file, paths)):
            module = f'{self.package}.{path.stem}'
            rank = int(path.stem in SHIPPED.get(self.package, ()))
            file = f'{self.package}/{path.name}'
            if root != ROOT:
                rank = 2
                module = f'{THEIRS}.{module}' if (ROOT / file).is_file() else module
                file = str(path)
            for name, attribute in _offers(path, f'register_{self.kind}'):
                offer = Offer(rank, module, attribute, file)
                if offer not in offers.setdefault(normalise(name), []):
                    offers[normalise(name)].append(offer)
        return offers

    def offers(self, name: str) -> list[Offer]:
        """The files that declare a name, the strongest first; of `mammoth:<name>` those of the
        checkout.
        """
        key = normalise(name)
        offers = self.files().get(key.removeprefix(MAMMOTH), [])
        return [offer for offer in offers if offer.rank == 2 or not key.startswith(MAMMOTH)]

    def is_theirs(self, name: str) -> bool:
        """Return whether what a name stands for is the checkout's."""
        return any(offer.rank == 2 for offer in self.offers(name)[:1])

    def names(self) -> list:
        """All known names, sorted."""
        return sorted({*self.files(), *self.registered})

    def check(self, name: str) -> None:
        """InputError, with the nearest known name, if nothing is called `name`. Imports nothing."""
        if normalise(name) in self.registered or self.offers(name):
            return
        names = self.names()
        hint = did_you_mean(normalise(name), names) or f'; known: {", ".join(names)}'
        if checkout() is None:
            hint += ' (or one of a Mammoth checkout: --mammoth PATH)'
        raise InputError(f'--{self.kind} {name}: no such {self.kind}{hint}')

    def get(self, name):
        """The class or function of a name, or of a run's arguments, which have the name.
        InputError: the name is unknown, or its file cannot be imported."""
        name = getattr(name, self.kind, name)
        key = normalise(name)
        obj = self.registered.get(key)
        offers = self.offers(name)
        if obj is not None and (not offers or self._rank(obj) <= offers[0].rank):
            return obj
        self.check(key)
        first, *others = offers
        if others and others[0].rank == first.rank < 2:
            raise InputError(
                f'--{self.kind} {name}: declared in both {first.file} and {others[0].file}:'
                ' rename one of them'
            )
        if others:
            hint = f'; {MAMMOTH}{key} is theirs' if others[-1].rank > first.rank else ''
            warn_once(
                f'--{self.kind} {key} is that of {first.file}, which takes precedence over '
                f'{" and ".join(other.file for other in others)}{hint}'
            )
        try:
            with in_checkout() if first.rank == 2 else nullcontext():
                return getattr(importlib.import_module(first.module), first.attribute)
        except InputError:
            raise
        except (Exception, SystemExit) as error:  # a file may do anything when it is imported
            if isinstance(error, ModuleNotFoundError) and first.rank == 1:
                raise  # ours needs what requirements.txt has
            raise InputError(
                f'--{self.kind} {name}: {first.file} cannot be imported: '
                f'{type(error).__name__}: {error}{import_hint(error)}'
            ) from error


FOLDERS = {
    'models': PluginFolder('models', 'model'),
    'datasets': PluginFolder('datasets', 'dataset'),
    'backbone': PluginFolder('backbone', 'backbone'),
}


def _offers(path: Path, decorator: str):
    """Yield (name, attribute) for each plug-in that a source file declares."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, OSError, RecursionError, MemoryError):
        # named after the file, so that choosing it shows what is wrong with it
        yield path.stem, path.stem
        return
    for node in tree.body:
        for call in getattr(node, 'decorator_list', ()):
            if (
                isinstance(call, ast.Call)
                and call.args
                and isinstance(call.args[0], ast.Constant)
                and ast.unparse(call.func).split('.')[-1] == decorator
            ):
                yield call.args[0].value, node.name
        if isinstance(node, ast.ClassDef) and not node.name.startswith('_'):
            for line in node.body:
                targets = getattr(line, 'targets', [getattr(line, 'target', None)])
                name = getattr(getattr(line, 'value', None), 'value', None)
                if isinstance(name, str) and any(getattr(t, 'id', '') == 'NAME' for t in targets):
                    yield name, node.name


def keyword_flags(build) -> dict:
    """name -> inspect.Parameter, of the parameters of a class or function that become command-line
    flags.
    """
    return {
        name: p
        for name, p in inspect.signature(build).parameters.items()
        if name not in ('self', 'args', 'num_classes', 'num_inputs')
        and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    }
