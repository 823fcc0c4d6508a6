"""Heartbeats with a real host, the local broker with its administration, and Azurite."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.management import SqlRuleFilter

from shared.ends.service_bus.administration import administration_client
from tests.site import Site

# azure-servicebus tests the truth value of XML elements.
pytestmark = pytest.mark.filterwarnings("ignore:Testing an element's truth value:DeprecationWarning")

ENTITIES = """
west:
east:
hubs: {hubs: {readings: {partition_count: 4}, copies: }}
"""
TASKS = """
task: orders-west-to-east
source: {connection: west, topic: orders, subscription: replication, sessions: true,
         rule: {filter: "replication IS NULL", action: "SET replication = 1"}}
editors: [{validate: {required_properties: [price]}}]
routes: [{target: {connection: east, topic: orders}}]
heartbeat: {every: PT5S}
---
task: orders-east-to-west
source: {connection: east, topic: orders, subscription: replication, sessions: true,
         rule: {filter: "replication IS NULL", action: "SET replication = 1"}}
routes: [{target: {connection: west, topic: orders}}]
heartbeat: {every: PT5S}
---
task: jobs
source: {connection: west, queue: jobs}
routes:
  - {when: "priority > 5", target: {connection: east, queue: urgent}}
  - {target: {connection: east, queue: jobs}}
heartbeat: {every: PT5S}
---
task: readings
source: {connection: hubs, hub: readings, binary_properties: false}
routes: [{target: {connection: hubs, hub: copies}}]
rejects: {connection: west, queue: rejected}
heartbeat: {every: PT5S, visible: true}
"""
TOPOLOGY = """
west: {topics: {orders: {subscriptions: {application: {sessions: true}, expensive: {rule: {filter: "price > 10"}}}}}}
east: {topics: {orders: {subscriptions: {application: {sessions: true}, expensive: {rule: {filter: "price > 10"}}}}}}
"""
SECONDS = 60.0
ARRIVING = {
    "orders-west-to-east": ["east/orders"],
    "orders-east-to-west": ["west/orders"],
    "jobs": 2 * ["east/busway-heartbeat"],
    "readings": ["hubs/copies"],
}


class HeartbeatSite(Site):
    """A running app with two namespaces whose entities `busway apply` has made."""

    def until_shown(self, start: str) -> str:
        """Return what `busway status` prints, once it starts so."""
        # The clock of an instance is known to a second or two: what is late by less may be in time at the next look.
        end = time.monotonic() + SECONDS
        while True:
            result = self.run("status")
            if result.exit_code == 1 and result.stdout.startswith(start):
                return result.stdout
            assert time.monotonic() < end, result.output
            time.sleep(1)

    def set_status(self, site: str, topic: str, status: str) -> None:
        with administration_client(site.upper(), self.settings) as client:
            found = client.get_topic(topic)
            found.status = status
            client.update_topic(found)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, storage: str) -> Iterator[HeartbeatSite]:
    folder = tmp_path_factory.mktemp("heartbeats")
    (folder / "topology.yaml").write_text(TOPOLOGY)
    with HeartbeatSite(folder, ENTITIES, TASKS, storage=storage, has_admin=True) as site:
        del site.settings["HUBS__administration"]
        applied = site.run("apply", "--yes")
        assert applied.exit_code == 0, applied.output
        for name in ("WEST", "EAST"):
            with administration_client(name, site.settings) as client:
                client.create_subscription("orders", "billing")  # not in topology.yaml
        applied = site.run("apply", "--yes")
        assert applied.exit_code == 0, applied.output
        with site.running_host():
            yield site


def places(task: dict[str, Any]) -> list[str]:
    return [f"{each['target']['site']}/{each['target']['entity']}" for each in task["heartbeats"] if each["latency"]]


def test_apply_hides_heartbeats_from_the_subscriptions_of_applications(site: HeartbeatSite) -> None:
    with administration_client("EAST", site.settings) as client:
        found = {
            name: [
                rule.filter.sql_expression
                for rule in client.list_rules("orders", name)
                if isinstance(rule.filter, SqlRuleFilter)
            ]
            for name in ("application", "billing", "expensive", "replication")
        }
    assert found == {
        "application": ["[busway-heartbeat] IS NULL"],
        "billing": ["[busway-heartbeat] IS NULL"],
        "expensive": ["(price > 10) AND [busway-heartbeat] IS NULL"],
        "replication": [
            "[busway-heartbeat] = 'orders-east-to-west' OR ([busway-heartbeat] IS NULL AND (replication IS NULL))"
        ],
    }
    assert site.run("plan").exit_code == 0


def test_heartbeats_arrive_through_every_route_and_count_as_nothing_else(site: HeartbeatSite) -> None:
    tasks = site.statuses(lambda found: {name: places(each) for name, each in found.items()} == ARRIVING, code=0)
    for task in tasks.values():
        assert (task["state"], task["rate"], task["last_batch"], task["instances"]) == ("idle", 0.0, None, 0)
        assert task["last_hour"] == {"sent": 0, "withheld": 0, "rejected": 0, "retried": 0, "duplicates": 0}
        assert all(0 < each["latency"] < 10 and not each["missed"] for each in task["heartbeats"])
    result = site.run("status")
    assert "last heartbeats of 5 routes: " in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_applications_get_their_messages_and_no_heartbeat(site: HeartbeatSite) -> None:
    site.send("west/orders", ServiceBusMessage("x", session_id="a", application_properties={"price": 20}))
    site.statuses(lambda found: found["orders-west-to-east"]["last_hour"]["sent"] == 1)
    for name in ("application", "billing", "expensive"):
        assert [message.body for message in site.there(f"east/orders/Subscriptions/{name}")] == [b"x"], name
    for queue in ("jobs", "urgent"):
        assert site.there(f"east/{queue}") == []


def test_a_heartbeat_is_missed_when_the_target_is_disabled_and_comes_back(site: HeartbeatSite) -> None:
    site.statuses(lambda found: {name: places(each) for name, each in found.items()} == ARRIVING)
    site.set_status("east", "orders", "SendDisabled")
    # A heartbeat never waits for the target: none is left at the source.
    pair = ("orders-west-to-east", "orders-east-to-west")
    tasks = site.statuses(
        lambda found: all(found[name]["heartbeats"][0]["missed"] and found[name]["backlog"] == 0 for name in pair),
        code=1,
    )
    (heartbeat,) = tasks["orders-west-to-east"]["heartbeats"]
    assert "it is disabled" in heartbeat["reason"]
    shown = site.until_shown("2 of 4 tasks need attention: ")
    text = " ".join(shown.split())
    assert "orders-west-to-east misses heartbeats" in text
    # Its source is the same topic.
    assert "it cannot be sent to the source: east/orders: " in text
    assert "no heartbeat has reached east/orders (one every 5.0 s): east/orders: " in text
    assert max(map(len, shown.splitlines())) <= 80
    site.set_status("east", "orders", "Active")
    site.statuses(
        lambda found: not any(each["missed"] for task in found.values() for each in task["heartbeats"]), code=0
    )
