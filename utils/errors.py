"""The one exception that means: the user can mend this, and its text says how."""
import re
import sys

from scroll.errors import InputError

_NO_MEMORY = re.compile("can't allocate memory|out of memory|calculation overflowed")       # how torch says it


class UserError(Exception):
    """One line: what was given, what is expected, what to do. Commands print it and end with exit code 2."""


class Interrupted(Exception):
    """A run ended between two steps because a signal asked for it; the text says where it stood and how it goes on.

    Attributes:
        code: exit code of the command, 128 + the signal's number.
    """

    def __init__(self, text: str, code: int):
        super().__init__(text)
        self.code = code


def run_command(main) -> int:
    """Exit code of a command: that of `main()`, 0 for None; 2, after one line, for what the user can mend; 130+ if stopped."""
    try:
        return main() or 0
    except (UserError, InputError) as error:
        from utils.distributed import say_once
        text = ' '.join(str(error).split())
        say_once(f'{sys.argv[0].rpartition("/")[2]}: error: {text if len(text) <= 1600 else f"{text[:800]} ... {text[-800:]}"}')
        return 2
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and not _NO_MEMORY.search(str(error)):
            raise
        from utils.distributed import say_once
        say_once(f'{sys.argv[0].rpartition("/")[2]}: error: there is not enough memory for this run: use smaller sizes')
        return 2
    except Interrupted as stop:
        print(stop, file=sys.stderr)
        return stop.code
    except KeyboardInterrupt:
        print('interrupted: nothing was written', file=sys.stderr)
        return 130
