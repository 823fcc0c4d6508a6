"""One figure of a benchmark, and its bar."""

import json
import sys
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple


class Measurement(NamedTuple):
    """A figure; *bar* is None for one that only explains another."""

    name: str
    value: float
    unit: str
    bar: float | None = None
    direction: Literal["at most", "at least"] = "at most"
    beside: Mapping[str, float] = MappingProxyType({})
    """Other figures of the same run, by the headings of their columns."""

    @property
    def holds(self) -> bool | None:
        """Whether the figure is on the right side of its bar, None without one."""
        if self.bar is None:
            return None
        return self.value <= self.bar if self.direction == "at most" else self.value >= self.bar


def report(measurements: list[Measurement]) -> None:
    """Write *measurements* to standard output for the parent process, one JSON object per line."""
    for measurement in measurements:
        sys.stdout.write(json.dumps(measurement._asdict() | {"beside": dict(measurement.beside)}) + "\n")


YARDSTICK_MICROSECONDS = 14.0
"""What `yardstick` took on the machine for which the bars in microseconds were set, when nothing else ran on it."""


def yardstick() -> float:
    """
    Return the processor time in microseconds of fixed work on bytes, small objects and a dictionary.

    A figure divided by what this took in the same run, and multiplied by YARDSTICK_MICROSECONDS, is the one that the
    machine of the bars would have shown.
    """
    content = bytes(range(256)) * 5
    started = time.process_time()
    for number in range(_YARDSTICK_ROUNDS):
        found: dict[bytes, tuple[int, bytes]] = {}
        for position in range(0, 240, 8):
            part = content[position : position + 8]
            if part[0] != number & 0xFF:
                found[part] = (int.from_bytes(part), content[position:])
        b"".join([rest[:32] for _, rest in found.values()])
    return (time.process_time() - started) * 1e6 / _YARDSTICK_ROUNDS


_YARDSTICK_ROUNDS = 2_000
