"""The error for what is not exact, and the table of operations that others stand in for."""


class NotExact(ValueError):
    """An operation, or a device, that is not known to be exact."""


REPLACEMENTS = {}  # name of an operation -> what is done in its place


def replaces(*names: str):
    """Decorate a function that is done in the place of the operations of these names."""

    def register(function):
        REPLACEMENTS.update(dict.fromkeys(names, function))
        return function

    return register
