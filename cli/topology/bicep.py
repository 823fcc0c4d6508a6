"""
The parameter file of `infra/entities.bicep`: the entities that tasks need, as Resource Manager describes them.

Source:  Microsoft Learn, Resource Manager reference of Microsoft.ServiceBus and Microsoft.EventHub, 2024-01-01.
"""

import os
import re
from collections.abc import Iterable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any

from cli.topology.difference import Step, creation, is_forward
from cli.topology.model import ORDER, SETTINGS, Kind, Setting, pascal, written
from cli.topology.needs import Needed, Needs
from shared.ends.service_bus.administration import host_of
from shared.tasks.files import Configuration

TEMPLATE = "entities.bicep"

PROPERTIES = {name: name[0] + pascal(name)[1:] for name, known in SETTINGS.items() if known.az is not None}
"""The settings that the template sets, each with its name there."""


class _Expression(str):
    """Text that is Bicep already."""

    __slots__ = ()


def parameters_of(configuration: Configuration, needs: Needs, settings: Mapping[str, str] | None = None) -> str:
    """
    Return the parameter file.

    The name of a namespace is that of the host in the connection's app setting; without it, the deployment reads the
    environment variable ALIAS_NAMESPACE.
    """
    settings = os.environ if settings is None else settings
    service_bus: list[dict[str, Any]] = []
    event_hubs: list[dict[str, Any]] = []
    for key, needed in needs.namespaces.items():
        if not needed:
            continue
        alias = needs.aliases[key]
        connection = configuration.connections[alias]
        name, is_azure, _ = host_of(connection.setting or "", settings).partition(".servicebus.")
        variable = re.sub(r"\W", "_", alias).upper() + "_NAMESPACE"
        namespace = name if is_azure else _Expression(f"readEnvironmentVariable('{variable}')")
        described = {"namespace": namespace, **entities_of(needed.values())}
        sites, kinds = (
            (event_hubs, ("hubs", "consumerGroups"))
            if connection.end.has_hubs
            else (service_bus, ("queues", "topics", "subscriptions"))
        )
        sites.append({kind: described[kind] for kind in ("namespace", *kinds)})
    lines = [
        "// Printed by `busway plan --bicep` from the tasks and topology.yaml. Keep it beside infra/entities.bicep.",
        f"using '{TEMPLATE}'",
        "",
        f"param serviceBusSites = {_bicep(service_bus)}",
        "",
        f"param eventHubsSites = {_bicep(event_hubs)}",
    ]
    return "\n".join(lines) + "\n"


def entities_of(needed: Iterable[Needed]) -> dict[str, list[Any]]:
    """Return the entities of a namespace by their kind, as `infra/modules/types.bicep` has them."""
    steps = sorted((creation(need) for need in needed), key=lambda step: (ORDER[step.name.kind], step.name.key))
    steps.sort(key=partial(_hops, queues={step.name.key: step for step in steps}))
    groups = [step.name.parts for step in steps if step.name.kind is Kind.CONSUMER_GROUP]
    return {
        "queues": [_named(step) for step in steps if step.name.kind is Kind.QUEUE],
        "topics": [_named(step) for step in steps if step.name.kind is Kind.TOPIC],
        "subscriptions": [_subscription(step) for step in steps if step.name.kind is Kind.SUBSCRIPTION],
        "hubs": [_named(step) for step in steps if step.name.kind is Kind.HUB],
        "consumerGroups": [{"hub": hub, "name": group} for hub, group in groups],
    }


def _hops(step: Step, queues: Mapping[tuple[Kind, str], Step], seen: frozenset[str] = frozenset()) -> int:
    """Return how often what an entity has is forwarded: in this order, each is created after what it forwards to."""
    names = {str(value).lower() for setting, value in step.settings.items() if is_forward(setting) and value}
    found = [queues[key] for name in names - seen if (key := (Kind.QUEUE, name)) in queues]
    return bool(names) + max((_hops(each, queues, seen | names) for each in found), default=0)


def arm_name(name: str) -> str:
    """Return the name of an entity as Resource Manager has it, where a slash separates resources."""
    return name.replace("/", "~")


def _named(step: Step) -> dict[str, Any]:
    return {"name": arm_name(step.name.parts[-1]), "properties": _properties(step.settings)}


def _subscription(step: Step) -> dict[str, Any]:
    described: dict[str, Any] = {"topic": arm_name(step.name.parts[0]), **_named(step)}
    rule = step.rule
    if rule is not None:
        properties: dict[str, Any] = {"filterType": "SqlFilter", "sqlFilter": {"sqlExpression": str(rule.filter)}}
        if rule.action is not None:
            properties["action"] = {"sqlExpression": rule.action}
        described["rule"] = {"name": rule.name, "properties": properties}
    return described


def _properties(settings: Mapping[str, Setting]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in settings.items():
        if name == "message_retention" and isinstance(value, timedelta):
            hours = round(value.total_seconds() / 3600)
            found["retentionDescription"] = {"cleanupPolicy": "Delete", "retentionTimeInHours": hours}
        elif name in PROPERTIES and value is not None:
            found[PROPERTIES[name]] = written(value)
    return found


def _bicep(value: Any, indent: str = "") -> str:  # noqa: ANN401 - JSON
    inner = indent + "  "
    match value:
        case _Expression():
            return str(value)
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case str():
            escaped = value.replace("\\", "\\\\").replace("'", "\\'").replace("${", "\\${")
            escaped = escaped.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
            return "'" + "".join(each if each.isprintable() else f"\\u{{{ord(each):x}}}" for each in escaped) + "'"
        case list() | dict() if not value:
            return "[]" if isinstance(value, list) else "{}"
        case list():
            return "[\n" + "".join(f"{inner}{_bicep(each, inner)}\n" for each in value) + indent + "]"
        case _:
            lines = "".join(f"{inner}{name}: {_bicep(each, inner)}\n" for name, each in value.items())
            return "{\n" + lines + indent + "}"
