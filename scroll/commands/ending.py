"""Exit codes and one-line errors; output that nobody reads any more."""
import os
import signal
import sys

CLOSED_PIPE = 128 + signal.SIGPIPE      # as shells have it of a command that the signal ends


def flushed(name: str, main) -> int:
    """What `main()` returns, once all that it has printed is written.

    `CLOSED_PIPE`, without a word, if the reader of stdout or stderr has gone (`python -m scroll show x |
    head -1`); 2 after one line, which begins with the name of the command, for another OSError.
    """
    try:
        try:
            return main()
        finally:
            _flush()
    except BrokenPipeError:
        return _discarding(CLOSED_PIPE)
    except OSError as error:
        try:
            print(f'{name}: error: {describe(error)}', file=sys.stderr)
            _flush()
        except OSError:                 # a full disk
            return _discarding(2)
        return 2


def _flush() -> None:
    for stream in filter(None, (sys.stdout, sys.stderr)):
        stream.flush()


def _discarding(code: int) -> int:
    """The exit code, when what is left to print cannot be: Python flushes once more at its end, which must
    not fail."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return code


def describe(error) -> str:
    """An OSError or a MemoryError in a line."""
    if isinstance(error, MemoryError):
        return 'there is not enough memory: use fewer features, or smaller blocks and buffers'
    return f'{error.filename}: {error.strerror}' if error.filename else str(error.strerror or error)
