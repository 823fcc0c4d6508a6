"""
Sends the specimens over every route and reads what arrives.

A journey is a list of kinds of entities: `SE` is one hop from Service Bus to Event Hubs, `SESESS` five hops. Each has
its own entities and sites, and one function per hop in a host of its mode.
"""

import asyncio
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from azure.storage.queue import QueueServiceClient

from busway_broker.config import HubConfig, NamespaceConfig, QueueConfig
from busway_broker.core.namespace import Namespace
from busway_broker.thread import RunningBroker
from cli.local_services.event_grid import EventGrid, Subscription
from host.dotnet_message import reencode
from host.dotnet_values import CannotBind, CannotReceive
from shared.ends.event_hubs.clients import event_hub_client
from shared.ends.event_hubs.output import EventHubsOutput
from shared.ends.service_bus.clients import service_bus_client
from shared.ends.service_bus.output import ServiceBusOutput
from shared.errors import MessageRejected
from shared.line.text_form import body_text
from shared.message.arrival import Origin
from shared.message.message import Message
from shared.protocols import Outgoing, Output
from tests.azurite import queue_account
from tests.end_to_end.host_process import ROOT, HostProcess
from tests.event_grid_thread import RunningGrid
from tests.fidelity.specimens import SPECIMEN, SPECIMENS

ONE_HOP = ("SS", "SE", "ES", "EE")
FIVE_HOPS = ("SSSSSS", "SESESS", "EEEEEE", "ESESEE")
WIRE, AZURE = "wire", "azure"
# Sent by an output binding of the host: in envelopes that a second task opens, or the body alone.
ENVELOPE, BODY = "envelope", "body"
# Through a queue of a storage account.
STORAGE = "storage"
# Through a topic of Event Grid.
GRID = "grid"
_SECONDS = 90


class Journey(NamedTuple):
    """A route, and how the host passes messages to functions on it."""

    mode: str
    kinds: str

    def entity(self, stage: int) -> str:
        """Return the name of the queue or hub at a stage."""
        return f"{self.mode}-{self.kinds.lower()}-{stage}"

    def task(self, stage: int) -> str:
        """Return the task file of the hop from a stage to the next."""
        ends = [
            f"{{connection: {self.kinds[each].lower()}{each}, {'queue' if self.kinds[each] == 'S' else 'hub'}: "
            f"{self.entity(each)}}}"
            for each in (stage, stage + 1)
        ]
        if self.mode in _CARRIED:
            route, source = _CARRIED[self.mode]
            hops = ("into", ends[0], f"{{{route}}}"), ("out-of", f"{{{source}}}", f"{{target: {ends[1]}}}")
            return "---\n".join(
                f"task: {name}-{self.mode}\nsource: {place}\nroutes: [{onward}]\n"
                "rejects: {connection: s9, queue: rejected}\nloop_prevention: off\n"
                for name, place, onward in hops
            )
        if self.mode == BODY:
            route = f"{{target: {ends[1]}, via: binding, body_only: true}}"
            return f"task: bodies\nsource: {ends[0]}\nroutes: [{route}]\nloop_prevention: off\n"
        return (
            f"task: {self.entity(stage)}\nsource: {ends[0]}\nroutes: [{{target: {ends[1]}}}]\n"
            "loop_prevention: {max_hops: 5}\n"
            "rejects: {connection: s9, queue: rejected}\n"
        )

    def takes(self, content: bytes) -> bool:
        """Return whether the host can deliver a message; otherwise it would block the following ones."""
        try:
            if self.mode == AZURE:
                reencode(content, 0)
            elif self.mode == BODY:
                body_text(Message.received(content, Origin("cloud", "specimens")))
        except (CannotBind, CannotReceive, MessageRejected):
            return False
        return True


_CARRIER = "carrier"
# The route to what carries the messages of a mode, and the source that reads it.
_CARRIED = {
    ENVELOPE: (
        "target: {connection: s2, queue: carrier}, via: binding",
        "connection: s2, queue: carrier, from: envelope",
    ),
    STORAGE: ("target: {connection: store, queue: carrier}", "connection: store, queue: carrier"),
    GRID: ("target: {connection: grid, topic: carrier}", "connection: grid, webhook: carrier"),
}

JOURNEYS = [
    *(Journey(mode, kinds) for mode in (WIRE, AZURE) for kinds in (*ONE_HOP, *FIVE_HOPS)),
    *(Journey(mode, "SS") for mode in (ENVELOPE, BODY, STORAGE, GRID)),
]
# No task reads these: they show what the services themselves preserve.
CONTROL = {"S": "control-queue", "E": "control-hub"}

type Arrivals = dict[str, bytes]
"""The messages in an entity, by the keys of their specimens."""


class Observations(NamedTuple):
    """The messages that a source delivers, by kind; those that arrive, by journey; and those not sent on a journey."""

    delivered: dict[str, Arrivals]
    arrived: dict[Journey, Arrivals]
    withheld: dict[Journey, set[str]]


def observe(folder: Path) -> Observations:
    """Send all specimens on all journeys; raises AssertionError if one is missing or arrives twice."""
    configuration = folder / "config"
    for mode in (WIRE, AZURE):
        (configuration / mode / "tasks").mkdir(parents=True)
        hops = [
            journey.task(hop) for journey in JOURNEYS for hop in range(len(journey.kinds) - 1) if _host(journey) == mode
        ]
        (configuration / mode / "tasks" / "all.yaml").write_text("---\n".join(hops), encoding="utf-8")
        aliases = {f"{kind}{stage}" for journey in JOURNEYS for stage, kind in enumerate(journey.kinds.lower())} | {
            "s9"
        }
        kinds = {"s": "service-bus", "e": "event-hubs"}
        lines = ["store: {kind: storage-queue, setting: STORE}\n", "grid: {kind: event-grid, setting: GRID}\n"]
        lines += [f"{alias}: {{kind: {kinds[alias[0]]}, setting: CLOUD}}\n" for alias in sorted(aliases)]
        (configuration / mode / "connections.yaml").write_text("".join(lines), encoding="utf-8")
    with (
        RunningBroker([_namespace()]) as broker,
        RunningGrid(EventGrid("key")) as running,
    ):
        account = queue_account()
        settings = {"CLOUD": broker.connection_string("cloud"), "STORE": account, "GRID": running.grid.setting()}
        with QueueServiceClient.from_connection_string(account) as service:
            service.create_queue(_CARRIER)
        hosts = [
            HostProcess(
                *(str(ROOT), _made(folder / mode), {**settings, "BUSWAY_CONFIG": str(configuration / mode)}),
                *(["--wire"] if mode == WIRE else []),
            )
            for mode in (WIRE, AZURE)
        ]
        with hosts[0], hosts[1]:
            hosts[0].wait_until_ready(60)
            running.subscribe(_CARRIER, Subscription(f"http://127.0.0.1:{hosts[0].http_port}/api/events/{_CARRIER}"))
            asyncio.run(_send(settings))
            delivered = {kind: _arrivals(broker, kind, name) for kind, name in CONTROL.items()}
            hosts[1].wait_until_ready(60)
            withheld = {journey: _withheld(journey, delivered) for journey in JOURNEYS}
            wanted = {journey: set(delivered[journey.kinds[0]]) - withheld[journey] for journey in JOURNEYS}
            end = time.monotonic() + _SECONDS
            while True:
                arrived = {
                    journey: _bodies(broker, journey, delivered["S"])
                    if journey.mode == BODY
                    else _arrivals(broker, journey.kinds[-1], journey.entity(len(journey.kinds) - 1))
                    for journey in JOURNEYS
                }
                late = {
                    journey: missing for journey in JOURNEYS if (missing := wanted[journey] - set(arrived[journey]))
                }
                if not late:
                    break
                log = "".join(host.log()[-2000:] for host in hosts)
                assert time.monotonic() < end, f"not arrived: {late}\n{log}"
                time.sleep(0.1)
            assert broker.counts("cloud")["rejected"].active == 0
            assert [host.stop() for host in hosts] == [0, 0]
    return Observations(delivered, arrived, withheld)


def _host(journey: Journey) -> str:
    return {ENVELOPE: WIRE, BODY: WIRE, STORAGE: WIRE, GRID: WIRE}.get(journey.mode, journey.mode)


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _namespace() -> NamespaceConfig:
    places = [(kind, journey.entity(stage)) for journey in JOURNEYS for stage, kind in enumerate(journey.kinds)]
    places += CONTROL.items()
    return NamespaceConfig(
        name="cloud",
        queues=(
            *(QueueConfig(name=name) for kind, name in places if kind == "S"),
            QueueConfig(name="rejected"),
            QueueConfig(name=_CARRIER),
        ),
        hubs=tuple(HubConfig(name=name, partition_count=1) for kind, name in places if kind == "E"),
    )


async def _send(settings: dict[str, str]) -> None:
    """Send to the first entity of each journey the specimens that its host can deliver, and all to the controls."""
    outputs: dict[str, Output] = {
        "S": ServiceBusOutput("cloud", lambda: service_bus_client("CLOUD", settings)),
        "E": EventHubsOutput("cloud", lambda hub: event_hub_client("CLOUD", settings, hub)),
    }
    for journey in [None, *JOURNEYS]:
        starts = CONTROL.items() if journey is None else [(journey.kinds[0], journey.entity(0))]
        for kind, name in starts:
            contents = [
                content
                for key, specimen in SPECIMENS.items()
                if (kind == "E" or not specimen.only_hubs)
                and ((content := specimen.encode(key)) and (journey is None or journey.takes(content)))
            ]
            answers = await outputs[kind].send(name, [_outgoing(content) for content in contents], timeout_seconds=30)
            assert answers == [None] * len(contents), (name, [answer for answer in answers if answer is not None])
    for output in outputs.values():
        await output.close()


def _outgoing(content: bytes) -> Outgoing:
    return Outgoing(content, *Message.received(content, Origin("cloud", "specimens")).envelope())


def _arrivals(broker: RunningBroker, kind: str, name: str) -> Arrivals:
    def contents(namespace: Namespace) -> Iterable[bytes]:
        if kind == "S":
            return [
                message.encode(with_lock=False) for message in namespace.queue(name).backlog.store.messages.values()
            ]
        return [event.encode() for event in namespace.hub(name).partitions[0].events]

    found: Arrivals = {}
    for content in broker.inspect("cloud", contents):
        key = Message.received(content, Origin("cloud", name)).application_property(SPECIMEN)
        assert key is not None
        assert key.payload not in found, f"{name}: {key.payload} arrived twice"
        found[str(key.payload)] = content
    return found


def _bodies(broker: RunningBroker, journey: Journey, delivered: Arrivals) -> Arrivals:
    """Return the messages that arrived without the property of their specimen: they are in the order of the source."""
    stored = broker.inspect(
        "cloud", lambda namespace: [message.encode() for message in namespace.store(journey.entity(1)).peek(0)]
    )
    keys = [key for key, content in delivered.items() if journey.takes(content)]
    return dict(zip(keys, stored, strict=False))


def _withheld(journey: Journey, delivered: dict[str, Arrivals]) -> set[str]:
    return {key for key, content in delivered[journey.kinds[0]].items() if not journey.takes(content)}
