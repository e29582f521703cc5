"""Whether an export (`scroll.export.folders`) is what its certificate says, and follows from statistics."""
from pathlib import Path

from scroll import archive
from scroll.arguments import need_torch
from scroll.certificates.files import DIFFERS, SAME, Line
from scroll.errors import InputError
from scroll.export.folders import CERTIFICATE, FORMAT, sha256
from scroll.files.statistics import StatisticsFile
from scroll.learner import Scroll
from scroll.settings import SETTINGS
from scroll.state import KIND, State


def check(folder, path=None) -> list:
    """Whether the files of an export are those of its certificate: `scroll.certificates.files.Line`s.

    Args:
        path: of a file of statistics or of a learner: whether it holds the statistics of the certificate, and
            f_T follows from them with its settings, down to the tensors.

    Raises:
        InputError: there is no certificate, it is damaged, or `path` cannot be read.
    """
    folder = Path(folder)
    facts, lines = _read(folder), []
    for name, said in facts['files'].items():
        found = sha256(folder / name) if (folder / name).is_file() else 'not there'
        lines.append(Line(name, said, found, SAME if found == said else DIFFERS))
    if path is None:
        return lines
    learner, backbone = _remade(facts, path)
    predictor, said = learner.predictor(), dict(facts['anywhere'])
    found = dict(statistics=learner.digest(), f_T=predictor.digest())
    if 'embedder' in facts or backbone:
        said['embedder'], found['embedder'] = facts.get('embedder', {}).get('digest', 'features'), backbone
    lines += [Line(name, said[name], value, SAME if value == said[name] else DIFFERS)
              for name, value in found.items()]
    tensors = folder / 'f_T.safetensors'
    if tensors.is_file():
        lines.append(_compared(tensors, predictor))
    return lines


def _read(folder: Path) -> dict:
    try:
        facts = archive.read_json(folder / CERTIFICATE)
        texts = [*facts['files'].items(), *facts['anywhere'].items()]
        sound = facts['format'] == FORMAT and isinstance(facts['settings'], dict)
        sound = sound and {'statistics', 'f_T'} <= set(facts['anywhere'])
        texts += [('embedder', facts['embedder']['digest'])] if 'embedder' in facts else []
        sound = sound and all(isinstance(text, str) for pair in texts for text in pair)
        inside = all(Path(name).name == name for name in facts['files'])
    except OSError as error:
        raise InputError(f'{folder / CERTIFICATE}: cannot be read ({error.strerror})') from error
    except (ValueError, KeyError, TypeError, AttributeError):
        sound = inside = False
    if not (sound and inside):
        raise InputError(f'{folder / CERTIFICATE}: no certificate of an export, or damaged')
    return facts


def _remade(facts: dict, path) -> tuple:
    """(learner with the statistics of a file and the settings of a certificate, digest of the embedder)."""
    found = (State if archive.kind_of(path) == KIND else StatisticsFile).read(path)
    settings = {name: value for name, value in facts['settings'].items()
                if name in SETTINGS and name != 'adaptation'}
    return Scroll(**settings).set_state(State(settings, found.psi, found.statistics)), found.psi


def _compared(path: Path, predictor) -> Line:
    """Whether a file has the tensors of a predictor."""
    need_torch('comparing tensors')
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    from scroll.export.modules import torch_module
    own = {f'head.{key}': tensor for key, tensor in torch_module(predictor).state_dict().items()}
    try:
        kept = load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise InputError(f'{path}: cannot be read ({" ".join(str(error).split())[:200]})') from error
    same = all(key in kept and torch.equal(kept[key], tensor) for key, tensor in own.items())
    digest = predictor.digest()
    return Line(f'tensors of {path.name}', digest, digest if same else 'others', SAME if same else DIFFERS)
