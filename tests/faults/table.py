"""The fault suite's table: a line for each scenario, as the tests assert it."""

from collections.abc import Iterable

from rich.table import Table

from tests.faults.scenario import Row

_COLUMNS = (
    "accepted",
    "delivered",
    "withheld",
    "rejected",
    "still in source",
    "lost",
    "duplicates",
    "order breaks",
    "in DLQ",
)


def table(rows: Iterable[Row]) -> Table:
    """Return *rows* as a table; where the services promise no order per key, a dash stands for its breaks."""
    drawn = Table("scenario", "route")
    for column in _COLUMNS:
        drawn.add_column(column, justify="right")
    drawn.add_column("explanation of the duplicates")
    for row in rows:
        told = row.balance
        drawn.add_row(
            row.scenario.name,
            str(row.scenario.route),
            str(told.accepted),
            str(told.delivered),
            str(told.withheld),
            str(told.rejected),
            str(told.remaining),
            str(len(told.lost)),
            str(told.duplicates.total()),
            str(len(told.order_breaks)) if row.scenario.route.keeps_order else "-",
            str(len(told.dead_lettered)),
            row.scenario.explains if told.duplicates else "",
        )
    return drawn
