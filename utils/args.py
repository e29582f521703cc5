"""The command line: groups of flags, and how a run's arguments are put together.

Strongest first: command line, model config (`models/config/<model>.yaml`), the model's `get_parser` -> `set_defaults`,
data-set config (`datasets/configs/<dataset>/<name>.yaml`), the data set's own defaults, the defaults below.
Nothing here imports torch: `--help` answers at once.
"""
import argparse
import difflib
import importlib
import inspect
import math
import sys
from argparse import Namespace  # noqa: F401  re-exported: model files take it from here
from pathlib import Path

from utils import binary_to_boolean_type, custom_str_underscore, field_with_aliases  # noqa: F401
from utils.conf import warn_once
from utils.errors import UserError
from utils.flags import (  # noqa: F401  re-exported: method files take them from here
    add_checkpoint_args,
    add_experiment_args,
    add_fitting_args,
    add_management_args,
    add_rehearsal_args,
    add_selection_args,
    add_stream_args,
    add_tracking_args,
    real,
    share,
    whole,
)
from utils.plugins import ROOT, nearest, normalise

__all__ = ('ArgumentParser', 'Namespace', 'ContinualModel', 'ContinualDataset', 'get_dataset_names', 'get_model_names',  # noqa: F822
           'binary_to_boolean_type', 'custom_str_underscore', 'field_with_aliases', 'add_rehearsal_args', 'add_experiment_args',
           'add_management_args')
_LAZY = dict(ContinualModel='models.utils.continual_model', ContinualDataset='datasets.utils.continual_dataset',
             get_dataset_names='datasets', get_model_names='models')
HELP = ('-h', '--help')


def __getattr__(name: str):
    """`from utils.args import *` in files written for Mammoth is to give base classes and names, too."""
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Says the default of each flag that has one, as it stands after models, data sets and configs had their say."""

    def __init__(self, prog):
        super().__init__(prog, max_help_position=36, width=120)

    def _get_help_string(self, action):
        text = action.help or ''
        hidden = action.default is None or action.default is False or action.default in ([], argparse.SUPPRESS)
        if hidden or 'default' in text or not action.option_strings:
            return text
        return f"{text} (default: {str(action.default).replace('%', '%%')})".strip()


class ArgumentParser(argparse.ArgumentParser):
    """argparse with underscored flags only, no abbreviations, and errors as `UserError` (one line, exit code 2)."""

    def __init__(self, *args, **kwargs):
        kwargs.setdefault('allow_abbrev', False)
        kwargs.setdefault('formatter_class', _HelpFormatter)
        super().__init__(*args, **kwargs)

    def error(self, message):
        raise UserError(message)

    def parse_args(self, args=None, namespace=None):
        parsed, unknown = self.parse_known_args(args, namespace)
        if unknown:
            flag = unknown[0].split('=')[0]
            known = [o for action in self._actions for o in action.option_strings]
            close = difflib.get_close_matches(flag.replace('-', '_').replace('__', '--', 1), known, n=1)
            raise UserError(f"{unknown[0]}: no such flag here" + (f'; did you mean {close[0]}?' if close else '; see --help'))
        return parsed


def base_parser(**kwargs) -> ArgumentParser:
    """The flags that every run has."""
    parser = ArgumentParser(prog='main.py', description='Continual learning under any schedule.', **kwargs)
    add_selection_args(parser)
    add_stream_args(parser)
    add_experiment_args(parser)
    add_fitting_args(parser)
    add_management_args(parser)
    add_checkpoint_args(parser)
    add_tracking_args(parser)
    return parser


def check_repeated(argv) -> None:
    """Refuse a flag given twice: which of the values was meant?"""
    flags = [item.split('=')[0] for item in argv if item.startswith('--')]
    for flag in flags:
        if flags.count(flag) > 1:
            raise UserError(f'{flag} is given {flags.count(flag)} times: give it once')


def given_flags(parser: ArgumentParser, argv) -> set:
    """Names (`dest`) of the flags on the command line. UserError where one thing is said twice, by any of its names."""
    found = {}
    for item in argv:
        option = item.split('=')[0] if item.startswith('--') else item[:2]      # -O3
        action = parser._option_string_actions.get(option)
        if action is not None:
            if action.dest in found:
                first = found[action.dest]
                twice = f'{option} is given 2 times' if first == option else f'{first} and {option} say the same'
                raise UserError(f'{twice}: give one of them')
            found[action.dest] = option
    return set(found)


def apply_defaults(parser: ArgumentParser, values: dict, source: str) -> None:
    """Make `values` the defaults of flags that exist, passed through each flag's type.

    Raises:
        UserError: no such flag, or a value that its type or choices refuse; `source` is named.
    """
    actions = {action.dest: action for action in reversed(parser._actions)}     # of several names of a flag, the first is its own
    for name, value in values.items():
        if name not in actions:
            raise UserError(f'{source}: {name} is not a flag of this run; {nearest(name, actions)}')
        action = actions[name]
        value, many = None if value == 'None' else value, action.nargs not in (None, 0, '?')
        if value is not None and isinstance(value, list) != many:
            raise UserError(f"{source}: {name}: {value!r}: expected {'a list' if many else 'one value'}")
        try:
            if action.type is not None and value is not None:
                items = [action.type(int(v) if isinstance(v, bool) else v) for v in (value if many else [value])]
                value = items if many else items[0]
        except (argparse.ArgumentTypeError, TypeError, ValueError) as error:
            raise UserError(f'{source}: {name}: {error}') from error
        if action.choices and value is not None and value not in action.choices:
            raise UserError(f'{source}: {name} {value!r}: expected one of {", ".join(map(str, action.choices))}')
        parser.set_defaults(**{name: value})


def add_model_args(parser: ArgumentParser, model) -> dict:
    """Let a method add its flags; returns the defaults it sets.

    `get_parser(parser)` adds to what it is given, and may return it, another parser or nothing; in files written for earlier
    versions of Mammoth `get_parser()` returns a parser of its own. Some of these flags may still be to come.
    """
    before, get_parser = dict(parser._defaults), model.get_parser
    own = any('get_parser' in vars(kind) for kind in model.__mro__ if kind.__module__ == model.__module__)
    if not own:                                     # the oldest files have a function in the place of a method
        get_parser = getattr(sys.modules.get(model.__module__), 'get_parser', get_parser)
    try:
        added = get_parser(parser) if inspect.signature(get_parser).parameters else get_parser()
    except argparse.ArgumentError as error:
        raise UserError(f'--model {model.NAME}: its flags clash with those of this run ({error})') from error
    if added is not None and added is not parser:
        for action in added._actions:
            if action.option_strings and not set(action.option_strings) & set(parser._option_string_actions):
                parser._add_action(action)
        parser._defaults.update(added._defaults)
    return {k: v for k, v in parser._defaults.items() if before.get(k, parser) is not v}


def parse_known(parser: ArgumentParser, cmd, all_flags: bool = True) -> dict:
    """What the command line and the defaults so far say; required flags may be missing.

    all_flags: refuse those that the parser does not have.
    """
    required = [action for action in parser._actions if action.required]
    for action in required:
        action.required = False
    parse = parser.parse_args if all_flags else lambda words: parser.parse_known_args(words)[0]
    known = vars(parse([item for item in cmd if item not in HELP]))
    for action in required:
        action.required = True
    return known


def relax_required(parser: ArgumentParser) -> None:
    """A required flag that has got a default is no longer required."""
    for action in parser._actions:
        if action.required and parser.get_default(action.dest) is not None:
            action.required = False


_LARGEST_CONFIG, _DEEPEST, _MOST_VALUES = 1 << 18, 50, 10_000


def _check_depth(events) -> None:
    """ValueError if lists lie in lists deeper than anyone would write: to build them would take for ever, or the stack."""
    depth = 0
    for event in events:
        depth += type(event).__name__.endswith('StartEvent') - type(event).__name__.endswith('EndEvent')
        if depth > _DEEPEST:
            raise ValueError(f'it is nested more than {_DEEPEST} deep')


def _check_extent(content) -> None:
    """ValueError if aliases of aliases stand for more than anyone would write: to show or copy it could take for ever."""
    waiting, seen = [content], 0
    while waiting:
        value, seen = waiting.pop(), seen + 1
        waiting += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        if seen + len(waiting) > _MOST_VALUES:
            raise ValueError(f'it stands for more than {_MOST_VALUES} values')


def read_yaml(path: Path) -> dict:
    """A YAML mapping; UserError if the file is damaged or something else."""
    import yaml
    try:
        if path.stat().st_size > _LARGEST_CONFIG:
            raise ValueError(f'it is larger than {_LARGEST_CONFIG >> 10} kB')
        text = path.read_text(encoding='utf-8')
        _check_depth(yaml.parse(text, Loader=yaml.SafeLoader))
        content = yaml.safe_load(text) or {}
        _check_extent(content)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UserError(f'{path}: cannot be read as YAML ({" ".join(str(error).split())})') from error
    if not isinstance(content, dict):
        raise UserError(f'{path}: expected a mapping, found {type(content).__name__}')
    return content


def model_config(model: str, which: str, known: dict) -> tuple:
    """The values of `models/config/<model>.yaml` for a run of which `known` arguments are given, and the file's name.

    The file's section `default:` is taken by every `which` but 'base', which takes nothing. Any other `which`
    names a section: a list of rules `{when: {...}, set: {...}}`, of which each whose conditions hold is
    applied, later ones over earlier ones (a condition is a value, or `{min: a, max: b}`); or flags; or, in
    Mammoth's form, sections by data set with flags and, under buffer sizes, more special ones. For 'best'
    these may stand at the top of the file, as Mammoth has them. A run that has no such part is warned.

    Raises:
        UserError: there is no such section, or the file is made otherwise.
    """
    path = next((p for p in sorted((ROOT / 'models' / 'config').glob('*.yaml'))
                 if p.stem.replace('_', '-') == model.replace('_', '-')), None)
    if which == 'base' or path is None and which in ('default', 'best'):
        if which == 'best':
            warn_once(f'--model_config best: models/config has no file for {model}')
        return {}, ''
    content = read_yaml(path) if path else {}
    source = str(path.relative_to(ROOT)) if path else 'models/config'
    for name, part in content.items():
        if name != 'best' and not isinstance(part, (dict, list, type(None))):
            raise UserError(f'{source}: {name}: {part!r}: expected a mapping of flags; values for every run '
                            'belong under default')
    values = content.get('default') or {}
    has_own = any(normalise(name) == known['dataset'] for name in content)
    by_data = {name: part or {} for name, part in content.items() if name not in ('default', 'best')
               and (normalise(name) == known['dataset'] or not isinstance(part, list))}     # a list: rules
    if not isinstance(values, dict):
        raise UserError(f'{source}: default: expected a mapping of flags, found {values!r}')
    if which not in ('default', 'best', *content):
        have = ', '.join(dict.fromkeys(['default', 'best', 'base', *map(str, content)]))
        raise UserError(f'--model_config {which}: {source} has no such section; there are: {have}')
    try:
        if which == 'default':
            if has_own:
                warn_once(f"{source}: its values for {known['dataset']} are taken with --model_config best")
            return values, source
        found = _from_section(content.get(which) or {}, known, source, quiet=has_own)
        if which == 'best':
            found = {**found, **_from_section(by_data, known, source, quiet=bool(found))}
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise UserError(f'{source}: {which} must be a list of {{when: ..., set: ...}}, or have flags by '
                        f'data set and buffer size ({error})') from error
    return {**values, **found}, source


def _from_rules(rules: list, known: dict) -> dict:
    """The values of all rules whose conditions hold."""
    holding = (rule['set'] for rule in rules if all(_holds(c, known.get(name)) for name, c in rule['when'].items()))
    return {name: value for values in holding for name, value in values.items()}


def _from_section(section, known: dict, source: str, quiet: bool) -> dict:
    """The values of a section for a run: `model_config` says of what forms.

    quiet: say nothing where sections are by data set, and the run's is not there.

    Raises:
        ValueError: a part is of no such form.
    """
    if isinstance(section, list):
        return _from_rules(section, known)
    by_data = {name: part for name, part in section.items() if isinstance(part, dict) and not _is_part(name)}
    own = next((part for name, part in by_data.items() if normalise(name) == known['dataset']), None)
    if by_data and own is None and not quiet:
        have = ', '.join(map(str, by_data))
        warn_once(f"{source}: no section for {known['dataset']} (it has {have}); what is there for every "
                  'data set is taken')
    shared = {name: part for name, part in section.items()
              if name not in by_data and (part is not None or not by_data)}
    return {**_of_size(shared, known, source), **_of_size(own or {}, known, source)}


def _of_size(section: dict, known: dict, source: str) -> dict:
    """Flags, and under buffer sizes (or `default`, for all of them) more special ones."""
    sizes = {str(name): part for name, part in section.items() if isinstance(part, dict)}
    flags = {name: value for name, value in section.items() if not isinstance(value, dict)}
    odd = [name for name in sizes if not _is_part(name)]
    odd += [name for name in flags if not isinstance(name, str)]
    if odd:
        raise ValueError(f'{odd[0]} is neither a flag with a value nor a buffer size with flags')
    flags |= sizes.pop('default', {})
    size = str(known.get('buffer_size'))
    if sizes and size not in sizes:
        warn_once(f"{source}: no values for {known['dataset']} with buffer_size {size} (it has "
                  f"{', '.join(sizes)}); what is there for every size is taken")
    return flags | sizes.get(size, {})


def _is_part(name) -> bool:
    """Whether a key of a data set's section says for which buffers its values are."""
    return str(name).isdecimal() or name == 'default'


def _holds(condition, value) -> bool:
    if isinstance(condition, dict):
        return value is not None and condition.get('min', -math.inf) <= value <= condition.get('max', math.inf)
    return condition == value


def dataset_config_files(dataset: str) -> dict:
    """name -> path of the files in `datasets/configs/<dataset>/`, however the folder spells the data set."""
    files = sorted((ROOT / 'datasets' / 'configs').glob('*/*.yaml'))
    return {path.stem: path for path in files if normalise(path.parent.name) == normalise(dataset)}


def dataset_config(dataset: str, which) -> tuple:
    """The values, and the file's name, of `datasets/configs/<dataset>/<which>.yaml`; `which` None: `default.yaml`, if any."""
    files = dataset_config_files(dataset)
    path = files.get(str(which or 'default'))
    if path is None:
        if which is None:
            return {}, ''
        have = ', '.join(sorted(files)) or 'none'
        raise UserError(f'--dataset_config {which}: {dataset} has no such config; it has: {have}')
    return read_yaml(path), str(path.relative_to(ROOT))
