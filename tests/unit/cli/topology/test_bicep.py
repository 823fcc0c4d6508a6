"""`busway plan --bicep`: the parameter file for namespaces that exist; tests/unit/infra tests what it contains."""

from pathlib import Path

import pytest

from cli.topology.bicep import parameters_of
from cli.topology.plan import load_needs
from tests.bicep import copy_templates, needs_compiler, snapshot

TASK = """
task: hostile
source:
  connection: west
  topic: orders
  subscription: replication
  rule: {filter: "name = 'it''s ${x} \\\\ here'", action: "SET note = 'a''b'"}
routes: [{target: {connection: west, queue: copies}}]
"""


@pytest.mark.long  # it starts the compiler
@needs_compiler
def test_quotes_and_dollars_in_rules_arrive_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "config/tasks").mkdir(parents=True)
    (tmp_path / "config/tasks/a.yaml").write_text(TASK)
    (tmp_path / "config/connections.yaml").write_text("west: {kind: service-bus, setting: WEST}\n")
    host = {"WEST": "Endpoint=sb://sb-west.servicebus.windows.net/;SharedAccessKeyName=a;SharedAccessKey=secret"}
    parameters = parameters_of(*load_needs(tmp_path / "config"), host)
    assert "secret" not in parameters
    copy_templates(tmp_path)
    (tmp_path / "entities.bicepparam").write_text(parameters)
    resources = snapshot(tmp_path / "entities.bicepparam")["predictedResources"]
    [rule] = [resource for resource in resources if resource["type"].endswith("rules")]
    assert rule["name"] == "sb-west/orders/replication/busway"
    assert rule["properties"]["sqlFilter"]["sqlExpression"] == "name = 'it''s ${x} \\ here'"
    assert rule["properties"]["action"]["sqlExpression"] == "SET note = 'a''b'"
