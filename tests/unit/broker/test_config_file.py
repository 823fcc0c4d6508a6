"""Config.json files as the official emulators document them, and with mistakes."""

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from local.broker.config import LinkLimits
from local.broker.config_file import load_config
from local.broker.durations import parse_duration
from shared.errors import ConfigError
from shared.rules import CorrelationFilter, TrueFilter

SERVICE_BUS: dict[str, Any] = {
    "UserConfig": {
        "Namespaces": [
            {
                "Name": "sbemulatorns",
                "Queues": [
                    {
                        "Name": "queue.1",
                        "Properties": {
                            "DeadLetteringOnMessageExpiration": False,
                            "DefaultMessageTimeToLive": "PT1H",
                            "DuplicateDetectionHistoryTimeWindow": "PT20S",
                            "ForwardDeadLetteredMessagesTo": "",
                            "ForwardTo": "",
                            "LockDuration": "PT1M",
                            "MaxDeliveryCount": 3,
                            "RequiresDuplicateDetection": False,
                            "RequiresSession": True,
                        },
                    }
                ],
                "Topics": [
                    {
                        "Name": "topic.1",
                        "Properties": {"DefaultMessageTimeToLive": "PT1H", "RequiresDuplicateDetection": True},
                        "Subscriptions": [
                            {"Name": "all"},
                            {
                                "Name": "some",
                                "Properties": {"LockDuration": "PT30S"},
                                "Rules": [
                                    {
                                        "Name": "app-prop-filter-1",
                                        "Properties": {
                                            "FilterType": "Correlation",
                                            "CorrelationFilter": {"ContentType": "json", "Properties": {"p": 1}},
                                        },
                                    },
                                    {
                                        "Name": "sql",
                                        "Properties": {
                                            "FilterType": "Sql",
                                            "SqlFilter": {"SqlExpression": "a > 1"},
                                            "Action": {"SqlExpression": "SET b = 2"},
                                        },
                                    },
                                ],
                            },
                        ],
                    }
                ],
            }
        ],
        "Logging": {"Type": "File,Console"},
    }
}
EVENT_HUBS = {
    "UserConfig": {
        "NamespaceConfig": [
            {
                "Type": "EventHub",
                "Name": "emulatorNs1",
                "Port": 5700,
                "Entities": [{"Name": "eh1", "PartitionCount": "2", "ConsumerGroups": [{"Name": "cg1"}]}],
            }
        ],
        "LoggingConfig": {"Type": "File"},
    }
}


type WriteFile = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> WriteFile:
    def write_file(document: object, name: str = "Config.json") -> Path:
        path = tmp_path / name
        path.write_text(document if isinstance(document, str) else json.dumps(document))
        return path

    return write_file


def test_the_official_files_are_read(write: WriteFile) -> None:
    west, hubs = load_config([write(SERVICE_BUS, "a.json"), write(EVENT_HUBS, "b.json")])
    (queue,) = west.queues
    assert (queue.name, queue.max_delivery_count, queue.requires_session) == ("queue.1", 3, True)
    assert queue.default_message_time_to_live == timedelta(hours=1)
    assert queue.forward_to is None
    (topic,) = west.topics
    everything, some = topic.subscriptions
    assert isinstance(everything.rules[0].filter, TrueFilter)
    correlation, sql = some.rules
    assert isinstance(correlation.filter, CorrelationFilter)
    assert (str(sql.filter), str(sql.action)) == ("a > 1", "SET b = 2")
    assert some.lock_duration == timedelta(seconds=30)
    (hub,) = hubs.hubs
    assert (hub.partition_count, hub.consumer_groups, hubs.port) == (2, ("cg1",), 5700)


def test_a_namespace_differs_from_azure_only_where_the_file_says_so(write: WriteFile) -> None:
    changed = json.loads(json.dumps(SERVICE_BUS))
    changed["UserConfig"]["Namespaces"][0] |= {
        "ReleasedMessagesGoLast": True,
        "LockGroupSize": 5,
        "LinkIdle": "PT20S",
        "ConnectionIdle": "P10675199D",
        "SessionHandover": "PT0S",
        "UpdatesDetach": False,
        "MaxUnsettled": 10,
        "MaxTokens": 2,
    }
    configs = load_config([write(SERVICE_BUS, "a.json"), write(changed, "b.json")])
    assert [(config.released_go_last, config.lock_group_size) for config in configs] == [(False, 1), (True, 5)]
    assert [config.links for config in configs] == [
        LinkLimits(),
        LinkLimits(
            link_idle=timedelta(seconds=20),
            connection_idle=None,
            session_handover=timedelta(),
            updates_detach=False,
            max_unsettled=10,
            max_tokens=2,
        ),
    ]


def test_every_problem_of_every_file_is_reported_with_its_path(write: WriteFile, tmp_path: Path) -> None:
    wrong = json.loads(json.dumps(SERVICE_BUS))
    (namespace,) = wrong["UserConfig"]["Namespaces"]
    namespace["Queues"][0]["Properties"] |= {"LockDuration": "1 minute", "MaxDeliveryCount": "three", "Locks": 1}
    namespace["Queues"].append({"Name": "TOPIC.1"})
    namespace["Queues"].append({})
    rules = namespace["Topics"][0]["Subscriptions"][1]["Rules"]
    rules[1]["Properties"]["SqlFilter"]["SqlExpression"] = "a >"
    with pytest.raises(ConfigError) as error:
        load_config([write(wrong, "a.json"), write("{", "b.json"), tmp_path / "missing.json"])
    text = str(error.value)
    queue = "UserConfig.Namespaces[0](sbemulatorns).Queues[0](queue.1).Properties"
    for expected in (
        f"{queue}.LockDuration: is '1 minute'",
        f"{queue}.MaxDeliveryCount: is text (expected a whole number)",
        f"{queue}.Locks: unknown key",
        "Queues[2].Name: is missing",
        "two entities named topic.1",
        "Rules[1](sql).Properties.SqlFilter: rule, line 1, column 4",
        "b.json: is not JSON",
        "missing.json: cannot be read",
    ):
        assert expected in text


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is not JSON: the file is empty, expected the Config.json"),
        (b" \n", "is not JSON: the file is empty"),
        (b"[" * 100_000, "is nested too deeply"),
        (b"\xff", "is not JSON: 'utf-8' codec"),
        (b'{"UserConfig": {"Namespaces": [], "Namespaces": [{"Name": "n"}]}}', "an object has Namespaces twice"),
    ],
)
def test_a_file_of_another_kind_is_a_mistake(tmp_path: Path, content: bytes, problem: str) -> None:
    file = tmp_path / "Config.json"
    file.write_bytes(content)
    with pytest.raises(ConfigError) as error:
        load_config([file])
    assert problem in str(error.value)
    assert str(error.value).startswith(f"{file}: ")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_files_that_windows_writes_are_read(tmp_path: Path, encoding: str) -> None:
    file = tmp_path / "Config.json"
    file.write_text(json.dumps({"UserConfig": {"Namespaces": [{"Name": "süd"}]}}, ensure_ascii=False), encoding)
    assert [each.name for each in load_config([file])] == ["süd"]


@pytest.mark.parametrize(
    ("namespace", "problem"),
    [
        ({"SharedAccessKeys": [{"Name": "a", "Key": "k"}, {"Name": "A", "Key": "k"}]}, "has two keys named A"),
        ({"Topics": [{"Name": "t", "Subscriptions": [{"Name": "s"}, {"Name": "S"}]}]}, "has two subscriptions named S"),
        ({"Queues": [{"Name": 5}]}, "Queues[0].Name: is a number (expected text)"),
        ({"Queues": [{"Name": ""}]}, "Queues[0].Name: is missing"),
        ({"Queues": [{"Name": "new orders"}]}, "Queues[0](new orders): is no name for an entity (expected letters"),
        ({"Queues": [{"Name": "q", "Properties": {"LockDuration": "PT0S"}}]}, "LockDuration: is infinite or zero"),
        (
            {"Queues": [{"Name": "q", "Properties": {"LockDuration": "1"}}]},
            "LockDuration: is '1' (expected an ISO 8601",
        ),
    ],
)
def test_a_mistake_is_reported_once(write: WriteFile, namespace: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_config([write({"UserConfig": {"Namespaces": [{"Name": "n"} | namespace]}})])
    (found,) = error.value.problems
    assert problem in str(found)


def test_forwarding_to_what_is_not_declared_is_found(write: WriteFile) -> None:
    subscription = {"Name": "s", "Properties": {"ForwardTo": "Q", "ForwardDeadLetteredMessagesTo": "dead"}}
    namespace = {
        "Name": "n",
        "Queues": [{"Name": "q", "Properties": {"ForwardTo": "nowhere"}}],
        "Topics": [{"Name": "t", "Subscriptions": [subscription]}],
    }
    (found,) = load_config([write({"UserConfig": {"Namespaces": [namespace]}})])
    assert [*found.missing_targets()] == [("q", "nowhere"), ("t/Subscriptions/s", "dead")]


def test_a_file_without_namespaces_is_a_mistake(write: WriteFile) -> None:
    with pytest.raises(ConfigError, match="has no namespace"):
        load_config([write({"UserConfig": {}})])


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("PT1M", timedelta(minutes=1)),
        ("P1DT2H3M4.5S", timedelta(days=1, hours=2, minutes=3, seconds=4.5)),
        ("P14D", timedelta(days=14)),
        ("P10675199DT2H48M5.4775807S", None),
    ],
)
def test_durations_are_read(text: str, duration: timedelta | None) -> None:
    assert parse_duration(text) == duration


@pytest.mark.parametrize("text", ["", "P", "PT", "1M", "PT1", "P1M", "PT-1S", "P1DT"])
def test_an_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected an ISO 8601 duration"):
        parse_duration(text)
