"""Config files of methods (`models/config/<model>.yaml`) and data sets
(`datasets/configs/<dataset>/<name>.yaml`)."""

import copy
import math
from functools import cache
from pathlib import Path
from typing import NamedTuple

from core.arguments import column_of
from core.environment import warn_once
from core.forks import best_args
from core.mammoth import checkout
from core.plugins import FOLDERS, MAMMOTH, ROOT, normalise
from scroll.ground.errors import InputError


def read_yaml(path: Path) -> dict:
    """A YAML mapping; InputError if the file is damaged or something else."""
    from scroll.ground.archive import read_errors

    with read_errors(path):
        status = path.stat()
        return copy.deepcopy(_read_yaml(path, status.st_mtime_ns, status.st_size))


@cache
def _read_yaml(path: Path, modified: int, size: int) -> dict:
    """The mapping; time of change and size tell the cache when the file is another."""
    import yaml

    from scroll.ground.archive import open_file

    class Loader(getattr(yaml, 'CSafeLoader', yaml.SafeLoader)):
        def construct_mapping(self, node, deep=False):
            mapping = super().construct_mapping(node, deep)
            if len(mapping) < len(node.value):
                raise ValueError(
                    f'a name stands twice in the mapping of line {node.start_mark.line + 1}'
                )
            return mapping

    with open_file(path) as file:
        text = file.read().decode()
    if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, Loader)):
        raise ValueError('it has aliases: write the values out')  # a few could fill the memory
    content = yaml.load(text, Loader) or {}
    if not isinstance(content, dict):
        raise ValueError(f'expected a mapping, found {type(content).__name__}')
    return content


class Source(NamedTuple):
    """Values of flags from one place. name: the place, as messages say it. by: how the values were
    chosen, as a config file says."""

    name: str
    values: dict
    by: str = ''


def model_config(which: str, run: dict) -> list[Source]:
    """The values of `models/config/<model>.yaml` for a run with these arguments, the weakest first.

    The section `default:` is taken by every `which` but 'base', which takes nothing. Any other
    `which` names a section: flags, or a list of rules `{when: {...}, set: {...}}`, of which each
    whose conditions hold is applied, later ones over earlier ones (a condition is a value, or
    `{min: a, max: b}`). 'best' also takes the section of the run's data set, in Mammoth's form:
    flags and, under buffer sizes, more special ones. `by`, of the file or of a rule, says how the
    values were chosen (`chosen_by`).

    InputError: there is no such section, or the file has another form."""
    path = _config_file(run['model'])
    dataset = run['dataset'].removeprefix(MAMMOTH)
    if which == 'base' or (path is None and which in ('default', 'best')):
        name, root = _place('models', run['model'])
        values = best_args(name, dataset) if which == 'best' and root != ROOT else {}
        if values:
            return _by_size(values, run.get('buffer_size'), f'{root}/utils/best_args.py')
        if which == 'best':
            warn_once(f'--model_config best: models/config has no file for {run["model"]}')
        return []
    file = _shown(path) if path else 'models/config'
    content = read_yaml(path) if path else {}
    sections = {name: part or {} for name, part in content.items() if name != 'by'}
    for name, part in list(sections.items()):
        if path and not path.is_relative_to(ROOT) and not isinstance(part, dict):
            warn_once(f'{file}: {name} is no section, and has no effect')
            del sections[name]
        elif not isinstance(part, dict if name == 'default' else (dict, list)):
            raise InputError(
                f'{file}: {name}: {part!r}: expected flags, or rules {{when: ..., set: ...}}; '
                'values for every run belong under default'
            )
    if which not in ('default', 'best', *sections):
        have = ', '.join(dict.fromkeys(['default', 'best', 'base', *map(str, sections)]))
        raise InputError(f'--model_config {which}: {file} has no such section; there are: {have}')
    sources = [Source(f'{file}: default', sections.pop('default', {}), content.get('by', ''))]
    if which == 'default':
        return sources
    part = sections.get(which, {})
    sections.pop('best', None)
    by_data = {
        normalise(name): values for name, values in sections.items() if isinstance(values, dict)
    }
    try:
        for rule in part if isinstance(part, list) else [{'when': {}, 'set': part}]:
            if _holds(rule['when'], run | {'dataset': dataset}):
                place = f'{file}: {which}, {rule["when"]}' if rule['when'] else f'{file}: {which}'
                sources.append(Source(place, dict(rule['set']), rule.get('by', '')))
        if which == 'best' and dataset in by_data:
            sources += _by_size(by_data[dataset], run.get('buffer_size'), f'{file}: {dataset}')
        elif which == 'best' and by_data and not any(source.values for source in sources[1:]):
            warn_once(f'{file}: no section for {dataset} (it has {", ".join(by_data)})')
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InputError(
            f'{file}: {which} must be flags or a list of {{when: ..., set: ...}}, that of a '
            f'data set flags by buffer size ({error})'
        ) from error
    return sources


def chosen_by(run: dict) -> str:
    """How the values of a method's config were chosen, as its file says for a run with these
    arguments: `by` of the last of its rules that hold for it, else of the file; '' where nothing is
    said, or taken."""
    sources = model_config(run.get('model_config') or 'default', run)
    return next((str(source.by) for source in reversed(sources) if source.by), '')


def _config_file(model: str):
    """`models/config/<model>.yaml`, or None; the checkout's for a model of the checkout."""
    name, root = _place('models', model)
    paths = sorted((root / 'models' / 'config').glob('*.yaml'))
    return {normalise(path.stem): path for path in paths}.get(name)


def _place(package: str, name: str) -> tuple:
    """(normalised name without `mammoth:`, folder of the project that has it: ours or the
    checkout).
    """
    root = checkout() if FOLDERS[package].is_theirs(name) else ROOT
    return normalise(name).removeprefix(MAMMOTH), root


def _shown(path: Path) -> str:
    return str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)


def _by_size(section: dict, size, name: str) -> list[Source]:
    """Flags, and under buffer sizes (or `default`, for all of them) more special ones."""
    sizes = {str(key): part for key, part in section.items() if isinstance(part, dict)}
    flags = {key: value for key, value in section.items() if not isinstance(value, dict)}
    flags |= sizes.pop('default', {}) | sizes.pop('-1', {})  # -1: in `best_args`
    for key in sizes:
        if not key.isdecimal():
            raise ValueError(f'{key} is neither a flag with a value nor a buffer size with flags')
    if sizes and str(size) not in sizes:
        warn_once(
            f'{name}: no values for buffer_size {size} (it has {", ".join(sizes)}); what is there '
            'for every size is taken'
        )
    return [Source(name, flags), Source(f'{name}, {size} samples', sizes.get(str(size), {}))]


def _holds(conditions: dict, run: dict) -> bool:
    """Return whether the conditions of a rule hold for a run."""
    for name, condition in conditions.items():
        value = run.get(column_of(name, run))
        holds = condition == value
        if isinstance(condition, dict):
            least = condition.get('min', -math.inf)
            holds = value is not None and least <= value <= condition.get('max', math.inf)
        if not holds:
            return False
    return True


def dataset_config_files(dataset: str) -> dict:
    """name -> path of the files in `datasets/configs/<dataset>/`, however the folder spells the
    data set. A checkout's come after ours; a data set of the checkout has only those."""
    name, own = _place('datasets', dataset)
    return {
        path.stem: path
        for root in filter(None, (checkout(), own))
        for path in sorted((root / 'datasets' / 'configs').glob('*/*.yaml'))
        if normalise(path.parent.name) == name
    }


def dataset_config(dataset: str, which: str | None) -> Source:
    """`datasets/configs/<dataset>/<which>.yaml`; None: `default.yaml`, if any."""
    files = dataset_config_files(dataset)
    path = files.get(str(which or 'default'))
    if path is not None:
        values = read_yaml(path)
        if isinstance(nested := values.get('backbone'), dict):  # {type: ..., args: {...}}
            values |= {'backbone': nested.get('type'), **(nested.get('args') or {})}
        return Source(_shown(path), values)
    if which is not None:
        raise InputError(
            f'--dataset_config {which}: {dataset} has no such config; it has: '
            f'{", ".join(sorted(files)) or "none"}'
        )
    return Source('', {})
