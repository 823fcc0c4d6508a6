"""
Messages per second to Kafka: Busway's output against a hand-written loop with the same library, in turns.

Both send batches of 250 messages of 1 KB with 50 keys and four properties to a topic, and have the answer to each
message before the next round: one batch in a round, or eight, as concurrent invocations do. Both start with encoded
messages; the loop decodes them with Microsoft's SDK, as its receiver does. The loop's producer is idempotent with
`acks=all` too, and has librdkafka's five requests in flight. The cluster is a process of its own: librdkafka's mock,
also with a round trip on three brokers and twelve partitions, or another one that has the topic `benchmark`,
`python -m benchmarks.kafka kafka://HOST:PORT`.
"""

import asyncio
import itertools
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import confluent_kafka
from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus._pyamqp._decode import decode_payload

from benchmarks.measurement import Measurement, report
from benchmarks.order import order
from shared.amqp.values import string
from shared.azure.senders.kafka import KafkaOutput
from shared.azure.senders.kafka_endpoint import kafka_endpoint
from shared.protocols import Outgoing

_TOPIC = "benchmark"
_BATCH = 250
_KEYS = 50
_TURNS = 5
_SECONDS = 60.0


class _Cluster(NamedTuple):
    name: str
    options: Sequence[str]
    messages: int


_CLUSTERS = (
    _Cluster("no distance", (), 10_000),
    _Cluster("80 ms", ("--brokers", "3", "--partitions", "12", "--round-trip", "80"), 4_000),
)


def outgoing_batches(count: int) -> list[list[Outgoing]]:
    """Return *count* encoded messages in batches."""
    messages = []
    for number in range(count):
        message, key = order(), f"c-{number % _KEYS}"
        message.session_id, message.message_id = key, string(f"m-{number}")
        messages.append(Outgoing(message.encode(), f"m-{number}", key, None))
    return [messages[start : start + _BATCH] for start in range(0, count, _BATCH)]


async def _busway(output: KafkaOutput, batches: list[list[Outgoing]], at_once: int) -> None:
    for start in range(0, len(batches), at_once):
        calls = [output.send(_TOPIC, each, timeout_seconds=_SECONDS) for each in batches[start : start + at_once]]
        for answers in await asyncio.gather(*calls):
            if any(answers):
                raise SystemExit(f"not sent: {next(filter(None, answers))}")


def _by_hand(producer: Any, batches: list[list[Outgoing]], at_once: int) -> None:  # noqa: ANN401 - of confluent-kafka
    failed: list[object] = []

    def delivered(error: object, _message: object) -> None:
        if error is not None:
            failed.append(error)

    for start in range(0, len(batches), at_once):
        for outgoing in itertools.chain.from_iterable(batches[start : start + at_once]):
            message = ServiceBusReceivedMessage(decode_payload(memoryview(outgoing.content)), receiver=None)
            headers: list[tuple[str, Any]] = [
                (str(_text(name), "utf-8"), _text(value))
                for name, value in (message.application_properties or {}).items()
            ]
            headers += [("message-id", message.message_id), ("content-type", message.content_type)]
            producer.produce(_TOPIC, b"".join(message.body), message.session_id, headers=headers, on_delivery=delivered)
            producer.poll(0)
        if producer.flush(_SECONDS) or failed:
            raise SystemExit(f"not sent: {failed[:1]}")


def _text(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


async def _measure(url: str, cluster: _Cluster) -> list[Measurement]:
    endpoint = kafka_endpoint(url)
    output = KafkaOutput("there", endpoint)
    options = {**endpoint.options(), "enable.idempotence": True, "partitioner": "murmur2_random"}
    producer = await asyncio.to_thread(confluent_kafka.Producer, options)
    batches = outgoing_batches(cluster.messages)
    found = []
    for at_once in (1, 8):
        rates: dict[str, list[float]] = {"busway": [], "loop": []}
        for turn in range(_TURNS + 1):
            for name, run in (
                ("busway", partial(_busway, output, batches, at_once)),
                ("loop", partial(asyncio.to_thread, _by_hand, producer, batches, at_once)),
            ):
                rate = await _rate(run, cluster.messages)
                if turn:  # the first opens connections
                    rates[name].append(rate)
        busway, loop = (statistics.median(each) for each in rates.values())
        what = f"{at_once} batch{'es' if at_once > 1 else ''} at once, {cluster.name}"
        beside = {"Busway/s": busway, "loop/s": loop}
        found.append(
            Measurement(
                f"Kafka, {what}: Busway against a loop by hand", busway / loop, "times", 1.0, "at least", beside
            )
        )
    await output.close()
    return found


async def _rate(run: Callable[[], Any], messages: int) -> float:
    started = time.perf_counter()
    await run()
    return messages / (time.perf_counter() - started)


def _in_memory(cluster: _Cluster) -> list[Measurement]:
    """Measure at a cluster in memory."""
    command = [sys.executable, "-m", "local.kafka", _TOPIC, *cluster.options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - a fixed command
        line = process.stdout.readline() if process.stdout is not None else ""
        try:
            return asyncio.run(_measure(line.removeprefix("ready ").strip(), cluster))
        finally:
            process.terminate()


def main() -> None:
    """Measure at the cluster of the command line, or at two in memory."""
    if sys.argv[1:]:
        report(asyncio.run(_measure(sys.argv[1], _CLUSTERS[0])))
        return
    report([each for cluster in _CLUSTERS for each in _in_memory(cluster)])


if __name__ == "__main__":
    main()
