"""Certificates in JSON: digests that hold on any machine, and those that hold on one kind of machine.

    {"format": "schedule-certificate-2", "model": "scroll", "dataset": "seq-cifar100",
     "command": "python ...",
     "verdict": {"sentence": "bit-identical under 1005 schedules", ...},
     "anywhere": {"data": "<SHA-256>", "statistics": "<SHA-256>", ...},
     "here": {"machine": "x86_64 AVX512, 1 thread, torch 2.15.0", "f*": "<SHA-256>"}, ...}

Each line follows from some of those above it, so the first that differs says where to look.
"""
import json
from typing import NamedTuple

from scroll.archive import atomic_write, read_json, unwritable
from scroll.errors import InputError

FORMAT = 'schedule-certificate-2'
SAME, DIFFERS, SKIPPED = 'the same', 'DIFFERS', 'skipped'
# settings of earlier certificates: name -> name today
RENAMED = {'adapt_folds': 'adapt_select_folds', 'adapt_held_out': 'adapt_select_held_out'}


class Line(NamedTuple):
    """A line of a check. `verdict` is SAME, DIFFERS or SKIPPED; `why` says why it was skipped."""
    name: str
    said: str
    found: str
    verdict: str
    why: str = ''


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
    kinds = dict(anywhere=str, here=str, settings=(str, int, float), options=(str, int, type(None)))
    try:
        texts = [*(found[name] for name in ('model', 'dataset', 'command')), *found['flags'],
                 found['verdict']['sentence']]
        sound = all(isinstance(text, str) for text in texts) and isinstance(found['flags'], list)
        sound = sound and all(isinstance(value, kind) for name, kind in kinds.items()
                              for value in found[name].values())
    except (KeyError, TypeError, AttributeError):
        sound = False
    if not sound:
        raise InputError(f'{path}: the certificate is damaged: it is not what certify.py writes')
    settings = {RENAMED.get(name, name): value for name, value in found['settings'].items()}
    if 'adaptation' in settings:                # f* is what the updates end in, where it does not say more
        settings.setdefault('adapt_select', 'none')
    return found | dict(settings=settings)


def compare(certificate: dict, found: dict, unasked: dict) -> list:
    """Lines of a certificate compared with what was found here (its parts `anywhere` and `here`); unasked:
    name -> why it was not computed."""
    lines, there, here = [], certificate['here'].get('machine'), found['here']['machine']
    values = found['anywhere'] | found['here']
    for name, said in (certificate['anywhere'] | certificate['here']).items():
        if name == 'machine':
            continue
        why = unasked.get(name, '')
        if name in certificate['here'] and there != here:
            why = f'holds on {there}; this is {here}'
        value = values.get(name, 'nothing')
        verdict = SKIPPED if why else SAME if value == said else DIFFERS
        lines.append(Line(name, said, '' if why else value, verdict, why))
    return lines


def table(lines: list) -> tuple:
    """(lines of text, a table and a sentence; whether all lines that could be compared agree)."""
    width = max(len(line.name) for line in lines)
    more = {SAME: '', DIFFERS: ': {0.found:.16} here', SKIPPED: ': {0.why}'}
    rows = [f'{line.name:{width}}  {line.said[:16]:16}  {line.verdict}{more[line.verdict].format(line)}'
            for line in lines]
    differing = [line.name for line in lines if line.verdict == DIFFERS]
    if differing:
        follow = f', and what follows from it: {", ".join(differing[1:])}' if differing[1:] else ''
        return [*rows, f'not the same: {differing[0]}{follow}'], False
    skipped = sum(line.verdict == SKIPPED for line in lines)
    more = f'; {skipped} skipped' if skipped else ''
    return [*rows, f'the same: {len(lines) - skipped} lines{more}'], True
