"""The parts that sums are made of, so that nothing counts twice unnoticed.

A part is what one learner, one run or one file has counted, and goes by the digest of its
statistics, whatever the order. Parts are a dict: digest -> how many times it is in; negative: how
many times it was taken out; 0: it was in, and is not any more. What was removed may come back.
"""

import warnings

from scroll.sums.statistics import Statistics

_SHOWN = 20


def accounted(parts: dict, others: dict, sign: int = 1) -> dict[str, int]:
    """Return part -> how many times it is in after the others were added (`sign` -1: removed)."""
    out = {part: parts.get(part, 0) + sign * others.get(part, 0) for part in {**parts, **others}}
    return {
        part: times
        for part, times in out.items()
        if times or sign < 0 or 0 in (parts.get(part), others.get(part))
    }


def counted_twice(
    parts: dict, statistics: Statistics, others: dict, other: Statistics
) -> str | None:
    """Return the digest of a part that would count twice if two sums with these parts were added: a
    part of both, or the whole of one that is a part of the other, or equal to it; else None."""
    one = statistics.digest()
    two = other.digest()
    if statistics.total and (others.get(one, 0) > 0 or one == two):
        return one
    if other.total and parts.get(two, 0) > 0:
        return two
    for part, times in sorted(others.items()):
        if times * parts.get(part, 0) > 0 or (times < 0 and parts.get(part) == 0):
            return part
    return None


def warn_of_repeated(parts: dict) -> None:
    """Warn of parts that count more than once, such as a file that was given twice."""
    repeated = {part: times for part, times in parts.items() if times > 1}
    if repeated:
        warnings.warn(f'parts that count more than once, of {list_parts(repeated)}', stacklevel=2)


def list_parts(parts: dict) -> str:
    """Return the number of parts, and the digests of the first, in a line."""
    texts = []
    for part, times in sorted(parts.items(), key=lambda item: (item[1] < 0, item[0])):
        often = {-1: '', 0: ' (removed)', 1: ''}.get(times, f' x {abs(times)}')
        texts.append(f'{"-" if times < 0 else ""}{part[:16]}{often}')
    if len(texts) > _SHOWN:
        texts[_SHOWN:] = [f'and {len(texts) - _SHOWN} more']
    return f'{len(parts)}: {", ".join(texts)}' if parts else '0'
