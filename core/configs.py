"""Config files of methods (`models/config/<model>.yaml`) and data sets
(`datasets/configs/<dataset>/<name>.yaml`)."""
import math
from pathlib import Path

from core.environment import warn_once
from core.mammoth import checkout
from core.plugins import FOLDERS, MAMMOTH, ROOT, PluginFolder, normalise
from scroll.errors import InputError


def read_yaml(path: Path) -> dict:
    """A YAML mapping; InputError if the file is damaged or something else."""
    import yaml

    from scroll.archive import open_file
    try:
        with open_file(path) as file:
            content = yaml.safe_load(file.read().decode()) or {}
        _check_size(content)
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise InputError(f'{path}: cannot be read as YAML ({" ".join(str(error).split())})') from error
    if not isinstance(content, dict):
        raise InputError(f'{path}: expected a mapping, found {type(content).__name__}')
    return content


def _check_size(content) -> None:
    """ValueError if aliases of aliases stand for so much that printing it would fill the memory."""
    open_values, count = [content], 0
    while open_values:
        value, count = open_values.pop(), count + 1
        open_values += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        if count > 100_000:
            raise ValueError('its aliases stand for more than 100,000 values')


def model_config(model: str, which: str, known: dict) -> tuple:
    """The values of `models/config/<model>.yaml` for a run with these `known` arguments, and the file's name.

    The section `default:` is taken by every `which` but 'base', which takes nothing. Any other `which` names
    a section: a list of rules `{when: {...}, set: {...}}`, of which each whose conditions hold is applied,
    later ones over earlier ones (a condition is a value, or `{min: a, max: b}`); or flags; or, in Mammoth's
    form, sections by data set with flags and, under buffer sizes, more special ones. For 'best' these may
    stand at the top of the file, as Mammoth has them. A run without such a part is warned. `by`, of the file
    or of a rule, says how the values were chosen (`chosen_by`).

    Raises:
        InputError: there is no such section, or the file has another form.
    """
    path, known = _config_file(model), known | dict(dataset=known['dataset'].removeprefix(MAMMOTH))
    if which == 'base' or path is None and which in ('default', 'best'):
        if which == 'best':
            warn_once(f'--model_config best: models/config has no file for {model}')
        return {}, ''
    content = read_yaml(path) if path else {}
    content.pop('by', None)
    source = _shown(path) if path else 'models/config'
    for name, part in content.items():
        if name != 'best' and not isinstance(part, (dict, list, type(None))):
            raise InputError(f'{source}: {name}: {part!r}: expected a mapping of flags; values for every run '
                             'belong under default')
    values = content.get('default') or {}
    if not isinstance(values, dict):
        raise InputError(f'{source}: default: expected a mapping of flags, found {values!r}')
    if which not in ('default', 'best', *content):
        have = ', '.join(dict.fromkeys(['default', 'best', 'base', *map(str, content)]))
        raise InputError(f'--model_config {which}: {source} has no such section; there are: {have}')
    has_own = any(normalise(name) == known['dataset'] for name in content)
    if which == 'default':
        if has_own:
            warn_once(f"{source}: its values for {known['dataset']} are taken with --model_config best")
        return values, source
    try:
        found = _of_section(content.get(which) or {}, known, source, quiet=has_own)
        if which == 'best':
            by_data = {name: part or {} for name, part in content.items() if name not in ('default', 'best')
                       and (normalise(name) == known['dataset'] or not isinstance(part, list))}    # not rules
            found |= _of_section(by_data, known, source, quiet=bool(found))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InputError(f'{source}: {which} must be a list of {{when: ..., set: ...}}, or have flags by '
                         f'data set and buffer size ({error})') from error
    return values | found, source


def chosen_by(known: dict) -> str:
    """How the values of a method's config were chosen, as its file says for a run with these arguments: `by`
    of the last of its rules that hold for it, else of the file; '' where nothing is said, or none is taken.
    """
    path, which = _config_file(known['model']), known.get('model_config') or 'default'
    content = read_yaml(path) if path and which != 'base' else {}
    rules = content.get(which) if isinstance(content.get(which), list) else []
    said = [rule['by'] for rule in rules if 'by' in rule and _holds(rule, known)]
    return str(said[-1] if said else content.get('by', ''))


def _config_file(model: str):
    """`models/config/<model>.yaml`, or None; the checkout's for a model of the checkout."""
    name, root = _place('models', 'model', model)
    return next((path for path in sorted((root / 'models' / 'config').glob('*.yaml'))
                 if normalise(path.stem) == name), None)


def _place(package: str, kind: str, name: str) -> tuple:
    """(normalised name without `mammoth:`, folder of the project that has it: ours or the checkout)."""
    folder = FOLDERS.get(package) or PluginFolder(package, kind)
    return normalise(name).removeprefix(MAMMOTH), checkout() if folder.is_theirs(name) else ROOT


def _shown(path: Path) -> str:
    return str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)


def _of_section(section, known: dict, source: str, quiet: bool) -> dict:
    """The values of a section for a run; ValueError if a part has another form than `model_config` says.

    quiet: say nothing where sections are by data set, and the run's is missing.
    """
    if isinstance(section, list):
        return {name: value for rule in section if _holds(rule, known) for name, value in rule['set'].items()}
    by_data = {name: part for name, part in section.items() if isinstance(part, dict) and not _is_size(name)}
    own = next((part for name, part in by_data.items() if normalise(name) == known['dataset']), None)
    if by_data and own is None and not quiet:
        warn_once(f"{source}: no section for {known['dataset']} (it has {', '.join(map(str, by_data))}); "
                  'what is there for every data set is taken')
    shared = {name: part for name, part in section.items()
              if name not in by_data and (part is not None or not by_data)}
    return _of_size(shared, known, source) | _of_size(own or {}, known, source)


def _of_size(section: dict, known: dict, source: str) -> dict:
    """Flags, and under buffer sizes (or `default`, for all of them) more special ones."""
    sizes = {str(name): part for name, part in section.items() if isinstance(part, dict)}
    flags = {name: value for name, value in section.items() if not isinstance(value, dict)}
    for name in [name for name in sizes if not _is_size(name)] + [n for n in flags if not isinstance(n, str)]:
        raise ValueError(f'{name} is neither a flag with a value nor a buffer size with flags')
    flags |= sizes.pop('default', {})
    size = str(known.get('buffer_size'))
    if sizes and size not in sizes:
        warn_once(f"{source}: no values for {known['dataset']} with buffer_size {size} (it has "
                  f"{', '.join(sizes)}); what is there for every size is taken")
    return flags | sizes.get(size, {})


def _is_size(name) -> bool:
    return str(name).isdecimal() or name == 'default'


def _holds(rule: dict, known: dict) -> bool:
    """Whether the conditions of a rule hold for a run."""
    for name, condition in rule['when'].items():
        value = known.get(name)
        if isinstance(condition, dict):
            least, most = condition.get('min', -math.inf), condition.get('max', math.inf)
            if value is None or not least <= value <= most:
                return False
        elif condition != value:
            return False
    return True


def dataset_config_files(dataset: str) -> dict:
    """name -> path of the files in `datasets/configs/<dataset>/`, however the folder spells the data set.

    A checkout's come after ours; a data set of the checkout has only those.
    """
    name, own = _place('datasets', 'dataset', dataset)
    return {path.stem: path for root in filter(None, (checkout(), own))
            for path in sorted((root / 'datasets' / 'configs').glob('*/*.yaml'))
            if normalise(path.parent.name) == name}


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
    return read_yaml(path), _shown(path)
