"""What a run ends with when a signal asked for it; what the user can mend is a `scroll.errors.InputError`."""


class Interrupted(Exception):
    """A run ended between two steps because a signal asked for it; the text
    says where it stood and how it goes on.

    Attributes:
        code: exit code of the command, 128 + the signal's number.
    """

    def __init__(self, text: str, code: int):
        super().__init__(text)
        self.code = code
