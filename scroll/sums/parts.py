"""The parts that sums are made of, so that nothing counts twice unnoticed.

A part is what one learner, one run or one file has counted, and goes by the digest of its
statistics, whatever the order. Parts are a dict: digest -> how many times it is in; negative: how
many times it was taken out; 0: it was in, and is not any more. What was removed may come back.
"""

import warnings

from scroll.sums.statistics import Statistics

_SHOWN = 20


def accounted(parts: dict, others: dict, sign: int = 1) -> dict:
    """Part -> how many times it is in, when the others have been added (`sign` -1: taken out)."""
    out = {part: parts.get(part, 0) + sign * others.get(part, 0) for part in {**parts, **others}}
    return {
        part: times
        for part, times in out.items()
        if times or sign < 0 or 0 in (parts.get(part), others.get(part))
    }


def one_part(statistics: Statistics) -> dict:
    """The parts of what is one part."""
    return {statistics.digest(): 1} if statistics.total else {}


def counted_twice(
    parts: dict, statistics: Statistics, others: dict, other: Statistics
) -> str | None:
    """The digest of what would count twice if two sums with these parts were added: a part of both,
    or the whole of one that is a part of the other, or equal to it; else None."""
    one, two = statistics.digest(), other.digest()
    if statistics.total and (others.get(one, 0) > 0 or one == two):
        return one
    if other.total and parts.get(two, 0) > 0:
        return two
    return next(
        (
            part
            for part, times in sorted(others.items())
            if times * parts.get(part, 0) > 0 or (times < 0 and parts.get(part) == 0)
        ),
        None,
    )


def warn_of_repeated(parts: dict) -> None:
    """A warning that names parts that count more than once, as of a file that was given twice."""
    if again := {part: times for part, times in parts.items() if times > 1}:
        warnings.warn(f'parts that count more than once, of {list_parts(again)}', stacklevel=2)


def list_parts(parts: dict) -> str:
    """How many parts, and the digests of the first, in a line."""
    often = {-1: '', 0: ' (removed)', 1: ''}
    shown = [
        f'{"-" * (times < 0)}{part[:16]}{often.get(times, f" x {abs(times)}")}'
        for part, times in sorted(parts.items(), key=lambda item: (item[1] < 0, item[0]))
    ]
    more = f', and {len(shown) - _SHOWN} more' * (len(shown) > _SHOWN)
    return f'{len(shown)}: {", ".join(shown[:_SHOWN])}{more}' if shown else '0'
