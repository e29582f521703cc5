"""The parts that sums are made of, so that nothing counts twice unnoticed.

A part is what one learner, one run or one file has counted, and goes by the digest of its statistics,
whatever the order. Parts of engines have a file's name behind the digest (`scroll.engines.counting`): equal
digests with two names are two parts; a digest without a name is the same part as any with it. What was
removed from a part stands with a minus, a part that was removed with a 0; both may come back.
"""
from scroll.statistics import Statistics

_SHOWN = 20


def clash(parts: dict, others: dict, sign: int = 1) -> str | None:
    """A part that would count twice (`sign` -1: be taken out twice) if the others were added; else None."""
    for part, times in sorted(others.items()):
        known = _times(parts, part)
        if sign * times * known > 0 or sign * times < 0 and known == 0 and part in parts:
            return part
    return None


def _times(parts: dict, part: str) -> int:
    """How many times a part is in."""
    digest, _, name = part.partition(' ')
    known = (other.partition(' ') + (times,) for other, times in parts.items())
    return sum(times for own, _, other, times in known
               if own == digest and (other == name or not (other and name)))


def accounted(parts: dict, others: dict, sign: int = 1) -> dict:
    """Part -> how many times it is in, when the others have been added (`sign` -1: taken out)."""
    out = {part: parts.get(part, 0) + sign * others.get(part, 0) for part in {**parts, **others}}
    return {part: times for part, times in out.items()
            if times or sign < 0 or 0 in (parts.get(part), others.get(part))}


def one_part(statistics: Statistics) -> dict:
    """The parts of what is one part."""
    return {statistics.digest(): 1} if statistics.total else {}


def counted_twice(parts: dict, statistics: Statistics, others: dict, other: Statistics) -> str | None:
    """The digest of what would count twice if two sums with these parts were added: a part of both, or the
    whole of one that is a part of the other, or equal to it; else None."""
    again = clash(parts, others)
    if again:
        return again
    one, two = (parts, statistics), (others, other)
    for (whole, of), (rest, beyond) in ((one, two), (two, one)):
        if of.total:
            digest, named = of.digest(), _named(whole)
            if (rest.get(digest, 0) > 0 or not named and _times(rest, digest) > 0
                    or not (named and _named(rest)) and digest == beyond.digest()):
                return digest
    return None


def _named(parts: dict) -> bool:
    return all(' ' in part for part in parts)


def list_parts(parts: dict) -> str:
    """How many parts, and the digests of the first, in a line."""
    often = {-1: '', 0: ' (removed)', 1: ''}
    shown = [f"{'-' * (times < 0)}{part[:16]}{often.get(times, f' x {abs(times)}')}"
             for part, times in sorted(parts.items(), key=lambda item: (item[1] < 0, item[0]))]
    more = f', and {len(shown) - _SHOWN} more' * (len(shown) > _SHOWN)
    return f"{len(shown)}: {', '.join(shown[:_SHOWN])}{more}" if shown else '0'
