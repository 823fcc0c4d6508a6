"""What it takes to get from the entities that exist to those that are needed."""

from datetime import timedelta
from pathlib import Path

import pytest

from cli.entities import beside
from cli.topology.bicep import entities_of
from cli.topology.difference import Action, after, difference
from cli.topology.limits import warnings_of
from cli.topology.model import Entity, Kind, Name, Namespace, Setting, SubscriptionRule
from cli.topology.needs import Need, Needed
from cli.topology.plan import load_needs, make_plan
from shared.rules import CorrelationFilter

ROOT = Path(__file__).parents[4]
EXAMPLES = sorted(path.parent for path in ROOT.glob("config/examples/*/connections.yaml"))
SUBSCRIPTION = Name(Kind.SUBSCRIPTION, ("t", "s"))
RULE = SubscriptionRule("busway", "replication IS NULL", "SET replication = 1")
DEFAULT = SubscriptionRule("$Default", "1=1")
OTHER = SubscriptionRule("other", "color = 'red'")


@pytest.mark.parametrize("folder", EXAMPLES, ids=lambda folder: folder.name)
def test_the_entities_of_every_example_are_as_its_tasks_need_them(folder: Path) -> None:
    configuration, needs = load_needs(folder)
    plan = make_plan(configuration, needs, [str(file) for file in beside(folder)])
    assert (plan.exit_code, plan.steps, plan.drifts) == (0, 0, ())


@pytest.mark.parametrize(
    ("present", "steps", "pruned"),
    [
        ((), ["create rule busway"], []),
        ((RULE,), [], []),
        # Another spelling and another name do the same.
        ((SubscriptionRule("mark", "replication is null", "set replication=1"),), [], []),
        ((DEFAULT,), ["replace rule $Default"], []),
        # Only the left-over default rule is deleted without --prune.
        ((DEFAULT, RULE), ["delete rule $Default"], []),
        ((SubscriptionRule("$Default", "color = 'red'"), RULE), [], ["delete rule $Default"]),
        ((OTHER, RULE), [], ["delete rule other"]),
        ((OTHER,), ["replace rule other"], []),
        ((SubscriptionRule("busway", "1=0"), OTHER), ["replace rule busway"], ["delete rule other"]),
        (
            (OTHER, SubscriptionRule("third", CorrelationFilter(subject="x"))),
            ["create rule busway"],
            ["delete rule other", "delete rule third"],
        ),
    ],
)
def test_a_rule_is_replaced_in_place_so_that_no_message_meets_both_or_none(
    present: tuple[SubscriptionRule, ...], steps: list[str], pruned: list[str]
) -> None:
    needed = {SUBSCRIPTION.key: Needed(SUBSCRIPTION, rule=RULE)}
    found = difference(needed, Namespace([Entity(SUBSCRIPTION, {}, present)]))
    texts = [[f"{step.action} {step.rule.name}" for step in some if step.rule] for some in (found.steps, found.extras)]
    assert texts == [steps, pruned]


def test_settings_that_are_fixed_at_creation_come_with_a_way_round() -> None:
    queue = Name(Kind.QUEUE, ("q",))
    needs = {
        "requires_session": Need(True, "a says so", must=True),
        "max_delivery_count": Need(58, "each hold is a delivery", least=10),
        "lock_duration": Need(timedelta(minutes=1), "renewed", least=timedelta(seconds=30)),
        "requires_duplicate_detection": Need(True, "new entities only"),
    }
    settings: dict[str, Setting] = {
        "requires_session": False,
        "max_delivery_count": 9,
        "lock_duration": timedelta(seconds=45),
        "requires_duplicate_detection": False,
    }
    found = difference({queue.key: Needed(queue, needs)}, Namespace([Entity(queue, settings)]))
    [step] = found.steps
    assert (step.action, step.settings) == (Action.CHANGE, {"max_delivery_count": 58})
    [obstacle] = found.obstacles
    assert "requires_session false, needs true" in obstacle.problem
    assert "create another queue" in obstacle.way_round


@pytest.mark.parametrize(
    ("has", "changes"),
    [
        ({"enable_partitioning": True, "max_size_in_megabytes": 16 * 1024}, 0),  # the service shows the sum
        ({"enable_partitioning": True, "max_size_in_megabytes": 1024}, 0),
        ({"enable_partitioning": True, "max_size_in_megabytes": 16 * 2048}, 1),
        ({"enable_partitioning": False, "max_size_in_megabytes": 16 * 1024}, 1),
        ({"forward_to": "other", "default_message_time_to_live": None, "max_size_in_megabytes": 1024}, 0),
        ({"forward_to": None, "default_message_time_to_live": None, "max_size_in_megabytes": 1024}, 1),
    ],
)
def test_what_the_service_changes_by_itself_is_no_difference(has: dict[str, Setting], changes: int) -> None:
    queue = Name(Kind.QUEUE, ("q",))
    needs = {
        "max_size_in_megabytes": Need(1024, "topology.yaml says so", must=True),
        "default_message_time_to_live": Need(timedelta(days=14), "topology.yaml says so", must=True),
    }
    found = difference({queue.key: Needed(queue, needs)}, Namespace([Entity(queue, has)]))
    assert len(found.steps) == changes


def test_a_queue_with_the_name_of_a_needed_topic_is_an_obstacle() -> None:
    topic, queue = Name(Kind.TOPIC, ("orders",)), Name(Kind.QUEUE, ("Orders",))
    found = difference({topic.key: Needed(topic)}, Namespace([Entity(queue)]))
    assert found.steps == ()
    assert "is a queue in the namespace" in found.obstacles[0].problem


def test_only_entities_that_apply_has_created_are_extras() -> None:
    own = {"user_metadata": "busway: orders"}
    names = Name(Kind.QUEUE, ("mine",)), Name(Kind.TOPIC, ("t",)), SUBSCRIPTION
    theirs = Entity(Name(Kind.QUEUE, ("theirs",)), {"user_metadata": None})
    present = Namespace([theirs, *(Entity(name, own) for name in names)])
    found = difference({}, present)
    # The subscription goes with its topic.
    assert [str(step.name) for step in found.extras] == ["topic t", "queue mine"]
    assert after(present, found.extras).entities.keys() == {(Kind.QUEUE, "theirs"), SUBSCRIPTION.key}


def test_what_is_sent_to_is_created_before_what_sends() -> None:
    names = [
        Name(Kind.TOPIC, ("t",)),
        SUBSCRIPTION,
        Name(Kind.SUBSCRIPTION, ("t", "application")),
        Name(Kind.QUEUE, ("source",)),
        Name(Kind.QUEUE, ("target",)),
    ]
    needed = {name.key: Needed(name, is_source=name.parts[-1] in {"s", "source"}) for name in names}
    steps = difference(needed, Namespace([])).steps
    assert [str(step.name) for step in steps] == [
        "queue target",
        "topic t",
        "subscription t/application",
        "queue source",
        "subscription t/s",
    ]


def test_an_entity_forwards_once_everything_is_there_that_it_may_forward_to() -> None:
    """Of a chain, and to the source of a task, which is created last."""
    queues = {name: Name(Kind.QUEUE, (name,)) for name in ("a", "b", "source")}
    needed = {name.key: Needed(name, is_source=name.parts == ("source",)) for name in queues.values()}
    for name, target in (("a", "b"), ("b", "SOURCE")):
        needed[queues[name].key].needs["forward_to"] = Need(target, "topology.yaml says so", must=True)
    steps = difference(needed, Namespace([])).steps
    assert [(step.action, step.name.parts[0], step.settings.get("forward_to")) for step in steps] == [
        *((Action.CREATE, name, None) for name in queues),
        (Action.CHANGE, "a", "b"),
        (Action.CHANGE, "b", "SOURCE"),
    ]
    made = after(Namespace([]), steps)
    assert difference(needed, made).steps == ()
    # One request of Resource Manager has all of it, so that what forwards comes last there.
    assert [queue["name"] for queue in entities_of(needed.values())["queues"]] == ["source", "b", "a"]


def test_warns_before_the_limits_of_the_service() -> None:
    topic = Name(Kind.TOPIC, ("t",))
    full = [Entity(Name(Kind.SUBSCRIPTION, ("t", f"s{number}")), {}, (OTHER,)) for number in range(1800)]
    needed = {topic.key: Needed(topic)}
    warnings = list(warnings_of("west", needed, Namespace([Entity(topic), *full])))
    assert warnings == [
        "west/t: 1800 subscriptions, which is near the service's limit of 2000",
        "west/t: 1800 SQL rules, which is near the service's limit of 2000",
    ]
    assert list(warnings_of("west", needed, Namespace([Entity(topic), *full[1:]]))) == []


def test_warns_before_the_namespace_has_too_many_partitioned_entities() -> None:
    """SS97."""
    said = {"enable_partitioning": True}
    present = [Entity(Name(Kind.QUEUE, (f"q{number}",)), said) for number in range(100)]
    topic = Needed(Name(Kind.TOPIC, ("t",)), {"enable_partitioning": Need(True, "topology.yaml")})
    assert list(warnings_of("west", {topic.name.key: topic}, Namespace(present))) == [
        "west: 101 partitioned queues and topics (Standard tier), which exceeds the service's limit of 100"
    ]
    assert list(warnings_of("west", {}, Namespace(present[:89]))) == []
