"""`busway failover drill`: its options, its report, and what it makes of the objectives."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import typer
from rich.table import Table

from cli.children import ChildFailed
from cli.failover.drill.run import Course, Result, run
from cli.failover.register import FailoverRefused
from cli.folders import free_folder
from cli.output import console, fail
from cli.stack import ROOT, run_until_signalled
from shared.errors import ConfigError, TargetUnavailable

WORK = ROOT / "build/drill"


@dataclass(frozen=True)
class Line:
    """One thing that was observed, and what was asked of it."""

    name: str
    observed: float | None
    objective: float | None = None
    unit: str = ""

    @property
    def is_met(self) -> bool:
        """Whether the objective, if there is one, is met; what did not happen meets none."""
        return self.objective is None or (self.observed is not None and self.observed <= self.objective)


def drill(
    *,
    messages: Annotated[
        int, typer.Option(min=8, max=100_000, help="How many to publish in each part: before, in and after the outage.")
    ] = 100,
    rate: Annotated[float, typer.Option(min=1, help="Messages published a second.")] = 50.0,
    decide: Annotated[float, typer.Option(min=0, help="Seconds from the first failed send to the switch.")] = 2.0,
    disaster: Annotated[
        bool, typer.Option("--disaster", help="The site that is cut never comes back; there is no failback.")
    ] = False,
    max_lost: Annotated[int, typer.Option(min=0, help="Objective: accepted messages that nobody ever got.")] = 0,
    max_duplicates: Annotated[
        int | None, typer.Option(min=0, help="Objective: deliveries of what had been processed.")
    ] = None,
    max_order_breaks: Annotated[
        int | None, typer.Option(min=0, help="Objective: messages processed after a later one of their session.")
    ] = None,
    max_switch: Annotated[
        float, typer.Option(min=0, help="Objective: seconds from the cut until all consumers work at the other site.")
    ] = 30.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of the course and the table.")
    ] = False,
) -> None:
    """
    Run an outage on this machine and report what it costs; exit code 1 if an objective is not met.

    Two sites, west and east, run as processes of their own, with a task that carries copies from west to east.
    Publisher and consumers follow the endpoint document in build/drill/config. West is killed while messages are on
    their way; the document is switched to east, as by `busway failover switch`; west is started again with what it had
    on its disk; publishers go back, and consumers as soon as nothing is left for them in east, as by `busway failover
    failback`.
    """
    course = Course(messages, rate, decide, disaster)
    tell = (lambda _: None) if as_json else console().print
    try:
        with free_folder(WORK) as work:
            result = run_until_signalled(run(course, work, tell))
    except ConfigError as error:
        fail(error.problems)
    except (ChildFailed, FailoverRefused, TargetUnavailable) as error:
        fail([error])
    if result is None:
        raise typer.Exit(1)
    are_met = report(result, max_lost, max_duplicates, max_order_breaks, max_switch, as_json=as_json)
    raise typer.Exit(0 if are_met else 1)


def report(
    result: Result,
    max_lost: int,
    max_duplicates: int | None,
    max_order_breaks: int | None,
    max_switch: float,
    *,
    as_json: bool = False,
) -> bool:
    """Print *result*, and return whether it meets the objectives."""
    lines = list(_lines(result, max_lost, max_duplicates, max_order_breaks, max_switch))
    are_met = all(line.is_met for line in lines)
    if as_json:
        typer.echo(json.dumps(_plain(result, lines, are_met=are_met)))
    else:
        _print(result, lines, are_met=are_met)
    return are_met


def _lines(
    result: Result, max_lost: int, max_duplicates: int | None, max_order_breaks: int | None, max_switch: float
) -> Iterator[Line]:
    counted = result.tally
    yield Line("accepted", counted.accepted)
    yield Line("processed", counted.processed)
    yield Line("lost", len(counted.lost), max_lost)
    yield Line("duplicates", sum(counted.duplicates.values()), max_duplicates)
    yield Line("order breaks", counted.order_breaks, max_order_breaks)
    yield Line("cut to first failed send", result.noticed_seconds, None, "s")
    yield Line("cut to switch", result.switched_seconds, None, "s")
    yield Line("cut to publishing again", result.publishers_seconds, max_switch, "s")
    yield Line("cut to consuming again", result.consumers_seconds, max_switch, "s")
    if result.failback_seconds is not None:
        yield Line("restored to consuming there", result.failback_seconds, None, "s")
        yield Line("failbacks refused", result.refusals)
        yield Line("most messages in its way", result.held_back)


def _plain(result: Result, lines: list[Line], *, are_met: bool) -> dict[str, object]:
    return {
        "are_met": are_met,
        "observed": {line.name: None if line.observed is None else round(line.observed, 2) for line in lines},
        "objectives": {line.name: line.objective for line in lines if line.objective is not None},
        "duplicates_by_site": dict(result.tally.duplicates),
        "lost_numbers": list(result.tally.lost),
        "left": {each.entity: each.messages for each in result.left},
    }


def _print(result: Result, lines: list[Line], *, are_met: bool) -> None:
    table = Table("observed", "", "objective", "met")
    for line in lines:
        number = "never" if line.observed is None else f"{line.observed:.1f} s" if line.unit else f"{line.observed}"
        asked = "-" if line.objective is None else f"at most {line.objective:g}{line.unit and ' s'}"
        table.add_row(line.name, number, asked, "-" if line.objective is None else "yes" if line.is_met else "NO")
    console().print(table)
    by_site = ", ".join(f"{count} from {site}" for site, count in sorted(result.tally.duplicates.items()))
    if by_site:
        typer.echo(f"Duplicates, known by their ids and skipped: {by_site}.")
    left = ", ".join(f"{each.messages} in {each.entity}" for each in result.left if each.messages)
    if left:
        typer.echo(f"Not received: {left}.")
    typer.echo("All objectives are met." if are_met else "NOT all objectives are met.")
