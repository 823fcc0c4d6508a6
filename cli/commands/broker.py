"""`busway broker`: Service Bus and Event Hubs namespaces on this machine."""

from pathlib import Path
from typing import Annotated

import typer

# The same as in busway_broker.process, which is imported when the command runs.
DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 5672
DEFAULT_ADMIN_PORT = 5300


def broker(
    *,
    config: Annotated[
        list[Path] | None,
        typer.Option(
            help="A Config.json in the format of Microsoft's emulators; may be repeated.",
            show_default="two empty namespaces, service-bus and event-hubs",
        ),
    ] = None,
    create_entities: Annotated[
        bool,
        typer.Option(
            "--create-entities",
            help="Create queues, topics with subscriptions, and event hubs when a client first uses them.",
        ),
    ] = False,
    host: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="The address to listen on. 0.0.0.0 lets everyone in the network use broker and administration.",
        ),
    ] = DEFAULT_HOST,
    port: Annotated[
        int,
        typer.Option(
            min=0, max=65535, help="Port of the first namespace, which the others follow; 0 picks free ports."
        ),
    ] = DEFAULT_PORT,
    admin_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            show_default=f"{DEFAULT_ADMIN_PORT}, or free ports with --port 0",
            help="Administration port of the first namespace, which the others follow; 0 picks free ports.",
        ),
    ] = None,
    tls: Annotated[
        Path | None,
        typer.Option(
            help="Accept TLS on the same ports, and serve the administration over https, with the certificate in this "
            "folder, which is created at the first use. Clients trust its busway-ca.pem."
        ),
    ] = None,
    admin_tls: Annotated[
        Path | None, typer.Option(help="Only serve the administration over https, in the same way.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Store entities and messages in this folder; without it they are lost when the broker stops."
        ),
    ] = None,
    fsync: Annotated[
        bool,
        typer.Option(
            help="With --data: accept a message once it is on the disk. With --no-fsync, messages survive a crash of "
            "the broker but not of the machine."
        ),
    ] = True,
    manual_clock: Annotated[
        bool,
        typer.Option(
            "--manual-clock",
            help="Stop the clock: locks and messages expire, and scheduled messages become active, only when a request "
            "to /$busway/clock of the administration advances it.",
        ),
    ] = False,
    link_idle: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            max=1e9,
            metavar="SECONDS",
            show_default="600",
            help="End a link to a queue, topic or subscription after this time without use, as Azure does.",
        ),
    ] = None,
    connection_idle: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            max=1e9,
            metavar="SECONDS",
            show_default="300",
            help="Close a connection this time after its last link has ended, and after a fifth of it one that "
            "never had a link, as Azure does.",
        ),
    ] = None,
    strict_emulator: Annotated[
        bool, typer.Option("--strict-emulator", help="Apply the limits of Microsoft's emulators.")
    ] = False,
) -> None:
    """
    Serve the queues, topics and event hubs of Config.json files over AMQP, for Microsoft's own SDKs.

    The files have the format of the official Service Bus and Event Hubs emulators. A file may define several
    namespaces, and a namespace may set a `Port` of its own. Once the broker is listening it prints one line for each
    namespace, in the order of the files: `ready`, its name and its connection string. Then it prints one line for each
    to standard error: `admin`, its name and the address for the SDKs' administration clients. Those clients accept only
    https: pass a folder to `--tls` and let them trust the `busway-ca.pem` in it. SIGTERM or Ctrl-C stops the
    broker. Example:

    busway broker --config infra/emulators/west.json --config infra/emulators/east.json
    """
    from busway_broker.process import Options, run_broker

    options = Options(
        configs=config or (),
        host=host,
        port=port,
        admin_port=admin_port,
        tls=tls,
        admin_tls=admin_tls,
        data=data,
        is_synced=fsync,
        is_strict=strict_emulator,
        creates_entities=create_entities,
        has_manual_clock=manual_clock,
        link_idle=link_idle,
        connection_idle=connection_idle,
    )
    run_broker(options)
