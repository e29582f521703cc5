"""Config files of methods (`models/config/<model>.yaml`) and data sets
(`datasets/configs/<dataset>/<name>.yaml`)."""
import math
from pathlib import Path

from core.environment import warn_once
from core.plugins import ROOT, normalise
from scroll.errors import InputError

_LARGEST, _DEEPEST, _MOST_VALUES = 1 << 18, 50, 10_000


def _check_depth(events) -> None:
    """ValueError if lists lie in lists deeper than anyone would write: to build them
    would take for ever, or the stack."""
    depth = 0
    for event in events:
        depth += type(event).__name__.endswith('StartEvent') - type(event).__name__.endswith('EndEvent')
        if depth > _DEEPEST:
            raise ValueError(f'it is nested more than {_DEEPEST} deep')


def _check_extent(content) -> None:
    """ValueError if aliases of aliases stand for more than anyone would write: to
    show or copy it could take for ever."""
    waiting, seen = [content], 0
    while waiting:
        value, seen = waiting.pop(), seen + 1
        waiting += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        if seen + len(waiting) > _MOST_VALUES:
            raise ValueError(f'it stands for more than {_MOST_VALUES} values')


def read_yaml(path: Path) -> dict:
    """A YAML mapping; InputError if the file is damaged or something else."""
    import yaml

    from scroll.archive import open_file
    loader = getattr(yaml, 'CSafeLoader', yaml.SafeLoader)
    try:
        if path.stat().st_size > _LARGEST:
            raise ValueError(f'it is larger than {_LARGEST >> 10} kB')
        with open_file(path) as file:
            text = file.read().decode()
        _check_depth(yaml.parse(text, Loader=loader))
        content = yaml.load(text, Loader=loader) or {}
        _check_extent(content)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise InputError(f'{path}: cannot be read as YAML ({" ".join(str(error).split())})') from error
    if not isinstance(content, dict):
        raise InputError(f'{path}: expected a mapping, found {type(content).__name__}')
    return content


def model_config(model: str, which: str, known: dict) -> tuple:
    """The values of `models/config/<model>.yaml` for a run of which `known`
    arguments are given, and the file's name.

    `by`, of the file or of a rule, says in words how its values were chosen (`chosen_by`). The file's section
    `default:` is taken by every `which` but 'base', which takes nothing. Any other `which`
    names a section: a list of rules `{when: {...}, set: {...}}`, of which each whose conditions hold is
    applied, later ones over earlier ones (a condition is a value, or `{min: a, max: b}`); or flags; or, in
    Mammoth's form, sections by data set with flags and, under buffer sizes, more special ones. For 'best'
    these may stand at the top of the file, as Mammoth has them. A run that has no such part is warned.

    Raises:
        InputError: there is no such section, or the file is made otherwise.
    """
    path = _config_file(model)
    if which == 'base' or path is None and which in ('default', 'best'):
        if which == 'best':
            warn_once(f'--model_config best: models/config has no file for {model}')
        return {}, ''
    content = read_yaml(path) if path else {}
    content.pop('by', None)
    source = str(path.relative_to(ROOT)) if path else 'models/config'
    for name, part in content.items():
        if name != 'best' and not isinstance(part, (dict, list, type(None))):
            raise InputError(f'{source}: {name}: {part!r}: expected a mapping of flags; values for every run '
                             'belong under default')
    values = content.get('default') or {}
    has_own = any(normalise(name) == known['dataset'] for name in content)
    by_data = {name: part or {} for name, part in content.items() if name not in ('default', 'best')
               and (normalise(name) == known['dataset'] or not isinstance(part, list))}     # a list: rules
    if not isinstance(values, dict):
        raise InputError(f'{source}: default: expected a mapping of flags, found {values!r}')
    if which not in ('default', 'best', *content):
        have = ', '.join(dict.fromkeys(['default', 'best', 'base', *map(str, content)]))
        raise InputError(f'--model_config {which}: {source} has no such section; there are: {have}')
    try:
        if which == 'default':
            if has_own:
                warn_once(f"{source}: its values for {known['dataset']} are taken with --model_config best")
            return values, source
        found = _from_section(content.get(which) or {}, known, source, quiet=has_own)
        if which == 'best':
            found = {**found, **_from_section(by_data, known, source, quiet=bool(found))}
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InputError(f'{source}: {which} must be a list of {{when: ..., set: ...}}, or have flags by '
                         f'data set and buffer size ({error})') from error
    return {**values, **found}, source


def chosen_by(known: dict) -> str:
    """How the values of a method's config were chosen, as its file says for a run with these arguments: `by`
    of the last of its rules that hold for it, else of the file; '' where nothing is said, or none is taken.
    """
    path, which = _config_file(known['model']), known.get('model_config') or 'default'
    content = read_yaml(path) if path and which != 'base' else {}
    rules = content.get(which) if isinstance(content.get(which), list) else []
    said = [rule['by'] for rule in rules if 'by' in rule
            and all(_holds(condition, known.get(name)) for name, condition in rule['when'].items())]
    return str(said[-1] if said else content.get('by', ''))


def _config_file(model: str):
    """`models/config/<model>.yaml`, or None."""
    return next((p for p in sorted((ROOT / 'models' / 'config').glob('*.yaml'))
                 if p.stem.replace('_', '-') == model.replace('_', '-')), None)


def _from_rules(rules: list, known: dict) -> dict:
    """The values of all rules whose conditions hold."""
    holding = (rule['set'] for rule in rules
               if all(_holds(c, known.get(name)) for name, c in rule['when'].items()))
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
        least, most = condition.get('min', -math.inf), condition.get('max', math.inf)
        return value is not None and least <= value <= most
    return condition == value


def dataset_config_files(dataset: str) -> dict:
    """name -> path of the files in `datasets/configs/<dataset>/`, however the folder spells the data set."""
    files = sorted((ROOT / 'datasets' / 'configs').glob('*/*.yaml'))
    return {path.stem: path for path in files if normalise(path.parent.name) == normalise(dataset)}


def dataset_config(dataset: str, which) -> tuple:
    """The values, and the file's name, of `datasets/configs/<dataset>/<which>.yaml`;
    `which` None: `default.yaml`, if any."""
    files = dataset_config_files(dataset)
    path = files.get(str(which or 'default'))
    if path is None:
        if which is None:
            return {}, ''
        have = ', '.join(sorted(files)) or 'none'
        raise InputError(f'--dataset_config {which}: {dataset} has no such config; it has: {have}')
    return read_yaml(path), str(path.relative_to(ROOT))
