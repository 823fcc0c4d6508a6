"""Outputs and locks by the kind of their connection; each function imports the SDK that it needs."""

from collections.abc import Mapping
from functools import partial

from shared.azure.connections import (
    connection_string_fault,
    event_hub_client,
    event_hub_client_by,
    service_bus_client,
    service_bus_client_by,
)
from shared.errors import TargetRefused
from shared.protocols import Locks, Output, Secrets


def open_output(site: str, kind: str, setting: str, settings: Mapping[str, str]) -> Output:
    """Return an output to the namespace that an app setting names."""
    if kind == "service-bus":
        from shared.azure.senders.service_bus import ServiceBusOutput

        return ServiceBusOutput(site, partial(service_bus_client, setting, settings))
    from shared.azure.senders.event_hubs import EventHubsOutput

    return EventHubsOutput(site, partial(event_hub_client, setting, settings))


def open_output_with_secret(site: str, kind: str, secret: str, secrets: Secrets) -> Output:
    """Return an output that always uses the current version of a secret, which holds a connection string."""
    from shared.azure.senders.renewed import RenewedOutput

    return RenewedOutput(site, secret, secrets, partial(output_with_connection_string, site, kind, secret))


def output_with_connection_string(site: str, kind: str, secret: str, connection_string: str) -> Output:
    """Return an output for the value of *secret*; raises TargetRefused if it is not a valid connection string."""
    fault = connection_string_fault(connection_string)
    if fault is not None:
        raise TargetRefused(f"{site}: secret {secret} {fault[0]}; {fault[1]}")
    if kind == "service-bus":
        from shared.azure.senders.service_bus import ServiceBusOutput

        return ServiceBusOutput(site, partial(service_bus_client_by, connection_string))
    from shared.azure.senders.event_hubs import EventHubsOutput

    return EventHubsOutput(site, partial(event_hub_client_by, connection_string))


def open_locks(site: str, entity: str, setting: str, settings: Mapping[str, str], *, sessions: bool) -> Locks:
    """Return the locks on a queue or subscription of the namespace that an app setting names."""
    from shared.azure.locks import ServiceBusLocks

    return ServiceBusLocks(site, entity, partial(service_bus_client, setting, settings), sessions=sessions)
