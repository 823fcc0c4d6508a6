"""
The same number of messages in few sessions and in many, through one host and through two.

A function that takes batches holds one session at a time and releases it after sessionIdleTimeout without a message.
The rates are measured between the first and the last enqueued time in the target. The broker is on this machine; on
Azure each session also costs the round trips to accept it, to receive from it and to close it.
"""

import asyncio
import json
import shutil
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from benchmarks.measurement import Measurement, report
from benchmarks.stack import BODY_BYTES, FOLDER, READY_SECONDS, SOURCE, Stack, running_broker, span_seconds
from cli.children import Child

SMALL = (400, 2)
LARGE = (8, 100)
CONFIGURED_MS = 100
SHORT_MS = 10

CONNECTIONS = "west: {kind: service-bus, setting: WEST}\neast: {kind: service-bus, setting: EAST}\n"
TASK = """\
task: sessions
source: {connection: west, queue: source, sessions: true}
routes:
  - target: {connection: east, queue: target}
"""


async def rate(sessions: int, each: int, idle_ms: int, hosts: int = 1) -> float:
    """Return messages per second for *sessions* sessions of *each* messages and this many hosts."""
    app = _app(idle_ms)
    async with running_broker("benchmarks/sessions.json") as stack:
        await _fill(stack.west, sessions, each)
        async with _running_hosts(stack, app, hosts):
            return sessions * each / await span_seconds(stack.east, sessions * each)


def _app(idle_ms: int) -> Path:
    """Write the app as it is deployed, with this sessionIdleTimeout."""
    folder = FOLDER / "build" / "bench-sessions"
    (folder / "config/tasks").mkdir(parents=True, exist_ok=True)
    (folder / "config/connections.yaml").write_text(CONNECTIONS, encoding="utf-8")
    (folder / "config/tasks/sessions.yaml").write_text(TASK, encoding="utf-8")
    shutil.copy(FOLDER / "function_app.py", folder)
    host = json.loads((FOLDER / "host.json").read_text(encoding="utf-8"))
    host["extensions"]["serviceBus"]["sessionIdleTimeout"] = f"00:00:00.{idle_ms:03d}"
    (folder / "host.json").write_text(json.dumps(host), encoding="utf-8")
    return folder


async def _fill(connection_string: str, sessions: int, each: int) -> None:
    async with (
        ServiceBusClient.from_connection_string(connection_string) as client,
        client.get_queue_sender(SOURCE) as sender,
    ):
        for number in range(sessions):
            await sender.send_messages(
                [ServiceBusMessage(b"x" * BODY_BYTES, session_id=f"session-{number}") for _ in range(each)]
            )


@asynccontextmanager
async def _running_hosts(stack: Stack, app: Path, count: int) -> AsyncIterator[None]:
    settings = {"WEST": stack.west, "EAST": stack.east, "PYTHONPATH": str(FOLDER)}
    async with AsyncExitStack() as ends:
        hosts: Sequence[Child] = [
            await Child.start(
                f"host-{n}", [sys.executable, "-m", "cli", "host"], FOLDER / f"build/bench-host-{n}.log", app, settings
            )
            for n in range(count)
        ]
        for host in hosts:
            ends.push_async_callback(host.stop)
        await asyncio.gather(*(host.matches(r"^ready", 1, READY_SECONDS) for host in hosts))
        yield


async def main() -> None:
    """Measure few large sessions and many small ones in one run, and report both."""
    large = await rate(*LARGE, CONFIGURED_MS)
    small = await rate(*SMALL, CONFIGURED_MS)
    short = await rate(*SMALL, SHORT_MS)
    two = await rate(*SMALL, CONFIGURED_MS, hosts=2)
    per_session = SMALL[1] / small * 1000
    small_name = f"{SMALL[0]} sessions of {SMALL[1]} messages"
    report(
        [
            Measurement(
                f"{LARGE[0]} sessions of {LARGE[1]} messages, idle timeout {CONFIGURED_MS} ms", large, "messages/s"
            ),
            Measurement(f"{small_name}, idle timeout {CONFIGURED_MS} ms", small, "messages/s"),
            Measurement("  a session's time beside the idle timeout", per_session - CONFIGURED_MS, "ms", 50),
            Measurement(f"{small_name}, idle timeout {SHORT_MS} ms", short, "messages/s"),
            Measurement(f"  over those of {CONFIGURED_MS} ms", short / small, "times", 3, "at least"),
            Measurement(f"{small_name}, {CONFIGURED_MS} ms, two hosts", two, "messages/s"),
            Measurement("  over one host", two / small, "times", 1.7, "at least"),
        ]
    )


if __name__ == "__main__":
    asyncio.run(main())
