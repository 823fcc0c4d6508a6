"""The report of the demo."""

from collections.abc import Iterator, Sequence
from statistics import quantiles

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cli.demo.expectations import Verdict
from cli.demo.messages import Pattern
from shared.printable import printable

_MOST_DIFFERENCES = 20

_TITLES = {
    Pattern.ALL_ACTIVE: "all-active (events)",
    Pattern.ACTIVE_PASSIVE: "active-passive (payments)",
    Pattern.SPILLOVER: "spillover (jobs)",
}
_COLUMNS = (
    "sent",
    "arrived",
    "lost",
    "duplicates",
    "order breaks",
    "bounced",
    "property changes",
    "lag p50",
    "p95",
    "p99 (ms)",
)


def print_report(
    console: Console, verdicts: Sequence[Verdict], others: Sequence[str], count: int, seconds: float
) -> bool:
    """Print the table of the *count* messages sent and what differs; return whether nothing does."""
    console.print(_table(verdicts))
    differences = [line for verdict in verdicts for line in _differences(verdict)] + list(others)
    if differences:
        count = len(others) + sum(len(about) for verdict in verdicts for about in verdict.differences.values())
        console.print(f"\nFAILED: {count} differences from what was expected.", style="bold red")
        for difference in differences[:_MOST_DIFFERENCES]:
            console.print(f"  {printable(difference)}", soft_wrap=True)
        if len(differences) > _MOST_DIFFERENCES:
            console.print(f"  … and {len(differences) - _MOST_DIFFERENCES} more")
        return False
    arrived = sum(verdict.arrived for verdict in verdicts)
    console.print(
        f"\nAll expectations hold: {count:,} messages, {arrived:,} deliveries in {seconds:.1f} s, each once and in the"
        " order of its session; bodies and properties arrived as they were sent, except for the documented stamps.",
        style="bold green",
        soft_wrap=True,
    )
    return True


def _table(verdicts: Sequence[Verdict]) -> Table:
    table = Table()
    table.add_column("pattern", no_wrap=True)
    table.add_column("way", no_wrap=True)
    for column in _COLUMNS:
        table.add_column(column, justify="right")
    before: Pattern | None = None
    for verdict in verdicts:
        if before is not None and verdict.pattern is not before:
            table.add_section()
        title = "" if verdict.pattern is before else _TITLES[verdict.pattern]
        before = verdict.pattern
        lost = verdict.sent - verdict.arrived
        # Without sessions Service Bus promises no order.
        order_breaks = _count(verdict.order_breaks) if verdict.pattern is Pattern.ALL_ACTIVE else Text("-")
        table.add_row(
            title,
            verdict.way,
            str(verdict.sent),
            str(verdict.arrived),
            _count(lost),
            _count(verdict.duplicates),
            order_breaks,
            _count(verdict.bounced),
            _count(verdict.changes),
            *_percentiles(verdict.lags),
        )
    return table


def _differences(verdict: Verdict) -> Iterator[str]:
    for what, about in verdict.differences.items():
        others = f" (and {len(about) - 1} more)" if len(about) > 1 else ""
        yield f"{verdict.pattern}, {verdict.way}: {about[0]}{others}: {what}"


def _count(number: int) -> Text:
    return Text(str(number), style="bold red" if number else "")


def _percentiles(lags: Sequence[int]) -> list[str]:
    if not lags:
        return ["-"] * 3
    hundredths = quantiles([*lags, *lags[:1]] if len(lags) == 1 else lags, n=100, method="inclusive")
    return [f"{hundredths[percent - 1]:.0f}" for percent in (50, 95, 99)]
