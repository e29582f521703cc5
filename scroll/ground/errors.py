"""The error that `scroll` raises for input it cannot use."""

import difflib
from contextlib import contextmanager


class InputError(ValueError):
    """What was given, what is expected, what to do, in one line. Nothing has changed when it is
    raised.
    """


class WrongType(InputError, TypeError):
    """An `InputError` that is a TypeError, too, as scikit-learn's checks want it of what is no
    number.
    """


def did_you_mean(word, known) -> str:
    """'; did you mean X?' of the known name that is nearest, or '' where none is near."""
    names = {str(name).lower(): str(name) for name in known}
    close = difflib.get_close_matches(str(word).lower(), names, n=1)
    return f'; did you mean {names[close[0]]}?' if close else ''


@contextmanager
def naming(path):
    """An InputError in the block begins with `path`, or another name of what is wrong."""
    try:
        yield
    except InputError as error:
        raise InputError(f'{path}: {error}') from error
