"""`busway broker`: Service Bus and Event Hubs namespaces on this machine."""

import asyncio
import contextlib
import logging
import os
import signal
import ssl
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, TypedDict

import typer

from cli.output import fail, ready
from local.broker.admin.certificate import server_context
from local.broker.admin.server import AdminServer
from local.broker.config import NamespaceConfig
from local.broker.config_file import load_config
from local.broker.event_loop import new_event_loop
from local.broker.server import BrokerServer
from local.broker.storage.log import StorageError
from shared.errors import BuswayError, ConfigError

_DEFAULT_PORT = 5672
_DEFAULT_ADMIN_PORT = 5300


class _Keeping(TypedDict):
    data: Path | None
    is_synced: bool


class PortTaken(BuswayError):
    """A port that the broker is to listen on cannot be had."""


def broker(
    *,
    config: Annotated[
        list[Path], typer.Option(help="A Config.json in the format of Microsoft's emulators; may be given repeatedly.")
    ],
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of the first namespace, the others follow; 0 takes free ones.")
    ] = _DEFAULT_PORT,
    admin_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            show_default=f"{_DEFAULT_ADMIN_PORT}, or free ones with --port 0",
            help="Port that the first namespace is administered on, the others follow; 0 takes free ones.",
        ),
    ] = None,
    admin_tls: Annotated[
        Path | None,
        typer.Option(help="Administer over https, with the certificate in this folder; it is made if there is none."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Keep entities and messages in this folder; without it they end with the broker."),
    ] = None,
    fsync: Annotated[
        bool,
        typer.Option(
            help="With --data: answer when what was accepted is on the disk. Without, it survives the end of the "
            "broker, but not that of the machine."
        ),
    ] = True,
    strict_emulator: Annotated[
        bool, typer.Option("--strict-emulator", help="Refuse what Microsoft's emulators refuse, and keep their limits.")
    ] = False,
) -> None:
    """
    Serve the queues, topics and event hubs of Config.json files over AMQP, for Microsoft's own SDKs.

    The files are those of the official Service Bus and Event Hubs emulators; a file may hold several namespaces, and a
    namespace may name a `Port` of its own. Once it listens, one line is printed for each namespace, in the order of the
    files: `ready`, its name, and the connection string to reach it with; then one to standard error: `admin`, its name,
    and the address that the SDKs' administration clients and tests reach it at. Those clients insist on https: give
    `--admin-tls` a folder and let them trust the `busway-ca.pem` in it. SIGTERM and Ctrl-C end it. Example:

    busway broker --config infra/emulators/west.json --config infra/emulators/east.json
    """
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        tls = None if admin_tls is None else server_context(admin_tls)
        first_admin_port = (_DEFAULT_ADMIN_PORT if port else 0) if admin_port is None else admin_port
        keep = partial(_keep, data, is_synced=fsync)
        asyncio.run(
            _serve(
                list(_with_ports(load_config(config, is_strict=strict_emulator), port)), first_admin_port, tls, keep
            ),
            loop_factory=new_event_loop,
        )
    except ConfigError as error:
        fail(error.problems)
    except (PortTaken, StorageError) as error:
        fail([error])


def _with_ports(namespaces: Sequence[NamespaceConfig], first: int) -> Iterator[NamespaceConfig]:
    """Yield *namespaces* with consecutive ports from *first*, but for those that name their own."""
    following = first
    for namespace in namespaces:
        if namespace.port is not None or first == 0:
            yield namespace
        else:
            yield replace(namespace, port=following)
            following += 1


def _keep(data: Path | None, number: int, *, is_synced: bool) -> _Keeping:
    """Return where the *number*-th namespace of its name is kept: the emulators want all to have the same name."""
    return {"data": data if data is None or number == 1 else data / str(number), "is_synced": is_synced}


async def _serve(
    namespaces: Sequence[NamespaceConfig],
    admin_port: int,
    tls: ssl.SSLContext | None,
    keep: Callable[[int], _Keeping],
) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with contextlib.AsyncExitStack() as open_servers:
        strings, addresses, servers = [], [], []
        numbers: Counter[str] = Counter()
        for index, namespace in enumerate(namespaces):
            # A server of its own for each: the emulators want every namespace to have the same name.
            numbers[namespace.name] += 1
            server = BrokerServer([namespace], **keep(numbers[namespace.name]))
            servers.append(server)
            with _naming(f"port {namespace.port}: cannot listen for {namespace.name}"):
                await open_servers.enter_async_context(server)
            strings.append(server.connection_string(namespace.name))
            port = admin_port + index if admin_port else 0
            admin = AdminServer(server, {namespace.name: port}, tls)
            with _naming(f"--admin-port {port}: cannot listen for the administration of {namespace.name}"):
                await open_servers.enter_async_context(admin)
            addresses.append(admin.address(namespace.name))
        for namespace, string in zip(namespaces, strings, strict=True):
            ready(namespace.name, string)
        for namespace, address in zip(namespaces, addresses, strict=True):
            typer.echo(f"admin {namespace.name} {address}", err=True)
        await _stopped_or_failed(stopped, servers)


async def _stopped_or_failed(stopped: asyncio.Event, servers: Iterable[BrokerServer]) -> None:
    """Wait until somebody stops the broker; StorageError if it cannot keep its state any more."""
    stop = asyncio.create_task(stopped.wait())
    failures = [asyncio.create_task(server.failed()) for server in servers]
    await asyncio.wait([stop, *failures], return_when=asyncio.FIRST_COMPLETED)
    for failure in failures:
        if failure.done():
            raise failure.result()
        failure.cancel()
    stop.cancel()


@contextlib.contextmanager
def _naming(what: str) -> Iterator[None]:
    """Say what failed if a port cannot be had."""
    try:
        yield
    except (OSError, OverflowError) as error:
        # asyncio puts the address into its text, which names what the user did not write.
        reason = os.strerror(error.errno or 0) if isinstance(error, OSError) else "there is no such port"
        raise PortTaken(f"{what}, {reason}") from error
