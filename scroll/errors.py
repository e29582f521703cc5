"""The error that `scroll` raises for input it cannot use."""


class InputError(ValueError):
    """What was given, what is expected, what to do, in one line. Nothing has changed when it is raised."""
