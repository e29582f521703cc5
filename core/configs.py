"""Config files of methods (`models/config/<model>.yaml`) and data sets
(`datasets/configs/<dataset>/<name>.yaml`)."""

import copy
import math
from functools import cache
from pathlib import Path

from core.environment import warn_once
from core.mammoth import checkout
from core.plugins import FOLDERS, MAMMOTH, ROOT, PluginFolder, normalise
from scroll.ground.errors import InputError


def read_yaml(path: Path) -> dict:
    """A YAML mapping; InputError if the file is damaged or something else."""
    try:
        status = path.stat()
        return copy.deepcopy(_read_yaml(path, status.st_mtime_ns, status.st_size))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(
            f'{path}: cannot be read as YAML ({" ".join(str(error).split())})'
        ) from error


@cache
def _read_yaml(path: Path, modified: int, size: int) -> dict:
    """The mapping; time of change and size tell the cache when the file is another."""
    import yaml

    from scroll.ground.archive import open_file

    loader = getattr(yaml, 'CSafeLoader', yaml.SafeLoader)
    with open_file(path) as file:
        text = file.read().decode()
    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, loader)):
            raise ValueError('it has aliases: write the values out')  # a few could fill the memory
        content = yaml.load(text, loader) or {}
    except yaml.YAMLError as error:
        raise ValueError(error) from error
    if not isinstance(content, dict):
        raise ValueError(f'expected a mapping, found {type(content).__name__}')
    return content


def model_config(model: str, which: str, known: dict) -> tuple:
    """The values of `models/config/<model>.yaml` for a run with these `known` arguments, and the
    file's name.

    The section `default:` is taken by every `which` but 'base', which takes nothing. Any other
    `which` names a section: flags, or a list of rules `{when: {...}, set: {...}}`, of which each
    whose conditions hold is
    applied, later ones over earlier ones (a condition is a value, or `{min: a, max: b}`). 'best'
    also takes the section of the run's data set, in Mammoth's form: flags and, under buffer sizes,
    more special ones.
    `by`, of the file or of a rule, says how the values were chosen (`chosen_by`).

    InputError: there is no such section, or the file has another form."""
    path = _config_file(model)
    known = known | {'dataset': known['dataset'].removeprefix(MAMMOTH)}
    if which == 'base' or (path is None and which in ('default', 'best')):
        if which == 'best':
            warn_once(f'--model_config best: models/config has no file for {model}')
        return {}, ''
    source = _shown(path) if path else 'models/config'
    sections = {
        name: part or {} for name, part in (read_yaml(path) if path else {}).items() if name != 'by'
    }
    for name, part in sections.items():
        if not isinstance(part, dict if name == 'default' else (dict, list)):
            raise InputError(
                f'{source}: {name}: {part!r}: expected flags, or rules {{when: ..., set: ...}}; '
                'values for every run belong under default'
            )
    if which not in ('default', 'best', *sections):
        have = ', '.join(dict.fromkeys(['default', 'best', 'base', *map(str, sections)]))
        raise InputError(f'--model_config {which}: {source} has no such section; there are: {have}')
    by_data = {
        normalise(name): part for name, part in sections.items() if name not in ('default', 'best')
    }
    own = by_data.get(known['dataset'])
    values = sections.get('default', {})
    if which == 'default':
        return values, source
    try:
        part = sections.get(which, {})
        if isinstance(part, list):
            part = {
                flag: value
                for rule in part
                if _holds(rule, known)
                for flag, value in rule['set'].items()
            }
        if which == 'best' and own is not None:
            part = part | _of_size(own, known, source)
        elif which == 'best' and by_data and not part:
            warn_once(f'{source}: no section for {known["dataset"]} (it has {", ".join(by_data)})')
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InputError(
            f'{source}: {which} must be flags or a list of {{when: ..., set: ...}}, that of a '
            f'data set flags by buffer size ({error})'
        ) from error
    return values | part, source


def chosen_by(known: dict) -> str:
    """How the values of a method's config were chosen, as its file says for a run with these
    arguments: `by` of the last of its rules that hold for it, else of the file; '' where nothing is
    said, or taken."""
    path = _config_file(known['model'])
    which = known.get('model_config') or 'default'
    content = read_yaml(path) if path and which != 'base' else {}
    rules = content.get(which) if isinstance(content.get(which), list) else []
    said = [rule['by'] for rule in rules if 'by' in rule and _holds(rule, known)]
    return str(said[-1] if said else content.get('by', ''))


def _config_file(model: str):
    """`models/config/<model>.yaml`, or None; the checkout's for a model of the checkout."""
    name, root = _place('models', 'model', model)
    return next(
        (
            path
            for path in sorted((root / 'models' / 'config').glob('*.yaml'))
            if normalise(path.stem) == name
        ),
        None,
    )


def _place(package: str, kind: str, name: str) -> tuple:
    """(normalised name without `mammoth:`, folder of the project that has it: ours or the
    checkout).
    """
    folder = FOLDERS.get(package) or PluginFolder(package, kind)
    return normalise(name).removeprefix(MAMMOTH), checkout() if folder.is_theirs(name) else ROOT


def _shown(path: Path) -> str:
    return str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)


def _of_size(section: dict, known: dict, source: str) -> dict:
    """Flags, and under buffer sizes (or `default`, for all of them) more special ones."""
    sizes = {str(name): part for name, part in section.items() if isinstance(part, dict)}
    flags = {name: value for name, value in section.items() if not isinstance(value, dict)}
    if odd := [name for name in sizes if not name.isdecimal() and name != 'default']:
        raise ValueError(f'{odd[0]} is neither a flag with a value nor a buffer size with flags')
    flags |= sizes.pop('default', {})
    size = str(known.get('buffer_size'))
    if sizes and size not in sizes:
        warn_once(
            f'{source}: no values for {known["dataset"]} with buffer_size {size} (it has '
            f'{", ".join(sizes)}); what is there for every size is taken'
        )
    return flags | sizes.get(size, {})


def _holds(rule: dict, known: dict) -> bool:
    """Return whether the conditions of a rule hold for a run."""

    def holds(condition, value) -> bool:
        if not isinstance(condition, dict):
            return condition == value
        least = condition.get('min', -math.inf)
        most = condition.get('max', math.inf)
        return value is not None and least <= value <= most

    return all(holds(condition, known.get(name)) for name, condition in rule['when'].items())


def dataset_config_files(dataset: str) -> dict:
    """name -> path of the files in `datasets/configs/<dataset>/`, however the folder spells the
    data set. A checkout's come after ours; a data set of the checkout has only those."""
    name, own = _place('datasets', 'dataset', dataset)
    return {
        path.stem: path
        for root in filter(None, (checkout(), own))
        for path in sorted((root / 'datasets' / 'configs').glob('*/*.yaml'))
        if normalise(path.parent.name) == name
    }


def dataset_config(dataset: str, which) -> tuple:
    """(values, file name) of `datasets/configs/<dataset>/<which>.yaml`; None: of `default.yaml`, if
    any.
    """
    files = dataset_config_files(dataset)
    path = files.get(str(which or 'default'))
    if path is not None:
        return read_yaml(path), _shown(path)
    if which is not None:
        raise InputError(
            f'--dataset_config {which}: {dataset} has no such config; it has: '
            f'{", ".join(sorted(files)) or "none"}'
        )
    return {}, ''
