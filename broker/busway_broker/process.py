"""
The broker as a process: reads its configuration, prints where it listens, and serves until a signal.

It imports the administration's HTTP server after the `ready` lines: that takes longer than everything before it.
"""

import asyncio
import contextlib
import gc
import importlib
import logging
import os
import signal
import socket
import ssl
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from busway_broker.config import LinkLimits, NamespaceConfig, OnDemand
from busway_broker.config_file import load_config
from busway_broker.event_loop import new_event_loop
from busway_broker.server import BrokerServer
from busway_broker.storage.database import StorageError
from shared.clock import ManualClock
from shared.errors import BuswayError, ConfigError, Problem

DEFAULT_PORT = 5672
DEFAULT_ADMIN_PORT = 5300

DEFAULT_HOST = "127.0.0.1"
_OBJECTS_PER_COLLECTION = 100_000
# As in admin.certificate, which imports a package that is an extra of the wheel.
_AUTHORITY = "busway-ca.pem"
_DEFAULT_NAMESPACES = (NamespaceConfig(name="service-bus"), NamespaceConfig(name="event-hubs"))
_NO_ENTITIES = (
    "There are no entities. Declare them in a file (--config), let clients create them (--create-entities), or use an "
    "administration client."
)
_OTHER_PORT = "choose another port; --port 0 picks free ones"


class PortTaken(BuswayError):
    """A port that the broker cannot listen on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """
    The options of the command, which both `busway broker` and `busway-broker` have.

    Shape: a port of 0 picks free ports; admin_port None is the default, or 0 if port is 0.
    Units: link_idle and connection_idle in seconds of the broker's clock; None leaves what the file says.
    """

    configs: Sequence[Path] = ()
    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    admin_port: int | None = None
    tls: Path | None = None
    admin_tls: Path | None = None
    data: Path | None = None
    is_synced: bool = True
    is_strict: bool = False
    creates_entities: bool = False
    has_manual_clock: bool = False
    link_idle: float | None = None
    connection_idle: float | None = None


def run_broker(options: Options) -> None:
    """Serve until SIGTERM or SIGINT; ConfigError, PortTaken or StorageError if that is not possible."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    if options.creates_entities and options.is_strict:
        raise ConfigError([Problem("--create-entities", "the emulators create no entities", "omit --strict-emulator")])
    if options.has_manual_clock and options.data is not None:
        raise ConfigError([Problem("--manual-clock", "the next start would find times in its future", "omit --data")])
    tls = None if options.tls is None else _tls("--tls", options.tls)
    admin_tls = tls if options.admin_tls is None else _tls("--admin-tls", options.admin_tls)
    asyncio.run(_serve(list(_namespaces(options)), options, tls, admin_tls), loop_factory=new_event_loop)


def _tls(option: str, folder: Path) -> ssl.SSLContext:
    try:
        from busway_broker.admin.certificate import server_context  # noqa: PLC0415 - an extra of the wheel, and slow
    except ModuleNotFoundError as error:
        hint = "install it with: pip install 'busway-broker[tls]'"
        raise ConfigError([Problem(option, f"the package {error.name} is missing", hint)]) from error
    return server_context(folder)


def _namespaces(options: Options) -> Iterator[NamespaceConfig]:
    """Yield the namespaces with consecutive ports; those with a port of their own keep it."""
    namespaces: Sequence[NamespaceConfig] = _DEFAULT_NAMESPACES
    if options.configs:
        namespaces = load_config(options.configs, is_strict=options.is_strict, creates_targets=options.creates_entities)
    following = options.port
    for index, namespace in enumerate(namespaces):
        found = replace(namespace, links=_links(namespace.links, options))
        if options.creates_entities:
            has_events = bool(found.hubs) if options.configs else index == 1
            found = replace(found, on_demand=OnDemand.HUBS if has_events else OnDemand.QUEUES)
        if found.port is None and options.port:
            found = replace(found, port=following)
            following += 1
        yield found


def _links(limits: LinkLimits, options: Options) -> LinkLimits:
    given = {"link_idle": options.link_idle, "connection_idle": options.connection_idle}
    changes = {name: timedelta(seconds=seconds) for name, seconds in given.items() if seconds is not None}
    return replace(limits, **changes)  # type: ignore[arg-type] # both are durations


async def _serve(
    namespaces: Sequence[NamespaceConfig],
    options: Options,
    tls: ssl.SSLContext | None,
    admin_tls: ssl.SSLContext | None,
) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    first_admin_port = options.admin_port
    if first_admin_port is None:
        first_admin_port = DEFAULT_ADMIN_PORT if options.port else 0
    clock = ManualClock(datetime.now(UTC)) if options.has_manual_clock else None
    async with contextlib.AsyncExitStack() as opened:
        servers: list[BrokerServer] = []

        def advance_clock(seconds: float) -> None:
            if clock is not None:
                clock.advance(seconds)
            for server in servers:
                server.advance()

        sockets: list[socket.socket] = []
        numbers: Counter[str] = Counter()
        for index, namespace in enumerate(namespaces):
            # One server for each namespace, or pair: the emulators give all namespaces the same name.
            numbers[namespace.name] += 1
            data, count = options.data, numbers[namespace.name]
            if data is not None and count > 1:
                data /= str(count)
            server = next((server for server in servers if server.is_secondary(namespace)), None)
            if server is None:
                secondary = None if namespace.pairing is None else namespace.pairing.secondary
                pair = [namespace, *(each for each in namespaces if each.name == secondary)]
                server = BrokerServer(pair, clock, options.host, data=data, is_synced=options.is_synced, tls=tls)
                with _as_port_error(f"port {namespace.port}: cannot listen for {namespace.name}"):
                    await opened.enter_async_context(server)
            servers.append(server)
            port = first_admin_port + index if first_admin_port else 0
            with _as_port_error(f"--admin-port {port}: cannot listen for the administration of {namespace.name}"):
                sockets.append(opened.enter_context(socket.create_server((options.host, port))))
        _print_addresses(namespaces, servers, sockets, options)
        # In a thread, so that clients are served meanwhile; requests to the administration wait on its sockets.
        admin = await asyncio.to_thread(importlib.import_module, f"{__package__}.admin.server")
        for namespace, server, each in zip(namespaces, servers, sockets, strict=True):
            ports = {namespace.name: each}
            await opened.enter_async_context(admin.AdminServer(server, ports, admin_tls, options.host, advance_clock))
        # Messages form no cycles, and the collector would look through all of them again and again. Connections that
        # have ended are cycles, so it still runs.
        gc.freeze()
        gc.set_threshold(_OBJECTS_PER_COLLECTION)
        await _wait_for_stop(stopped, servers)


def _print_addresses(
    namespaces: Sequence[NamespaceConfig],
    servers: Sequence[BrokerServer],
    sockets: Sequence[socket.socket],
    options: Options,
) -> None:
    """Print where the namespaces and their administration listen, and what a user may have forgotten."""
    folder = options.tls or options.admin_tls
    for namespace, server in zip(namespaces, servers, strict=True):
        print("ready", namespace.name, server.connection_string(namespace.name), flush=True)
        if namespace.pairing is not None:
            _print_error(f"alias {namespace.pairing.alias} {server.connection_string(namespace.pairing.alias)}")
        if options.tls is not None:
            _print_error(f"tls {namespace.name} {server.tls_connection_string(namespace.name)}")
    for namespace, each in zip(namespaces, sockets, strict=True):
        scheme = "http" if folder is None else "https"
        _print_error(f"admin {namespace.name} {scheme}://localhost:{each.getsockname()[1]}")
    if folder is not None:
        _print_error(f"authority {folder.absolute() / _AUTHORITY}")
    if not options.configs and not options.creates_entities and options.data is None:
        _print_error(_NO_ENTITIES)


def _print_error(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


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
        raise PortTaken(f"{what}, {reason}; {_OTHER_PORT}") from error


__all__ = ["DEFAULT_ADMIN_PORT", "DEFAULT_HOST", "DEFAULT_PORT", "Options", "PortTaken", "StorageError", "run_broker"]
