"""In this process, one file after the other."""
import functools

from scroll.engines.counting import together


def total(counter, sources: list, workers, partitions: int, gpus):
    """The sum of `counter(source)`."""
    return functools.reduce(together, map(counter, sources))
