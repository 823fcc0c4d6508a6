"""The table of the fault suite: two lines for each scenario, as the tests assert it."""

import textwrap
from collections.abc import Iterable, Iterator

from tests.faults.scenario import Row

_WIDTH = 80
_COLUMNS = (
    "accepted",
    "delivered",
    "withheld",
    "rejected",
    "at source",
    "lost",
    "twice",
    "disorder",
    "dead",
    "count",
)
_WIDTHS = (8, 10, 9, 9, 10, 6, 7, 9, 6, 6)


def table(rows: Iterable[Row]) -> Iterator[str]:
    """
    Yield the lines of a table of *rows*, as wide as a terminal.

    Below `disorder`, a dash says that the services promise no order per key; `dead` are messages in the dead-letter
    queue of the source, `count` is the highest delivery count that was seen there.
    """
    yield _line(_COLUMNS)
    sums = [0] * len(_COLUMNS)
    for row in rows:
        balance = row.balance
        figures = (
            balance.accepted,
            balance.delivered,
            balance.withheld,
            balance.rejected,
            balance.remaining,
            len(balance.lost),
            balance.duplicates.total(),
            len(balance.order_breaks) if row.scenario.route.keeps_order else 0,
            len(balance.dead_lettered),
            balance.deliveries,
        )
        sums = [total + figure for total, figure in zip(sums, figures, strict=True)]
        sums[-1] = max(sums[-1] - balance.deliveries, balance.deliveries)
        yield from _wrapped(str(row.scenario), "")
        shown = [str(figure) for figure in figures]
        if not row.scenario.route.keeps_order:
            shown[_COLUMNS.index("disorder")] = "-"
        yield _line(shown)
        if balance.duplicates:
            yield from _wrapped(f"twice: {row.scenario.explains}", "    ")
    yield "all scenarios"
    yield _line(map(str, sums))


def _line(cells: Iterable[str]) -> str:
    return "".join(cell.rjust(width) for cell, width in zip(cells, _WIDTHS, strict=True))


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=indent, subsequent_indent=f"{indent}  ")
