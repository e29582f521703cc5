"""Certificates in JSON: digests that hold on any machine, and those that hold on one kind of machine.

    {"format": "schedule-certificate-2", "model": "scroll", "dataset": "seq-cifar100",
     "command": "python ...",
     "verdict": {"sentence": "bit-identical under 1005 schedules", ...},
     "anywhere": {"data": "<SHA-256>", "statistics": "<SHA-256>", ...},
     "here": {"machine": "x86_64 AVX512, 1 thread, torch 2.15.0", "f*": "<SHA-256>"}, ...}

Each line follows from some of those above it, so the first that differs says where to look.
"""
import json

from scroll.archive import atomic_write, read_json, unwritable
from scroll.errors import InputError

FORMAT = 'schedule-certificate-2'
# settings of earlier certificates: name -> name today
RENAMED = {'adapt_folds': 'adapt_select_folds', 'adapt_held_out': 'adapt_select_held_out'}
_PARTS = dict(model=str, dataset=str, command=str, flags=list, verdict=dict, anywhere=dict, here=dict,
              settings=dict, options=dict)


def write(path, certificate: dict) -> None:
    """Write it whole or not at all, with its folder; InputError if it cannot be written."""
    with unwritable(path), atomic_write(path) as file:
        file.write(f'{json.dumps(certificate, indent=1)}\n'.encode())


def read(path) -> dict:
    """What `write` wrote, its settings under their present names (`RENAMED`). InputError: there is no such
    file, or it is no certificate of this format."""
    try:
        found = read_json(path)
    except OSError as error:
        raise InputError(f'{path}: {error.strerror}') from error
    except ValueError as error:
        raise InputError(f'{path}: no certificate ({" ".join(str(error).split())[:200]})') from error
    what = found.get('format') if isinstance(found, dict) else None
    if what != FORMAT:
        raise InputError(f'{path}: expected a certificate of the format {FORMAT}' +
                         (f', this is {what}: run its command again' if isinstance(what, str) else ''))
    sound = all(isinstance(found.get(name), kind) for name, kind in _PARTS.items()) and not any(
        isinstance(value, (list, dict)) for part in ('anywhere', 'here', 'settings', 'options')
        for value in found[part].values())
    if not sound or 'sentence' not in found['verdict']:
        raise InputError(f'{path}: the certificate is damaged: it is not what certify.py writes')
    settings = {RENAMED.get(name, name): value for name, value in found['settings'].items()}
    if 'adaptation' in settings:                # f* is what the updates end in, where it does not say more
        settings.setdefault('adapt_select', 'none')
    return found | dict(settings=settings)


def compare(certificate: dict, found: dict, unasked: dict) -> tuple:
    """(lines of text, whether all that could be compared agree) of a certificate and what was found here (its
    parts `anywhere` and `here`). unasked: name -> why it was not computed."""
    there, here = certificate['here'].get('machine'), found['here']['machine']
    said, values = ({name: str(text) for name, text in (part['anywhere'] | part['here']).items()
                     if name != 'machine'} for part in (certificate, found))
    skipped = {name: why for name, why in unasked.items() if name in said}
    if there != here:
        skipped |= {name: f'holds on {there}; this is {here}' for name in said if name in certificate['here']}
    differing = [name for name in said if name not in skipped and values.get(name) != said[name]]
    verdicts = {name: 'the same' for name in said} | {
        name: f'DIFFERS: {values.get(name, "nothing"):.16} here' for name in differing} | {
        name: f'skipped: {why}' for name, why in skipped.items()}
    width = max(map(len, said), default=0)
    lines = [f'{name:{width}}  {said[name][:16]:16}  {verdict}' for name, verdict in verdicts.items()]
    if differing:
        follow = f', and what follows from it: {", ".join(differing[1:])}' if differing[1:] else ''
        return [*lines, f'not the same: {differing[0]}{follow}'], False
    more = f'; {len(skipped)} skipped' if skipped else ''
    return [*lines, f'the same: {len(said) - len(skipped)} lines{more}'], True
