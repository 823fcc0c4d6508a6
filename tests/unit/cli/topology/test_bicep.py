"""`busway plan --bicep`: Microsoft's compiler predicts the resources that the plan computes."""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cli.topology.bicep import parameters_of, variable_of
from cli.topology.difference import creation
from cli.topology.model import Kind
from cli.topology.planning import load_needs

ROOT = Path(__file__).parents[4]
EXAMPLES = sorted(each.parent for each in ROOT.glob("config/examples/*/connections.yaml"))
BESIDE = ROOT.parent / "shared/tools/bicep"
COMPILER = str(BESIDE) if BESIDE.exists() else shutil.which("bicep")
KINDS = {
    "queues": Kind.QUEUE,
    "topics": Kind.TOPIC,
    "topics/subscriptions": Kind.SUBSCRIPTION,
    "eventhubs": Kind.HUB,
    "eventhubs/consumergroups": Kind.CONSUMER_GROUP,
}
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="there is no bicep on the PATH")

TASK = """
task: hostile
source:
  connection: west
  topic: orders
  subscription: replication
  rule: {filter: "name = 'it''s ${x} \\\\ here'", action: "SET note = 'a''b'"}
routes: [{target: {connection: west, queue: copies}}]
"""


def snapshot(folder: Path, parameters: str, environment: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the resources that the compiler predicts."""
    for each in ("entities.bicep", "modules"):
        source = ROOT / "infra" / each
        (shutil.copytree if source.is_dir() else shutil.copy)(source, folder / each)
    (folder / "entities.bicepparam").write_text(parameters, encoding="utf-8")
    place = ("--subscription-id", "00000000-0000-0000-0000-000000000001", "--resource-group", "rg")
    command = [str(COMPILER), "snapshot", "entities.bicepparam", "--mode", "overwrite", *place, "--location", "here"]
    subprocess.run(command, cwd=folder, env={**os.environ, **environment}, check=True, capture_output=True)  # noqa: S603
    found: list[dict[str, Any]] = json.loads((folder / "entities.snapshot.json").read_text())["predictedResources"]
    return found


@needs_compiler
def test_the_predicted_resources_of_all_examples_are_what_the_plan_creates(tmp_path: Path) -> None:
    """All examples in one deployment, each with namespaces of its own: one start of the compiler."""
    expected: set[tuple[str, str, str]] = set()
    rules: dict[str, tuple[str, str | None]] = {}
    service_bus, event_hubs, environment = [], [], {}
    for folder in EXAMPLES:
        configuration, needs = load_needs(folder)
        text = parameters_of(configuration, needs, {})
        for key, needed in needs.namespaces.items():
            namespace = f"{folder.name}-{key}".lower()
            environment[f"{folder.name}_{variable_of(needs.aliases[key])}".replace("-", "_")] = namespace
            for need in needed.values():
                step = creation(need)
                name = "/".join(step.name.parts)
                expected.add((str(step.name.kind), f"{namespace}/{name}", json.dumps(_shared(step.settings))))
                if step.rule is not None:
                    rules[f"{namespace}/{name}"] = str(step.rule.filter), step.rule.action
        text = text.replace("readEnvironmentVariable('", f"readEnvironmentVariable('{folder.name.replace('-', '_')}_")
        lists = text.partition("param serviceBusSites = ")[2].partition("\n\nparam eventHubsSites = ")
        service_bus.append(lists[0].strip().removeprefix("[").removesuffix("]"))
        event_hubs.append(lists[2].strip().removeprefix("[").removesuffix("]"))
    sites = f"param serviceBusSites = [{''.join(service_bus)}]\n\nparam eventHubsSites = [{''.join(event_hubs)}]\n"
    resources = snapshot(tmp_path, f"using 'entities.bicep'\n\n{sites}", environment)

    found = set()
    predicted_rules = {}
    for each in resources:
        kind, properties = each["type"].partition("/namespaces/")[2], each.get("properties", {})
        if kind == "topics/subscriptions/rules":
            action = properties.get("action", {}).get("sqlExpression")
            predicted_rules[each["name"].rpartition("/")[0]] = properties["sqlFilter"]["sqlExpression"], action
        else:
            settings = {name: properties.get(arm) for name, arm in _COMPARED.items()}
            found.add((str(KINDS[kind]), each["name"], json.dumps(settings)))
    assert found == expected
    assert len(found) > 80
    assert predicted_rules == rules


_COMPARED = {
    "requires_session": "requiresSession",
    "max_delivery_count": "maxDeliveryCount",
    "requires_duplicate_detection": "requiresDuplicateDetection",
    "partition_count": "partitionCount",
}


def _shared(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: settings.get(name) for name in _COMPARED}


@needs_compiler
def test_quotes_and_dollars_in_rules_arrive_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "config/tasks").mkdir(parents=True)
    (tmp_path / "config/tasks/a.yaml").write_text(TASK)
    (tmp_path / "config/connections.yaml").write_text("west: {kind: service-bus, setting: WEST}\n")
    host = {"WEST": "Endpoint=sb://sb-west.servicebus.windows.net/;SharedAccessKeyName=a;SharedAccessKey=secret"}
    parameters = parameters_of(*load_needs(tmp_path / "config"), host)
    assert "secret" not in parameters
    resources = snapshot(tmp_path, parameters, {})
    [rule] = [each for each in resources if each["type"].endswith("rules")]
    assert rule["name"] == "sb-west/orders/replication/busway"
    assert rule["properties"]["sqlFilter"]["sqlExpression"] == "name = 'it''s ${x} \\ here'"
    assert rule["properties"]["action"]["sqlExpression"] == "SET note = 'a''b'"
