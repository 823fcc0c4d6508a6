"""
Messages per second across a distance: broker and storage emulator on this machine, with proxies that add round trips.

The round trip to the target changes, 0 to 150 ms; that to the source and to the journal is 5 ms throughout, except in
the first rows, which have none at all. Each message has 1 KB and five properties; batches are as large as host.json
lets them be. The rate is measured between the first and the last enqueued time in the target, so start-up does not
count. Broker, proxies, host and worker share the machine, which counts most in the rows without a round trip.

Beside each rate: CPU seconds and invocations per 1,000 messages (k), and dollars for the invocations of a million (M).

    python -m benchmarks.ocean [WORD …]   # the cases whose name contains a WORD, as JSON lines
"""

import asyncio
import re
import shutil
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.storage.blob.aio import ContainerClient

from benchmarks.measurement import Measurement, report
from benchmarks.stack import (
    BODY_BYTES,
    FOLDER,
    READY_SECONDS,
    SOURCE,
    cpu_seconds,
    fill,
    free_port,
    running_broker,
    span_seconds,
    worker_of,
)
from cli.children import Child

AZURITE = FOLDER / "node_modules/azurite/dist/src/blob/main.js"
# The emulator's well-known account; its key opens nothing else.
ACCOUNT = (
    "DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;"
    "AccountKey=Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==;"
)
NEAR_MS = 5.0
CONNECTIONS = "west: {kind: service-bus, setting: WEST}\neast: {kind: service-bus, setting: EAST}\n"
JOURNAL = "blob: {setting: JOURNAL}\n"


@dataclass(frozen=True)
class Case:
    """One row: what is copied, at which distance, and by how many lanes; no lanes are single dispatch."""

    round_trip_ms: float
    lanes: int
    sessions: int = 0
    each: int = 0
    has_journal: bool = True
    near_ms: float = NEAR_MS
    bar: float | None = None
    body_bytes: int = BODY_BYTES

    @property
    def count(self) -> int:
        """The number of messages: for some seconds of work."""
        if self.sessions:
            return self.sessions * self.each
        most = 40_000 if self.lanes > 1 else 10_000
        return max(min(most, _MOST_BYTES // self.body_bytes), 1_000)

    @property
    def name(self) -> str:
        """The row's text."""
        what = f"{self.sessions} sessions of {self.each}" if self.sessions else "no sessions"
        journal = "" if self.has_journal else ", no journal"
        lanes = {0: "single dispatch", 1: "1 lane"}.get(self.lanes, f"{self.lanes} lanes")
        return f"{self.round_trip_ms:g} ms to the target, {what}, {lanes}{journal}"


CASES = (
    Case(0, 1, has_journal=False, near_ms=0),
    Case(0, 8, has_journal=False, near_ms=0, bar=12_000),
    *(Case(each, lanes) for each in (0, 20, 80, 150) for lanes in (1, 8) if (each, lanes) != (80, 8)),
    Case(80, 8, bar=5_000),
    Case(80, 16),
    Case(0, 32, sessions=64, each=150),
    Case(80, 32, sessions=64, each=150, bar=2_500),
    Case(0, 64, sessions=400, each=2, bar=300),
    Case(80, 64, sessions=400, each=2, bar=100),
    Case(0, 0),
    Case(80, 0),
    Case(0, 0, sessions=64, each=150),
    Case(80, 0, sessions=64, each=150),
    Case(0, 0, sessions=400, each=2),
    Case(80, 0, sessions=400, each=2, bar=100),
)

# US dollars for a million executions beyond the free grant, East US, as quoted from Microsoft's price page in May 2025
# (modal.com/blog/azure-function-pricing-guide). The time for which an instance runs costs extra: docs/tuning.md.
PER_MILLION = {"Flex": 0.40, "Consumption": 0.20}
_INVOCATIONS = re.compile(r"(\d+) invocations$")
_STOP_SECONDS = 20.0
# Enough for each of eight lanes to have several batches of 250 messages of 100 KB.
_MOST_BYTES = 400 << 20


async def measured(case: Case) -> Measurement:
    """Return messages per second, and what a thousand of them cost."""
    folder = FOLDER / "build/bench-ocean"
    write_app(folder, case)
    config = "benchmarks/sessions.json" if case.sessions else "benchmarks/broker.json"
    async with AsyncExitStack() as ends:
        stack = await ends.enter_async_context(running_broker(config))
        if case.sessions:
            await _fill_sessions(stack.west, case.sessions, case.each)
        else:
            await fill(stack.west, case.count, case.body_bytes)
        near, far = case.near_ms / 2, case.round_trip_ms / 2
        settings = {
            "WEST": await ends.enter_async_context(distant(stack.west, near)),
            "EAST": await ends.enter_async_context(distant(stack.east, far)),
            "PYTHONPATH": str(FOLDER),
        }
        if case.has_journal:
            storage = await ends.enter_async_context(_running_storage(folder))
            settings["JOURNAL"] = await ends.enter_async_context(distant(storage, near))
        else:
            storage = None
        host = await Child.start(
            "host", [sys.executable, "-m", "cli", "host"], FOLDER / "build/bench-ocean.log", folder, settings
        )
        ends.push_async_callback(host.stop)
        await host.matches(r"^ready", 1, READY_SECONDS)
        processes = {"broker": stack.broker.pid, "host": host.pid, "worker": worker_of(host)}
        before = {name: cpu_seconds(pid) for name, pid in processes.items()}
        rate = case.count / await span_seconds(stack.east, case.count)
        thousands = case.count / 1000
        beside = {f"{name} CPU s/k": (cpu_seconds(pid) - before[name]) / thousands for name, pid in processes.items()}
        await host.stop()
        [counted] = await host.matches(_INVOCATIONS.pattern, 1, _STOP_SECONDS)
        beside["calls/k"] = int(counted[1]) / thousands
        beside["appends/k"] = 0 if storage is None else await _appends(storage) / thousands
        for plan, price in PER_MILLION.items():
            beside[f"$/M {plan}"] = int(counted[1]) / case.count * price
        return Measurement(case.name, rate, "messages/s", case.bar, "at least", beside)


def write_app(folder: Path, case: Case) -> None:
    """Write an app that copies as *case* says."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "config/tasks").mkdir(parents=True)
    (folder / "config/connections.yaml").write_text(CONNECTIONS, encoding="utf-8")
    if case.has_journal:
        (folder / "config/journal.yaml").write_text(JOURNAL, encoding="utf-8")
    (folder / "config/tasks/copy.yaml").write_text(
        "task: copy\n"
        f"source: {{connection: west, queue: source, sessions: {'true' if case.sessions else 'false'}}}\n"
        "routes: [{target: {connection: east, queue: target}}]\n"
        + (f"lanes: {case.lanes}\n" if case.lanes else "dispatch: single\n"),
        encoding="utf-8",
    )
    shutil.copy(FOLDER / "function_app.py", folder)
    shutil.copy(FOLDER / "host.json", folder)


async def _fill_sessions(connection_string: str, sessions: int, each: int) -> None:
    """Send *each* messages to every session; those of a session come together."""
    async with (
        ServiceBusClient.from_connection_string(connection_string) as client,
        client.get_queue_sender(SOURCE) as sender,
    ):
        for number in range(sessions):
            await sender.send_messages(
                [ServiceBusMessage(b"x" * BODY_BYTES, session_id=f"session-{number}") for _ in range(each)]
            )


@asynccontextmanager
async def distant(connection_string: str, milliseconds: float) -> AsyncIterator[str]:
    """Return *connection_string* with the port of a proxy that adds *milliseconds* each way."""
    found = re.search(r":(\d+)", connection_string)
    if found is None:
        raise ValueError("the connection string names no port")
    if not milliseconds:
        yield connection_string
        return
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.delaying_proxy", str(port), found[1], str(milliseconds)]
    proxy = await Child.start("proxy", command, FOLDER / f"build/bench-proxy-{port}.log", FOLDER, {})
    try:
        await proxy.matches("^ready", 1, READY_SECONDS)
        yield connection_string.replace(f":{found[1]}", f":{port}", 1)
    finally:
        await proxy.stop()


async def _appends(storage: str) -> int:
    """Return the number of appends that the journal's blobs have had."""
    async with ContainerClient.from_connection_string(storage, "journal") as container:
        blobs = [container.get_blob_client(blob.name) async for blob in container.list_blobs()]
        return sum([(await blob.get_blob_properties()).append_blob_committed_block_count or 0 for blob in blobs])


@asynccontextmanager
async def _running_storage(folder: Path) -> AsyncIterator[str]:
    """Run the storage emulator in memory; return its connection string."""
    port = free_port()
    options = [f"--blobPort={port}", "--inMemoryPersistence", "--disableTelemetry", "--skipApiVersionCheck", "--silent"]
    storage = await Child.start(
        "storage", ["node", str(AZURITE), *options], FOLDER / "build/bench-storage.log", folder, {}
    )
    try:
        await storage.matches("successfully listens", 1, READY_SECONDS)
        yield f"{ACCOUNT}BlobEndpoint=http://127.0.0.1:{port}/devstoreaccount1;"
    finally:
        await storage.stop()


async def main(words: Sequence[str]) -> None:
    """Measure every case whose name has one of *words*, all without any."""
    chosen = [case for case in CASES if not words or any(word in case.name for word in words)]
    if not chosen:
        raise SystemExit(f"no case's name has one of the words {', '.join(words)}; without words, all are measured")
    for case in chosen:
        report([await measured(case)])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
