"""The table of the fault suite: one line for each scenario, as the tests assert it."""

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
    """Return *rows* as a table; a dash replaces the order breaks if the services promise no order per key."""
    drawn = Table("scenario", "route")
    for column in _COLUMNS:
        drawn.add_column(column, justify="right")
    drawn.add_column("explanation of the duplicates")
    for row in rows:
        balance = row.balance
        drawn.add_row(
            row.scenario.name,
            str(row.scenario.route),
            str(balance.accepted),
            str(balance.delivered),
            str(balance.withheld),
            str(balance.rejected),
            str(balance.remaining),
            str(len(balance.lost)),
            str(balance.duplicates.total()),
            str(len(balance.order_breaks)) if row.scenario.route.keeps_order else "-",
            str(len(balance.dead_lettered)),
            row.scenario.explains if balance.duplicates else "",
        )
    return drawn
