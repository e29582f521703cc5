"""Exit codes and one-line errors."""

import re
import signal
import sys
from contextlib import contextmanager

from scroll.commands import ending
from scroll.ground.errors import InputError

# how torch says it
_NO_MEMORY = re.compile("can't allocate memory|out of memory|calculation overflowed")


class Interrupted(Exception):
    """A run ended between two steps because a signal asked for it; the text says where, and how to
    resume. code: of the command, 128 + the signal's number."""

    def __init__(self, text: str, code: int):
        super().__init__(text)
        self.code = code


@contextmanager
def on_stop(handler):
    """Let `handler(number, frame)` take SIGINT and SIGTERM within the block. One that is ignored
    stays ignored: shells keep Ctrl-C from what they run in the background."""
    before = {}
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                before[number] = signal.signal(number, handler)
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


def run_command(main) -> int:
    """Exit code of a command: that of `main()`, 0 for None; 2, after one line, for what
    the user can mend; 130+ if stopped; 141 if the reader of its output has gone."""
    name = sys.argv[0].rpartition('/')[2]
    return ending.flushed(name, lambda: _run(main, name))


def _run(main, name: str) -> int:
    try:
        return main() or 0
    except InputError as error:
        text = str(error)
    except BrokenPipeError:
        raise
    except OSError as error:
        text = ending.describe(error)
    except ModuleNotFoundError as error:
        if '.' in (error.name or '.'):  # no package of its own: a fault, to be shown whole
            raise
        text = (
            f'{error.name} is not installed for {sys.executable}: pip install -r requirements.txt'
        )
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not _NO_MEMORY.search(str(error)):
            raise
        text = 'there is not enough memory for this run: use smaller sizes'
    except Interrupted as stop:
        print(stop, file=sys.stderr, flush=True)
        return stop.code
    except KeyboardInterrupt:
        print('interrupted; no file was left half-written', file=sys.stderr)
        return 130
    text = ' '.join(text.split())
    text = text if len(text) <= 1600 else f'{text[:800]} ... {text[-800:]}'
    print(f'{name}: error: {text}', file=sys.stderr, flush=True)
    return 2
