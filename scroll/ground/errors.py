"""The error that `scroll` raises for input it cannot use."""

import difflib
from contextlib import contextmanager


class InputError(ValueError):
    """One line: what was given, what is expected, what to do. Nothing has changed when it is
    raised.
    """


class WrongType(InputError, TypeError):
    """An `InputError` that is a TypeError, too, as scikit-learn's checks want it where there are no
    numbers.
    """


def did_you_mean(word, choices) -> str:
    """Return '; did you mean X?' with the nearest choice, or '' where none is near."""
    names = {str(name).lower(): str(name) for name in choices}
    close = difflib.get_close_matches(str(word).lower(), names, n=1)
    return f'; did you mean {names[close[0]]}?' if close else ''


@contextmanager
def prefixed(prefix):
    """Begin an InputError in the block with a prefix: a path, or another name of its subject."""
    try:
        yield
    except InputError as error:
        raise InputError(f'{prefix}: {error}') from error
