"""infra/main.bicep: the compiler predicts what the plan computes, and what the local broker has after apply."""

import json
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from busway_broker.admin.thread import RunningAdmin
from busway_broker.config import NamespaceConfig
from busway_broker.thread import RunningBroker
from cli.main import app
from cli.topology.bicep import PROPERTIES, entities_of
from cli.topology.deployment import storage_settings
from cli.topology.live import read_service_bus
from cli.topology.model import Kind
from shared.assembly.journals import Journals
from shared.assembly.losses import loss_watches
from shared.assembly.pipelines import pipelines
from shared.assembly.status import store_problem
from shared.durations import parse_duration
from shared.ends.service_bus.administration import administration_client
from shared.nightly.settings import nightly_settings
from shared.tasks.files import Configuration
from shared.tasks.models import Connection
from tests import kusto
from tests.bicep import ROOT, needs_compiler, scope_of
from tests.unit.infra.deployments import (
    FOLDERS,
    Json,
    Prediction,
    loaded,
    other_tasks,
    predict,
    setting_of,
    settings_of,
    variants,
)

RECEIVER, SENDER = "4f6d3b9b-027b-4f4c-9142-0e5a2a2247e0", "69a216fc-b8fb-44d8-bc22-1f3c2cd27a39"
HUB_RECEIVER, HUB_SENDER = "a638d3c7-ab3a-418d-83e6-5f17a39d4fde", "2b629674-e913-4c01-ae53-ef4638d8f975"
BLOB_OWNER, BLOB_CONTRIBUTOR = "b7e6dc6d-f1e8-4753-8033-0f276bb0955b", "ba92f5b4-2d11-453d-a403-e96b0029c9fe"
KINDS = {
    "Microsoft.ServiceBus/namespaces/queues": Kind.QUEUE,
    "Microsoft.ServiceBus/namespaces/topics": Kind.TOPIC,
    "Microsoft.ServiceBus/namespaces/topics/subscriptions": Kind.SUBSCRIPTION,
    "Microsoft.EventHub/namespaces/eventhubs": Kind.HUB,
    "Microsoft.EventHub/namespaces/eventhubs/consumergroups": Kind.CONSUMER_GROUP,
}
ALERT_RULE = "Microsoft.Insights/scheduledQueryRules"
RULES = "Microsoft.ServiceBus/namespaces/topics/subscriptions/rules"

pytestmark = [
    pytest.mark.long,
    needs_compiler,
    # azure-servicebus tests the truth value of XML elements.
    pytest.mark.filterwarnings("ignore:Testing an element's truth value:DeprecationWarning"),
]


@pytest.fixture(scope="module")
def predicted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Prediction]:
    others = other_tasks(tmp_path_factory.mktemp("config"))
    return predict(tmp_path_factory.mktemp("infra"), variants(others))


def entities_and_rules(prediction: Prediction) -> tuple[dict[tuple[Kind, str], Json], dict[str, Json]]:
    entities = {
        (KINDS[resource["type"]], resource["name"]): resource.get("properties", {})
        for resource in prediction.resources
        if resource["type"] in KINDS
    }
    return entities, {each["name"].rpartition("/")[0]: each["properties"] for each in prediction.of(RULES)}


def test_the_entities_and_rules_of_every_example_are_those_of_the_plan(predicted: Mapping[str, Prediction]) -> None:
    expected: dict[tuple[Kind, str], Json] = {}
    rules: dict[str, tuple[str, str | None]] = {}
    for folder, place in FOLDERS.items():
        _, needs = loaded(place)
        for key, needed in needs.namespaces.items():
            namespace = f"{folder}-{needs.aliases[key]}"
            described = entities_of(needed.values())
            named = {name: each for kind in ("queues", "topics", "hubs") for name, each in _named(described[kind])}
            named |= {f"{each['topic']}/{each['name']}": each["properties"] for each in described["subscriptions"]}
            named |= {f"{each['hub']}/{each['name']}": {} for each in described["consumerGroups"]}
            expected |= {
                (need.name.kind, f"{namespace}/{'/'.join(need.name.parts)}"): named["/".join(need.name.parts)]
                for need in needed.values()
            }
            rules |= {
                f"{namespace}/{'/'.join(need.name.parts)}": (str(need.rule.filter), need.rule.action)
                for need in needed.values()
                if need.rule is not None
            }
    entities, found = entities_and_rules(predicted["public"])
    assert entities == expected
    assert len(entities) > 100
    assert {
        name: (each["sqlFilter"]["sqlExpression"], each.get("action", {}).get("sqlExpression"))
        for name, each in found.items()
    } == rules


def _named(described: list[Json]) -> Iterator[tuple[str, Json]]:
    return ((each["name"], each["properties"]) for each in described)


def test_the_local_broker_has_the_same_after_apply(predicted: Mapping[str, Prediction]) -> None:
    entities, rules = entities_and_rules(predicted["public"])
    sites = {name.partition("/")[0]: name for _, name in entities}
    with RunningBroker([NamespaceConfig(name=site) for site in sites]) as broker, RunningAdmin(broker) as admin:
        found: dict[tuple[Kind, str], Json] = {}
        found_rules = {}
        for folder, place in FOLDERS.items():
            connections = {
                alias: connection
                for alias, connection in loaded(place)[0].connections.items()
                if connection.kind == "service-bus"
            }
            if not connections:
                continue
            settings = {}
            for alias, connection in connections.items():
                settings[str(connection.setting)] = broker.connection_string(f"{folder}-{alias}")
                settings[f"{connection.setting}__administration"] = admin.address(f"{folder}-{alias}")
            done = CliRunner(env=settings).invoke(app, ["apply", *connections, "--yes", "--config", str(place)])
            # 4: topics of applications have no subscription in some examples, which a person must decide.
            assert done.exit_code in {0, 4}, done.output
            for alias, connection in connections.items():
                site = f"{folder}-{alias}"
                with administration_client(str(connection.setting), settings) as client:
                    for entity in read_service_bus(client).entities.values():
                        name = f"{site}/{'/'.join(entity.name.parts)}"
                        wanted = entities.get((entity.name.kind, name), {})
                        found[entity.name.kind, name] = {
                            arm: _arm(entity.settings[setting], wanted[arm])
                            for setting, arm in PROPERTIES.items()
                            if arm in wanted
                        }
                        if entity.name.kind is Kind.SUBSCRIPTION:
                            found_rules[name] = [(rule.name, str(rule.filter), rule.action) for rule in entity.rules]
    assert found == {key: entity for key, entity in entities.items() if key[0] not in {Kind.HUB, Kind.CONSUMER_GROUP}}
    assert found_rules == {
        name: [
            ("busway", rules[name]["sqlFilter"]["sqlExpression"], rules[name].get("action", {}).get("sqlExpression"))
        ]
        if name in rules
        else [("$Default", "1=1", None)]
        for kind, name in entities
        if kind is Kind.SUBSCRIPTION
    }


def _arm(value: object, wanted: object) -> object:
    return wanted if isinstance(value, timedelta) and parse_duration(str(wanted)) == value else value


def _planned(configuration: Configuration) -> dict[str, Connection]:
    """Return the connections whose entities Busway deploys."""
    return {alias: connection for alias, connection in configuration.connections.items() if connection.is_namespace}


def test_the_app_receives_from_its_sources_and_sends_to_its_targets_and_may_do_nothing_else(
    predicted: Mapping[str, Prediction],
) -> None:
    service_bus, event_hubs = set(), set()
    for folder, place in FOLDERS.items():
        configuration, needs = loaded(place)
        sites = {
            alias: f"{folder}-{needs.aliases[connection.key]}" for alias, connection in _planned(configuration).items()
        }
        for task in configuration.tasks:
            source, site = task.source, sites.get(task.source.connection)
            if site is None:
                pass
            elif source.hub:
                event_hubs.add((f"{site}/eventhubs/{source.hub}", HUB_RECEIVER))
            elif source.topic:
                service_bus.add((f"{site}/topics/{source.topic}/subscriptions/{source.subscription}", RECEIVER))
            else:
                service_bus.add((f"{site}/queues/{source.queue}", RECEIVER))
            for target in task.targets():
                if target.connection not in sites:
                    continue
                if target.hub:
                    event_hubs.add((f"{sites[target.connection]}/eventhubs/{target.hub}", HUB_SENDER))
                else:
                    service_bus.add((f"{sites[target.connection]}/{target.kind}s/{target.entity}", SENDER))
    found = predicted["public"]
    assert _in_namespaces(found, "Microsoft.ServiceBus") == service_bus
    assert _in_namespaces(found, "Microsoft.EventHub") == event_hubs
    assert len(service_bus) > 50


def _in_namespaces(prediction: Prediction, provider: str) -> set[tuple[str, str]]:
    return {(place.partition("/namespaces/")[2], role) for place, role in prediction.roles(provider)}


class Recorded(dict[str, str]):
    """App settings that record what was asked for and is not set."""

    missing: set[str]

    def get(self, key: str, default: Any = None) -> Any:
        if key not in self:
            self.missing.add(key)
        return super().get(key, default)


# Set by Azure, or by those who want another value than the default.
SET_BY_OTHERS = re.compile(r"WEBSITE_|REGION_NAME|BUSWAY_(LOSS_WATCH|TELEMETRY|NIGHTLY_(SCHEDULE|DUE))$")


OTHERS = {
    "kafka": "kafkas://u:p@broker.example",
    "amqp": "amqps://broker.example",
    "event-grid": "Endpoint=https://orders.example/api/events;SharedAccessKey=azE=",
    "storage-queue": "DefaultEndpointsProtocol=https;AccountName=store;AccountKey=azE=;EndpointSuffix=core.windows.net",
}


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_app_setting_that_the_app_reads_is_set(folder: str, predicted: Mapping[str, Prediction]) -> None:
    configuration, _ = loaded(FOLDERS[folder])
    found = settings_of(predicted["public"])
    settings = Recorded(
        {name: value for name, value in found.items() if not name.endswith("__fullyQualifiedNamespace")}
    )
    settings.missing = set()
    # Its value is known only at the deployment.
    assert settings.pop("APPLICATIONINSIGHTS_CONNECTION_STRING").startswith("[reference(")
    assert settings.pop("BUSWAY_TELEMETRY") == "azure-monitor"
    for connection in configuration.connections.values():
        if not connection.is_namespace:  # the parameter appSettings has it
            settings[str(connection.setting)] = OTHERS[connection.kind]
            continue
        name = f"{connection.setting}__fullyQualifiedNamespace"
        settings[name] = found[setting_of(folder, name)]
    for task, _pipeline in pipelines(configuration, settings, journals=Journals(configuration, settings)):
        assert task
    assert store_problem(configuration, settings) is None
    assert loss_watches(configuration, settings).watches
    assert nightly_settings(settings) is not None
    known = {connection.setting for connection in configuration.connections.values()} | storage_settings(configuration)
    assert {each for each in settings.missing if not SET_BY_OTHERS.match(each)} <= known


def test_a_second_job_reconciles_each_hour_once_there_is_an_image(predicted: Mapping[str, Prediction]) -> None:
    nightly, hourly = sorted(predicted["public"].of("Microsoft.App/jobs"), key=lambda each: len(each["name"]))
    assert hourly["name"] == f"{nightly['name']}-hourly"
    assert len(hourly["name"]) <= 32
    assert hourly["properties"]["configuration"]["triggerType"] == "Schedule"
    assert hourly["properties"]["configuration"]["scheduleTriggerConfig"]["cronExpression"] == "12 * * * *"
    assert nightly["properties"]["configuration"]["triggerType"] == "Manual"
    (of_night,), (of_hour,) = (each["properties"]["template"]["containers"] for each in (nightly, hourly))
    assert of_hour == {**of_night, "args": [*of_night["args"], "--hourly"]}
    assert len(list(predicted["unmeasured"].of("Microsoft.App/jobs"))) == 1


def test_nothing_secret_is_an_output() -> None:
    for path in (ROOT / "infra").rglob("*.bicep"):
        for output in re.findall(r"^output .*?(?=^\S|\Z)", path.read_text(), re.MULTILINE | re.DOTALL):
            assert not re.search(
                r"(?i)list\w*\(|connectionstring|\bkeys?\b|secret", re.sub("keyVault|each.key", "", output)
            ), path.name


def test_a_private_deployment_has_no_public_address_and_an_endpoint_for_each_service(
    predicted: Mapping[str, Prediction],
) -> None:
    found = predicted["private"]
    public = {
        resource["name"]: resource["properties"]["publicNetworkAccess"]
        for resource in found.resources
        if "publicNetworkAccess" in resource.get("properties", {})
    }
    journal = next(name for name in public if name.startswith("journal"))
    # Capture writes as a trusted service, through the address that is closed to everybody else.
    assert public.pop(journal) == "Enabled"
    (account,) = (each for each in found.of("Microsoft.Storage/storageAccounts") if each["name"] == journal)
    assert account["properties"]["networkAcls"] == {"bypass": "AzureServices", "defaultAction": "Deny"}
    assert set(public.values()) == {"Disabled"}
    assert len(public) == 5  # two namespaces, the storage of the app, the vault, the app

    endpoints = {
        connection["properties"]["privateLinkServiceId"].rpartition("/")[2]: connection["properties"]["groupIds"]
        for each in found.of("Microsoft.Network/privateEndpoints")
        for connection in each["properties"]["privateLinkServiceConnections"]
    }
    assert endpoints == {
        **{name: ["namespace"] for name in ("sb-west", "sb-shared", "eh-readings")},
        **{name: ["blob"] for name in public if name.startswith("busway") and len(name) == 19},
        journal: ["blob"],
        next(each["name"] for each in found.of("Microsoft.KeyVault/vaults")): ["vault"],
        next(each["name"] for each in found.of("Microsoft.Web/sites")): ["sites"],
    }
    zones = {each["name"] for each in found.of("Microsoft.Network/privateDnsZones")}
    assert {"privatelink.servicebus.windows.net", "privatelink.vaultcore.azure.net"} < zones
    (network,) = found.of("Microsoft.Network/virtualNetworks")
    subnets = {each["name"]: each["properties"] for each in network["properties"]["subnets"]}
    assert {name: subnet["addressPrefix"] for name, subnet in subnets.items()} == {
        "app": "10.90.0.0/24", "endpoints": "10.90.1.0/24", "nightly": "10.90.2.0/24",
    }  # fmt: skip
    site = found.one("Microsoft.Web/sites")
    assert site["virtualNetworkSubnetId"].endswith("/subnets/app")
    assert subnets["app"]["delegations"][0]["properties"]["serviceName"] == "Microsoft.App/environments"


def test_flex_consumption_has_the_instances_that_the_parameters_name(predicted: Mapping[str, Prediction]) -> None:
    config = predicted["private"].one("Microsoft.Web/sites")["functionAppConfig"]
    assert config["runtime"] == {"name": "python", "version": "3.13"}
    assert config["scaleAndConcurrency"] == {
        "instanceMemoryMB": 4096,
        "maximumInstanceCount": 100,
        "alwaysReady": [{"name": "function:orders", "instanceCount": 2}],
    }
    # FN01: the preview is chosen, never the default.
    assert config["siteUpdateStrategy"] == {"type": "RollingUpdate"}
    default = predicted["public"].one("Microsoft.Web/sites")["functionAppConfig"]
    assert default["siteUpdateStrategy"] == {"type": "Recreate"}
    (plan,) = predicted["private"].of("Microsoft.Web/serverfarms")
    assert plan["sku"]["name"] == "FC1"


def test_a_journal_in_a_hub_is_captured(predicted: Mapping[str, Prediction]) -> None:
    found = predicted["private"]
    hubs = {each["name"]: each["properties"] for each in found.of("Microsoft.EventHub/namespaces/eventhubs")}
    assert {name for name, hub in hubs.items() if "captureDescription" in hub} == {"eh-readings/journal"}
    capture = hubs["eh-readings/journal"]["captureDescription"]
    assert capture["destination"]["properties"]["blobContainer"] == "journal-capture"
    account = capture["destination"]["properties"]["storageAccountResourceId"]
    containers = {each["name"] for each in found.of("Microsoft.Storage/storageAccounts/blobServices/containers")}
    assert f"{account.rpartition('/')[2]}/default/journal-capture" in containers
    assert any(place.endswith("/containers/journal-capture") for place, _ in found.roles("Microsoft.Storage"))
    assert ("eh-readings/eventhubs/journal", HUB_SENDER) in _in_namespaces(found, "Microsoft.EventHub")
    # The reconciliation of a captured journal runs elsewhere (docs/journal.md).
    assert list(found.of("Microsoft.App/jobs")) == []


def test_places_secrets_and_stores_of_others_are_respected(predicted: Mapping[str, Prediction]) -> None:
    found = predicted["private"]
    namespaces = {each["name"]: each for each in found.of("Microsoft.ServiceBus/namespaces")}
    # `shared` exists, `partner` and `tenant` belong to others, and no task names `spare`.
    assert set(namespaces) == {"sb-west"}
    assert namespaces["sb-west"]["location"] == "westus"
    assert namespaces["sb-west"]["sku"] == {"name": "Premium", "tier": "Premium", "capacity": 2}
    entities, _ = entities_and_rules(found)
    assert (Kind.QUEUE, "sb-west/emea~orders") in entities
    shared = [resource for resource in found.resources if resource["name"] == "sb-shared/orders"]
    assert [each["id"].split("/")[4] for each in shared] == ["private-other"]
    settings = settings_of(found)
    assert settings["PARTNER__fullyQualifiedNamespace"] == "partner.servicebus.example"
    assert settings["SHARED__fullyQualifiedNamespace"] == "sb-shared.servicebus.windows.net"
    assert settings["CHAINS__blobServiceUri"].startswith("https://busway")
    assert settings["CAPTURED__blobServiceUri"].startswith("https://journal")
    assert settings["BUSWAY_KEY_VAULT"]
    assert not any(name.startswith("TENANT") for name in settings)
    owner = {place for place, role in found.roles() if role == "090c5cfd-751d-490a-894a-3ce6f1109419"}
    assert owner == {"Microsoft.ServiceBus/namespaces/sb-west", "Microsoft.ServiceBus/namespaces/sb-shared"}
    assert len(list(found.of("Microsoft.Authorization/roleDefinitions"))) == 1


def test_a_premium_plan_and_what_is_switched_off(predicted: Mapping[str, Prediction]) -> None:
    found = predicted["premium"]
    (plan,) = found.of("Microsoft.Web/serverfarms")
    assert plan["sku"] == {"name": "EP1", "tier": "ElasticPremium", "capacity": 2}
    site = found.one("Microsoft.Web/sites")
    assert "functionAppConfig" not in site
    assert site["siteConfig"]["linuxFxVersion"] == "Python|3.13"
    assert site["siteConfig"]["functionsRuntimeScaleMonitoringEnabled"] is True
    settings = settings_of(found)
    assert settings["FUNCTIONS_WORKER_RUNTIME"] == "python"
    assert settings["BUSWAY_JOURNAL"] == "off"
    assert settings["BUSWAY_NIGHTLY_JOB"] == settings["BUSWAY_RECONCILIATION"] == ""
    assert settings["WEST"].startswith("@Microsoft.KeyVault")
    assert "WEST__fullyQualifiedNamespace" not in settings
    kinds = {resource["type"] for resource in found.resources}
    switched_off = {
        "Microsoft.App/jobs", "Microsoft.Insights/scheduledQueryRules", "Microsoft.KeyVault/vaults",
        "Microsoft.ServiceBus/namespaces/queues", "Microsoft.EventHub/namespaces/eventhubs",
    }  # fmt: skip
    assert kinds & switched_off == set()
    assert not any(each["name"].startswith("journal") for each in found.of("Microsoft.Storage/storageAccounts"))
    assert _in_namespaces(found, "Microsoft.EventHub") == {("eh-readings", HUB_RECEIVER), ("eh-readings", HUB_SENDER)}
    assert _in_namespaces(found, "Microsoft.ServiceBus") == {("sb-shared", SENDER)}
    assert ("Microsoft.KeyVault/vaults/mine", "4633458b-17de-408a-b874-0445c86b69e6") in found.roles()


def test_what_is_on_without_a_parameter(predicted: Mapping[str, Prediction]) -> None:
    found = predicted["public"]
    kinds = {resource["type"] for resource in found.resources}
    expected = {
        "Microsoft.App/jobs", "Microsoft.ContainerRegistry/registries", "Microsoft.Insights/workbooks",
        "Microsoft.Insights/scheduledQueryRules",
    }  # fmt: skip
    assert expected <= kinds
    settings = settings_of(found)
    assert settings["BUSWAY_JOURNAL"] == "on"
    assert settings["BUSWAY_NIGHTLY_JOB"].endswith(next(iter(found.of("Microsoft.App/jobs")))["name"])
    assert settings["BUSWAY_TELEMETRY"] == "azure-monitor"
    (site,) = found.of("Microsoft.Web/sites")
    assert site["tags"]["azd-service-name"] == "app"
    accounts = {each["sku"]["name"] for each in found.of("Microsoft.Storage/storageAccounts")}
    assert accounts == {"Standard_ZRS"}
    journal = {place for place, role in found.roles("Microsoft.Storage") if role == BLOB_CONTRIBUTOR}
    assert {place.rpartition("/")[2] for place in journal} == {"journal", "journal-status", "reconciliation"}
    assert all(each["properties"].get("disableLocalAuth") for each in found.of("Microsoft.ServiceBus/namespaces"))
    assert any(role == BLOB_OWNER and scope_of for _, role in found.roles("Microsoft.Storage"))


def test_the_alerts_and_the_workbook_are_deployed_unless_switched_off(predicted: Mapping[str, Prediction]) -> None:
    alerts = {each["name"]: each for each in yaml.safe_load((ROOT / "infra/modules/alerts.yaml").read_text())}
    of_metrics = {name for name, alert in alerts.items() if alert["needs"] == "metrics"}
    rules = {name: _rules(prediction) for name, prediction in predicted.items()}
    assert set(rules["public"]) == {*alerts, "workbook"}
    assert set(rules["private"]) == of_metrics
    assert set(rules["premium"]) == {"workbook"}
    # Without an image there is no job of the hours.
    assert set(rules["unmeasured"]) == set(alerts) - of_metrics - {"timer-silent"}
    lag, night, status = (rules["public"][name] for name in ("lag", "night-needs-somebody", "no-status"))
    (criterion,) = lag["criteria"]["allOf"]
    assert criterion["threshold"] == 60
    assert (criterion["operator"], criterion["metricMeasureColumn"]) == ("GreaterThan", "Value")
    # FN11: a new workspace has no tables, and the query must have no rows then.
    assert all(each["skipQueryValidation"] for name, each in rules["public"].items() if name != "workbook")
    assert criterion["query"].startswith("union isfuzzy=true AppMetrics, (datatable(")
    assert criterion["query"].splitlines()[1:] == alerts["lag"]["query"].splitlines()[1:]
    assert night["criteria"]["allOf"][0]["query"].count("(datatable(") == 2
    of_status = status["criteria"]["allOf"][0]["query"]
    assert kusto.run(of_status, {}) == []
    assert len(kusto.run(of_status, {"AppMetrics": [{"Name": "busway.task.state"}]})) == 1
    assert criterion["dimensions"] == [{"name": "Task", "operator": "Include", "values": ["*"]}]
    assert lag["actions"]["customProperties"] == {"runbook": "docs/runbook.md#alert-lag"}
    assert (lag["autoMitigate"], night["autoMitigate"], night["muteActionsDuration"]) == (True, False, "PT30M")
    (criterion,) = status["criteria"]["allOf"]
    assert (criterion["timeAggregation"], criterion["operator"], criterion["threshold"]) == ("Count", "LessThan", 1)
    workbook = json.loads((ROOT / "infra/modules/workbook.json").read_text())
    assert json.loads(rules["public"]["workbook"]["serializedData"]) == workbook


def _rules(prediction: Prediction) -> dict[str, Json]:
    app = next(prediction.of("Microsoft.Web/sites"))["name"]
    found = {each["name"].removeprefix(f"{app}-"): each["properties"] for each in prediction.of(ALERT_RULE)}
    for each in prediction.of("Microsoft.Insights/workbooks"):
        found["workbook"] = each["properties"]
    return found
