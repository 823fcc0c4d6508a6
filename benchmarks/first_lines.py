"""
How soon each command says something, and how soon it ends, when the services are dead, stalled or slow.

Dead: nothing listens. Stalled: connections are accepted and never answered. Slow: every answer is three seconds late.
"""

import asyncio
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Self

from busway import PACKAGES
from busway_broker.admin.thread import RunningAdmin
from busway_broker.config import HubConfig, NamespaceConfig, QueueConfig
from busway_broker.thread import RunningBroker

STATES = ("dead", "stalled", "slow")
FIRST_LINE_SECONDS = 10.0
_GIVEN_UP_SECONDS = 90.0
_DELAY_SECONDS = 3.0
_KEY = "SharedAccessKeyName=any;SharedAccessKey=any;UseDevelopmentEmulator=true"
_CONNECTIONS = """
west: {kind: service-bus, setting: WEST}
east: {kind: service-bus, setting: EAST}
hubs: {kind: event-hubs, setting: HUBS}
"""
_TASKS = """
task: orders
source: {connection: west, queue: orders}
routes: [{target: {connection: east, queue: orders}}]
rejects: {connection: west, queue: rejected}
---
task: telemetry
source: {connection: hubs, hub: telemetry}
routes: [{target: {connection: east, queue: orders}}]
rejects: {connection: west, queue: rejected}
"""
_MANIFEST = """
{"manifest": 1, "messages": 1, "missing": 1}
{"task": "telemetry", "src_site": "hubs", "src_entity": "telemetry", "src_part": 0, "src_seq": 7, "enqueued_time": 1}
"""
COMMANDS = (
    "send west/orders hello",
    "send hubs/telemetry hello",
    "receive west/orders",
    "receive hubs/telemetry",
    "messages list west/orders",
    "messages list hubs/telemetry",
    "dead show west/orders 1",
    "dead resend west/orders --all",
    "rejects show orders 1",
    "messages drop west/orders --all --yes",
    "status",
    "trace a",
    "reconcile --date 2026-11-20",
    "repair repair.jsonl",
    "delete-raw --before 2026-10-01",
    "plan",
    "apply",
    "export west",
    "evacuate west/orders --to east",
    "pause orders",
    "replay telemetry --from start",
    "checkpoints telemetry",
    "try orders --peek 1",
    "smoke",
)


type _Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


class _Services:
    """One port for everything, in one of the states."""

    def __init__(self, state: str, ports: Sequence[int]) -> None:
        self._state = state
        self._ports = ports
        self._servers: list[asyncio.Server] = []
        self.ports: list[int] = []

    async def __aenter__(self) -> Self:
        for port in self._ports:
            handle = self._stall if self._state == "stalled" else self._relay(port)
            server = await asyncio.start_server(handle, "127.0.0.1", 0)
            self.ports.append(server.sockets[0].getsockname()[1])
            self._servers.append(server)
            if self._state == "dead":
                server.close()
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self._servers:
            server.close()

    @staticmethod
    async def _stall(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while await reader.read(1 << 16):
                pass
        writer.close()

    @staticmethod
    def _relay(port: int) -> "_Handler":
        async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: float) -> None:
            with contextlib.suppress(OSError):
                while data := await reader.read(1 << 16):
                    await asyncio.sleep(delay)
                    writer.write(data)
                    await writer.drain()
            writer.close()

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            to_reader, to_writer = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.gather(copy(reader, to_writer, 0), copy(to_reader, writer, _DELAY_SECONDS))

        return handle


async def _timed(command: str, folder: Path, settings: dict[str, str]) -> tuple[float | None, float | None, str]:
    """Return the seconds to the first line and to the end, None if it was given up, and the last line."""
    started = time.monotonic()
    first: float | None = None
    lines: list[str] = []
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cli", *command.split(), "--config", str(folder)),
        cwd=folder,
        env={**os.environ, **settings, "PYTHONPATH": PACKAGES},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        stdin=asyncio.subprocess.DEVNULL,
    )
    output = process.stdout or asyncio.StreamReader()
    end: float | None = None
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_GIVEN_UP_SECONDS):
            while line := await output.readline():
                first = first or time.monotonic() - started
                lines.append(line.decode().rstrip())
            await process.wait()
            end = time.monotonic() - started
    if end is None:
        process.kill()
        await process.wait()
    said = [line for line in lines if not line.startswith(f"busway {command.split(maxsplit=1)[0]}: ")]
    return first, end, said[-1] if said else ""


async def run(states: Sequence[str], only: str = "") -> bool:
    """Print the table of *states*; return whether every command said something within ten seconds."""
    queues = tuple(QueueConfig(name=name) for name in ("orders", "rejected"))
    hubs = (HubConfig(name="telemetry", partition_count=1),)
    namespaces = [NamespaceConfig(name="west", queues=queues, hubs=hubs)]
    is_good = True
    with RunningBroker(namespaces) as broker, RunningAdmin(broker) as admin:
        ports = (broker.port("west"), int(admin.address("west").rpartition(":")[2]))
        for state in states:
            async with _Services(state, ports) as services:
                with tempfile.TemporaryDirectory() as name:
                    folder = Path(name)
                    settings = _written(folder, services.ports)
                    print(f"\n{state:<40} first line     end")
                    for command in COMMANDS:
                        if only in command:
                            first, end, said = await _timed(command, folder, settings)
                            is_good = is_good and first is not None and first <= FIRST_LINE_SECONDS
                            print(f"{command:<40} {_text(first):>10} {_text(end):>7}  {said[:100]}", flush=True)
    return is_good


def _written(folder: Path, ports: Sequence[int]) -> dict[str, str]:
    """Write a configuration, and return the settings with which everything is at *ports*."""
    (folder / "tasks").mkdir()
    (folder / "connections.yaml").write_text(_CONNECTIONS)
    (folder / "tasks/all.yaml").write_text(_TASKS)
    (folder / "repair.jsonl").write_text(_MANIFEST.lstrip())
    (folder / "journal.yaml").write_text("blob: {setting: JOURNAL, container: journal}\n")
    bus, admin = ports
    endpoint = f"Endpoint=sb://127.0.0.1:{bus};{_KEY}"
    storage = f"DefaultEndpointsProtocol=http;AccountName=a;AccountKey=a2V5;BlobEndpoint=http://127.0.0.1:{admin}/a"
    return {
        **dict.fromkeys(("WEST", "EAST", "HUBS"), endpoint),
        **{f"{each}__administration": f"http://127.0.0.1:{admin}" for each in ("WEST", "EAST")},
        **dict.fromkeys(("JOURNAL", "AzureWebJobsStorage"), storage),
    }


def _text(seconds: float | None) -> str:
    return "never" if seconds is None else f"{seconds:.1f} s"


if __name__ == "__main__":
    chosen, *only = sys.argv[1:] or ["all"]
    sys.exit(0 if asyncio.run(run(STATES if chosen == "all" else [chosen], *only)) else 1)
