"""Config.json files as the official emulators document them, and with mistakes."""

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from busway_broker.config import LinkLimits
from busway_broker.config_file import load_config
from shared.durations import parse_duration
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
        "CountsLag": "PT0S",
        "CopyDelay": "PT5S",
        "ExpiresLazily": True,
        "DeferredExpire": True,
        "LinkIdle": "PT20S",
        "ConnectionIdle": "P10675199D",
        "SessionHandover": "PT0S",
        "UpdatesDetach": False,
        "MaxUnsettled": 10,
        "MaxTokens": 2,
    }
    configs = load_config([write(SERVICE_BUS, "a.json"), write(changed, "b.json")])
    assert [(config.released_go_last, config.lock_group_size) for config in configs] == [(False, 1), (True, 5)]
    assert [(config.expires_lazily, config.deferred_expire) for config in configs] == [(False, False), (True, True)]
    assert [config.copy_delay for config in configs] == [timedelta(), timedelta(seconds=5)]
    assert [config.counts_lag for config in configs] == [timedelta(seconds=2), timedelta()]
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
        f"{queue}.MaxDeliveryCount: is 'three' (expected a whole number from 1 to",
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
        (b'{"UserConfig": {"Namespaces": [{"Name": "\\ud800"}]}}', "surrogates not allowed"),
        (b'{"UserConfig": {"Namespaces": [{"Name": "n", "Port": "' + b"9" * 5_000 + b'"}]}}', "a whole number"),
    ],
)
def test_a_file_of_another_kind_is_a_mistake(tmp_path: Path, content: bytes, problem: str) -> None:
    file = tmp_path / "Config.json"
    file.write_bytes(content)
    with pytest.raises(ConfigError) as error:
        load_config([file])
    assert problem in str(error.value)
    assert str(error.value).startswith(str(file))


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_files_that_windows_writes_are_read(tmp_path: Path, encoding: str) -> None:
    file = tmp_path / "Config.json"
    file.write_text(json.dumps({"UserConfig": {"Namespaces": [{"Name": "süd"}]}}, ensure_ascii=False), encoding)
    assert [each.name for each in load_config([file])] == ["süd"]


def test_forwarding_to_what_is_not_declared_is_refused_unless_clients_create_it(write: WriteFile) -> None:
    subscription = {"Name": "s", "Properties": {"ForwardTo": "Q", "ForwardDeadLetteredMessagesTo": "dead"}}
    namespace = {
        "Name": "n",
        "Queues": [{"Name": "q", "Properties": {"ForwardTo": "nowhere"}}],
        "Topics": [{"Name": "t", "Subscriptions": [subscription]}],
    }
    file = write({"UserConfig": {"Namespaces": [namespace]}})
    with pytest.raises(ConfigError) as error:
        load_config([file])
    assert [problem.problem.partition(",")[0] for problem in error.value.problems] == [
        "forwards to nowhere",
        "forwards to dead",
    ]
    (found,) = load_config([file], creates_targets=True)
    assert [*found.missing_targets()] == [("q", "nowhere"), ("t/Subscriptions/s", "dead")]


@pytest.mark.parametrize(
    "text",
    [
        '{"$schema": "https://example.org/s.json", "//": "by hand", "UserConfig": {"Namespaces": [{"Name": "n"}]}}',
        '{"UserConfig": {"Namespaces": [{"Name": "n"}]}} // the end',
        '// {"a": 1}\n{"UserConfig": {"Namespaces": [{"Name": "n", /* none, "Queues": [] */}]}}',
        '{"UserConfig": {"Namespaces": [{"Name": "n", "Properties": {"MaxAllowedConnections": 100}, }, ], }, }',
        '{"UserConfig": {"_remark": [1], "Namespaces": [{"Name": "n", "#": "x"}], "Logging": {"Type": "File",}}}',
        '\ufeff{"UserConfig": {"Namespaces": [{"Name": "n"}]}}',
        '{"UserConfig": {"Namespaces": [{"Name": "n"\r\n,// a "quote\r\n}]}}',
    ],
)
def test_what_the_emulators_pass_over_is_passed_over(write: WriteFile, text: str) -> None:
    assert [each.name for each in load_config([write(text)])] == ["n"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"UserConfig": /* never ends', "is not JSON"),
        ('{\n// one\n/* two\n*/ "UserConfig": nothing}', "line 4 column 18"),
        ('{"UserConfig": {,}}', "is not JSON"),
        ('{"UserConfig": {}}', "has no namespace"),
        ('{"UserConfig": {"Namespaces": [{"Name": "n", "Queue": []}]}}', "Queue: unknown key"),
    ],
)
def test_what_is_wrong_is_found_in_its_place_beside_comments(write: WriteFile, text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        load_config([write(text)])


def test_comments_in_texts_are_texts(write: WriteFile) -> None:
    keys = [{"Name": "a", "Key": "x//y/*z*/,]"}]
    file = write({"UserConfig": {"Namespaces": [{"Name": "n", "SharedAccessKeys": keys}]}})
    assert load_config([file])[0].shared_access_keys[0].key == "x//y/*z*/,]"


def rule(name: str = "r", **properties: object) -> dict[str, Any]:
    subscription = {"Name": "s", "Rules": [{"Name": name, "Properties": properties}]}
    return {"Topics": [{"Name": "t", "Subscriptions": [subscription]}]}


def queue(**properties: object) -> dict[str, Any]:
    return {"Queues": [{"Name": "q", "Properties": properties}]}


@pytest.mark.parametrize(
    ("namespace", "problem"),
    [
        (queue(LockDuration="PT1H"), "LockDuration: is 'PT1H' (expected PT5S to PT5M)"),
        (queue(LockDuration="PT4.999S"), "LockDuration: is 'PT4.999S' (expected PT5S to PT5M)"),
        (queue(DuplicateDetectionHistoryTimeWindow="P30D"), "expected PT20S to P7D"),
        (queue(DuplicateDetectionHistoryTimeWindow="PT19S"), "expected PT20S to P7D"),
        (queue(DefaultMessageTimeToLive="PT0S"), "DefaultMessageTimeToLive: is 'PT0S' (expected PT1S or more)"),
        (queue(AutoDeleteOnIdle="PT1M"), "AutoDeleteOnIdle: is 'PT1M' (expected PT5M or more)"),
        (queue(MaxDeliveryCount=0), "MaxDeliveryCount: is 0 (expected a whole number from 1 to 2147483647)"),
        (queue(RequiresSession=1), "RequiresSession: is 1 (expected true or false)"),
        (queue(LockDuration=["PT1M"]), "LockDuration: is a list (expected text, a number or a boolean)"),
        (rule("x" * 51, FilterType="Sql", SqlFilter={"SqlExpression": "1=1"}), "is no name for a rule"),
        (rule(FilterType="Correlation"), "CorrelationFilter: is missing"),
        (rule(FilterType="Correlation", CorrelationFilter={}), "a correlation filter without a condition"),
        (rule(FilterType="Sql"), "SqlFilter: is missing"),
        (
            rule(FilterType="Correlation", CorrelationFilter={"To": "x", "Properties": {"n": 2**63}}),
            "Properties.n: AMQP long: 9223372036854775808 is out of range",
        ),
        (rule(FilterType="Sql", SqlFilter={}), "SqlExpression: is missing"),
        # The hint names what was meant, not the key to remove.
        (
            rule(FilterType="Sql", CorrelationFilter={"To": "x"}),
            "FilterType: is Sql (there is a CorrelationFilter: say ",
        ),
        (rule(FilterType="SqlFilter", SqlFilter={"SqlExpression": "a=1"}), "(there is a SqlFilter: say Sql)"),
        (rule(CorrelationFilter={"To": "x"}), "FilterType: is missing (there is a CorrelationFilter: say Correlation)"),
        ({"Topics": [{"Name": "t", "Subscriptions": [{"Name": "a b"}]}]}, "is no name for a subscription"),
        ({"SharedAccessKeys": [{"Name": "a", "Key": "k"}, {"Name": "A", "Key": "k"}]}, "has two keys named A"),
        ({"Topics": [{"Name": "t", "Subscriptions": [{"Name": "s"}, {"Name": "S"}]}]}, "has two subscriptions named S"),
        ({"Queues": [{"Name": 5}]}, "Queues[0].Name: is a number (expected text)"),
        ({"Queues": [{"Name": ""}]}, "Queues[0].Name: is missing"),
        ({"Queues": [{"Name": "new orders"}]}, "Queues[0](new orders): is no name for an entity (expected letters"),
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


def test_what_other_tools_write_is_read(write: WriteFile) -> None:
    settings = {"MaxDeliveryCount": 2**31 - 1, "AutoDeleteOnIdle": "P10675199DT2H48M5.4775807S", "UserMetadata": "x"}
    settings |= {"DefaultMessageTimeToLive": "P10675199DT2H48M5.4775807S", "EnableBatchedOperations": True}
    (found,) = load_config([write({"UserConfig": {"Namespaces": [{"Name": "n"} | queue(**settings)]}})])
    (only,) = found.queues
    assert (only.max_delivery_count, only.default_message_time_to_live, only.user_metadata) == (2**31 - 1, None, "x")


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
