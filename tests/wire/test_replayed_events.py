"""Which events a replay gets from a hub of the local broker that has deleted some (EH18, EH19), and what it says."""

import asyncio
import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.eventhub import EventData, EventHubProducerClient

from busway_broker.config import HubConfig, LinkLimits, NamespaceConfig
from busway_broker.thread import RunningBroker
from cli.replay.messages import Messages
from cli.replay.plan import Plan, Position
from shared.clock import ManualClock
from shared.tasks.files import load

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
HOUR = dt.timedelta(hours=1)
_CONNECTIONS = """
hubs: {kind: event-hubs, setting: HUBS}
east: {kind: service-bus, setting: EAST}
"""
_TASK = """
task: copy
source: {connection: hubs, hub: h}
routes: [{target: {connection: east, queue: orders}}]
rejects: {connection: east, queue: rejected}
"""


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    """Hold events 0 to 4, which are deleted, and 5 to 9, an hour and a half later."""
    # The SDK leaks the socket of a connection that ends while it is idle.
    links = LinkLimits(publisher_idle=None, connection_idle=None)
    hub = HubConfig(name="h", partition_count=1, message_retention=HOUR)
    with RunningBroker([NamespaceConfig(name="hubs", hubs=(hub,), links=links)], ManualClock(START)) as running:
        send(running, 5)
        running.advance(5_400)
        send(running, 5)
        yield running


def send(broker: RunningBroker, count: int) -> None:
    with EventHubProducerClient.from_connection_string(broker.connection_string("hubs"), eventhub_name="h") as producer:
        producer.send_batch([EventData("x") for _ in range(count)])


def at(seconds: int) -> Position:
    return Position(round((START + dt.timedelta(seconds=seconds)).timestamp() * 1000))


def replayed(broker: RunningBroker, folder: Path, first: Position, last: Position) -> tuple[list[int], list[str]]:
    """Return the numbers of the events between two positions, and what the replay says about others."""
    for name, text in {"connections.yaml": _CONNECTIONS, "tasks/copy.yaml": _TASK}.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    configuration = load(folder)
    settings = {"HUBS": broker.connection_string("hubs")}
    plan = Plan("copy", "id", first, last)

    async def scenario() -> tuple[list[int], list[str]]:
        messages = Messages(plan, configuration.tasks[0], configuration, settings, folder)
        numbers = [letter.number or 0 async for page in messages.pages() for _, letter in page]
        return numbers, messages.unread

    return asyncio.run(scenario())


NUMBER_9, GONE = Position(number=9), "hubs/h/0: no longer in the hub: sequence number "


@pytest.mark.parametrize(
    ("first", "last", "said"),
    [
        (Position(number=3), NUMBER_9, [f"{GONE}3 to 4"]),
        (Position(number=4), NUMBER_9, [f"{GONE}4"]),
        (Position(number=5), NUMBER_9, []),
        (Position(), at(6_000), []),
        (
            at(5_000),
            at(6_000),
            ["hubs/h/0: events before sequence number 5 are no longer in the hub, and may have been"],
        ),
        (at(5_400), at(6_000), []),
    ],
)
def test_a_replay_names_the_events_that_the_hub_has_deleted(
    broker: RunningBroker, tmp_path: Path, first: Position, last: Position, said: list[str]
) -> None:
    numbers, unread = replayed(broker, tmp_path, first, last)
    assert numbers == [5, 6, 7, 8, 9]
    assert len(unread) == len(said)
    assert all(each.startswith(begin) for each, begin in zip(unread, said, strict=True))


def test_a_replay_from_a_hub_that_has_deleted_all_says_so(broker: RunningBroker, tmp_path: Path) -> None:
    broker.advance(5_400)
    assert replayed(broker, tmp_path, Position(number=3), Position(number=7)) == ([], [f"{GONE}3 to 7"])
    assert replayed(broker, tmp_path, Position(), Position(number=7)) == ([], [])
