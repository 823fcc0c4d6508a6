"""What tests of `busway forward` share: a target that fails, a topic's records, and what arrived in the hub."""

import asyncio
import itertools
import time
from collections.abc import Callable, Sequence

from busway_broker.thread import RunningBroker
from cli.forward.batch import Records
from cli.forward.forwarder import Forwarder
from cli.local_services.kafka import KafkaCluster
from cli.places import Place
from shared.ends.kafka.endpoint import kafka_endpoint
from shared.ends.kafka.output import KafkaOutput
from shared.errors import BuswayError
from shared.journal.log import LogJournal
from shared.message.message import Message
from shared.protocols import Journal, Outgoing, Output
from shared.tasks.models import Connection
from tests.messages import ORIGIN, delivered

PARTITIONS = 4
KEYS = 5
_SECONDS = 60
_names = itertools.count()


class TargetThatFailsFirst:
    """Collects messages by their key; each of its first calls accepts only half of them."""

    def __init__(self, *failures: BuswayError, then: Callable[[], None] = lambda: None) -> None:
        self.messages: dict[str | None, list[bytes]] = {}
        self._failures = list(failures)
        self._then = then

    @property
    def bodies(self) -> dict[str | None, list[int]]:
        return {
            key: [int(Message.received(each, ORIGIN).body or b"") for each in found]
            for key, found in self.messages.items()
        }

    async def send(
        self,
        entity: str,  # noqa: ARG002 - the protocol's
        messages: Sequence[Outgoing],
        *,
        timeout_seconds: float,  # noqa: ARG002 - the protocol's
    ) -> list[BuswayError | None]:
        failure = self._failures.pop(0) if self._failures else None
        accepted = messages if failure is None else messages[: len(messages) // 2]
        for message in accepted:
            self.messages.setdefault(message.partition_key, []).append(message.content)
        self._then()
        return [None] * len(accepted) + [failure] * (len(messages) - len(accepted))

    async def close(self) -> None:
        pass


def new_topic(cluster: KafkaCluster) -> str:
    name = f"forwarded-{next(_names)}"
    cluster.create_topic(name, PARTITIONS)
    return name


def keyed(count: int) -> list[Outgoing]:
    return [
        Outgoing(delivered(None, message_id=f"m-{number}", body=b"%d" % number), None, None, f"k{number % KEYS}")
        for number in range(count)
    ]


def arrived(broker: RunningBroker) -> dict[str | None, list[int]]:
    """Return the numbers of the events in the hub, by key."""
    found: dict[str | None, list[int]] = {}
    contents = broker.inspect(
        "plant",
        lambda plant: [event.encode() for partition in plant.hubs["returned"].partitions for event in partition.events],
    )
    for content in contents:
        message = Message.received(content, ORIGIN)
        found.setdefault(message.partition_key, []).append(int(message.body or b""))
    return found


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + _SECONDS
    while not condition():
        assert time.monotonic() < end, "not reached"
        time.sleep(0.02)


def by_key(count: int) -> dict[str | None, list[int]]:
    return {f"k{key}": list(range(key, count, KEYS)) for key in range(KEYS)}


async def fill(url: str, topic: str, messages: Sequence[Outgoing]) -> None:
    output = KafkaOutput("stream", kafka_endpoint(url))
    assert await output.send(topic, messages, timeout_seconds=20) == [None] * len(messages)
    await output.close()


def forwarding(
    topic: str,
    output: Output,
    rejects: list[str] | None = None,
    *,
    hub: str = "returned",
    journal: Journal | None = None,
    idle: float = 0.5,
) -> Forwarder:
    source = Place("stream", Connection(kind="kafka", setting="STREAM"), topic)
    target = Place("plant", Connection(kind="event-hubs", setting="PLANT"), hub)
    reject = (rejects if rejects is not None else []).append
    records = Records(journal or LogJournal(), "to-hub", f"plant/{hub}")
    return Forwarder(
        source, target, f"of-{topic}", idle=idle, site="stream", output=output, reject=reject, records=records
    )


async def run(work: Forwarder) -> None:
    async with asyncio.timeout(120):
        await work.run()
