"""The strict mode: the refusals, limits and defaults of the official emulators."""

import contextlib
import dataclasses
import datetime as dt
import gc
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusConnectionError, ServiceBusError

from busway_broker.config import NamespaceConfig
from busway_broker.config_file import load_config
from busway_broker.emulator_limits import MAX_CONNECTIONS, MAX_RECEIVERS
from busway_broker.thread import RunningBroker
from shared.errors import ConfigError

type Document = dict[str, Any]
type Load = Callable[..., list[NamespaceConfig]]


def namespace(name: str = "sbemulatorns", **entities: object) -> Document:
    return {"UserConfig": {"Namespaces": [{"Name": name, "Queues": [], "Topics": []} | entities]}}


def hubs(*entities: Document, name: str = "emulatorNs1") -> Document:
    config = [{"Type": "EventHub", "Name": name, "Entities": list(entities)}]
    return {"UserConfig": {"NamespaceConfig": config}}


def queue(**properties: object) -> Document:
    return namespace(Queues=[{"Name": "q", "Properties": properties}])


def topic(*rules: Document, **properties: object) -> Document:
    subscription = {"Name": "s", "Rules": list(rules), "Properties": properties}
    return namespace(Topics=[{"Name": "t", "Subscriptions": [subscription]}])


def sql(number: int) -> Document:
    properties = {"FilterType": "Sql", "SqlFilter": {"SqlExpression": "1=1"}}
    return {"Name": f"rule-{number}", "Properties": properties}


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def load_document(document: Document, *, is_strict: bool = True) -> list[NamespaceConfig]:
        path = tmp_path / "Config.json"
        path.write_text(json.dumps(document))
        return load_config([path], is_strict=is_strict)

    return load_document


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        (namespace("west"), "is named west (the emulator's namespace is named sbemulatorns)"),
        (hubs({"Name": "h"}, name="mine"), "is named mine (the emulator's namespace is named emulatorNs1)"),
        (namespace(Queues=[{"Name": f"q{n}"} for n in range(51)]), "has 51 queues and topics, expected at most 50"),
        (queue(DefaultMessageTimeToLive="P1D"), "has 1 day, 0:00:00 as DefaultMessageTimeToLive"),
        (queue(DuplicateDetectionHistoryTimeWindow="PT1H"), "has 1:00:00 as DuplicateDetectionHistoryTimeWindow"),
        (queue(MaxDeliveryCount=11), "has 11 as MaxDeliveryCount, expected at most 10"),
        (queue(MaxSizeInMegabytes=2048), "has max_size (the emulator does not have this key)"),
        (topic(LockDuration="PT30S"), "has 0:00:30 as LockDuration, expected 0:01:00 to 0:05:00"),
        (topic(*map(sql, range(21))), "has 21 SQL filters, expected at most 20"),
        (hubs(*({"Name": f"h{n}"} for n in range(11))), "has 11 event hubs, expected at most 10"),
        (hubs({"Name": "h", "PartitionCount": "33"}), "has 33 partitions, expected at most 32"),
        (
            hubs({"Name": "h", "ConsumerGroups": [{"Name": f"g{n}"} for n in range(21)]}),
            "has 21 consumer groups, expected at most 20",
        ),
        (hubs({"Name": "h", "MessageRetention": "P2D"}), "has message_retention (the emulator does not have this key)"),
    ],
)
def test_a_setting_that_an_emulator_refuses_is_a_problem_only_in_strict_mode(
    load: Load, document: Document, problem: str
) -> None:
    load(document, is_strict=False)
    with pytest.raises(ConfigError) as caught:
        load(document)
    assert problem in str(caught.value)
    assert len(caught.value.problems) == 1


def test_defaults_are_those_of_the_emulators_in_strict_mode(load: Load) -> None:
    [config] = load(queue(RequiresDuplicateDetection=True))
    [only] = config.queues
    assert only.default_message_time_to_live == dt.timedelta(hours=1)
    assert only.duplicate_detection_history_time_window == dt.timedelta(seconds=20)
    assert only.max_size == 100
    [config] = load(topic())
    assert config.topics[0].subscriptions[0].default_message_time_to_live == dt.timedelta(hours=1)
    [config] = load(hubs({"Name": "h"}))
    assert config.hubs[0].message_retention == dt.timedelta(hours=1)


def test_the_files_of_this_project_are_within_the_limits(pytestconfig: pytest.Config) -> None:
    folder = pytestconfig.rootpath / "infra" / "emulators"
    assert len(load_config(sorted(folder.glob("*.json")), is_strict=True)) == 3


# The SDKs forget to close the socket of a connection that broke.
def test_one_connection_too_many_is_closed(load: Load) -> None:
    [config] = load(queue())
    with RunningBroker([config]) as broker, contextlib.ExitStack() as stack:
        string = broker.connection_string("sbemulatorns")
        client = stack.enter_context(ServiceBusClient.from_connection_string(string, retry_total=0))
        for _ in range(MAX_CONNECTIONS - 1):
            stack.enter_context(client.get_queue_sender("q"))
        with client.get_queue_sender("q"), pytest.raises(ServiceBusConnectionError):
            stack.enter_context(client.get_queue_sender("q"))
        stack.enter_context(client.get_queue_sender("q"))
    del client, stack
    gc.collect()


def test_one_receiver_too_many_at_the_subscriptions_of_a_topic_is_refused(load: Load) -> None:
    subscriptions = [{"Name": "a"}, {"Name": "b"}]
    [config] = load(namespace(Topics=[{"Name": "t", "Subscriptions": subscriptions}], Queues=[{"Name": "q"}]))
    assert config.max_receivers == MAX_RECEIVERS
    with RunningBroker([dataclasses.replace(config, max_receivers=2)]) as broker, contextlib.ExitStack() as stack:
        string = broker.connection_string("sbemulatorns")
        client = stack.enter_context(ServiceBusClient.from_connection_string(string, retry_total=0))
        stack.enter_context(client.get_subscription_receiver("t", "a"))
        with client.get_subscription_receiver("t", "b"):
            with pytest.raises(ServiceBusError, match="t has 2 receivers already, which is its limit"):
                stack.enter_context(client.get_subscription_receiver("t", "b"))
            stack.enter_context(client.get_queue_receiver("q"))
        stack.enter_context(client.get_subscription_receiver("t", "a"))
