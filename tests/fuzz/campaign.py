"""A run of a fuzz: cases from a seed, until there were enough or the time is over."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple


class Case(NamedTuple):
    """One case: what it is, in words and bytes, and what it comes to."""

    name: str
    contents: Iterable[bytes]
    check: Callable[[], Iterable[str]]
    """Returns a verdict on each of its parts; any exception is a bug."""


def run(cases: Iterator[Case], seed: int, most: int | None = None, seconds: float | None = None) -> Counter[str]:
    """Check cases until there are *most* verdicts or *seconds* are over; return the number of each verdict."""
    verdicts: Counter[str] = Counter()
    started = time.monotonic()
    while (most is None or verdicts.total() < most) and (seconds is None or time.monotonic() < started + seconds):
        case = next(cases)
        try:
            verdicts.update(case.check())
        except BaseException as error:
            shown = " ".join(content.hex()[:4000] for content in case.contents)
            error.add_note(f"case {verdicts.total()} of seed {seed}: {case.name} {shown}")
            raise
    return verdicts
