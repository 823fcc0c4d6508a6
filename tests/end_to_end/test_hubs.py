"""The function app of this repository to, from and between event hubs: keys, sessions, partitions and their order."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from tests.site import Site, until

KEYS = ("amsterdam", "berlin", "chicago", "delhi", "essen")
EACH = 12

ENTITIES = """
west:
  queues: {orders: {requires_session: true}, jobs: , rejected: }
  hubs: {telemetry: {partition_count: 4, consumer_groups: [key, keep, queue, one]}, rejected: }
east:
  queues: {orders: {requires_session: true}, readings: {requires_session: true}, one: }
  hubs:
    stream: {partition_count: 4}
    jobs: {partition_count: 2}
    by-key: {partition_count: 4}
    kept: {partition_count: 4}
"""
TASKS = """
task: sessions-to-hub
source: {connection: west, queue: orders, sessions: true}
routes: [{target: {connection: hub-east, hub: stream}}]
rejects: {connection: west, queue: rejected}
---
task: hub-to-sessions
source: {connection: hub-east, hub: stream}
routes: [{target: {connection: east, queue: orders}}]
rejects: {connection: west, queue: rejected}
---
task: queue-to-partition
source: {connection: west, queue: jobs}
routes: [{target: {connection: hub-east, hub: jobs, partition: 1}}]
rejects: {connection: west, queue: rejected}
---
task: hub-to-hub
source: {connection: hub-west, hub: telemetry, consumer_group: key}
routes: [{target: {connection: hub-east, hub: by-key}}]
rejects: {connection: hub-west, hub: rejected}
---
task: hub-to-hub-partitions
source: {connection: hub-west, hub: telemetry, consumer_group: keep}
routes: [{target: {connection: hub-east, hub: kept, partition: keep}}]
rejects: {connection: hub-west, hub: rejected}
---
task: hub-to-queue
source: {connection: hub-west, hub: telemetry, consumer_group: queue}
routes: [{target: {connection: east, queue: readings}}]
rejects: {connection: hub-west, hub: rejected}
---
task: one-partition
source: {connection: hub-west, hub: telemetry, consumer_group: one, partitions: [2]}
routes: [{target: {connection: east, queue: one}}]
rejects: {connection: hub-west, hub: rejected}
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Site(tmp_path_factory.mktemp("hubs"), ENTITIES, TASKS) as site, site.running_host():
        yield site


@pytest.fixture(scope="module")
def telemetry(site: Site) -> set[str]:
    """Publish readings of every city with its key."""
    for number in range(EACH):
        for key in KEYS:
            site.publish_events("west/telemetry", f"{key}-{number}", partition_key=key)
    return {f"{key}-{number}" for key in KEYS for number in range(EACH)}


def arrived(site: Site, hub: str, count: int) -> list[list[Any]]:
    until(lambda: sum(map(len, site.events(f"east/{hub}"))) >= count, 20, text=lambda: site.events(f"east/{hub}"))
    return site.events(f"east/{hub}")


def bodies(events: list[Any]) -> list[str]:
    return [event.body.decode() for event in events]


def by_key(partitions: list[list[Any]]) -> dict[str | None, list[tuple[int, str]]]:
    found: dict[str | None, list[tuple[int, str]]] = {}
    for number, events in enumerate(partitions):
        for event in events:
            found.setdefault(event.partition_key, []).append((number, event.body.decode()))
    return found


def assert_every_key_in_order(found: dict[str | None, list[tuple[int, str]]]) -> None:
    assert set(found) == set(KEYS)
    for key, events in found.items():
        assert [body for _, body in events] == [f"{key}-{number}" for number in range(EACH)]
        assert len({partition for partition, _ in events}) == 1


def test_sessions_become_keys_and_sessions_again(site: Site) -> None:
    for number in range(EACH):
        made = (ServiceBusMessage(f"{key}-{number}", session_id=key, message_id=f"{key}-{number}") for key in KEYS)
        site.send("west/orders", *made)
    partitions = arrived(site, "stream", EACH * len(KEYS))
    assert_every_key_in_order(by_key(partitions))
    for key in KEYS:
        messages = site.take("east/orders", EACH, session_id=key)
        assert [str(message) for message in messages] == [f"{key}-{number}" for number in range(EACH)]
        assert {message.partition_key for message in messages} == {None}
        properties = messages[0].application_properties
        assert properties[b"repl-path"] == b"west;hub-east"
        assert [name for name in properties if name.startswith((b"repl-sb", b"repl-eh"))] == []


def test_fields_without_an_event_equivalent_are_kept_in_properties(site: Site) -> None:
    minutes = timedelta(seconds=90)
    jobs = (ServiceBusMessage(f"{n}", message_id=f"j{n}", subject="job", time_to_live=minutes) for n in range(5))
    site.send("west/jobs", *jobs)
    partitions = arrived(site, "jobs", 5)
    assert [bodies(partition) for partition in partitions] == [[], [str(n) for n in range(5)]]
    for each in partitions[1]:
        life = each.application_property("repl-sb-time-to-live")
        assert (life.kind, life.payload) == ("uint", 90_000)
        assert (each.subject, each.partition_key) == ("job", None)


def test_from_hub_to_hub_every_key_keeps_its_order_and_partition(site: Site, telemetry: set[str]) -> None:
    partitions = arrived(site, "by-key", len(telemetry))
    assert_every_key_in_order(by_key(partitions))
    sources = site.events("west/telemetry")
    assert [sorted(bodies(partition)) for partition in partitions] == [sorted(bodies(source)) for source in sources]
    assert len({event.message_id.payload for events in partitions for event in events}) == len(telemetry)


def test_a_kept_partition_keeps_the_order_of_all_its_keys(site: Site, telemetry: set[str]) -> None:
    partitions = arrived(site, "kept", len(telemetry))
    sources = site.events("west/telemetry")
    assert [bodies(partition) for partition in partitions] == [bodies(source) for source in sources]
    assert [[e.partition_key for e in partition] for partition in partitions] == [
        [e.partition_key for e in source] for source in sources
    ]


@pytest.mark.usefixtures("telemetry")
def test_keys_become_sessions_in_their_order(site: Site) -> None:
    for key in KEYS:
        messages = site.take("east/readings", EACH, session_id=key)
        assert [str(message) for message in messages] == [f"{key}-{number}" for number in range(EACH)]


@pytest.mark.usefixtures("telemetry")
def test_a_task_of_one_partition_copies_only_its_events(site: Site) -> None:
    expected = bodies(site.events("west/telemetry")[2])
    assert 0 < len(expected) < EACH * len(KEYS)
    messages = site.take("east/one", len(expected))
    assert [str(message) for message in messages] == expected
    assert site.active("east/one") == 0


def test_nothing_was_rejected(site: Site) -> None:
    assert site.active("west/rejected") == 0
    assert site.events("west/rejected") == [[]]
