"""The command line of `busway failover drill`."""

from typing import Annotated

import typer


def drill(
    *,
    messages: Annotated[
        int,
        typer.Option(min=8, max=100_000, help="Messages to publish in each part: before, during and after the outage."),
    ] = 100,
    rate: Annotated[float, typer.Option(min=1, help="Messages published a second.")] = 50.0,
    decide: Annotated[float, typer.Option(min=0, help="Seconds from the first failed send to the switch.")] = 2.0,
    disaster: Annotated[
        bool, typer.Option("--disaster", help="The failed site does not return, and there is no failback.")
    ] = False,
    max_lost: Annotated[int, typer.Option(min=0, help="Objective: accepted messages that no consumer received.")] = 0,
    max_duplicates: Annotated[
        int | None, typer.Option(min=0, help="Objective: deliveries of messages that were already processed.")
    ] = None,
    max_order_breaks: Annotated[
        int | None, typer.Option(min=0, help="Objective: messages processed after a later one of their session.")
    ] = None,
    max_switch: Annotated[
        float, typer.Option(min=0, help="Objective: seconds from the cut until all consumers work at the other site.")
    ] = 30.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of the events and the table.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what the drill would do.")] = False,
) -> None:
    """
    Simulate an outage on this machine and report its effects; exit code 1 if an objective is not met.

    Two sites, west and east, run as separate processes, with a task that copies messages from west to east. A
    publisher and consumers follow the endpoint document in build/drill/config. The drill kills west while messages
    are being sent, switches the document to east like `busway failover switch`, restarts west with the messages on
    its disk, and returns like `busway failover failback`: publishers immediately, consumers when no messages are left
    in east.
    """
    from cli.failover.drill.report import Objectives, print_plan, run_and_report
    from cli.failover.drill.run import Plan

    plan = Plan(messages, rate, decide, disaster)
    objectives = Objectives(max_lost, max_duplicates, max_order_breaks, max_switch)
    if dry_run:
        print_plan(plan, objectives, as_json=as_json)
        return
    raise typer.Exit(0 if run_and_report(plan, objectives, as_json=as_json) else 1)
