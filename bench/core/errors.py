"""The exceptions that a command ends with: what the user can mend, and what a signal asked for."""


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
