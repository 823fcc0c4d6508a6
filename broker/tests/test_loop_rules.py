"""
Which rules keep a copy from going back, and which do not: what the articles write, and what works.

Each rule selects on a subscription of its own; the messages carry the marks that applications and rules leave.
"""

import uuid
from collections.abc import Iterator

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusReceiveMode

from busway_broker.config import NamespaceConfig, SubscriptionConfig, TopicConfig
from busway_broker.thread import RunningBroker
from shared.rules import Rule, TrueFilter, parse_action, parse_filter

MARKED = parse_action("SET replication = 1")

RULES = {
    "as-the-overview-writes-it": "replication <> 1",
    "is-null": "replication IS NULL",
    "not-exists": "NOT EXISTS(replication)",
    "is-null-or-other-number": "replication IS NULL OR replication <> 1",
    "is-null-or-other-text": "replication IS NULL OR replication <> '1'",
    "path": "[repl-path] IS NULL",
    "from-others-than-west": "[repl-path] IS NULL OR [repl-path] <> 'west'",
}
MESSAGES: dict[str, dict[str | bytes, int | float | bytes | bool | str | uuid.UUID]] = {
    "new": {},
    "marked": {"replication": 1},
    "marked-as-text": {"replication": "1"},
    "marked-otherwise": {"replication": 0},
    "in-other-case": {"Replication": 1},
    "carried": {"repl-path": "west"},
    "carried-from-east": {"repl-path": "east"},
}
SELECTED = {
    # Without the property the comparison is unknown, and unknown is not true: nothing is ever selected.
    "as-the-overview-writes-it": {"marked-otherwise"},
    "is-null": {"new", "carried", "carried-from-east"},
    "not-exists": {"new", "carried", "carried-from-east"},
    "is-null-or-other-number": {"new", "marked-otherwise", "carried", "carried-from-east"},
    # 1 is not '1', so this rule knows no mark that SET replication = 1 makes: neither 0 nor 1 is selected.
    "is-null-or-other-text": {"new", "carried", "carried-from-east"},
    "path": {"new", "marked", "marked-as-text", "marked-otherwise", "in-other-case"},
    "from-others-than-west": set(MESSAGES) - {"carried"},
}


CARRIED = [("carried", None), ("carried-from-east", None)]


@pytest.fixture(scope="module")
def client() -> Iterator[ServiceBusClient]:
    subscriptions = [
        SubscriptionConfig(name=name, rules=(Rule(name, parse_filter(text), MARKED),)) for name, text in RULES.items()
    ]
    doubled = SubscriptionConfig(
        name="default-beside",
        rules=(Rule("$Default", TrueFilter()), Rule("not-replicated", parse_filter("replication IS NULL"), MARKED)),
    )
    once = SubscriptionConfig(
        name="default-beside-path",
        rules=(Rule("$Default", TrueFilter()), Rule("never-carried", parse_filter("[repl-path] IS NULL"))),
    )
    topic = TopicConfig(name="orders", subscriptions=(*subscriptions, doubled, once))
    with (
        RunningBroker([NamespaceConfig(name="west", topics=(topic,))]) as broker,
        ServiceBusClient.from_connection_string(broker.connection_string("west")) as open_client,
        open_client.get_topic_sender("orders") as sender,
    ):
        sender.send_messages(
            [ServiceBusMessage(name, application_properties=dict(named)) for name, named in MESSAGES.items()]
        )
        yield open_client


def selected(client: ServiceBusClient, name: str) -> list[ServiceBusReceivedMessage]:
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    with client.get_subscription_receiver("orders", name, receive_mode=mode) as receiver:
        return receiver.receive_messages(100, max_wait_time=1)


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_selects(client: ServiceBusClient, rule: str) -> None:
    assert {str(message) for message in selected(client, rule)} == SELECTED[rule]


def test_a_default_rule_beside_one_with_an_action_gives_a_second_copy_without_the_mark(
    client: ServiceBusClient,
) -> None:
    found = [
        (str(each), (each.application_properties or {}).get(b"replication"))
        for each in selected(client, "default-beside")
    ]
    by_default = [
        ("new", None),
        ("marked", 1),
        ("marked-as-text", b"1"),
        ("marked-otherwise", 0),
        ("in-other-case", None),
    ]
    assert sorted(found, key=str) == sorted(
        [*by_default, *CARRIED, ("new", 1), *((name, 1) for name, _ in CARRIED)], key=str
    )


def test_a_default_rule_beside_one_without_an_action_gives_no_second_copy(client: ServiceBusClient) -> None:
    assert sorted(str(message) for message in selected(client, "default-beside-path")) == sorted(MESSAGES)
