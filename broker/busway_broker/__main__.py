"""`busway-broker`: the command of the distribution, which needs no other part of Busway."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from busway_broker.process import (
    DEFAULT_ADMIN_PORT,
    DEFAULT_HOST,
    DEFAULT_PORT,
    Options,
    PortTaken,
    StorageError,
    run_broker,
)
from shared.errors import ConfigError
from shared.printable import printable

_LAST_PORT = 65_535
_MAX_IDLE = 1e9
_DESCRIPTION = f"""\
Run Azure Service Bus and Event Hubs on this machine, for Microsoft's own clients.

Without options it serves two empty namespaces: service-bus on port {DEFAULT_PORT}
and event-hubs on port {DEFAULT_PORT + 1}. Once it listens, it prints a line for each:
"ready", its name and its connection string; and to standard error "admin",
its name and the address of its administration. Ctrl-C or SIGTERM stops it.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    options = _read(arguments)
    try:
        run_broker(options)
    except ConfigError as error:
        return _fail(error.problems)
    except (PortTaken, StorageError) as error:
        return _fail([error])
    return 0


def _read(arguments: Sequence[str] | None) -> Options:
    parser = argparse.ArgumentParser(
        prog="busway-broker", description=_DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--config",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="a Config.json in the format of Microsoft's emulators; may be repeated",
    )
    parser.add_argument(
        "--create-entities",
        action="store_true",
        help="create queues, topics with subscriptions, and event hubs when a client first uses them",
    )
    parser.add_argument(
        "--host",
        default=DEFAULT_HOST,
        metavar="ADDRESS",
        help="the address to listen on; 0.0.0.0, as a container needs it, lets everyone in the network use the broker "
        f"and its administration (default: {DEFAULT_HOST})",
    )
    parser.add_argument(
        "--port",
        type=_port,
        default=DEFAULT_PORT,
        help=f"port of the first namespace, which the others follow; 0 picks free ports (default: {DEFAULT_PORT})",
    )
    parser.add_argument(
        "--admin-port",
        type=_port,
        metavar="PORT",
        help=f"the same for the administration (default: {DEFAULT_ADMIN_PORT}, or free ports with --port 0)",
    )
    parser.add_argument(
        "--tls",
        type=Path,
        metavar="FOLDER",
        help="accept TLS on the same ports, and serve the administration over https, with the certificate in this "
        "folder, which is created at the first use; clients trust its busway-ca.pem",
    )
    parser.add_argument(
        "--admin-tls", type=Path, metavar="FOLDER", help="only serve the administration over https, in the same way"
    )
    parser.add_argument(
        "--data",
        type=Path,
        metavar="FOLDER",
        help="store entities and messages in this folder; without it they are lost when the broker stops",
    )
    parser.add_argument(
        "--no-fsync",
        action="store_true",
        help="with --data: messages survive a crash of the broker, but perhaps not of the machine",
    )
    parser.add_argument(
        "--manual-clock",
        action="store_true",
        help="stop the clock: locks and messages expire, and scheduled messages become active, only when a request to "
        "/$busway/clock of the administration advances it",
    )
    parser.add_argument(
        "--link-idle",
        type=_seconds,
        metavar="SECONDS",
        help="end a link to a queue, topic or subscription after this time without use, as Azure does (default: 600)",
    )
    parser.add_argument(
        "--connection-idle",
        type=_seconds,
        metavar="SECONDS",
        help="close a connection this time after its last link has ended, and after a fifth of it one that never had a "
        "link, as Azure does (default: 300)",
    )
    parser.add_argument("--strict-emulator", action="store_true", help="apply the limits of Microsoft's emulators")
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    found = parser.parse_args(arguments)
    if found.version:
        print("busway-broker", _version())
        parser.exit()
    return Options(
        configs=found.config,
        host=found.host,
        port=found.port,
        admin_port=found.admin_port,
        tls=found.tls,
        admin_tls=found.admin_tls,
        data=found.data,
        is_synced=not found.no_fsync,
        is_strict=found.strict_emulator,
        creates_entities=found.create_entities,
        has_manual_clock=found.manual_clock,
        link_idle=found.link_idle,
        connection_idle=found.connection_idle,
    )


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= _LAST_PORT):
        raise argparse.ArgumentTypeError(f"{printable(text)!r} is no port, expected 0 to {_LAST_PORT}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= _MAX_IDLE:
        raise argparse.ArgumentTypeError(f"{printable(text)!r} is no time, expected seconds, up to {_MAX_IDLE:g}")
    return seconds


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - it delays every start

    try:
        return version("busway-broker")
    except PackageNotFoundError:
        return "(not installed)"


def _fail(problems: Sequence[object]) -> int:
    for problem in problems:
        # A name in a file may hold control characters.
        print("\n".join(map(printable, str(problem).split("\n"))), file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
