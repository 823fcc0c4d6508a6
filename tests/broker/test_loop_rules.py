"""
Which rules keep a copy from going back, and which do not: what the articles write, and what works.

Each rule selects on a subscription of its own; the messages carry the marks that applications and rules leave.
"""

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode

from local.broker.config import NamespaceConfig, SubscriptionConfig, TopicConfig
from local.broker.thread import RunningBroker
from shared.rules import Rule, TrueFilter, parse_action, parse_filter

MARKED = parse_action("SET replication = 1")

RULES = {
    "as-the-overview-writes-it": "replication <> 1",
    "is-null": "replication IS NULL",
    "not-exists": "NOT EXISTS(replication)",
    "is-null-or-other-number": "replication IS NULL OR replication <> 1",
    "is-null-or-other-text": "replication IS NULL OR replication <> '1'",
    "path": "[repl-path] IS NULL",
}
MESSAGES: dict[str, dict] = {
    "new": {},
    "marked": {"replication": 1},
    "marked-as-text": {"replication": "1"},
    "marked-otherwise": {"replication": 0},
    "in-other-case": {"Replication": 1},
    "carried": {"repl-path": "west"},
}
SELECTED = {
    # Without the property the comparison is unknown, and unknown is not true: nothing is ever selected.
    "as-the-overview-writes-it": {"marked-otherwise"},
    "is-null": {"new", "carried"},
    "not-exists": {"new", "carried"},
    "is-null-or-other-number": {"new", "marked-otherwise", "carried"},
    # 1 is not '1', so this rule knows no mark that SET replication = 1 makes: neither 0 nor 1 is selected.
    "is-null-or-other-text": {"new", "carried"},
    "path": {"new", "marked", "marked-as-text", "marked-otherwise", "in-other-case"},
}


@pytest.fixture(scope="module")
def client():
    subscriptions = [
        SubscriptionConfig(name=name, rules=(Rule(name, parse_filter(text), MARKED),)) for name, text in RULES.items()
    ]
    doubled = SubscriptionConfig(
        name="default-beside",
        rules=(Rule("$Default", TrueFilter()), Rule("not-replicated", parse_filter("replication IS NULL"), MARKED)),
    )
    topic = TopicConfig(name="orders", subscriptions=(*subscriptions, doubled))
    with (
        RunningBroker([NamespaceConfig(name="west", topics=(topic,))]) as broker,
        ServiceBusClient.from_connection_string(broker.connection_string("west")) as open_client,
        open_client.get_topic_sender("orders") as sender,
    ):
        sender.send_messages(
            [ServiceBusMessage(name, application_properties=dict(named)) for name, named in MESSAGES.items()]
        )
        yield open_client


def selected(client, name):
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    with client.get_subscription_receiver("orders", name, receive_mode=mode) as receiver:
        return receiver.receive_messages(100, max_wait_time=1)


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_selects(client, rule):
    assert {str(message) for message in selected(client, rule)} == SELECTED[rule]


def test_a_default_rule_beside_one_with_an_action_gives_a_second_copy_without_the_mark(client):
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
    assert sorted(found, key=str) == sorted([*by_default, ("carried", None), ("new", 1), ("carried", 1)], key=str)
