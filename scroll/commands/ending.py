"""Exit codes and one-line errors; output that nobody reads any more."""
import os
import select
import signal
import sys

CLOSED_PIPE = 128 + signal.SIGPIPE      # as shells have it of a command that the signal ends


def flushed(name: str, main) -> int:
    """What `main()` returns, once all that it has printed is written.

    `CLOSED_PIPE`, without a word, if the reader of stdout or stderr has gone (`python -m scroll show x |
    head -1`); 2 after one line, which begins with the name of the command, for another OSError.
    """
    streams = [stream for stream in (sys.stdout, sys.stderr) if stream is not None]
    try:
        try:
            return main()
        finally:
            for stream in streams:
                stream.flush()
    except BrokenPipeError:
        gone = [stream for stream in streams if _reader_is_gone(stream)]
        if not gone:
            raise
        for stream in gone:
            _discard(stream)
        return CLOSED_PIPE
    except OSError as error:
        print(f'{name}: error: {describe(error)}', file=sys.stderr, flush=True)
        try:
            sys.stdout.flush()
        except OSError:                 # a full disk
            _discard(sys.stdout)
        return 2


def _discard(stream) -> None:
    """Its buffer is flushed when the process ends, which must not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _reader_is_gone(stream) -> bool:
    try:
        poll = select.poll()
        poll.register(stream.fileno(), 0)
        return bool(poll.poll(0))
    except (OSError, ValueError):       # it is no file
        return False


def describe(error) -> str:
    """An OSError or a MemoryError in a line."""
    if isinstance(error, MemoryError):
        return 'there is not enough memory: use fewer features, or smaller blocks and buffers'
    return f'{error.filename}: {error.strerror}' if error.filename else str(error.strerror or error)
