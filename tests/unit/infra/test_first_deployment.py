"""What the first deployment would fail at, and what the first week would surprise with, as the compiler predicts it."""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from cli.topology.deployment import deployment_of
from tests.bicep import ROOT, Resource, compiled, needs_compiler, role_of, scope_of, snapshot
from tests.unit.infra.deployments import EXAMPLES, Json, Prediction, loaded, other_tasks, predict

pytestmark = [pytest.mark.long, needs_compiler]

OWNER, RECEIVER = "090c5cfd-751d-490a-894a-3ce6f1109419", "4f6d3b9b-027b-4f4c-9142-0e5a2a2247e0"
ROLES = "Microsoft.Authorization/roleAssignments"
REGION = "northeurope"
OTHER = "00000000-0000-0000-0000-000000000002"
SUBNETS = "/subscriptions/1/resourceGroups/net/providers/Microsoft.Network/virtualNetworks/ours/subnets"
NETWORK = {
    "appSubnetId": f"{SUBNETS}/app",
    "endpointSubnetId": f"{SUBNETS}/endpoints",
    "nightlySubnetId": f"{SUBNETS}/jobs",
}
PLAN = "/subscriptions/1/resourceGroups/plans/providers/Microsoft.Web/serverfarms/ours"
APPENDER = "/subscriptions/1/providers/Microsoft.Authorization/roleDefinitions/7"


def deployments(others: Json) -> dict[str, Json]:
    small = deployment_of(*loaded(EXAMPLES["plain-copy"]))
    return {
        "small": {"tasks": small, "zoneRedundant": True},
        "premium": {
            "tasks": others,
            "namespaces": {
                "west": {"name": "sb-west", "capacity": 4, "keys": True, "pairedRegion": REGION},
                "shared": {"name": "sb-shared", "existing": True, "resourceGroup": "premium-b", "subscription": OTHER},
                "readings": {"name": "eh-readings", "capacity": 5, "maximumCapacity": 20, "pairedRegion": REGION},
            },
            "plan": "premium",
            "serviceBusSku": "Premium",
            "privateNetworking": True,
            "scaleByBacklog": True,
            "zoneRedundant": True,
            "premiumInstances": 2,
            "journalAppendOnly": True,
            "journalAppenderRoleId": APPENDER,
            "journalDays": 40,
            "resultDays": 90,
        },
        "joined": {
            "tasks": others,
            "plan": "premium",
            "planId": PLAN,
            "serviceBusSku": "Premium",
            "privateNetworking": True,
            "existingNetwork": NETWORK,
        },
    }  # fmt: skip


@pytest.fixture(scope="module")
def predicted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Prediction]:
    others = other_tasks(tmp_path_factory.mktemp("config"))
    return predict(tmp_path_factory.mktemp("infra"), deployments(others))


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("template"))


def named(prediction: Prediction, kind: str) -> dict[str, Resource]:
    return {each["name"]: each for each in prediction.of(kind)}


def roles_of_the_app(prediction: Prediction, place: str) -> set[str]:
    """Return the roles in a namespace, without those of an operator."""
    return {role_of(each) for each in prediction.of(ROLES) if scope_of(each).startswith(place)}


def test_the_app_counts_messages_only_if_a_parameter_says_so(predicted: Mapping[str, Prediction]) -> None:
    """FN15: with Data Receiver the trigger cannot count, and instances come one at a time."""
    sources = roles_of_the_app(predicted["small"], "Microsoft.ServiceBus")
    assert RECEIVER in sources
    assert OWNER not in sources
    place = "Microsoft.ServiceBus/namespaces/sb-west/queues/emea~orders"
    assert roles_of_the_app(predicted["premium"], place) == {OWNER}


def test_a_private_premium_app_gets_its_share_through_the_network(predicted: Mapping[str, Prediction]) -> None:
    settings = predicted["premium"].one("Microsoft.Web/sites/config")
    assert settings["WEBSITE_SKIP_CONTENTSHARE_VALIDATION"] == "1"
    # Of vnetContentShareEnabled and vnetRouteAllEnabled the name since 2024-11-01.
    assert predicted["premium"].one("Microsoft.Web/sites")["outboundVnetRouting"] == {
        "applicationTraffic": True,
        "contentShareTraffic": True,
    }


def test_a_role_for_the_journal_may_be_one_that_exists(predicted: Mapping[str, Prediction]) -> None:
    """To write a definition of a role takes more than Contributor and than to assign roles."""
    found = predicted["premium"]
    assert list(found.of("Microsoft.Authorization/roleDefinitions")) == []
    on_journal = [each for each in found.of(ROLES) if scope_of(each).endswith("/containers/journal")]
    assert [each["properties"]["roleDefinitionId"] for each in on_journal] == [APPENDER]


def test_every_role_is_named_by_its_principal(predicted: Mapping[str, Prediction]) -> None:
    """An app that is deleted and deployed again has another principal, and an assignment cannot change its own."""
    checked = 0
    for prediction in predicted.values():
        for each in prediction.of(ROLES):
            principal = str(each["properties"]["principalId"]).strip("[]")
            assert principal in each["id"], each["id"]
            checked += 1
    assert checked > 30


def test_what_is_below_one_topic_or_hub_is_deployed_one_after_the_other() -> None:
    for file, resources in {
        "service-bus-entities": ("subscription", "rule"),
        "event-hubs-entities": ("group",),
    }.items():
        text = (ROOT / f"infra/modules/{file}.bicep").read_text()
        for name in resources:
            assert re.search(rf"^@batchSize\(1\)\nresource {name} ", text, re.MULTILINE), name


def test_capacity_keys_and_pairs_are_those_of_the_parameters(predicted: Mapping[str, Prediction]) -> None:
    buses = named(predicted["premium"], "Microsoft.ServiceBus/namespaces")
    hubs = named(predicted["premium"], "Microsoft.EventHub/namespaces")
    assert buses["sb-west"]["sku"]["capacity"] == 4
    assert buses["sb-west"]["properties"]["disableLocalAuth"] is False
    assert hubs["eh-readings"]["sku"]["capacity"] == 5
    assert hubs["eh-readings"]["properties"]["maximumThroughputUnits"] == 20
    assert hubs["eh-readings"]["properties"]["disableLocalAuth"] is True
    for second in (buses["sb-west-second"], hubs["eh-readings-second"]):
        assert second["location"] == REGION
    pairs = named(predicted["premium"], "Microsoft.ServiceBus/namespaces/disasterRecoveryConfigs")
    assert list(pairs) == ["sb-west/sb-west-pair"]
    assert pairs["sb-west/sb-west-pair"]["properties"]["partnerNamespace"].endswith("/namespaces/sb-west-second")
    settings = predicted["premium"].one("Microsoft.Web/sites/config")
    assert settings["WEST__fullyQualifiedNamespace"] == "sb-west-pair.servicebus.windows.net"
    # A pair copies no roles.
    assert roles_of_the_app(predicted["premium"], "Microsoft.ServiceBus/namespaces/sb-west-second")


def test_a_namespace_may_be_in_another_group_and_subscription(predicted: Mapping[str, Prediction]) -> None:
    topics = named(predicted["premium"], "Microsoft.ServiceBus/namespaces/topics")
    assert topics["sb-shared/orders"]["id"].startswith(f"/subscriptions/{OTHER}/resourceGroups/premium-b/")


def test_a_private_network_has_a_way_out(predicted: Mapping[str, Prediction]) -> None:
    (network,) = predicted["premium"].of("Microsoft.Network/virtualNetworks")
    (gateway,) = predicted["premium"].of("Microsoft.Network/natGateways")
    assert {
        each["name"]: each["properties"].get("natGateway", {}).get("id", "").rpartition("/")[2]
        for each in network["properties"]["subnets"]
    } == {"app": gateway["name"], "endpoints": "", "nightly": gateway["name"]}
    (address,) = gateway["properties"]["publicIpAddresses"]
    assert address["id"].endswith(next(predicted["premium"].of("Microsoft.Network/publicIPAddresses"))["name"])


def test_an_app_joins_a_network_and_a_plan_that_exist(predicted: Mapping[str, Prediction]) -> None:
    found = predicted["joined"]
    for kind in ("virtualNetworks", "natGateways", "privateDnsZones"):
        assert list(found.of(f"Microsoft.Network/{kind}")) == []
    assert list(found.of("Microsoft.Web/serverfarms")) == []
    site = found.one("Microsoft.Web/sites")
    assert (site["serverFarmId"], site["virtualNetworkSubnetId"]) == (PLAN, f"{SUBNETS}/app")
    endpoints = list(found.of("Microsoft.Network/privateEndpoints"))
    assert endpoints
    assert {endpoint["properties"]["subnet"]["id"] for endpoint in endpoints} == {f"{SUBNETS}/endpoints"}
    # Who registers them is others' business without zones.
    assert list(found.of("Microsoft.Network/privateEndpoints/privateDnsZoneGroups")) == []


def test_zones_are_a_parameter(predicted: Mapping[str, Prediction]) -> None:
    assert {
        name: prediction.one("Microsoft.Web/serverfarms")["zoneRedundant"]
        for name, prediction in predicted.items()
        if name != "joined"
    } == {"small": True, "premium": True}
    # Without a network Container Apps refuses zones.
    assert "zoneRedundant" not in predicted["small"].one("Microsoft.App/managedEnvironments")


def test_journals_captures_and_results_are_deleted_some_day(predicted: Mapping[str, Prediction]) -> None:
    policy = predicted["premium"].one("Microsoft.Storage/storageAccounts/managementPolicies")["policy"]
    rules = {each["name"]: each for each in policy["rules"]}
    days = {
        name: rule["definition"]["actions"]["baseBlob"]["delete"]["daysAfterModificationGreaterThan"]
        for name, rule in rules.items()
    }
    assert days == {"old-journals": 40, "old-captures": 40, "old-results": 90}
    # Written once; without it the job could not tell whose journal it continues.
    assert not any(
        "reconciliation/compacted/journal.json".startswith(prefix)
        for prefix in rules["old-results"]["definition"]["filters"]["prefixMatch"]
    )


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        # FN03: the maximum is that of all functions together, and a function without an instance starves.
        ({"maximumInstances": 3}, "maximumInstances is 3, expected at least 6"),
        ({"planId": PLAN}, "planId needs plan = 'premium'"),
        ({"plan": "premium", "zoneRedundant": True}, "zoneRedundant needs premiumInstances of 2"),
        ({"existingNetwork": NETWORK}, "existingNetwork needs privateNetworking"),
        ({"namespaces": {"west": {"pairedRegion": REGION}}}, "Service Bus has pairs in the Premium tier only"),
    ],
)
def test_parameters_that_do_not_fit_are_refused(parameters: Json, text: str, template: Path, tmp_path: Path) -> None:
    given = {"tasks": deployment_of(*loaded(EXAMPLES["plain-copy"])), **parameters}
    (tmp_path / "given.json").write_text(json.dumps(given))
    lines = [f"using '{os.path.relpath(template, tmp_path)}'"]
    lines += [f"param {name} = loadJsonContent('given.json').{name}" for name in given]
    (tmp_path / "refused.bicepparam").write_text("\n".join(lines))
    with pytest.raises(AssertionError, match=re.escape(text)):
        snapshot(tmp_path / "refused.bicepparam")
