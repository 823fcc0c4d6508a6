"""`busway forward`: send the records of a Kafka topic to an event hub."""

from pathlib import Path
from typing import Annotated

import typer

from cli.options import Folder


def forward(
    topic: Annotated[str, typer.Argument(metavar="CONNECTION/TOPIC", help="A topic of a connection of kind kafka.")],
    hub: Annotated[str, typer.Argument(metavar="CONNECTION/HUB", help="The event hub that gets the records.")],
    *,
    group: Annotated[str, typer.Option(help="The consumer group, which remembers what was sent.")],
    rejects: Annotated[
        Path, typer.Option(metavar="FILE", help="The file for records that the hub cannot take, one on a line.")
    ] = Path("build/forward/rejects.jsonl"),
    idle: Annotated[
        float | None,
        typer.Option(min=0.1, metavar="SECONDS", help="End after this time without a record; by default with Ctrl-C."),
    ] = None,
    task: Annotated[
        str | None, typer.Option(metavar="NAME", help="Its name in the journal. [default: the consumer group]")
    ] = None,
    stop_within: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="How long a batch in hand may take after a signal.")
    ] = 15.0,  # Kubernetes and Container Apps kill 30 s after the signal, Docker after 10 s
    config: Folder = Path("config"),
) -> None:
    """
    Send the records of a Kafka topic to an event hub, where tasks can take them.

    Headers that Busway wrote get back their types, headers of others become properties, the key is the partition key.
    The records of a key arrive in order and none is lost: the group goes on only after the hub has accepted them. With
    SIGTERM or Ctrl-C it finishes the batch in hand; after a kill some are sent twice. Several processes with one group
    share the partitions. A journal in config/journal.yaml has each record as that of a task. Example:

        busway forward stream/readings office/readings --group to-office
    """
    from cli.forward.forwarder import Forwarder
    from cli.forward.surroundings import rejects_file, surroundings
    from cli.places import open_place
    from cli.signals import run_until_signalled
    from shared.tasks.files import load

    with open_place(topic, config) as source, open_place(hub, config) as target:
        configuration = load(config)
        output, records, rest = surroundings(configuration, source, target, task or group)
        with rejects_file(rejects) as reject:
            site = configuration.site(source.alias)
            forwarder = Forwarder(
                source,
                target,
                group,
                idle=idle,
                site=site,
                output=output,
                reject=reject,
                records=records,
            )

            def stop() -> None:
                text = f"stops after the batch in hand, within {stop_within:g} s; a second signal ends it at once"
                typer.echo(text, err=True)
                forwarder.stop(stop_within)

            async def run() -> None:
                async with rest:
                    await forwarder.run()

            try:
                run_until_signalled(run(), stop)
            finally:
                rejected = f", {forwarder.rejected} rejected into {rejects}" if forwarder.rejected else ""
                stopped = "; stopped, nothing in hand" if forwarder.is_stopped else ""
                typer.echo(f"{forwarder.sent} forwarded from {source} to {target}{rejected}{stopped}")
