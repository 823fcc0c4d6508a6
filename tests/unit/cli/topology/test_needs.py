"""What tasks need: entities, settings, and tasks that contradict each other."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from cli.topology.model import Kind, Name
from cli.topology.needs import Needed, Needs, deliveries_for
from cli.topology.plan import load_needs
from shared.errors import ConfigError

CONNECTIONS = """
west: {kind: service-bus, setting: WEST}
east: {kind: service-bus, setting: EAST}
plant: {kind: event-hubs, setting: PLANT}
"""
type Configured = Callable[..., Needs]


@pytest.fixture
def needs(tmp_path: Path) -> Configured:
    """Return the needs of tasks, each a text, and of a topology.yaml."""

    def configured(*tasks: str, topology: str | None = None) -> Needs:
        (tmp_path / "tasks").mkdir(exist_ok=True)
        (tmp_path / "connections.yaml").write_text(CONNECTIONS)
        for number, text in enumerate(tasks):
            (tmp_path / f"tasks/{number}.yaml").write_text(text)
        if topology is not None:
            (tmp_path / "topology.yaml").write_text(topology)
        return load_needs(tmp_path)[1]

    return configured


def task(name: str, source: str, target: str, more: str = "") -> str:
    return f"task: {name}\nsource: {{{source}}}\nroutes:\n  - target: {{{target}}}\n{more}"


def found(needs: Needs, key: str, kind: Kind, *parts: str) -> Needed:
    return needs.namespaces[key][Name(kind, parts).key]


def values(needed: Needed) -> dict[str, object]:
    return {name: need.value for name, need in needed.needs.items()}


def test_a_source_gets_sessions_its_rule_and_deliveries_that_outlast_an_outage(needs: Configured) -> None:
    rule = 'rule: {filter: "replication IS NULL", action: "SET replication = 1"}'
    text = task(
        "a", f"connection: west, topic: t, subscription: s, sessions: true, {rule}", "connection: east, topic: t"
    )
    source = found(needs(text), "WEST", Kind.SUBSCRIPTION, "t", "s")
    assert values(source) == {
        "requires_session": True,
        "lock_duration": timedelta(minutes=1),
        "max_delivery_count": 4320,
        "dead_lettering_on_filter_evaluation_exceptions": True,
    }
    assert source.needs["max_delivery_count"].least == 288
    assert source.rule is not None
    assert (source.rule.filter, source.rule.action) == ("replication IS NULL", "SET replication = 1")


@pytest.mark.parametrize(("minutes", "deliveries"), [(50, 87), (15, 288), (1, 4320), (0.1, 4320)])
def test_deliveries_times_the_hold_are_three_days(minutes: float, deliveries: int) -> None:
    assert deliveries_for(timedelta(minutes=minutes)) == deliveries


def test_a_new_target_remembers_ids_as_long_as_its_sources_redeliver(needs: Configured) -> None:
    short = task("a", "connection: west, queue: q", "connection: east, queue: out")
    long = task("b", "connection: west, queue: r", "connection: east, queue: out", "limits: {hold: PT10M}\n")
    target = found(needs(short, long), "EAST", Kind.QUEUE, "out")
    assert values(target)["duplicate_detection_history_time_window"] == timedelta(minutes=432)
    assert target.needed_by == ["a", "b"]


def test_a_target_has_sessions_only_if_all_its_senders_set_session_ids(needs: Configured) -> None:
    ordered = task("a", "connection: west, queue: q, sessions: true", "connection: east, queue: out")
    assert values(found(needs(ordered), "EAST", Kind.QUEUE, "out"))["requires_session"] is True
    plain = task("b", "connection: west, queue: r", "connection: east, queue: out")
    assert values(found(needs(ordered, plain), "EAST", Kind.QUEUE, "out"))["requires_session"] is False
    keyed = plain.replace("queue: out}", "queue: out}\n    action: \"SET sys.SessionId = 'one'\"")
    assert values(found(needs(ordered, keyed), "EAST", Kind.QUEUE, "out"))["requires_session"] is True


def test_a_dead_letter_source_leaves_its_queue_to_the_application(needs: Configured) -> None:
    text = task(
        "a",
        "connection: west, queue: jobs, dead_letter: true",
        "connection: east, queue: jobs",
        "rejects: {connection: west, queue: rejects}\n",
    )
    assert values(found(needs(text), "WEST", Kind.QUEUE, "jobs")) == {}


def test_a_hub_needs_its_consumer_group_and_the_partitions_that_tasks_name(needs: Configured) -> None:
    text = task(
        "a",
        "connection: plant, hub: readings, consumer_group: office, partitions: [0, 6]",
        "connection: plant, hub: out, partition: 9",
        "rejects: {connection: west, queue: rejects}\n",
    )
    read = needs(text)
    assert found(read, "PLANT", Kind.CONSUMER_GROUP, "readings", "office").is_source
    assert found(read, "PLANT", Kind.HUB, "readings").needs["partition_count"].least == 7
    assert values(found(read, "PLANT", Kind.HUB, "out")) == {"partition_count": 10}


def test_topology_adds_the_entities_of_applications_and_overrides_what_is_chosen(needs: Configured) -> None:
    text = task("a", "connection: west, queue: q", "connection: east, topic: t")
    topology = """
east:
  topics:
    t:
      time_to_live: P14D
      duplicate_window: PT5M
      partitioned: true
      subscriptions:
        application: {sessions: true, rule: {filter: "color = 'red'"}}
        everything:
"""
    read = needs(text, topology=topology)
    topic = values(found(read, "EAST", Kind.TOPIC, "t"))
    assert topic["default_message_time_to_live"] == timedelta(days=14)
    assert topic["duplicate_detection_history_time_window"] == timedelta(minutes=5)
    assert topic["enable_partitioning"] is True
    application = found(read, "EAST", Kind.SUBSCRIPTION, "t", "application")
    assert application.rule is not None
    assert values(application) == {"requires_session": True}
    assert found(read, "EAST", Kind.SUBSCRIPTION, "t", "everything").rule is None


@pytest.mark.parametrize(
    ("topology", "expected"),
    [
        ("", {"support_ordering": True, "requires_duplicate_detection": True}),
        ("{partitioned: true}", {"requires_duplicate_detection": False}),
        ("{partitioned: true, duplicate_detection: true}", {"requires_duplicate_detection": True}),
        ("{partitioned: true, duplicate_window: PT5M}", {"requires_duplicate_detection": True}),
        ("{partitioned: false}", {"support_ordering": True, "requires_duplicate_detection": True}),
    ],
)
def test_a_new_partitioned_target_detects_duplicates_only_if_topology_asks_for_it(
    needs: Configured, topology: str, expected: dict[str, bool]
) -> None:
    text = task("a", "connection: west, queue: q", "connection: east, topic: t")
    topic = values(found(needs(text, topology=f"east: {{topics: {{t: {topology}}}}}"), "EAST", Kind.TOPIC, "t"))
    assert {
        name: topic[name] for name in topic.keys() & {"support_ordering", "requires_duplicate_detection"}
    } == expected


PLAIN = task("a", "connection: west, queue: q", "connection: east, queue: o")
ORDERED = task("a", "connection: west, queue: q, sessions: true", "connection: east, queue: o")


def ruled(name: str, source: str, rule: str) -> str:
    return task(name, f'connection: west, {source}, rule: {{filter: "{rule}"}}', "connection: east, queue: o")


@pytest.mark.parametrize(
    ("tasks", "topology", "expected"),
    [
        (
            (ruled("a", "topic: t, subscription: s", "x = 1"), ruled("b", "topic: T, subscription: S", "x = 2")),
            None,
            "wants x = 2 on subscription t/s, but",
        ),
        (
            (ORDERED, PLAIN.replace("task: a", "task: b")),
            None,
            "needs queue q with requires_session false, but a says `sessions: true`",
        ),
        (
            (ORDERED,),
            "west: {queues: {q: {sessions: false}}}",
            "says requires_session false, but a says `sessions: true`, which needs true",
        ),
        (
            (PLAIN,),
            "west: {queues: {q: {max_delivery_count: 3}}}",
            "says max_delivery_count 3, but an outage of three days takes 288 deliveries of 15 min",
        ),
        (
            (PLAIN,),
            "north: {queues: {q: {}}}\nplant: {queues: {q: {}}}",
            "north: is not a connection (connections.yaml has west, east, plant)",
        ),
        ((PLAIN,), "plant: {queues: {q: {}}}", "plant: is of kind event-hubs, expected hubs"),
        (
            (PLAIN,),
            "west: {queues: {q: {lock_duration: PT9M, color: red}}}",
            "west.queues.q.color: unknown key",
        ),
        (
            (PLAIN.replace("queue: o", f"queue: {'x' * 261}"),),
            None,
            "has a name of 261 characters, expected at most 260 (shorten it)",
        ),
        (
            (PLAIN.replace("queue: q", "queue: 'a b'"),),
            None,
            "has a name that the service refuses, expected letters, digits, . - _ or /",
        ),
        (
            (PLAIN.replace("queue: q", f"topic: t, subscription: {'s' * 51}"),),
            None,
            "has a name of 51 characters, expected at most 50",
        ),
    ],
)
def test_what_contradicts_or_is_refused_is_a_problem_with_its_place(
    needs: Configured, tasks: tuple[str, ...], topology: str | None, expected: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        needs(*tasks, topology=topology)
    assert expected in str(caught.value)
