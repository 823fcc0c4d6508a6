"""
Records per second of `busway forward`, against a hand-written loop with the same libraries, in turns.

Both take records of 1 KB with 50 keys and four headers, keep the order of keys, and commit a batch of 500 after the hub
has accepted it. The clock runs from the first records to the last answer. The cluster (librdkafka's mock) and the local
broker are processes of their own.
"""

import asyncio
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import confluent_kafka
from azure.eventhub import EventData, EventHubProducerClient

from benchmarks.kafka import outgoing_batches
from benchmarks.measurement import Measurement, report
from benchmarks.stack import FOLDER, READY_SECONDS, free_port
from cli.children import Child
from cli.forward.batch import Records
from cli.forward.forwarder import Forwarder, Request
from cli.places import Place
from shared.azure.connections import event_hub_client
from shared.azure.senders.event_hubs import EventHubsOutput
from shared.azure.senders.kafka import KafkaOutput
from shared.azure.senders.kafka_endpoint import kafka_endpoint
from shared.config.models import Connection
from shared.errors import BuswayError
from shared.journal.log import LogJournal
from shared.protocols import Outgoing

_TOPIC, _HUB = "benchmark", "readings"
_RECORDS = 10_000
_BATCH = 500
_TURNS = 5
_SECONDS = 60.0
_ENTITIES = "config/examples/hub-to-kafka-and-back/entities/office.json"


class _Timed:
    """An output that notes when the first call came and when the last was answered."""

    def __init__(self, output: EventHubsOutput) -> None:
        self._output = output
        self.began: float | None = None
        self.ended = 0.0

    async def send(
        self, entity: str, messages: Sequence[Outgoing], *, timeout_seconds: float
    ) -> list[BuswayError | None]:
        self.began = self.began or time.perf_counter()
        answers = await self._output.send(entity, messages, timeout_seconds=timeout_seconds)
        self.ended = time.perf_counter()
        return answers

    async def close(self) -> None:
        await self._output.close()


async def _busway(group: str, office: str) -> float:
    settings = {"OFFICE": office}
    output = _Timed(EventHubsOutput("office", lambda hub: event_hub_client("OFFICE", settings, hub)))
    source = Place("stream", Connection(kind="kafka", setting="STREAM"), _TOPIC)
    hub = Place("office", Connection(kind="event-hubs", setting="OFFICE"), _HUB)
    request = Request(source, hub, group, Path("unused"), 0.1, "bench", 15.0)
    forwarding = Forwarder(request, "stream", output, lambda _: None, Records(LogJournal(), "bench", str(hub)))
    await forwarding.run()
    if forwarding.sent != _RECORDS or output.began is None:
        raise SystemExit(f"sent {forwarding.sent}, expected {_RECORDS}")
    return output.ended - output.began


def _by_hand(group: str, office: str) -> float:
    consumer = confluent_kafka.Consumer(
        {
            **kafka_endpoint(os.environ["STREAM"]).options(),
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([_TOPIC])
    sent, began = 0, 0.0
    with EventHubProducerClient.from_connection_string(office, eventhub_name=_HUB) as hub:
        while sent < _RECORDS:
            records = consumer.consume(_BATCH, 0.2)
            if not records:
                continue
            began = began or time.perf_counter()
            by_key: dict[bytes, list[Any]] = {}
            for record in records:
                by_key.setdefault(record.key(), []).append(record)
            for key, same in by_key.items():
                batch = hub.create_batch(partition_key=key.decode())
                for record in same:
                    event = EventData(record.value())
                    event.properties = {name: value.decode() for name, value in record.headers()}
                    batch.add(event)
                hub.send_batch(batch)
            consumer.commit(asynchronous=False)
            sent += len(records)
        seconds = time.perf_counter() - began
    consumer.close()
    return seconds


async def _measure(office: str) -> Measurement:
    output = KafkaOutput("stream", kafka_endpoint(os.environ["STREAM"]))
    for each in outgoing_batches(_RECORDS):
        await output.send(_TOPIC, each, timeout_seconds=_SECONDS)
    await output.close()
    rates: dict[str, list[float]] = {"Busway/s": [], "loop/s": []}
    for turn in range(_TURNS):
        rates["Busway/s"].append(_RECORDS / await _busway(f"busway-{turn}", office))
        rates["loop/s"].append(_RECORDS / await asyncio.to_thread(_by_hand, f"loop-{turn}", office))
    beside = {name: statistics.median(each) for name, each in rates.items()}
    busway, loop = beside.values()
    return Measurement(
        "busway forward against a loop by hand, no distance", busway / loop, "times", 1.0, "at least", beside
    )


async def _main() -> None:
    command = [sys.executable, "-m", "cli", "broker", "--config", _ENTITIES, "--port", str(free_port())]
    (FOLDER / "build").mkdir(exist_ok=True)
    log = FOLDER / "build" / "bench-broker.log"
    broker = await Child.start("broker", [*command, "--admin-port", "0"], log, FOLDER, {})
    try:
        [ready] = await broker.matches(r"^ready \S+ (\S+)", 1, READY_SECONDS)
        report([await _measure(ready[1])])
    finally:
        await broker.stop()


def main() -> None:
    """Measure at a cluster in memory."""
    command = [sys.executable, "-m", "local.kafka", _TOPIC]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - a fixed command
        line = process.stdout.readline() if process.stdout is not None else ""
        os.environ["STREAM"] = line.removeprefix("ready ").strip()
        try:
            asyncio.run(_main())
        finally:
            process.terminate()


if __name__ == "__main__":
    main()
