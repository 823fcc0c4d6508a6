"""The process of `busway broker`."""

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
from typing import TypedDict

import typer

from cli.output import fail, print_ready
from local.broker.admin.certificate import server_context
from local.broker.admin.server import AdminServer
from local.broker.config import NamespaceConfig
from local.broker.config_file import load_config
from local.broker.event_loop import new_event_loop
from local.broker.server import BrokerServer
from local.broker.storage.database import StorageError
from shared.errors import BuswayError, ConfigError


class _Storage(TypedDict):
    data: Path | None
    is_synced: bool


class PortTaken(BuswayError):
    """A port that the broker cannot listen on."""


def run_broker(
    configs: Sequence[Path],
    port: int,
    admin_port: int,
    admin_tls: Path | None,
    data: Path | None,
    *,
    is_synced: bool,
    is_strict: bool,
) -> None:
    """Serve the namespaces of *configs* until SIGTERM or SIGINT; a port of 0 picks free ports."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        tls = None if admin_tls is None else server_context(admin_tls)
        namespaces = list(_with_ports(load_config(configs, is_strict=is_strict), port))
        storage = partial(_storage, data, is_synced=is_synced)
        asyncio.run(_serve(namespaces, admin_port, tls, storage), loop_factory=new_event_loop)
    except ConfigError as error:
        fail(error.problems)
    except (PortTaken, StorageError) as error:
        fail([error])


def _with_ports(namespaces: Sequence[NamespaceConfig], first: int) -> Iterator[NamespaceConfig]:
    """Yield *namespaces* with consecutive ports from *first*; those with a port of their own keep it."""
    following = first
    for namespace in namespaces:
        if namespace.port is not None or first == 0:
            yield namespace
        else:
            yield replace(namespace, port=following)
            following += 1


def _storage(data: Path | None, number: int, *, is_synced: bool) -> _Storage:
    """Return where to store the *number*-th namespace of one name: the emulators give all namespaces the same name."""
    return {"data": data if data is None or number == 1 else data / str(number), "is_synced": is_synced}


async def _serve(
    namespaces: Sequence[NamespaceConfig],
    admin_port: int,
    tls: ssl.SSLContext | None,
    storage: Callable[[int], _Storage],
) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with contextlib.AsyncExitStack() as open_servers:
        strings, addresses, servers = [], [], []
        numbers: Counter[str] = Counter()
        for index, namespace in enumerate(namespaces):
            # One server for each namespace: the emulators give all of them the same name.
            numbers[namespace.name] += 1
            server = BrokerServer([namespace], **storage(numbers[namespace.name]))
            servers.append(server)
            with _as_port_error(f"port {namespace.port}: cannot listen for {namespace.name}"):
                await open_servers.enter_async_context(server)
            strings.append(server.connection_string(namespace.name))
            port = admin_port + index if admin_port else 0
            admin = AdminServer(server, {namespace.name: port}, tls)
            with _as_port_error(f"--admin-port {port}: cannot listen for the administration of {namespace.name}"):
                await open_servers.enter_async_context(admin)
            addresses.append(admin.address(namespace.name))
        for namespace, string in zip(namespaces, strings, strict=True):
            print_ready(namespace.name, string)
        for namespace, address in zip(namespaces, addresses, strict=True):
            typer.echo(f"admin {namespace.name} {address}", err=True)
        await _wait_for_stop(stopped, servers)


async def _wait_for_stop(stopped: asyncio.Event, servers: Iterable[BrokerServer]) -> None:
    """Wait until *stopped* is set; raises StorageError as soon as a server cannot store its state."""
    stop = asyncio.create_task(stopped.wait())
    failures = [asyncio.create_task(server.failed()) for server in servers]
    await asyncio.wait([stop, *failures], return_when=asyncio.FIRST_COMPLETED)
    for failure in failures:
        if failure.done():
            raise failure.result()
        failure.cancel()
    stop.cancel()


@contextlib.contextmanager
def _as_port_error(what: str) -> Iterator[None]:
    """Raise PortTaken, beginning with *what*, if a port cannot be opened."""
    try:
        yield
    except (OSError, OverflowError) as error:
        # The text of asyncio names the address, which the user did not write.
        reason = os.strerror(error.errno or 0) if isinstance(error, OSError) else "it is not a valid port"
        raise PortTaken(f"{what}, {reason}") from error
