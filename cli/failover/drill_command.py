"""The command line of `busway failover drill`."""

from typing import Annotated

import typer


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
        bool, typer.Option("--json", help="Print one JSON object instead of the events and the table.")
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
    from cli.failover.drill.report import Objectives, run_and_report
    from cli.failover.drill.run import Plan

    plan = Plan(messages, rate, decide, disaster)
    objectives = Objectives(max_lost, max_duplicates, max_order_breaks, max_switch)
    raise typer.Exit(0 if run_and_report(plan, objectives, as_json=as_json) else 1)
