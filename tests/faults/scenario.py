"""A scenario: a route, the faults on it, the permitted results, and the row of the table."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from tests.faults.conservation import Balance
from tests.faults.line import Line
from tests.faults.routes import Route


@dataclass(frozen=True)
class Scenario:
    """
    One kind of fault on one route.

    *action* does everything and returns when all messages are settled; *explains* is the table's reason for duplicates,
    and `Line.expect_repeats` says which messages may be duplicated.
    """

    name: str
    route: Route
    action: Callable[[Line], None]
    explains: str = ""
    repeats: bool | None = False
    """Whether duplicates must occur: without them, a scenario that should cause some proves nothing. None: they may."""
    most_failed: int | None = None
    """How many failed deliveries a message may have at most."""
    lock: timedelta = timedelta(minutes=1)
    link_idle: timedelta | None = None
    line: type[Line] = field(default=Line)
    is_short: bool = False
    """Whether it runs in each change."""

    def __str__(self) -> str:
        """Return the name of its test."""
        return f"{self.name} ({self.route})"

    def run(self) -> "Row":
        """Run it in a folder of its own."""
        with tempfile.TemporaryDirectory() as folder:
            line = self.prepared(Path(folder) / "line")
            with line:
                self.action(line)
                return Row(self, line.balance())

    def prepared(self, folder: Path) -> Line:
        """Return its line in *folder*, not started."""
        return self.line(self.route, folder, lock=self.lock, link_idle=self.link_idle)


@dataclass(frozen=True)
class Row:
    """The result of one scenario."""

    scenario: Scenario
    balance: Balance

    def objections(self) -> list[str]:
        """Return one sentence for each problem."""
        balance = self.balance
        found = {
            "lost": balance.lost,
            "arrived but never sent": balance.foreign,
            "withheld but delivered": balance.contradicted,
            "unexplained duplicates": sorted(balance.unexplained),
            "still at the source": () if balance.remaining == 0 else (str(balance.remaining),),
            "in the source's dead-letter queue": balance.dead_lettered,
            "out of order": balance.order_breaks if self.scenario.route.keeps_order else (),
        }
        objections = [f"{what}: {', '.join(names)}" for what, names in found.items() if names]
        if self.scenario.most_failed is not None and balance.deliveries > self.scenario.most_failed:
            objections.append(f"{balance.deliveries} failed deliveries, expected {self.scenario.most_failed} at most")
        if self.scenario.repeats is not None and self.scenario.repeats != bool(balance.duplicates):
            found_any = "some" if balance.duplicates else "no"
            objections.append(f"{found_any} duplicates, expected {'some' if self.scenario.repeats else 'none'}")
        return objections
