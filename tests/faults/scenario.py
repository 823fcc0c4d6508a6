"""A scenario: a route, what is done to it, what the services may make of that, and the row that it gives."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from shared.clock import Clock
from tests.faults.conservation import Balance
from tests.faults.line import Line
from tests.faults.routes import Route


@dataclass(frozen=True)
class Scenario:
    """
    One way in which things go wrong on one route.

    *play* does it all and returns when everything has come to rest; *explains* says in the table's words why messages
    may be there twice, and `Line.expect_repeats` which ones.
    """

    name: str
    route: Route
    play: Callable[[Line], None]
    explains: str = ""
    repeats: bool | None = False
    """Whether duplicates must be seen: a scenario that is to cause some and has none proves nothing. None: may be."""
    lock: timedelta = timedelta(minutes=1)
    duplicate_window: timedelta | None = None
    ttl: str = "keep"
    make_clock: Callable[[], Clock] | None = None
    line: type[Line] = field(default=Line)

    def __str__(self) -> str:
        """Return the name of its test."""
        return f"{self.name} ({self.route})"

    def run(self) -> "Row":
        """Run it in a folder of its own."""
        with tempfile.TemporaryDirectory() as folder:
            line = self.line(
                self.route,
                Path(folder) / "line",
                clock=None if self.make_clock is None else self.make_clock(),
                lock=self.lock,
                duplicate_window=self.duplicate_window,
                ttl=self.ttl,
            )
            with line:
                self.play(line)
                return Row(self, line.balance())


@dataclass(frozen=True)
class Row:
    """The result of one scenario."""

    scenario: Scenario
    balance: Balance

    def objections(self) -> list[str]:
        """Return one sentence for each thing that is wrong."""
        balance = self.balance
        found = {
            "lost": balance.lost,
            "never sent, and there": balance.foreign,
            "withheld, and delivered": balance.contradicted,
            "twice without an explanation": sorted(balance.unexplained),
            "still at the source": () if balance.remaining == 0 else (str(balance.remaining),),
            "in the source's dead-letter queue": balance.dead_lettered,
            "out of order": balance.order_breaks if self.scenario.route.keeps_order else (),
        }
        objections = [f"{what}: {', '.join(names)}" for what, names in found.items() if names]
        if self.scenario.repeats is not None and self.scenario.repeats != bool(balance.duplicates):
            seen = "some" if balance.duplicates else "none"
            objections.append(f"{seen} twice, expected {'some' if self.scenario.repeats else 'none'}")
        return objections
