"""One figure of a benchmark, and its bar."""

import json
import sys
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
