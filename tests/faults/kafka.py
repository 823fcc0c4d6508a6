"""A Kafka cluster as the target: brokers that close, refuse, move partitions or are down, and a killed host."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from azure.servicebus.aio import ServiceBusClient

from cli.local_services.kafka import PRODUCE, KafkaCluster
from tests.faults.conservation import Copy
from tests.faults.kills import SENT_BUT_UNSETTLED
from tests.faults.line import Line
from tests.faults.parties import drafts, name_of, read_queue
from tests.faults.routes import CONNECTIONS, HUB_TO_KAFKA, REJECTED, SESSIONS_TO_KAFKA, Route
from tests.faults.scenario import Scenario
from tests.kafka_reader import read_topic

_BROKERS = (1, 2, 3)
_PARTITIONS = 4
_DISCONNECTED, _NOT_ENOUGH_REPLICAS, _STORAGE_ERROR = -195, 19, 56
_HELD_MILLISECONDS = 20_000
_DOWN_SECONDS = 3.0


class KafkaLine(Line):
    """A route to a topic of a cluster in this process, which hosts reach over sockets."""

    def __init__(self, route: Route, folder: Path, **options: Any) -> None:
        """Prepare in *folder*."""
        super().__init__(route, folder, **options)
        self.cluster = KafkaCluster(len(_BROKERS))
        self._stack.callback(self.cluster.close)
        self.cluster.create_topic(route.target_path, _PARTITIONS)
        (folder / "connections.yaml").write_text(f"{CONNECTIONS}stream: {{kind: kafka, setting: STREAM}}\n")

    def names_at_target(self) -> list[str]:
        return [copy.name for copy in self._arrived()]

    def _settings(self) -> dict[str, str]:
        return super()._settings() | {"STREAM": f"kafka://{self.cluster.servers}"}

    def _arrived(self) -> list[Copy]:
        records = read_topic({"bootstrap.servers": self.cluster.servers}, self.route.target_path, _PARTITIONS)
        return [Copy((record.key() or b"").decode(), name_of(record.value())) for record in records]

    async def _read(self) -> tuple[list[Copy], list[str]]:
        west = self._broker.connection_string("west")
        async with ServiceBusClient.from_connection_string(west) as client:
            rejected = await read_queue(client, REJECTED, len(self.stored("west", REJECTED)))
        return await asyncio.to_thread(self._arrived), rejected


def _kafka(line: Line) -> KafkaLine:
    assert isinstance(line, KafkaLine), f"{line.route}: the scenario needs a Kafka cluster"
    return line


def _with_errors(*codes: int) -> Callable[[Line], None]:
    """Return an action: the cluster answers requests with errors while messages come."""

    def action(line: Line) -> None:
        line = _kafka(line)
        line.cluster.fail_requests(*codes)
        line.host()
        for number in range(3):
            line.send(drafts(line.route, f"{number}-"))
            line.cluster.fail_requests(0, *codes)
        line.wait_until_drained()

    return action


def _moved(line: Line) -> None:
    """Give every partition another leader, several times during traffic."""
    line = _kafka(line)
    line.host()
    for number in range(4):
        line.send(drafts(line.route, f"{number}-"))
        for partition in range(_PARTITIONS):
            line.cluster.move_leader(line.route.target_path, partition, 1 + (partition + number) % len(_BROKERS))
    line.wait_until_drained()


def _down(line: Line) -> None:
    """Take all brokers down for some seconds, with messages on their way."""
    line = _kafka(line)
    line.host()
    line.send(drafts(line.route, "before-"))
    line.wait_until_drained()
    for broker in _BROKERS:
        line.cluster.set_down(broker)
    line.send(drafts(line.route, "during-"))
    up = time.monotonic() + _DOWN_SECONDS
    line.wait_until(lambda: time.monotonic() > up, "down for long enough")
    assert len(line.remaining()) >= len(drafts(line.route)) - 1, "messages left the source while no broker was there"
    for broker in _BROKERS:
        line.cluster.set_up(broker)
    line.send(drafts(line.route, "after-"))
    line.wait_until_drained()


def _killed(line: Line) -> None:
    """Kill the host when the cluster has messages and has not answered."""
    line = _kafka(line)
    host = line.host()
    line.send(drafts(line.route, "before-"))
    line.wait_until_drained()
    line.cluster.forget_requests()
    for broker in _BROKERS:
        line.cluster.set_round_trip(broker, _HELD_MILLISECONDS)
    line.send(drafts(line.route, "during-"))
    line.wait_until(lambda: line.cluster.requests(PRODUCE), "sent to the cluster")
    host.kill()
    for broker in _BROKERS:
        line.cluster.set_round_trip(broker, 0)
    assert line.sent_but_unsettled(), f"{line.route}: nothing was sent before the kill"
    line.go_on_with_another_host()


KAFKA = [
    Scenario(name, route, action, explains=explains, repeats=repeats, line=KafkaLine)
    for name, action, explains, repeats in (
        ("Kafka closes connections mid-batch", _with_errors(_DISCONNECTED, _DISCONNECTED), "", False),
        ("Kafka has too few in-sync replicas", _with_errors(*[_NOT_ENOUGH_REPLICAS] * 4), "", False),
        ("Kafka has a full disk", _with_errors(*[_STORAGE_ERROR] * 3), "", False),
        ("Kafka moves partitions to other brokers", _moved, "", False),
        ("Kafka is down", _down, "", False),
        ("kill -9 while Kafka has not answered", _killed, SENT_BUT_UNSETTLED, True),
    )
    for route in (SESSIONS_TO_KAFKA, HUB_TO_KAFKA)
]
