"""Heartbeats in a set of tasks: who may have them, where they go, and which rules must change."""

from pathlib import Path
from typing import Any

import pytest

from cli.topology.deployment import deployment_of
from cli.topology.needs import needs_of
from shared.assembly.heartbeats import heartbeat_schedule
from shared.tasks.files import load
from shared.tasks.heartbeats import heartbeat_targets, hiding
from tests.unit.tasks.conftest import CONNECTIONS, subscribed, task, to
from tests.unit.tasks.task_files import written

EVERY = "heartbeat: {every: PT1M}\n"
VISIBLE = "heartbeat: {every: PT1M, visible: true}\n"
OWN = "[busway-heartbeat] = 'copy' OR ([busway-heartbeat] IS NULL AND (replication IS NULL))"


def subscription(name: str, *filters: str) -> dict[str, Any]:
    rules = [
        {"Name": f"r{number}", "Properties": {"FilterType": "Sql", "SqlFilter": {"SqlExpression": text}}}
        for number, text in enumerate(filters)
    ]
    return {"Name": name, "Rules": rules}


def topic(*subscriptions: dict[str, Any]) -> dict[str, Any]:
    return {"Topics": [{"Name": "events", "Subscriptions": list(subscriptions)}]}


@pytest.mark.parametrize(
    ("source", "more", "expected"),
    [
        ("{connection: west, queue: orders, dead_letter: true}", EVERY, "nobody can send to one"),
        ("{connection: west, queue: orders, from: envelope}", EVERY, "only a binding sends those"),
        ("{connection: hub-west, hub: orders}", EVERY, "expected `visible: true`"),
        ("{connection: west, queue: orders}", "heartbeat: {every: PT1S}\n", "5"),
        ("{connection: west, queue: orders}", "heartbeat: {every: PT1M, to: x}\n", "unknown"),
    ],
)
def test_a_task_that_cannot_have_heartbeats_is_refused(problems: Any, source: str, more: str, expected: str) -> None:
    text = f"task: copy\nsource: {source}\nroutes: [{{target: {{connection: east, queue: orders}}}}]\n{more}"
    found = problems(copy=text + "rejects: {connection: west, queue: rejected}\n")
    assert len(found) == 1
    assert expected in " ".join(found[0])


def test_a_binding_and_heartbeats_exclude_each_other(problems: Any) -> None:
    routes = "[{target: {connection: east, queue: a}, via: binding}]"
    text = f"task: copy\nsource: {{connection: west, queue: orders}}\nroutes: {routes}\n"
    (found,) = problems(copy=text + EVERY)
    assert "`via: binding`" in found[1]


def test_heartbeats_of_queues_and_hubs_end_beside_them_unless_they_may_be_seen(tmp_path: Path) -> None:
    routes = [to("east", each) for each in ("queue: orders", "topic: orders")] + [to("hubs", "hub: orders")]
    tasks = [
        task("hidden", "{connection: west, queue: a}", *routes, more=EVERY),
        task("visible", "{connection: west, queue: b}", *routes, more=VISIBLE.replace("PT1M", "PT7S")),
        task("none", "{connection: west, queue: c}", *routes),
    ]
    configuration = load(written(tmp_path, "---\n".join(tasks), CONNECTIONS))
    ends = [[(target.kind, target.entity) for target in heartbeat_targets(each)] for each in configuration.tasks]
    assert ends == [
        [("topic", "busway-heartbeat"), ("topic", "orders"), ("hub", "busway-heartbeat")],
        [("queue", "orders"), ("topic", "orders"), ("hub", "orders")],
        [],
    ]
    assert heartbeat_schedule(configuration) == "*/7 * * * * *"
    assert configuration.hubs("hubs") == {"orders", "busway-heartbeat"}
    needs = needs_of(configuration, None).namespaces.values()
    needed = {str(entity.name) for entities in needs for entity in entities.values()}
    assert {"topic busway-heartbeat", "hub busway-heartbeat"} <= needed


def test_subscriptions_of_applications_must_hide_heartbeats_and_the_source_select_them(found: Any) -> None:
    copy = task("copy", subscribed("west", "replication"), to("east", "topic: events"), more=EVERY)
    hidden = found(
        copy,
        west=topic(subscription("replication", OWN), subscription("app", hiding("1 = 1"))),
        east=topic(subscription("app", hiding("price > 5")), subscription("never", "price > 5")),
    )
    assert not {"heartbeat-not-hidden", "heartbeat-not-taken"} & {name for name, _ in hidden}


def test_a_subscription_that_selects_heartbeats_is_found_at_the_source_and_at_the_target(found: Any) -> None:
    copy = task("copy", subscribed("west", "replication"), to("east", "topic: events"), more=EVERY)
    seen = found(
        copy,
        west=topic(subscription("replication", "priority = 1"), subscription("app", "1=1")),
        east=topic(subscription("app", "sys.MessageId IS NOT NULL")),
    )
    expected = [*2 * ["heartbeat-not-hidden"], "heartbeat-not-taken"]
    assert [name for name, _ in seen if name.startswith("heartbeat")] == expected


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("1=1", "[busway-heartbeat] IS NULL"),
        ("a = 1 OR b = 2", "(a = 1 OR b = 2) AND [busway-heartbeat] IS NULL"),
        ("[Busway-Heartbeat] IS NULL", "[Busway-Heartbeat] IS NULL"),
    ],
)
def test_a_rule_hides_heartbeats_once(condition: str, expected: str) -> None:
    assert hiding(condition) == expected
    assert hiding(expected) == expected


def test_the_deployment_lets_the_app_send_heartbeats_to_its_sources_and_beside_its_targets(tmp_path: Path) -> None:
    tasks = [
        task("a", "{connection: west, queue: jobs}", to("east"), more=EVERY),
        task("b", subscribed("west", "replication"), to("north", "topic: events"), more=EVERY),
        task("c", "{connection: west, queue: quiet}", to("east", "queue: quiet")),
    ]
    configuration = load(written(tmp_path, "---\n".join(tasks), CONNECTIONS))
    deployed = deployment_of(configuration, needs_of(configuration, None))
    sites = {each["alias"]: each["sendsTo"] for each in deployed["sites"]}
    assert (sites["west"]["queues"], sites["west"]["topics"]) == (["jobs"], ["events"])
    assert (sites["east"]["queues"], sites["east"]["topics"]) == (["orders", "quiet"], ["busway-heartbeat"])
