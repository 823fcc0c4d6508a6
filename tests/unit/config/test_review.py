"""Reviews of small sets of tasks; whole broken sets are in tests/golden/broken."""

import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cli.entities import entities_of
from shared.config.files import load
from shared.config.models import Connection
from shared.config.review import CHECKS, Entities, HostFile, Severity, largest_batch, review
from shared.errors import ConfigError

ROOT = Path(__file__).parents[3]
CONNECTIONS = """\
west: {kind: service-bus, setting: WEST}
east: {kind: service-bus, setting: EAST}
north: {kind: service-bus, setting: NORTH}
hubs: {kind: event-hubs, setting: HUBS, site: west}
"""
MARKED = '{filter: "replication IS NULL", action: "SET replication = 1"}'


def task(
    name: str, source: str, *targets: str, rejects: str = "{connection: north, queue: rejected}", more: str = ""
) -> str:
    routes = "\n".join(f"  - {target}" for target in targets)
    return f"task: {name}\nsource: {source}\nroutes:\n{routes}\nrejects: {rejects}\n{more}"


def to(site: str, entity: str = "queue: orders", more: str = "") -> str:
    return f"target: {{connection: {site}, {entity}}}{more}"


def subscribed(site: str, subscription: str, rule: str = MARKED) -> str:
    rule = f", rule: {rule}" if rule else ""
    return f"{{connection: {site}, topic: events, subscription: {subscription}{rule}}}"


def queue(name: str, **properties: str | bool) -> dict[str, Any]:
    return {"Name": name, "Properties": properties}


@pytest.fixture
def found(tmp_path: Path) -> Callable[..., Any]:
    """Return the names and paths of what a review finds in tasks and entities."""

    def found_in(*tasks: str, **entities: dict[str, Any]) -> list[tuple[str, str]]:
        tmp_path.joinpath("tasks").mkdir()
        tmp_path.joinpath("connections.yaml").write_text(CONNECTIONS, encoding="utf-8")
        tmp_path.joinpath("tasks/all.yaml").write_text("---\n".join(tasks), encoding="utf-8")
        for site, namespace in entities.items():
            document = {"UserConfig": {"Namespaces": [{"Name": "sbemulatorns", **namespace}]}}
            tmp_path.joinpath(f"{site}.json").write_text(json.dumps(document), encoding="utf-8")
        configuration = load(tmp_path)
        files = [str(tmp_path / f"{site}.json") for site in entities]
        findings = review(configuration, entities_of(files, configuration.connections))
        return [(each.check.name, each.path.removeprefix(f"{tmp_path}/tasks/all.yaml: ")) for each in findings]

    return found_in


def names(found: list[tuple[str, str]]) -> list[str]:
    return [name for name, _ in found]


# What is right


def test_nothing_is_found_in_the_tasks_of_the_repository() -> None:
    assert review(load(ROOT / "config"), Entities({})) == []


def test_repository_with_its_emulators_has_short_duplicate_windows() -> None:
    configuration = load(ROOT / "config")
    files = [str(ROOT / f"infra/emulators/{site}.json") for site in ("west", "east")]
    findings = review(configuration, entities_of(files, configuration.connections))
    assert {each.check.name for each in findings} == {"short-duplicate-window"}


def test_a_mesh_with_marks_is_right(found: Callable[..., Any]) -> None:
    sites = ("west", "east", "north")
    pairs = [(one, other) for one in sites for other in sites if one != other]
    assert found(*(task(f"{a}-{b}", subscribed(a, b), to(b, "topic: events")) for a, b in pairs)) == []


def test_marks_alone_end_a_loop(found: Callable[..., Any]) -> None:
    tasks = [
        task(f"{a}-{b}", subscribed(a, b), to(b, "topic: events"), more="loop_prevention: off\n")
        for a, b in (("west", "east"), ("east", "west"))
    ]
    assert found(*tasks) == []


def test_the_path_alone_carries_round_a_ring(found: Callable[..., Any]) -> None:
    ring = (("west", "east"), ("east", "north"), ("north", "west"))
    assert found(*(task(f"{a}-{b}", subscribed(a, b, ""), to(b, "topic: events")) for a, b in ring)) == []


def test_growing_text_is_not_followed_endlessly(found: Callable[..., Any]) -> None:
    doubling = "\n    action: SET p = p + p"
    tasks = [
        task(
            "there",
            "{connection: west, queue: orders}",
            to("east", more="\n    when: p = 'ab'" + doubling),
            to("east", more=doubling),
            more="loop_prevention: off\n",
        ),
        task("back", "{connection: east, queue: orders}", to("west", more=doubling), more="loop_prevention: off\n"),
    ]
    assert names(found(*tasks)) == ["possible-loop"]


def test_one_guard_stops_a_loop_of_two_tasks(found: Callable[..., Any]) -> None:
    unguarded = task("there", "{connection: west, queue: orders}", to("east"), more="loop_prevention: off\n")
    assert found(unguarded, task("back", "{connection: east, queue: orders}", to("west"))) == []


def test_route_for_messages_that_failed_twice_stops_a_dead_letter_loop(found: Callable[..., Any]) -> None:
    auxiliary = "when: \"[repl-dlq-source] LIKE '%;%'\"\n    "
    tasks = [
        task(
            f"{a}-{b}",
            f"{{connection: {a}, queue: orders, dead_letter: true}}",
            auxiliary + to(a, "queue: auxiliary"),
            to(b),
            more="loop_prevention: off\n",
        )
        for a, b in (("west", "east"), ("east", "west"))
    ]
    assert found(*tasks) == []


# What is wrong, beyond the golden sets


def test_loop_through_unknown_rules_is_possible(found: Callable[..., Any]) -> None:
    tasks = [
        task(f"{a}-{b}", subscribed(a, b, ""), to(b, "topic: events"), more="loop_prevention: off\n")
        for a, b in (("west", "east"), ("east", "west"))
    ]
    assert found(*tasks) == [("possible-loop", "document 1: routes[0]")]


@pytest.mark.parametrize(
    ("condition", "name"),
    [("kind = 'order'", "endless-loop"), ("kind LIKE 'order%'", "possible-loop"), ("sys.Label = 'a'", "endless-loop")],
)
def test_same_condition_in_both_directions_does_not_stop_a_loop(
    found: Callable[..., Any], condition: str, name: str
) -> None:
    tasks = [
        task(
            f"{a}-{b}",
            f"{{connection: {a}, queue: orders}}",
            f'when: "{condition}"\n    ' + to(b),
            to(b, "queue: rest"),
            more="loop_prevention: off\n",
        )
        for a, b in (("west", "east"), ("east", "west"))
    ]
    assert names(found(*tasks)) == [name]


def test_exclusive_conditions_are_no_loop(found: Callable[..., Any]) -> None:
    tasks = [
        task(
            f"{a}-{b}",
            f"{{connection: {a}, queue: orders}}",
            f"when: \"kind = '{kind}'\"\n    " + to(b),
            to(b, "queue: rest"),
            more="loop_prevention: off\n",
        )
        for a, b, kind in (("west", "east", "there"), ("east", "west", "back"))
    ]
    assert found(*tasks) == []


def test_action_that_removes_the_path_allows_a_loop(found: Callable[..., Any]) -> None:
    forgetting = '\n    action: "REMOVE [repl-path]"'
    tasks = [
        task(f"{a}-{b}", f"{{connection: {a}, queue: orders}}", to(b, more=forgetting))
        for a, b in (("west", "east"), ("east", "west"))
    ]
    assert found(*tasks) == [
        ("endless-loop", "document 1: routes[0]"),
        ("history-changed", "document 1: routes[0].action"),
        ("history-changed", "document 2: routes[0].action"),
    ]


def test_mark_stops_a_chain_without_a_loop(found: Callable[..., Any]) -> None:
    there = task("there", subscribed("west", "east"), to("east", "topic: events"))
    onward = task("onward", subscribed("east", "north"), to("north", "topic: events"))
    assert found(there, onward) == [("mark-ends-chain", "document 2: source.rule.filter")]


def test_too_many_loops_are_reported_as_such(found: Callable[..., Any]) -> None:
    sites = ("west", "east", "north")
    tasks = [
        task(
            f"{a}-{b}-{entity}",
            subscribed(a, f"{b}-{entity}", ""),
            to(b, "topic: events"),
            more="loop_prevention: off\n",
        )
        for a in sites
        for b in sites
        for entity in ("x", "y")
        if a != b
    ]
    found_names = names(found(*tasks))
    assert found_names.count("possible-loop") == 12
    assert found_names[-1] == "too-many-ways"


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
def test_a_rule_that_selects_nothing(found: Callable[..., Any], rule: str, name: str) -> None:
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
def test_a_rule_that_selects_something(found: Callable[..., Any], rule: str) -> None:
    assert found(task("t", subscribed("west", "east", rule), to("east", "topic: events"))) == []


def test_sessions_declared_by_another_task_are_missing(found: Callable[..., Any]) -> None:
    first = task("first", "{connection: west, queue: orders}", to("east"))
    second = task("second", "{connection: east, queue: orders, sessions: true}", to("north"))
    assert found(first, second) == [("session-id-missing", "document 1: routes[0].target")]


def test_action_that_sets_the_session_is_accepted(found: Callable[..., Any]) -> None:
    first = task(
        "first", "{connection: west, queue: orders}", to("east", more="\n    action: \"SET sys.SessionId = 'a'\"")
    )
    second = task("second", "{connection: east, queue: orders, sessions: true}", to("north"))
    assert names(found(first, second)) == ["order-without-sessions"]


def test_deployed_rule_takes_precedence_over_the_declared_one(found: Callable[..., Any]) -> None:
    tasks = [
        task(f"{a}-{b}", subscribed(a, "s"), to(b, "topic: events"), more="loop_prevention: off\n")
        for a, b in (("west", "east"), ("east", "west"))
    ]
    subscription = {"Name": "s", "Properties": {}, "Rules": []}
    topic = {"Name": "events", "Properties": {"RequiresDuplicateDetection": True}, "Subscriptions": [subscription]}
    seen = found(*tasks, west={"Topics": [topic]}, east={"Topics": [topic]})
    assert seen[0] == ("endless-loop", "document 1: routes[0]")
    assert ("rule-not-deployed", "document 1: source.rule") in seen


def test_target_that_shortens_the_time_to_live_is_reported(found: Callable[..., Any]) -> None:
    detects: dict[str, Any] = {"RequiresDuplicateDetection": True, "DuplicateDetectionHistoryTimeWindow": "PT10M"}
    long, short = (
        queue("orders", DefaultMessageTimeToLive="P1D"),
        queue("orders", DefaultMessageTimeToLive="PT1H", **detects),
    )
    copy = task("copy", "{connection: west, queue: orders}", to("east"))
    assert found(copy, west={"Queues": [long]}, east={"Queues": [short]}) == [("ttl-cut", "routes[0].target")]


def test_every_check_has_a_remedy() -> None:
    assert all(check.remedy and check.meaning.endswith(".") for check in CHECKS)
    assert len({check.name for check in CHECKS}) == len(CHECKS)


HUB = "{connection: hubs, hub: telemetry, binary_properties: false}"


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
        # Of a queue, the partition key is not what becomes the session.
        (
            "{connection: west, queue: orders}",
            "editors: [{filter: sys.PartitionKey IS NOT NULL}]",
            [to("east")],
            ["routes[0].target"],
        ),
    ],
)
def test_messages_without_a_session_are_looked_for_at_each_route(
    found: Callable[..., Any], source: str, editors: str, routes: list[str], expected: list[str]
) -> None:
    second = task("second", "{connection: east, queue: orders, sessions: true}", to("north", "queue: all"))
    missing = found(task("first", source, *routes, more=editors + "\n"), second)
    assert [(name, path.partition(": ")[2]) for name, path in missing if name == "session-id-missing"] == [
        ("session-id-missing", path) for path in expected
    ]


def test_validation_makes_nothing_certain(found: Callable[..., Any]) -> None:
    there = task("there", "{connection: west, queue: a}", to("east"), more="loop_prevention: off\n")
    editors = "editors: [{validate: {max_size: 100}}]\nloop_prevention: off\n"
    back = task("back", "{connection: east, queue: orders}", to("west", "queue: a"), more=editors)
    assert "possible-loop" in names(found(there, back))


def test_binary_properties_false_needs_no_finding(found: Callable[..., Any]) -> None:
    source = "{connection: hubs, hub: telemetry, consumer_group: GROUP}"
    tasks = [
        task("a", source.replace("GROUP", "a"), to("east", "queue: a")),
        task("b", source.replace("GROUP", "b, binary_properties: true"), to("east", "queue: b")),
        task("c", source.replace("GROUP", "c, binary_properties: false"), to("east", "queue: c")),
    ]
    assert [path for name, path in found(*tasks) if name == "binary-properties"] == [
        "document 1: source.hub",
        "document 2: source.hub",
    ]


@pytest.mark.parametrize(
    ("here", "there", "expected"), [(4, 4, None), (2, 4, "partition-counts-differ"), (4, 2, "partition-missing")]
)
def test_equal_partition_counts_have_no_finding(tmp_path: Path, here: int, there: int, expected: str | None) -> None:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "connections.yaml").write_text(
        "west: {kind: event-hubs, setting: WEST}\neast: {kind: event-hubs, setting: EAST}\n"
    )
    copy = task(
        "copy",
        "{connection: west, hub: telemetry, binary_properties: false}",
        to("east", "hub: telemetry, partition: keep"),
        rejects="{connection: west, hub: rejected}",
    )
    (tmp_path / "tasks/copy.yaml").write_text(copy)
    for site, count in (("west", here), ("east", there)):
        hubs: list[Any] = [
            {"Name": name, "PartitionCount": count, "ConsumerGroups": []} for name in ("telemetry", "rejected")
        ]
        document = {"UserConfig": {"NamespaceConfig": [{"Type": "EventHub", "Name": "ns", "Entities": hubs}]}}
        (tmp_path / f"{site}.json").write_text(json.dumps(document))
    configuration = load(tmp_path)
    files = [str(tmp_path / f"{site}.json") for site in ("west", "east")]
    findings = review(configuration, entities_of(files, configuration.connections))
    assert [each.check.name for each in findings] == ([] if expected is None else [expected])


def test_source_without_sessions_is_reported_if_order_is_needed(found: Callable[..., Any]) -> None:
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
    assert [each for each in findings if each[0] == "order-without-sessions"] == [
        ("order-without-sessions", "document 1: editors[0]"),
        ("order-without-sessions", "document 2: editors[0]"),
        ("order-without-sessions", "document 3: routes[0].action"),
        ("order-without-sessions", "document 5: routes[0].target.partition"),
    ]


BINDING = "{target: {connection: north, queue: %s}, via: binding%s}"


def test_binding_cannot_do_what_needs_a_session_or_an_order(found: Callable[..., Any]) -> None:
    findings = found(
        task("sessions", "{connection: west, queue: a, sessions: true}", BINDING % ("a", "")),
        task("required", "{connection: west, queue: b}", BINDING % ("b", "")),
        task("plain", "{connection: west, queue: c}", BINDING % ("c", "")),
        north={"Queues": [queue(name, RequiresSession=name == "b") for name in ("a", "b", "c", "rejected")]},
    )
    assert [each for each in findings if each[0].startswith("binding-")] == [
        ("binding-without-session", "document 2: routes[0].target"),
        ("binding-without-order", "document 1: routes[0].via"),
    ]


def test_bodies_without_properties_are_refused_where_something_needs_one(found: Callable[..., Any]) -> None:
    body, compressed = ", body_only: true", "editors: [{compress: {encoding: gzip}}]\n"
    findings = found(
        task("ttl", "{connection: west, queue: a}", BINDING % ("a", body), more="ttl: remaining\n"),
        task("unique", "{connection: west, queue: b}", BINDING % ("b", body)),
        task("read", "{connection: west, queue: c}", BINDING % ("c", body)),
        task("reader", "{connection: north, queue: c}", to("east", "queue: c")),
        task("binary", "{connection: west, queue: d}", BINDING % ("d", body), more=compressed),
        task("plain", "{connection: west, queue: e}", BINDING % ("e", body)),
        north={"Queues": [queue(name, RequiresDuplicateDetection=name == "b")
                          for name in ("a", "b", "c", "d", "e", "rejected")]},
    )  # fmt: skip
    assert findings == [
        ("body-loses-properties", "document 1: routes[0].body_only"),
        ("body-loses-properties", "document 2: routes[0].body_only"),
        ("body-loses-properties", "document 3: routes[0].body_only"),
        ("binary-body", "document 5: routes[0].body_only"),
    ]


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
    via: str, source: str, expected: list[str], found: Callable[..., Any]
) -> None:
    findings = found(
        task("first", "{connection: west, queue: a}", BINDING % ("carrier", via)),
        task("second", f"{{connection: north, queue: carrier{source}}}", to("east"), more="loop_prevention: off\n"),
    )
    assert names(findings) == expected


def host_file(timeout: timedelta | None = timedelta(hours=2), *, batch: int = 100, prefetch: int = 0) -> HostFile:
    return HostFile("host.json", timeout, batch, batch, prefetch)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        (host_file(), []),
        (host_file(None), []),
        (host_file(timedelta(minutes=80)), []),
        # Five batches of tasks are held for 75 minutes.
        (host_file(timedelta(minutes=79)), ["hold-near-timeout"] * 5),
        (host_file(prefetch=99), ["prefetch-bounds-batch"]),
        (host_file(prefetch=100), []),
    ],
)
def test_host_file_must_leave_room_for_holds_and_batches(host: HostFile, expected: list[str]) -> None:
    assert [each.check.name for each in review(load(ROOT / "config"), Entities({}), host)] == expected


@pytest.mark.parametrize(("batch", "safe"), [(100, 16), (17, 16), (16, None), (1, None)])
def test_largest_batch_is_computed_from_the_size_of_messages(batch: int, safe: int | None) -> None:
    configuration = load(ROOT / "config")
    files = [str(ROOT / f"infra/emulators/{site}.json") for site in ("west", "east")]
    text = largest_batch(configuration, entities_of(files, configuration.connections), host_file(batch=batch))
    if safe is None:
        assert text is None
    else:
        assert text is not None
        assert f"({batch} messages)" in text
        assert f"set maxMessageBatchSize to {safe} in host.json" in text


def test_largest_batch_of_unknown_entities_is_unknown() -> None:
    assert largest_batch(load(ROOT / "config"), Entities({}), host_file()) is None


def test_every_check_is_found_in_a_golden_set_or_here() -> None:
    findings = "".join(path.read_text(encoding="utf-8") for path in ROOT.glob("tests/golden/broken/*/findings.txt"))
    here = Path(__file__).read_text(encoding="utf-8")
    assert [
        check.name for check in CHECKS if f" {check.name}: " not in findings and f'"{check.name}"' not in here
    ] == []


def test_the_page_of_checks_lists_them_all() -> None:
    page = (ROOT / "docs/checks.md").read_text(encoding="utf-8")
    rows = [
        f"| `{check.name}` | {check.severity} | {check.meaning} | {check.remedy[0].upper()}{check.remedy[1:]}. | "
        f"{'`--entities`' if check.needs_entities else 'task files'} |"
        for check in CHECKS
    ]
    assert [line for line in page.splitlines() if line.startswith("| `")] == rows


def test_hub_source_has_findings_on_both_triggers(found: Callable[..., Any]) -> None:
    findings = found(
        task("raw", "{connection: hubs, hub: telemetry}", to("north")),
        task("stock", "{connection: hubs, hub: other}", to("north"), more="trigger: stock\n"),
        task("queue", "{connection: west, queue: orders}", to("north", "queue: more"), more="trigger: stock\n"),
    )
    assert [each for each in findings if each[0] in ("binary-properties", "stock-trigger")] == [
        ("binary-properties", "document 1: source.hub"),
        ("stock-trigger", "document 2: trigger"),
        ("stock-trigger", "document 3: trigger"),
    ]


def test_remaining_ttl_has_an_effect_if_a_task_sends_it_to_the_hub(found: Callable[..., Any]) -> None:
    out = task("out", "{connection: hubs, hub: telemetry}", to("east"), more="ttl: remaining\n")
    into = task("into", "{connection: west, queue: orders}", to("hubs", "hub: telemetry"))
    other = task("other", "{connection: hubs, hub: other}", to("north"), more="ttl: remaining\n")
    findings = [each for each in found(out, into, other) if each[0] == "ttl-without-effect"]
    assert findings == [("ttl-without-effect", "document 3: ttl")]


def test_errors_come_first() -> None:
    configuration = load(ROOT / "tests/golden/broken/04-jobs-that-nobody-can-do")
    severities = [finding.check.severity for finding in review(configuration, Entities({}))]
    assert severities == sorted(severities, key=[Severity.ERROR, Severity.WARNING].index)


# Whose entities a file has


def hubs_file(folder: Path, name: str) -> Path:
    path = folder / f"{name}.json"
    hub = {"Name": "telemetry", "PartitionCount": 2, "ConsumerGroups": []}
    document = {"UserConfig": {"NamespaceConfig": [{"Type": "EventHub", "Name": "ns", "Entities": [hub]}]}}
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


@pytest.fixture
def connections(tmp_path: Path) -> Mapping[str, Connection]:
    tmp_path.joinpath("tasks").mkdir()
    tmp_path.joinpath("connections.yaml").write_text(CONNECTIONS, encoding="utf-8")
    tmp_path.joinpath("tasks/a.yaml").write_text(
        task("t", "{connection: west, queue: a}", to("east")), encoding="utf-8"
    )
    return load(tmp_path).connections


@pytest.mark.parametrize("name", ["hubs", "HUBS", "west"])
def test_a_file_is_for_the_connection_of_its_kind_with_its_name(
    tmp_path: Path, connections: dict[str, Connection], name: str
) -> None:
    entities = entities_of([str(hubs_file(tmp_path, name))], connections)
    assert entities.namespace(connections["hubs"]) is not None
    assert entities.namespace(connections["west"]) is None


def test_a_connection_can_be_named_before_the_file(tmp_path: Path, connections: dict[str, Connection]) -> None:
    entities = entities_of([f"hubs={hubs_file(tmp_path, 'anything')}"], connections)
    assert entities.hub(connections["hubs"], "Telemetry") is not None


def test_entities_file_without_a_connection_is_a_problem(tmp_path: Path, connections: dict[str, Connection]) -> None:
    with pytest.raises(ConfigError) as caught:
        entities_of([str(hubs_file(tmp_path, "east"))], connections)
    assert "is for 'east', which is not a connection of this kind" in str(caught.value)


@pytest.mark.parametrize(
    ("editor", "is_loop"),
    [
        ("filter: replication IS NULL", False),
        ("{properties: {action: 'SET a = 1'}}", False),
        ("{properties: {remove: [repli*]}}", True),
        ("{properties: {rename: {replication: mark}}}", True),
        ("{properties: {action: 'REMOVE replication'}}", True),
        ("{python: 'copy:copy'}", True),
        ("{route: {replication: {value: a}}}", True),
        ("{transform: {expression: a}}", False),
        ("{encrypt: {key: k}}", False),
        ("{sign: {key: k}}, {attest: {key: k}}, {verify: {key: k, remove: true}}", False),
        ("{sign: {key: k, into: Replication}}", True),
    ],
)
def test_mark_counts_unless_an_editor_removes_it(found: Callable[..., Any], editor: str, is_loop: bool) -> None:
    editors = editor if editor.startswith("{") else "{" + editor + "}"
    more = f"loop_prevention: off\neditors: [{editors}]\n"
    there = task("there", subscribed("west", "r"), to("east", "topic: events"), more=more)
    back = task("back", subscribed("east", "r"), to("west", "topic: events"), more=more)
    assert any("loop" in name for name in names(found(there, back))) is is_loop


@pytest.mark.parametrize(
    ("partition", "is_missing"),
    [("{value: id}", False), ("{value: id, missing: leave}", True)],
)
def test_a_key_from_the_body_becomes_the_session(found: Callable[..., Any], partition: str, is_missing: bool) -> None:
    second = task("second", "{connection: east, queue: orders, sessions: true}", to("north", "queue: all"))
    editors = f"editors: [{{partition: {partition}}}]\n"
    assert ("session-id-missing" in names(found(task("first", HUB, to("east"), more=editors), second))) is is_missing


@pytest.mark.parametrize(
    ("editor", "is_reported"),
    [
        ("{filter: 1 = 1}", True),
        ("{route: {Mark: {value: a}}}", False),
        ("{properties: {rename: {old: mark}}}", False),
        ("{properties: {action: \"SET mark = '1'\"}}", False),
        ("{python: 'copy:copy'}", False),
        ("{sign: {key: k}}", True),
        ("{sign: {key: k, into: Mark}}", False),
    ],
)
def test_mark_of_another_type_is_reported_if_nothing_else_sets_it(
    found: Callable[..., Any], editor: str, is_reported: bool
) -> None:
    first = task("first", "{connection: west, queue: a}", to("east", more="\n    action: SET mark = 1"))
    more = f"editors: [{editor}]\n"
    second = task("second", "{connection: north, queue: a}", to("east", more="\n    when: mark = '1'"), more=more)
    assert ("mark-of-another-type" in names(found(first, second))) is is_reported
