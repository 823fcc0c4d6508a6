"""Reviews of small sets of tasks; whole broken sets are in tests/golden/broken."""

import json
from pathlib import Path
from typing import Any

import pytest

from cli.entities import entities_of
from shared.review import CHECKS, Entities, Severity, review
from shared.tasks.files import load
from tests.unit.tasks.conftest import MARKED, ROOT, names, subscribed, task, to
from tests.unit.tasks.task_files import written


def queue(name: str, **properties: str | bool | int) -> dict[str, Any]:
    return {"Name": name, "Properties": properties}


def test_nothing_is_found_in_the_tasks_of_the_repository() -> None:
    assert review(load(ROOT / "config"), Entities({})) == []


def test_repository_with_its_emulators_has_short_duplicate_windows() -> None:
    configuration = load(ROOT / "config")
    files = [str(ROOT / f"infra/emulators/{site}.json") for site in ("west", "east")]
    findings = review(configuration, entities_of(files, configuration.connections))
    assert {finding.check.name for finding in findings} == {"few-deliveries", "short-duplicate-window"}


@pytest.mark.parametrize(
    ("rule", "name"),
    [
        ('{filter: "replication <> 1", action: "SET replication = 1"}', "rule-needs-its-mark"),
        ('{filter: "NOT (replication = 1)", action: "SET replication = 1"}', "rule-needs-its-mark"),
        ('{filter: "replication NOT IN (1)", action: "SET Replication = 1"}', "rule-needs-its-mark"),
        ('{filter: "1 = 0"}', "rule-never-true"),
        ('{filter: "x = NULL"}', "rule-never-true"),
        ("{filter: \"x = 1 AND x = '1'\"}", "rule-never-true"),
    ],
)
def test_a_rule_that_selects_nothing(found: Any, rule: str, name: str) -> None:
    assert found(task("t", subscribed("west", "east", rule), to("east", "topic: events"))) == [
        (name, "source.rule.filter")
    ]


@pytest.mark.parametrize(
    "rule",
    [
        MARKED,
        '{filter: "NOT EXISTS(replication)", action: "SET replication = 1"}',
        '{filter: "replication <> 1 OR replication IS NULL", action: "SET replication = 1"}',
        "{filter: \"status = 'new'\", action: \"SET status = 'carried'\"}",
        '{filter: "x <> 1"}',
        '{filter: "1 = 1"}',
    ],
)
def test_a_rule_that_selects_something(found: Any, rule: str) -> None:
    assert found(task("t", subscribed("west", "east", rule), to("east", "topic: events"))) == []


def test_deployed_rule_takes_precedence_over_the_declared_one(found: Any) -> None:
    tasks = [
        task(f"{a}-{b}", subscribed(a, "s"), to(b, "topic: events"), more="loop_prevention: off\n")
        for a, b in (("west", "east"), ("east", "west"))
    ]
    subscription = {"Name": "s", "Properties": {}, "Rules": []}
    topic = {"Name": "events", "Properties": {"RequiresDuplicateDetection": True}, "Subscriptions": [subscription]}
    seen = found(*tasks, west={"Topics": [topic]}, east={"Topics": [topic]})
    assert seen[0] == ("endless-loop", "document 1: routes[0]")
    assert ("rule-not-deployed", "document 1: source.rule") in seen


def test_target_that_shortens_the_time_to_live_is_reported(found: Any) -> None:
    detects: dict[str, Any] = {"RequiresDuplicateDetection": True, "DuplicateDetectionHistoryTimeWindow": "PT5H"}
    long, short = (
        queue("orders", DefaultMessageTimeToLive="P1D", MaxDeliveryCount=288),
        queue("orders", DefaultMessageTimeToLive="PT1H", **detects),
    )
    copy = task("copy", "{connection: west, queue: orders}", to("east"))
    assert found(copy, west={"Queues": [long]}, east={"Queues": [short]}) == [("ttl-cut", "routes[0].target")]


def test_every_check_has_a_remedy() -> None:
    assert all(check.remedy and check.meaning.endswith(".") for check in CHECKS)
    assert len({check.name for check in CHECKS}) == len(CHECKS)


HUB = "{connection: hubs, hub: telemetry, binary_properties: false}"
QUEUE = "{connection: west, queue: orders}"


@pytest.mark.parametrize(
    ("source", "editors", "routes", "expected"),
    [
        (HUB, "", [to("east")], ["routes[0].target"]),
        (HUB, "", [to("east", more="\n    when: sys.PartitionKey IS NOT NULL"), to("north")], []),
        (HUB, "", [to("north", more="\n    when: sys.PartitionKey IS NULL"), to("east")], []),
        (HUB, "", [to("north", more="\n    when: priority > 1"), to("east")], ["routes[1].target"]),
        (HUB, "editors: [{validate: {required_properties: [sys.PartitionKey]}}]", [to("east")], []),
        (HUB, "editors: [{validate: {required_properties: [key], max_size: 5}}]", [to("east")], ["routes[0].target"]),
        (HUB, "editors: [{filter: sys.SessionId IS NOT NULL}]", [to("east")], []),
        (HUB, "editors: [{partition: {value: id}}]", [to("east")], []),
        (HUB, "editors: [{partition: {value: id, missing: leave}}]", [to("east")], ["routes[0].target"]),
        (QUEUE, "", [to("east")], ["routes[0].target"]),
        (QUEUE, "", [to("east", more="\n    action: \"SET sys.SessionId = 'a'\"")], []),
        # Of a queue, the partition key is not what becomes the session.
        (QUEUE, "editors: [{filter: sys.PartitionKey IS NOT NULL}]", [to("east")], ["routes[0].target"]),
    ],
)
def test_messages_without_a_session_are_looked_for_at_each_route(
    found: Any, source: str, editors: str, routes: list[str], expected: list[str]
) -> None:
    second = task("second", "{connection: east, queue: orders, sessions: true}", to("north", "queue: all"))
    missing = found(task("first", source, *routes, more=editors + "\n"), second)
    assert [(name, path.partition(": ")[2]) for name, path in missing if name == "session-id-missing"] == [
        ("session-id-missing", path) for path in expected
    ]


def test_validation_makes_nothing_certain(found: Any) -> None:
    there = task("there", "{connection: west, queue: a}", to("east"), more="loop_prevention: off\n")
    editors = "editors: [{validate: {max_size: 100}}]\nloop_prevention: off\n"
    back = task("back", "{connection: east, queue: orders}", to("west", "queue: a"), more=editors)
    assert "possible-loop" in names(found(there, back))


@pytest.mark.parametrize(
    ("here", "there", "expected"), [(4, 4, None), (2, 4, "partition-counts-differ"), (4, 2, "partition-missing")]
)
def test_equal_partition_counts_have_no_finding(tmp_path: Path, here: int, there: int, expected: str | None) -> None:
    sites = "west: {kind: event-hubs, setting: WEST}\neast: {kind: event-hubs, setting: EAST}\n"
    copy = task(
        "copy",
        "{connection: west, hub: telemetry, binary_properties: false}",
        to("east", "hub: telemetry, partition: keep"),
        rejects="{connection: west, hub: rejected}",
    )
    for site, count in (("west", here), ("east", there)):
        hubs: list[Any] = [
            {"Name": name, "PartitionCount": count, "ConsumerGroups": []} for name in ("telemetry", "rejected")
        ]
        document = {"UserConfig": {"NamespaceConfig": [{"Type": "EventHub", "Name": "ns", "Entities": hubs}]}}
        (tmp_path / f"{site}.json").write_text(json.dumps(document))
    configuration = load(written(tmp_path, copy, sites))
    files = [str(tmp_path / f"{site}.json") for site in ("west", "east")]
    findings = review(configuration, entities_of(files, configuration.connections))
    assert [finding.check.name for finding in findings] == ([] if expected is None else [expected])


def test_source_without_sessions_is_reported_if_order_is_needed(found: Any) -> None:
    chained = "editors:\n  - chain: {key: k, sequence: entity, single_instance: true, store: {setting: S}}\n"
    verified = "editors:\n  - verify-chain: {key: k, single_instance: true, store: {setting: S}}\n"
    session = ", action: \"SET sys.SessionId = 'all'\""
    plain = "{connection: west, queue: %s}"
    findings = found(
        task("chained", plain % "a", to("north", "queue: a"), more=chained),
        task("verified", plain % "b", to("north", "queue: b"), more=verified),
        task("session", plain % "c", f"{{target: {{connection: north, queue: c}}{session}}}"),
        task("no-order", plain % "d", to("north", "queue: d")),
        task("partition", plain % "e", to("hubs", "hub: e, partition: 3")),
        task("sessions", "{connection: west, queue: f, sessions: true}", to("hubs", "hub: e, partition: 3")),
        north={"Queues": [queue(name, RequiresSession=name == "c", RequiresDuplicateDetection=True)
                          for name in ("a", "b", "c", "d", "rejected")]},
    )  # fmt: skip
    assert [finding for finding in findings if finding[0] == "order-without-sessions"] == [
        ("order-without-sessions", "document 1: editors[0]"),
        ("order-without-sessions", "document 2: editors[0]"),
        ("order-without-sessions", "document 3: routes[0].action"),
        ("order-without-sessions", "document 5: routes[0].target.partition"),
    ]


BINDING = "{target: {connection: north, queue: %s}, via: binding%s}"


def test_binding_cannot_do_what_needs_a_session_or_an_order(found: Any) -> None:
    findings = found(
        task("sessions", "{connection: west, queue: a, sessions: true}", BINDING % ("a", "")),
        task("required", "{connection: west, queue: b}", BINDING % ("b", "")),
        task("plain", "{connection: west, queue: c}", BINDING % ("c", "")),
        north={"Queues": [queue(name, RequiresSession=name == "b") for name in ("a", "b", "c", "rejected")]},
    )
    assert [finding for finding in findings if finding[0].startswith("binding-")] == [
        ("binding-without-session", "document 2: routes[0].target"),
        ("binding-without-order", "document 1: routes[0].via"),
    ]


def test_editors_that_act_on_what_was_sent_never_learn_it_from_a_binding(found: Any) -> None:
    unique = "editors: [{deduplicate: {window: PT1H, store: memory}}]\n"
    restored = "editors: [{claim-restore: {setting: S, delete: %s}}]\n"
    findings = found(
        task("unique", "{connection: west, queue: a}", BINDING % ("a", ""), more=unique),
        task("deleted", "{connection: west, queue: b}", BINDING % ("b", ""), more=restored % "true"),
        task("kept", "{connection: west, queue: c}", BINDING % ("c", ""), more=restored % "false"),
        task("sdk", "{connection: west, queue: d}", to("north", "queue: d"), more=unique),
    )
    assert [finding for finding in findings if finding[0] == "binding-without-result"] == [
        ("binding-without-result", "document 1: routes[0].via"),
        ("binding-without-result", "document 2: routes[0].via"),
    ]


def test_bodies_without_properties_are_refused_where_something_needs_one(found: Any) -> None:
    body, compressed = ", body_only: true", "editors: [{compress: {encoding: gzip}}]\n"
    findings = found(
        task("ttl", "{connection: west, queue: a}", BINDING % ("a", body), more="ttl: remaining\n"),
        task("unique", "{connection: west, queue: b}", BINDING % ("b", body)),
        task("read", "{connection: west, queue: c}", BINDING % ("c", body)),
        task("reader", "{connection: north, queue: c}", to("east", "queue: c")),
        task("binary", "{connection: west, queue: d}", BINDING % ("d", body), more=compressed),
        task("plain", "{connection: west, queue: e}", BINDING % ("e", body)),
        north={"Queues": [queue(name, RequiresDuplicateDetection=name == "b", MaxDeliveryCount=288)
                          for name in ("a", "b", "c", "d", "e", "rejected")]},
    )  # fmt: skip
    assert findings == [
        ("body-loses-properties", "document 1: routes[0].body_only"),
        ("body-loses-properties", "document 2: routes[0].body_only"),
        ("body-loses-properties", "document 3: routes[0].body_only"),
        ("binary-body", "document 5: routes[0].body_only"),
    ]


@pytest.mark.parametrize(
    ("count", "hold", "sessions", "expected"),
    [
        (287, "PT15M", 1, ["few-deliveries"]),
        (288, "PT15M", 1, []),
        (87, "PT50M", 1, []),
        (4319, "PT1S", 1, ["few-deliveries"]),
        (4320, "PT1S", 1, []),
        # The host renews the session of one of two functions.
        (4319, "PT15M", 2, ["few-deliveries"] * 2),
        (4320, "PT15M", 2, []),
    ],
)
def test_a_source_outlasts_three_days(count: int, hold: str, sessions: int, expected: list[str], found: Any) -> None:
    sources = [f"q{number}" for number in range(sessions)]
    held = f"limits: {{hold: {hold}}}\n"
    lock: dict[str, Any] = {"RequiresSession": True, "MaxDeliveryCount": count, "LockDuration": "PT1M"}
    findings = found(
        *(
            task(source, f"{{connection: west, queue: {source}, sessions: true}}", to("east"), more=held)
            for source in sources
        ),
        west={"Queues": [queue(each, **lock) for each in (*sources, "rejected")]},
    )
    assert [name for name in names(findings) if name == "few-deliveries"] == expected


@pytest.mark.parametrize(
    ("via", "source", "expected"),
    [
        ("", "", ["envelope-not-opened"]),
        ("", ", from: envelope", []),
        (", body_only: true", ", from: envelope", ["envelope-not-opened"]),
        (", body_only: true", "", []),
    ],
)
def test_envelopes_are_opened_exactly_where_they_are_sent(
    via: str, source: str, expected: list[str], found: Any
) -> None:
    findings = found(
        task("first", "{connection: west, queue: a}", BINDING % ("carrier", via)),
        task("second", f"{{connection: north, queue: carrier{source}}}", to("east"), more="loop_prevention: off\n"),
    )
    assert names(findings) == expected


def test_every_check_is_found_in_a_golden_set_or_here() -> None:
    findings = "".join(path.read_text(encoding="utf-8") for path in ROOT.glob("tests/golden/broken/*/findings.txt"))
    here = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py"))
    assert [
        check.name for check in CHECKS if f" {check.name}: " not in findings and f'"{check.name}"' not in here
    ] == []


def test_hub_source_has_a_finding_unless_no_sender_uses_binary_properties(found: Any) -> None:
    findings = found(
        task("telemetry", "{connection: hubs, hub: telemetry}", to("north")),
        task("other", "{connection: hubs, hub: other, binary_properties: false}", to("north")),
        task("third", "{connection: hubs, hub: third, reader: app}", to("north")),
        task("fourth", "{connection: hubs, hub: fourth, binary_properties: true}", to("north")),
    )
    assert [finding for finding in findings if finding[0] == "binary-properties"] == [
        ("binary-properties", "document 1: source.hub"),
        ("binary-properties", "document 4: source.hub"),
    ]


def test_remaining_ttl_has_an_effect_if_a_task_sends_it_to_the_hub(found: Any) -> None:
    out = task("out", "{connection: hubs, hub: telemetry}", to("east"), more="ttl: remaining\n")
    into = task("into", "{connection: west, queue: orders}", to("hubs", "hub: telemetry"))
    other = task("other", "{connection: hubs, hub: other}", to("north"), more="ttl: remaining\n")
    findings = [each for each in found(out, into, other) if each[0] == "ttl-without-effect"]
    assert findings == [("ttl-without-effect", "document 3: ttl")]


def test_errors_come_first() -> None:
    configuration = load(ROOT / "tests/golden/broken/04-jobs-that-nobody-can-do")
    severities = [finding.check.severity for finding in review(configuration, Entities({}))]
    assert severities == sorted(severities, key=[Severity.ERROR, Severity.WARNING].index)
