"""Exit codes and one-line errors."""
import re
import signal
import sys

from core.distributed import end, say_once
from scroll.commands import ending
from scroll.errors import InputError

_NO_MEMORY = re.compile("can't allocate memory|out of memory|calculation overflowed")      # how torch says it


class Interrupted(Exception):
    """A run ended between two steps because a signal asked for it; the text says where, and how to resume.

    Attributes:
        code: exit code of the command, 128 + the signal's number.
    """

    def __init__(self, text: str, code: int):
        super().__init__(text)
        self.code = code


def on_stop(handler) -> dict:
    """Let `handler(number, frame)` take SIGINT and SIGTERM; returns what took them before, by number.

    A signal that is ignored stays ignored: that is how shells keep Ctrl-C
    from what they run in the background.
    """
    heeded = [number for number in (signal.SIGINT, signal.SIGTERM)
              if signal.getsignal(number) != signal.SIG_IGN]
    return {number: signal.signal(number, handler) for number in heeded}


def run_command(main) -> int:
    """Exit code of a command: that of `main()`, 0 for None; 2, after one line, for what
    the user can mend; 130+ if stopped; 141 if the reader of its output has gone."""
    return ending.flushed(_name(), lambda: _run(main))


def _name() -> str:
    return sys.argv[0].rpartition('/')[2]


def _run(main) -> int:
    try:
        return main() or 0
    except InputError as error:
        text = ' '.join(str(error).split())
        say_once(f'{_name()}: error: '
                 f'{text if len(text) <= 1600 else f"{text[:800]} ... {text[-800:]}"}')
        return end(2)
    except BrokenPipeError:
        raise
    except OSError as error:
        say_once(f'{_name()}: error: {" ".join(ending.describe(error).split())}')
        return end(2)
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and not _NO_MEMORY.search(str(error)):
            raise
        say_once(f'{_name()}: error: there is not enough memory for this run: use smaller sizes')
        return end(2)
    except Interrupted as stop:
        say_once(str(stop))
        return end(stop.code)
    except KeyboardInterrupt:
        print('interrupted: nothing was written', file=sys.stderr)
        return 130
