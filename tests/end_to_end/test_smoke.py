"""`busway smoke` with a real host, the local broker and Azurite."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from typer.testing import Result

from busway_broker.thread import RunningBroker
from tests.site import Site, namespaces

pytestmark = [pytest.mark.slow, pytest.mark.long]

ENTITIES = """
west:
  queues: [payments, here, strict, refused, rejected]
  topics:
    orders:
      subscriptions:
        replication:
          requires_session: true
          rule: {filter: "replication IS NULL AND region = 'eu'", action: SET replication = 1}
east:
  queues:
    express: {requires_session: true}
    orders:
    there:
    small: {max_message_size: 100}
  topics: {news: [application], payments: {status: SendDisabled, subscriptions: [application]}}
hubs: {hubs: {telemetry: {partition_count: 2}, copies: {partition_count: 2}}}
"""
TASKS = """
task: orders
source: {connection: west, topic: orders, subscription: replication, sessions: true,
         rule: {filter: "replication IS NULL AND region = 'eu'", action: "SET replication = 1"}}
routes:
  - {when: "priority > 5", target: {connection: east, queue: express}}
  - {target: {connection: east, queue: orders}}
---
task: payments
source: {connection: west, queue: payments}
routes: [{target: {connection: east, topic: payments}}]
---
task: back
source: {connection: east, queue: There}
routes: [{target: {connection: west, queue: here}}]
---
task: forth
source: {connection: west, queue: here}
routes: [{target: {connection: east, queue: there}}]
---
task: strict
source: {connection: west, queue: strict}
editors: [{filter: "kind IN ('a', 'b')"}]
routes:
  - {when: "kind = 'c'", target: {connection: east, queue: orders}}
  - {target: {connection: east, topic: news}}
---
task: dead
source: {connection: west, queue: payments, dead_letter: true}
routes: [{target: {connection: east, queue: orders}}]
rejects: {connection: west, queue: rejected}
---
task: refused
source: {connection: west, queue: refused}
routes: [{target: {connection: east, queue: small}}]
rejects: {connection: west, queue: rejected}
---
task: telemetry
source: {connection: hubs, hub: telemetry}
routes: [{target: {connection: hubs, hub: copies}}]
rejects: {connection: west, queue: rejected}
"""
type Smoke = Callable[..., Result]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, storage: str) -> Iterator[Site]:
    # SR58: copies appear seconds after the topic has accepted a message.
    sites = [replace(each, copy_delay=timedelta(seconds=4)) for each in namespaces(ENTITIES)]
    with Site(tmp_path_factory.mktemp("smoke"), sites, TASKS, storage=storage) as site, site.running_host():
        yield site


@pytest.fixture(scope="module")
def smoke(site: Site) -> Smoke:
    return partial(site.run, "smoke")


@pytest.fixture(scope="module")
def broker(site: Site) -> RunningBroker:
    return site.broker


def reports(result: Result) -> dict[str, dict[str, Any]]:
    return {each["route"]: each for each in map(json.loads, result.stdout.splitlines())}


def waiting(broker: RunningBroker) -> dict[str, int]:
    """Return the messages that are left in the queues and subscriptions of both sites."""
    return {
        f"{site}/{name}": counts.active
        for site in ("west", "east")
        for name, counts in broker.counts(site).items()
        if counts.active
    }


def test_without_yes_nothing_is_sent_and_the_messages_are_shown(smoke: Smoke, broker: RunningBroker) -> None:
    result = smoke()
    assert result.exit_code == 2  # not every route can be tried
    assert "orders:0  west/orders → east/express region=eu priority=6" in result.stdout
    assert "orders:1  west/orders → east/orders region=eu" in result.stdout
    assert "strict:0  not tried: no message of --messages or made up takes it: " in result.stdout
    assert "dead:0  not tried: its source is a dead-letter queue" in result.stdout
    assert "Nothing was sent." in result.stdout
    assert waiting(broker) == {}


@pytest.mark.always
def test_messages_arrive_through_rules_sessions_topics_and_hubs_and_are_removed(
    smoke: Smoke, broker: RunningBroker
) -> None:
    result = smoke(
        *(f"--routes={name}" for name in ("orders", "strict:1", "telemetry")),
        "--watch=east/news/Subscriptions/application",
        "--yes",
        "--json",
    )
    found = reports(result)
    assert {name: each["result"] for name, each in found.items()} == dict.fromkeys(
        ("orders:0", "orders:1", "strict:1", "telemetry:0"), "arrived"
    )
    assert (result.exit_code, result.stderr) == (0, "")
    assert all(each["seconds"] < 30 for each in found.values())
    assert waiting(broker) == {}


def test_a_message_beside_others_is_left_and_reported(smoke: Smoke, site: Site) -> None:
    site.send("east/orders", "of an application")
    result = smoke("--routes", "orders:1", "--yes")
    assert result.exit_code == 0, result.output
    assert "other messages wait there too" in result.stderr
    with site.receiver("east/orders", max_wait_time=5) as receiver:
        taken = receiver.receive_messages(2)
        assert (str(taken[0]), taken[0].delivery_count) == ("of an application", 0)
        for message in taken:
            receiver.complete_message(message)


def test_a_disabled_target_is_named_with_the_place_of_the_message(smoke: Smoke) -> None:
    result = smoke("--routes", "payments", "--yes", "--json", "--wait", "6")
    assert result.exit_code == 1
    report = reports(result)["payments:0"]
    assert report["result"] == "not arrived"
    assert "it is in west/payments, where it still waits" in report["detail"]
    assert "the task is held: " in report["detail"]


def test_a_refused_message_is_found_in_the_rejects(smoke: Smoke, broker: RunningBroker) -> None:
    result = smoke("--routes", "refused", "--yes", "--json", "--wait", "20")
    assert result.exit_code == 1
    report = reports(result)["refused:0"]
    assert "it is in west/rejected, given up: " in report["detail"]
    assert "journal: rejected" in report["detail"]
    assert "west/rejected" not in waiting(broker)


def test_a_pair_that_passes_messages_on_is_shown_by_the_journal(smoke: Smoke) -> None:
    planned = smoke("--routes", "forth")
    assert "back takes it from there: only the journal shows its arrival" in planned.stdout
    result = smoke("--routes", "forth", "--yes", "--json", "--wait", "30")
    assert result.exit_code == 0, result.output
    assert reports(result)["forth:0"]["result"] in {"accepted", "arrived"}


def test_a_site_that_does_not_answer_is_reported_and_the_others_go_on(smoke: Smoke, broker: RunningBroker) -> None:
    broker.faults("hubs").go_down()
    try:
        result = smoke("--routes=telemetry", "--routes=orders:0", "--yes", "--json")
    finally:
        broker.faults("hubs").come_up()
    found = reports(result)
    assert found["orders:0"]["result"] == "arrived"
    assert found["telemetry:0"]["result"] in {"not sent", "not arrived"}
    assert result.exit_code == 1


def test_a_target_that_cannot_be_watched_is_sent_nothing(smoke: Smoke, broker: RunningBroker) -> None:
    result = smoke("--routes=strict:1", "--watch=east/news/Subscriptions/nothing", "--yes", "--json")
    assert result.exit_code == 1
    assert reports(result)["strict:1"]["result"] == "not sent"
    assert waiting(broker).get("east/news/Subscriptions/application") is None


def test_unknown_routes_are_named_with_those_that_exist(smoke: Smoke) -> None:
    result = smoke("--routes=order", "--routes=orders:2")
    assert result.exit_code == 2
    assert "--routes order: unknown task (expected one of orders, payments, " in result.stderr
    assert "--routes orders:2: unknown route (expected orders:0 to orders:1)" in result.stderr
