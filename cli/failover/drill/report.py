"""The report of a drill: the figures, the objectives, and whether they are met."""

import json
from dataclasses import dataclass
from pathlib import Path

import typer
from rich.table import Table

from cli.failover.drill.drill import Result
from cli.output import console

WORK = Path.cwd() / "build/drill"


@dataclass(frozen=True)
class Objectives:
    """The highest figures that are acceptable; None for a figure without an objective."""

    max_lost: int = 0
    max_duplicates: int | None = None
    max_order_breaks: int | None = None
    max_switch_seconds: float = 30.0


@dataclass(frozen=True)
class Line:
    """One observed figure and its objective, if it has one."""

    name: str
    observed: float | None
    objective: float | None = None
    unit: str = ""

    @property
    def is_met(self) -> bool:
        """Whether the objective, if there is one, is met; a figure that was not observed meets none."""
        return self.objective is None or (self.observed is not None and self.observed <= self.objective)


def report(result: Result, objectives: Objectives, *, as_json: bool = False) -> bool:
    """Print *result*, and return whether it meets the objectives."""
    counted = result.tally
    lines = [
        Line("accepted", counted.accepted),
        Line("processed", counted.processed),
        Line("lost", len(counted.lost), objectives.max_lost),
        Line("duplicates", sum(counted.duplicates.values()), objectives.max_duplicates),
        Line("order breaks", counted.order_breaks, objectives.max_order_breaks),
        Line("cut to first failed send", result.noticed_seconds, None, "s"),
        Line("cut to switch", result.switched_seconds, None, "s"),
        Line("cut to publishing again", result.publishers_seconds, objectives.max_switch_seconds, "s"),
        Line("cut to consuming again", result.consumers_seconds, objectives.max_switch_seconds, "s"),
    ]
    if result.failback_seconds is not None:
        lines.append(Line("restored to consuming there", result.failback_seconds, None, "s"))
        lines.append(Line("failbacks refused", result.refusals))
        lines.append(Line("most messages to wait for", result.held_back))
    are_met = all(line.is_met for line in lines)
    if as_json:
        document = {
            "are_met": are_met,
            "observed": {line.name: None if line.observed is None else round(line.observed, 2) for line in lines},
            "objectives": {line.name: line.objective for line in lines if line.objective is not None},
            "duplicates_by_site": dict(result.tally.duplicates),
            "lost_numbers": list(result.tally.lost),
            "left": {entity.entity: entity.messages for entity in result.left},
        }
        typer.echo(json.dumps(document))
    else:
        _print(result, lines, are_met=are_met)
    return are_met


def _print(result: Result, lines: list[Line], *, are_met: bool) -> None:
    table = Table("observed", "", "objective", "met")
    for line in lines:
        number = "never" if line.observed is None else f"{line.observed:.1f} s" if line.unit else f"{line.observed}"
        asked = "-" if line.objective is None else f"at most {line.objective:g}{line.unit and ' s'}"
        table.add_row(line.name, number, asked, "-" if line.objective is None else "yes" if line.is_met else "NO")
    console().print(table)
    by_site = ", ".join(f"{count} from {site}" for site, count in sorted(result.tally.duplicates.items()))
    if by_site:
        typer.echo(f"Duplicates, recognized by their ids and skipped: {by_site}.")
    left = ", ".join(f"{entity.messages} in {entity.entity}" for entity in result.left if entity.messages)
    if left:
        typer.echo(f"Not received: {left}.")
    typer.echo("All objectives are met." if are_met else "NOT all objectives are met.")
