"""A record that samples were unlearned: the digests of statistics before, of what was removed, and after.

    python -m scroll unlearn state.npz --samples old.npz -o new.npz --proof proof.json --key secret
    python -m scroll check proof.json --after new.npz --removed old.npz --key secret

Sums are exact, so of before, removed and after any two give the third, to the last bit: whoever has two of
the files makes the digest of the third again, also when the old state is gone, as it should be. The digest
after is that of a learner that has never seen what was removed. A key, any file that only its owner has, adds
an HMAC (SHA-256): then the record was written with that key, and not changed since. No record can show that
there is no other copy: `python -m scroll unlearn --find` looks for those.
"""
import copy
import hashlib
import hmac
import json

from scroll import __version__, archive
from scroll.errors import InputError
from scroll.statistics import Statistics

_FORMAT = 'scroll-proof-1'
PARTS = ('before', 'removed', 'after')
MEMBERSHIP = ('that these samples had been learned was not checked: the learner keeps no keys, and its sums '
              'show only that it is possible',
              'that these samples had been learned was checked')


def record(before: Statistics, after: Statistics, backbone: str, checked: bool) -> dict:
    """What is known of an unlearning; `after` is `before` without what was removed.

    Args:
        checked: whether it is known that all of it had been learned (`MEMBERSHIP`).
    """
    removed = copy.copy(before).subtract(after)
    return dict(format=_FORMAT, scroll=__version__, backbone=backbone, membership_checked=checked,
                **{name: dict(digest=part.digest(), samples=part.total, classes=len(part.classes))
                   for name, part in zip(PARTS, (before, removed, after))})


def claim(path) -> str:
    """What a record that is true says."""
    checked = bool(archive.read_json(path).get('membership_checked'))
    return f'true: before, less what was removed, is after; {MEMBERSHIP[checked]}'


def write(path, record: dict, key=None) -> None:
    """As JSON, with an HMAC under the bytes of the file `key`; InputError if it cannot be written."""
    if key is not None:
        record = {**record, 'hmac': _hmac(record, key)}
    try:
        with archive.atomic_write(path) as file:
            file.write((json.dumps(record, indent=2) + '\n').encode())
    except OSError as error:
        raise InputError(f'{path} cannot be written ({error.strerror})') from error


def check(path, parts: dict, key=None) -> list:
    """What is wrong with a record, a line each; none if it is true of these parts.

    Args:
        parts: two or three of before, removed, after -> (name of the file, `Statistics`, backbone or None).

    Raises:
        InputError: no such record, or fewer than two parts.
    """
    if len(parts) < 2:
        raise InputError('expected two of --before, --removed and --after: they give the third')
    try:
        record = archive.read_json(path)
        if record['format'] != _FORMAT:
            raise ValueError(f"it is of the format {record['format']}")
        digests = {name: record[name]['digest'] for name in PARTS}
        backbone = record['backbone']
    except OSError as error:
        raise InputError(f'{path}: cannot be read ({error.strerror})') from error
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f'{path}: not a record of {_FORMAT} ({type(error).__name__})') from error
    wrong = [f'{path}: its HMAC is not that of this key'] * (key is not None and not _signed(record, key))
    for name, (file, statistics, made_with) in parts.items():
        if statistics.digest() != digests[name]:
            wrong.append(f'{file}: has not the digest of what the record calls {name}')
        if made_with not in (None, backbone):
            wrong.append(f'{file}: made with another backbone than the record says')
    known = {name: statistics for name, (_, statistics, _) in parts.items()}
    try:
        if 'before' in known:
            other, third = ('removed', 'after') if 'removed' in known else ('after', 'removed')
            made = copy.copy(known['before']).subtract(known[other])
        else:
            third, made = 'before', copy.copy(known['after']).merge(known['removed'])
        if made.digest() != digests[third]:
            wrong.append(f'what is {third} does not follow from the others')
    except InputError as error:
        wrong.append(f'the parts do not go together: {error}')
    return wrong


def _signed(record: dict, key) -> bool:
    rest = {name: value for name, value in record.items() if name != 'hmac'}
    return hmac.compare_digest(str(record.get('hmac', '')), _hmac(rest, key))


def _hmac(record: dict, key) -> str:
    return hmac.new(secret_of(key), json.dumps(record, sort_keys=True).encode(), hashlib.sha256).hexdigest()


def secret_of(key) -> bytes:
    """The content of the file of a key; InputError if it cannot be read or is empty."""
    try:
        with archive.open_file(key) as file:
            secret = file.read()
    except OSError as error:
        raise InputError(f'--key {key}: cannot be read ({error.strerror})') from error
    if not secret:
        raise InputError(f'--key {key}: is empty')
    return secret
