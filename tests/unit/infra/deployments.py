"""What the compiler predicts for infra/main.bicep: for all examples in one deployment, and for other parameters."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cli.topology.deployment import DEFAULT_JOURNAL, deployment_of
from cli.topology.needs import Needs
from cli.topology.plan import load_needs
from shared.tasks.files import Configuration
from tests.bicep import ROOT, Resource, copy_templates, role_of, scope_of, snapshot

EXAMPLES = {path.parent.name: path.parent for path in sorted(ROOT.glob("config/examples/*/connections.yaml"))}
FOLDERS = {"config": ROOT / "config", **EXAMPLES}

type Json = dict[str, Any]


# A journal in a hub with Capture, keys and a store of editors, a secret, names with a slash, and four kinds of places.
TASKS = """
task: orders
source: {connection: west, queue: emea/orders}
editors:
  - chain: {key: chain-key, sequence: entity, single_instance: true, store: {setting: CHAINS}}
routes:
  - target: {connection: readings, hub: orders}
  - when: "priority > 5"
    target: {connection: shared, topic: orders}
rejects: {connection: partner, queue: rejected}
lanes: 1
---
task: stream
source: {connection: readings, hub: readings, consumer_group: busway}
routes: [{target: {connection: tenant, queue: readings}}]
rejects: {connection: west, queue: rejected}
"""
CONNECTIONS = """
west: {kind: service-bus, setting: WEST}
shared: {kind: service-bus, setting: SHARED}
partner: {kind: service-bus, setting: PARTNER}
tenant: {kind: service-bus, secret: tenant-connection}
readings: {kind: event-hubs, setting: READINGS}
spare: {kind: service-bus, setting: SPARE}
"""
JOURNAL = "event_hub: {connection: readings, hub: journal, capture: {setting: CAPTURED}}\n"


def loaded(folder: Path) -> tuple[Configuration, Needs]:
    """Return a configuration as `busway package` deploys it, and what it needs."""
    configuration, needs = load_needs(folder)
    return replace(configuration, journal=configuration.journal or DEFAULT_JOURNAL), needs


def setting_of(folder: str, setting: str) -> str:
    """Return the app setting that takes the place of *setting* where all examples are in one deployment."""
    return f"{re.sub(r'\W', '_', folder)}_{setting}"


def all_tasks() -> tuple[Json, Json]:
    """Return `tasks` and `namespaces` of all examples; namespaces and functions are called after the example."""
    tasks: Json = {"version": "1", "sites": [], "functions": {}, "stores": [], "secrets": []}
    namespaces = {}
    for folder, place in FOLDERS.items():
        deployed = deployment_of(*loaded(place))
        for site in deployed["sites"]:
            alias = f"{folder}-{site['alias']}"
            tasks["sites"].append({**site, "alias": alias, "setting": setting_of(folder, site["setting"])})
            namespaces[alias] = {"name": alias}
        tasks["functions"] |= {f"{folder}-{task}": names for task, names in deployed["functions"].items()}
        tasks["stores"] = sorted({*tasks["stores"], *deployed["stores"]})
        # All examples keep their journal alike.
        assert tasks.setdefault("journal", deployed["journal"]) == deployed["journal"]
    return tasks, namespaces


def other_tasks(folder: Path) -> Json:
    """Write a configuration that has everything which no example has, and return its `tasks`."""
    (folder / "tasks").mkdir()
    (folder / "tasks/all.yaml").write_text(TASKS)
    (folder / "connections.yaml").write_text(CONNECTIONS)
    (folder / "journal.yaml").write_text(JOURNAL)
    return deployment_of(*loaded(folder))


def variants(others: Json) -> dict[str, Json]:
    """Return the parameters of the deployments that are tested."""
    tasks, namespaces = all_tasks()
    places = {
        "west": {"name": "sb-west", "location": "westus", "capacity": 2},
        "shared": {"name": "sb-shared", "existing": True, "resourceGroup": "private-other"},
        "partner": {"host": "partner.servicebus.example"},
        "readings": {"name": "eh-readings"},
    }
    private = {
        "tasks": others,
        "namespaces": places,
        "privateNetworking": True,
        "serviceBusSku": "Premium",
        "alwaysReady": {"orders": 2},
        "instanceMemory": 4096,
        "maximumInstances": 100,
        "siteUpdateStrategy": "RollingUpdate",
        "operatorPrincipalId": "me",
        "workbook": False,
        "journalAppendOnly": True,
        "storageRedundancy": "Standard_GZRS",
    }
    premium = {
        "tasks": {**others, "journal": None},
        "namespaces": places,
        "plan": "premium",
        "privateNetworking": True,
        "serviceBusSku": "Premium",
        "premiumInstances": 2,
        "roleScope": "namespace",
        "alerts": False,
        "nightly": False,
        "deployEntities": False,
        "keyVaultName": "mine",
        "appSettings": {"WEST": "@Microsoft.KeyVault(SecretUri=https://mine.vault.azure.net/secrets/west)"},
    }
    return {
        "public": {
            "tasks": tasks,
            "namespaces": namespaces,
            "maximumInstances": 300,
            "alertThresholds": {"lag": 60},
            "reconcileImage": "mine.azurecr.io/busway-reconcile:1",
        },
        "private": private,
        "premium": premium,
        "unmeasured": {"tasks": deployment_of(*loaded(EXAMPLES["plain-copy"])), "telemetry": "off"},
    }


@dataclass
class Prediction:
    """What the compiler predicts for one deployment."""

    resources: list[Resource]

    def of(self, kind: str) -> Iterator[Resource]:
        """Yield the resources of a type."""
        return (resource for resource in self.resources if resource["type"] == kind)

    def one(self, kind: str) -> Json:
        """Return the properties of the only resource of a type."""
        (found,) = self.of(kind)
        return dict(found["properties"])

    def roles(self, provider: str = "") -> set[tuple[str, str]]:
        """Return the roles that are assigned in a provider: what each is about, and the id of the role."""
        found = list(self.of("Microsoft.Authorization/roleAssignments"))
        return {(scope_of(each), role_of(each)) for each in found if scope_of(each).startswith(provider)}


def predict(folder: Path, deployments: Mapping[str, Json]) -> dict[str, Prediction]:
    """Return what the compiler predicts for each of *deployments*: their parameters by name."""
    copy_templates(folder)
    modules = []
    for name, parameters in deployments.items():
        (folder / f"{name}.json").write_text(json.dumps(parameters))
        given = "\n".join(f"    {parameter}: loadJsonContent('{name}.json').{parameter}" for parameter in parameters)
        modules.append(
            f"module {name} 'main.bicep' = {{\n  name: '{name}'\n  scope: resourceGroup('{name}')\n"
            f"  params: {{\n{given}\n  }}\n}}\n"
        )
    (folder / "all.bicep").write_text("\n".join(modules))
    (folder / "all.bicepparam").write_text("using 'all.bicep'\n")
    predicted = snapshot(folder / "all.bicepparam")["predictedResources"]
    # Each deployment has a resource group of its own, and others whose names begin with its name.
    return {
        name: Prediction([each for each in predicted if f"/resourceGroups/{name}" in each["id"]])
        for name in deployments
    }


def settings_of(prediction: Prediction) -> dict[str, str]:
    """Return the app settings; the domain of storage accounts is known only at the deployment."""
    found = {name: str(value) for name, value in prediction.one("Microsoft.Web/sites/config").items()}
    return {name: _address(value) if value.startswith("[format(") else value for name, value in found.items()}


def _address(expression: str) -> str:
    name = re.search(r"'([\w-]+)', environment\(\)\.suffixes\.(storage|keyvaultDns)", expression)
    if name is None:
        return expression
    path = re.search(r"'\{0\}(/\w+)'", expression)
    host = "blob.core.windows.net" if name[2] == "storage" else "vault.azure.net"
    return f"https://{name[1]}.{host}{path[1] if path else ''}"
