"""Exit codes and one-line errors, also where the reader of the output has gone."""

import contextlib
import io
import os
import signal
import sys

CLOSED_PIPE = 128 + signal.SIGPIPE  # as shells have it of a command that the signal ends


def flushed(name: str, main) -> int:
    """Return `main()`, once all that it has printed is written. `CLOSED_PIPE`, without a word, if
    the reader of stdout or stderr has gone (`python -m scroll show x | head -1`); 2 after one line,
    which begins with the name of the command, for another OSError, and if stdout is closed, before
    anything is done."""
    if sys.stderr is None:  # closed: `print` would write to stdout instead, into what others read
        sys.stderr = open(os.devnull, 'w')  # noqa: SIM115 it stays open
    if sys.stdout is None:
        print(
            f'{name}: error: standard output is closed: expected a file, a pipe or /dev/null',
            file=sys.stderr,
        )
        return 2
    # a path may have what no terminal can show
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == 'strict':
        sys.stdout.reconfigure(errors='backslashreplace')
    try:
        try:
            return main()
        finally:
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
    except BrokenPipeError:
        return _discarding(CLOSED_PIPE)
    except OSError as error:
        with contextlib.suppress(OSError):
            print(f'{name}: error: {describe(error)}', file=sys.stderr)
        return _discarding(2)


def _discarding(code: int) -> int:
    """Return the exit code, after discarding output that cannot be written (a full disk): Python
    flushes once more at its end, which must not fail."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return code


def describe(error) -> str:
    """Describe an OSError or a MemoryError in a line."""
    if isinstance(error, MemoryError):
        return 'there is not enough memory: use fewer features, or smaller blocks and buffers'
    return f'{error.filename}: {error.strerror}' if error.filename else str(error.strerror or error)
