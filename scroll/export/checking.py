"""Whether an export (`scroll.export.folders`) is what its certificate says, and follows from statistics."""
from pathlib import Path

from scroll.archive import read_json, sha256
from scroll.certificates.files import DIFFERS, SAME, Line
from scroll.derived import derive
from scroll.errors import InputError
from scroll.export.folders import CERTIFICATE, FORMAT
from scroll.settings import DEFAULTS, SETTINGS
from scroll.state import State


def check(folder, counted=None) -> list:
    """`Line`s: whether the files of an export have the digests of its certificate; with --state, whether
    statistics, backbone and f_T, made from them with its settings, have those that it names. InputError
    for a damaged certificate. counted: a `State` or `StatisticsFile`."""
    path = Path(folder) / CERTIFICATE
    try:
        facts = read_json(path)
        said, known, settings = facts['files'], facts['anywhere'], {**facts['settings']}
        made_from = dict(statistics=known['statistics'], f_T=known['f_T'],
                         embedder=facts.get('embedder', {}).get('digest', 'features'))
        texts = [*said, *said.values(), *made_from.values()]
        sound = facts['format'] == FORMAT and all(isinstance(text, str) for text in texts)
    except OSError as error:
        raise InputError(f'{path}: cannot be read ({error.strerror})') from error
    except (ValueError, KeyError, TypeError, AttributeError):
        sound = False
    if not sound:
        raise InputError(f'{path}: no certificate of an export, or damaged')
    files = {name: path.with_name(Path(name).name) for name in said}
    found = {name: sha256(file) if file.is_file() else 'not there' for name, file in files.items()}
    if counted is not None:
        settings = {name: settings[name] for name in settings if name in SETTINGS and name != 'adaptation'}
        f_T = derive(DEFAULTS | settings, State(settings, counted.psi, counted.statistics)).online
        said = said | made_from
        found |= dict(statistics=counted.statistics.digest(), f_T=f_T.digest(),
                      embedder=counted.psi or 'features')
    return [Line(name, said[name], value, SAME if value == said[name] else DIFFERS)
            for name, value in found.items()]
