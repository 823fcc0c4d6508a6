"""The report of the demo."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from statistics import quantiles

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cli.demo.expectations import AS_SENT, AUXILIARY_WAY, Verdict
from cli.demo.messages import Pattern
from shared.printable import printable

_MOST_DIFFERENCES = 20

_TITLES = {
    Pattern.ALL_ACTIVE: "all-active (events)",
    Pattern.ACTIVE_PASSIVE: "active-passive (payments)",
    Pattern.SPILLOVER: "spillover (jobs)",
}
_COUNTS = ("sent", "arrived", "lost", "twice", "disorder", "bounced", "changed")
_WIDEST_WAY = len("west → east → auxiliary")


def print_report(
    console: Console, verdicts: Sequence[Verdict], others: Sequence[str], count: int, seconds: float
) -> bool:
    """Print the verdict on the *count* messages sent, the tables and what differs; return whether nothing does."""
    differences = []
    for verdict in verdicts:
        for what, about in verdict.differences.items():
            more = f" (and {len(about) - 1} more)" if len(about) > 1 else ""
            differences.append(f"{verdict.pattern}, {verdict.way}: {about[0]}{more}: {what}")
    differences += others
    console.print()
    if differences:
        number = len(others) + sum(len(about) for verdict in verdicts for about in verdict.differences.values())
        console.print(f"FAILED: {number} differences from what was expected.", style="bold red")
        for difference in differences[:_MOST_DIFFERENCES]:
            console.print(f"  {printable(difference)}", soft_wrap=True)
        if len(differences) > _MOST_DIFFERENCES:
            console.print(f"  … and {len(differences) - _MOST_DIFFERENCES} more")
    else:
        console.print(_success(verdicts, count, seconds), style="bold green")
    console.print()
    console.print(_counts(verdicts))
    console.print()
    lags = _table("p50", "p95", "p99", first="lag in ms")
    for verdict in _with_titles(lags, [verdict for verdict in verdicts if verdict.lags]):
        hundredths = quantiles([*verdict.lags, *verdict.lags[: len(verdict.lags) == 1]], n=100, method="inclusive")
        lags.add_row(f"  {verdict.way}", *(f"{hundredths[percent - 1]:.0f}" for percent in (50, 95, 99)))
    console.print(lags)
    if note := _carried_by_tasks(verdicts):
        console.print(f"\n{note}")
    return not differences


def _carried_by_tasks(verdicts: Sequence[Verdict]) -> str:
    """Explain how the number of messages in the journals follows from the number sent; empty if they are equal."""
    stayed = sum(
        verdict.sent for verdict in verdicts if verdict.pattern is Pattern.SPILLOVER and verdict.way.endswith(AS_SENT)
    )
    twice = sum(verdict.sent for verdict in verdicts if verdict.way.endswith(AUXILIARY_WAY))
    if not stayed and not twice:
        return ""
    return (
        "A journal counts a message once for each task that carried it: "
        f"{stayed} jobs never failed, so no task took them, and {twice} were carried by two tasks."
    )


def _success(verdicts: Sequence[Verdict], count: int, seconds: float) -> str:
    arrived = sum(verdict.arrived for verdict in verdicts)
    own = sum(verdict.arrived for verdict in verdicts if verdict.way.endswith(AS_SENT))
    return (
        f"All expectations hold: {count:,} messages, {arrived:,} deliveries in {seconds:.1f} s "
        f"({own:,} where they were sent, {arrived - own:,} at the other site), each once and in the order of its "
        "session; bodies and properties arrived as they were sent, except for the documented stamps."
    )


def _counts(verdicts: Sequence[Verdict]) -> Table:
    table = _table(*_COUNTS)
    for verdict in _with_titles(table, verdicts):
        # Without sessions Service Bus promises no order.
        has_order = verdict.pattern is Pattern.ALL_ACTIVE
        table.add_row(
            f"  {verdict.way}",
            str(verdict.sent),
            str(verdict.arrived),
            _count(verdict.sent - verdict.arrived),
            _count(verdict.duplicates),
            _count(verdict.order_breaks) if has_order else Text("-"),
            _count(verdict.bounced),
            _count(verdict.changes),
        )
    return table


def _table(*columns: str, first: str = "") -> Table:
    """Return a table that fits 80 columns, also with 100,000 messages."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(first, no_wrap=True, min_width=_WIDEST_WAY + 2)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _with_titles(table: Table, verdicts: Sequence[Verdict]) -> Iterator[Verdict]:
    """Yield *verdicts*, after a row with the title of their pattern."""
    for pattern, same in groupby(verdicts, lambda verdict: verdict.pattern):
        table.add_row(_TITLES[pattern])
        yield from same


def _count(number: int) -> Text:
    return Text(str(number), style="bold red" if number else "")
