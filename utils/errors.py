"""The one exception that means: the user can mend this, and its text says how."""
import sys

from scroll.errors import InputError


class UserError(Exception):
    """One line: what was given, what is expected, what to do. Commands print it and end with exit code 2."""


def run_command(main) -> int:
    """Exit code of a command: that of `main()`, 0 for None; 2, after one line, for what the user can mend; 130 if stopped."""
    try:
        return main() or 0
    except (UserError, InputError) as error:
        print(f'{sys.argv[0].rpartition("/")[2]}: error: {" ".join(str(error).split())}', file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print('interrupted: nothing was written', file=sys.stderr)
        return 130
