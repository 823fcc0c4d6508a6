"""`busway broker`: Service Bus and Event Hubs namespaces on this machine."""

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from cli.output import fail, ready
from local.broker.config import NamespaceConfig
from local.broker.config_file import load_config
from local.broker.server import BrokerServer
from shared.errors import BuswayError, ConfigError

_DEFAULT_PORT = 5672


class PortTaken(BuswayError):
    """A port that the broker is to listen on cannot be had."""


def broker(
    config: Annotated[
        list[Path], typer.Option(help="A Config.json in the format of Microsoft's emulators; may be given repeatedly.")
    ],
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of the first namespace, the others follow; 0 takes free ones.")
    ] = _DEFAULT_PORT,
) -> None:
    """
    Serve the queues, topics and event hubs of Config.json files over AMQP, for Microsoft's own SDKs.

    The files are those of the official Service Bus and Event Hubs emulators; a file may hold several namespaces, and a
    namespace may name a `Port` of its own. Once it listens, one line is printed for each namespace, in the order of the
    files: `ready`, its name, and the connection string to reach it with. Messages are kept in memory. SIGTERM and
    Ctrl-C end it. Example:

    busway broker --config infra/emulators/west.json --config infra/emulators/east.json
    """
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        asyncio.run(_serve(list(_with_ports(load_config(config), port))))
    except ConfigError as error:
        fail(error.problems)
    except PortTaken as error:
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


async def _serve(namespaces: Sequence[NamespaceConfig]) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with contextlib.AsyncExitStack() as open_servers:
        strings = []
        for namespace in namespaces:
            # A server of its own for each: the emulators want every namespace to have the same name.
            server = BrokerServer([namespace])
            try:
                await open_servers.enter_async_context(server)
            except (OSError, OverflowError) as error:
                # asyncio puts the address into its text, which names what the user did not write.
                reason = os.strerror(error.errno or 0) if isinstance(error, OSError) else "there is no such port"
                raise PortTaken(f"port {namespace.port}: cannot listen for {namespace.name}, {reason}") from error
            strings.append(server.connection_string(namespace.name))
        for namespace, string in zip(namespaces, strings, strict=True):
            ready(namespace.name, string)
        await stopped.wait()
