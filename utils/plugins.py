"""Find models, data sets and backbones by name without importing any but the chosen one.

Each `*.py` file of a plug-in folder is parsed, not imported, for what it offers:

- a class with a constant `NAME = 'some-name'` (any public class of the file);
- a class or function under a decorator `@register_<kind>('some-name')`.

So `--help` lists every name in milliseconds, and a file that cannot be imported (a missing optional dependency) is an
error only for the run that chose it. Names are compared lower-case with `_` read as `-`.
"""
import ast
import difflib
import importlib
import inspect
from pathlib import Path

from utils.errors import UserError

ROOT = Path(__file__).resolve().parent.parent


def normalise(name: str) -> str:
    """Canonical form of a plug-in name: `ER_ACE` -> `er-ace`."""
    return str(name).strip().lower().replace('_', '-')


def nearest(name: str, known) -> str:
    """`': did you mean ...?'` for the known names closest to `name`, or the whole list where none is close."""
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=2, cutoff=0.5)
    return f"did you mean {' or '.join(close)}?" if close else f"known: {', '.join(known)}"


class PluginFolder:
    """The plug-ins of one top-level package.

    Args:
        package: importable name and folder below the project root, for example `'models'`.
        kind: word for messages and for the decorator `register_<kind>`, for example `'model'`.
    """

    def __init__(self, package: str, kind: str):
        self.package, self.kind = package, kind
        self.registered = {}        # name -> object, filled by register() when a file is imported
        self._files, self._twice = None, {}

    def register(self, name: str):
        """Decorator: make a class or function available under `name`. A name taken twice is a ValueError."""
        key = normalise(name)

        def add(obj):
            known = self.registered.get(key)
            if known is not None and known.__module__ != obj.__module__:
                raise ValueError(f"{self.kind} {key!r} is registered by both {known.__module__} and {obj.__module__}")
            self.registered[key] = obj
            if isinstance(obj, type) and 'NAME' not in obj.__dict__:
                obj.NAME = key
            return obj
        return add

    def files(self) -> dict:
        """name -> (module name, attribute) as read from the source files."""
        if self._files is None:
            self._files = {}
            for path in sorted((ROOT / self.package).glob('*.py')):
                if not path.stem.startswith('_'):
                    for name, attribute in _offers(path, f'register_{self.kind}'):
                        offer, first = (f'{self.package}.{path.stem}', attribute), self._files.get(normalise(name))
                        if first and first != offer:
                            self._twice[normalise(name)] = ' and '.join(f"{m.replace('.', '/')}.py" for m, _ in (first, offer))
                        self._files[normalise(name)] = offer
        return self._files

    def names(self) -> list:
        """All known names, sorted."""
        return sorted(set(self.files()) | set(self.registered))

    def check(self, name: str) -> None:
        """UserError, with the nearest known names, if nothing is called `name`. Imports nothing."""
        if normalise(name) not in self.names():
            raise UserError(f"--{self.kind} {name}: no such {self.kind}; {nearest(normalise(name), self.names())}")

    def get(self, name: str):
        """The class or function called `name`.

        Raises:
            UserError: the name is unknown (with the nearest known), or its file cannot be imported.
        """
        key = normalise(name)
        if key in self.registered:
            return self.registered[key]
        self.check(key)
        if key in self._twice:
            raise UserError(f'--{self.kind} {name}: declared in both {self._twice[key]}: rename one of them')
        module, attribute = self.files()[key]
        try:
            return getattr(importlib.import_module(module), attribute)
        except UserError:
            raise
        except Exception as error:      # whatever the file does when it is imported
            raise UserError(f"--{self.kind} {name}: {module.replace('.', '/')}.py cannot be imported: "
                            f"{type(error).__name__}: {error}") from error


def _offers(path: Path, decorator: str):
    """Yield (name, attribute) for each plug-in that a source file declares; nothing for a file that does not parse."""
    try:
        tree = ast.parse(path.read_text(encoding='utf-8'))
    except (SyntaxError, UnicodeDecodeError):
        yield path.stem, path.stem      # named after the file, so that choosing it shows what is wrong with it
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
                target = statement.targets[0] if isinstance(statement, ast.Assign) else getattr(statement, 'target', None)
                value = getattr(statement, 'value', None)
                if (isinstance(target, ast.Name) and target.id == 'NAME'
                        and isinstance(value, ast.Constant) and isinstance(value.value, str)):
                    yield value.value, node.name


def keyword_flags(build) -> dict:
    """name -> inspect.Parameter for the parameters of a class or function that become command-line flags.

    `self`, `args`, `num_classes`, `*args` and `**kwargs` are not flags.
    """
    parameters = inspect.signature(build).parameters
    return {name: p for name, p in parameters.items()
            if name not in ('self', 'args', 'num_classes') and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
