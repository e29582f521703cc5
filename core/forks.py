"""Flags, values and base classes that methods of a Mammoth of 2020 to 2024, or of a fork of one,
take from the rest of its checkout; and their errors, in one line."""

import argparse
import ast
import inspect
import re
import sys
import traceback
from contextlib import contextmanager, suppress
from pathlib import Path

from core.arguments import binary_to_boolean_type
from core.mammoth import checkout, import_hint, their_module
from core.plugins import is_shipped
from scroll.ground.errors import InputError

_TYPES = {'int': int, 'float': float, 'bool': binary_to_boolean_type}


def inherited(base: type, owner, name: str):
    """An attribute that `base` has in the checkout and ours lacks, for an object that is not of
    this project: a method, a property, or what its constructor sets. AttributeError: none."""
    theirs = None
    if not (name.startswith('__') or is_shipped(type(owner))):
        try:
            theirs = getattr(their_module(base.__module__), base.__name__, None)
        except Exception as error:  # the asking code can do without, or it names this reason
            raise AttributeError(f'no {name}: {type(error).__name__}: {error}') from error
    if theirs:
        if hasattr(vars(theirs).get(name), '__get__'):
            return vars(theirs)[name].__get__(owner, type(owner))
        if isinstance(getattr(theirs, name[1:], None), property):  # `_x` of a property `x`
            return getattr(owner, name[1:])
        for node in ast.walk(ast.parse(inspect.getsource(theirs))):
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == f'self.{name}':
                with suppress(NameError):  # it is not set in the constructor
                    names = vars(sys.modules[theirs.__module__]) | vars(owner) | {'self': owner}
                    vars(owner)[name] = eval(ast.unparse(node.value), names)
                    return vars(owner)[name]
    raise AttributeError(f'{type(owner).__name__!r} object has no attribute {name!r}')


def counts_from_one(hook: str) -> bool:
    """Return whether the checkout's training loop gives this hook 1 for the first epoch."""
    loops = checkout().glob('utils/training.py') if checkout() else ()
    return any(f'.{hook}(epoch + 1' in loop.read_text() for loop in loops)


def best_args(model: str, dataset: str) -> dict:
    """Values of `utils/best_args.py` for a method on a data set, by buffer size or not; of all data
    sets together with dataset=''."""
    table = getattr(their_module('utils.best_args'), 'best_args', {})
    tables = [table.get(dataset, {})] if dataset else table.values()
    values = {}
    for methods in tables:
        values |= methods.get(model, methods.get(model.replace('-', '_'), {}))
    return values


def add_missing_flags(parser, model) -> None:
    """Add the flags that loaded files of the checkout read and the parser lacks, as its main.py or
    utils/args.py declares them; those that only its `best_args` has values of are required. A
    method of this project needs none."""
    root = None if is_shipped(model) else checkout()
    text = ''
    for module in list(sys.modules.values()) if root else ():
        file = Path(getattr(module, '__file__', None) or '')
        if file.suffix == '.py' and file.is_relative_to(root):
            text += file.read_text(errors='replace')
    missing = set(re.findall(r'\bargs\.(\w+)', text)) - {action.dest for action in parser._actions}
    if not missing:
        return
    own = argparse.ArgumentParser(conflict_handler='resolve')
    for place in ('main.py', 'utils/main.py', 'utils/args.py'):
        file = root / place
        if file.is_file():
            _declare(own, file.read_bytes())
    for values in best_args(model.NAME, '').values():
        for flag, value in values.items() if isinstance(values, dict) else ():
            if f'--{flag}' not in own._option_string_actions:
                own.add_argument(f'--{flag}', type=type(value), required=True)
    for action in own._actions:
        clash = parser._option_string_actions.keys() & action.option_strings
        if action.dest in missing and not clash:
            parser._add_action(action)


def _declare(parser, source: bytes) -> None:
    """Add the flags that a source file adds to any parser, as far as they are spelt out there."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and getattr(node.func, 'attr', '') == 'add_argument':
            options = {}
            for keyword in node.keywords:
                value = _TYPES.get(ast.unparse(keyword.value))
                with suppress(ValueError):
                    options[keyword.arg] = value or ast.literal_eval(keyword.value)
            with suppress(ValueError, TypeError):  # of names that are not spelt out
                parser.add_argument(*map(ast.literal_eval, node.args), **options)


@contextmanager
def their_errors(name: str):
    """Turn an error of code of the checkout into an InputError that says where it is."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        root = checkout()
        # the first: of a hook with other parameters than ours
        places = ['a call'] if root and isinstance(error, TypeError) else []
        places += [
            f'{frame.filename.removeprefix(f"{root}/")}:{frame.lineno}'
            for frame in traceback.extract_tb(error.__traceback__)
            if frame.filename.startswith(f'{root}/')
        ]
        if not places:
            raise
        raise InputError(
            f'{name}: {places[-1]} of {root}: {type(error).__name__}: {error}{import_hint(error)}'
        ) from error
