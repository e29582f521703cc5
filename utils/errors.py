"""The one exception that means: the user can mend this, and its text says how."""


class UserError(Exception):
    """One line: what was given, what is expected, what to do. `main.py` prints it and ends with exit code 2."""
