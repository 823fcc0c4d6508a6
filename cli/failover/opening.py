"""From `failover.yaml` to the register and the sites that it names."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from azure.servicebus.aio import ServiceBusClient

from cli.failover.azure_dns import AzureDns
from cli.failover.endpoint_file import EndpointFile
from cli.failover.register import Register
from cli.failover.zone_file import ZoneFile
from cli.places import Place
from shared.clock import Clock
from shared.config.failover import FAILOVER, RECEIVE, SEND, FailoverFile
from shared.config.files import Configuration, load, read_one
from shared.errors import ConfigError, Problem

ROLES = (SEND, RECEIVE)


@dataclass(frozen=True)
class Failover:
    """What the commands work on."""

    file: FailoverFile
    register: Register
    configuration: Configuration

    def path_name(self, site: str) -> str:
        """Return the name by which *site* stands on repl-path."""
        return self.configuration.site(self.file.sites[site].connection)

    def client(self, site: str) -> ServiceBusClient:
        """Return a client of *site*, with the connection string in its app setting; raises ConfigError."""
        place = Place(self.configuration.connections[self.file.sites[site].connection], "")
        return ServiceBusClient.from_connection_string(place.connection_string, retry_total=1)

    def site(self, name: str) -> str:
        """Return *name* if it is a site; raises ConfigError."""
        if name not in self.file.sites:
            raise ConfigError([Problem(name, "is no site", f"{FAILOVER} has {', '.join(self.file.sites)}")])
        return name


def open_failover(folder: Path, clock: Clock) -> Failover:
    """Read *folder* and open its register; raises ConfigError."""
    configuration = load(folder)
    file = read_one(folder / FAILOVER, FailoverFile)
    problems = [
        Problem(f"{folder / FAILOVER}: sites.{site}", f"no connection to Service Bus is called {each.connection!r}")
        for site, each in file.sites.items()
        if each.connection not in configuration.connections
        or configuration.connections[each.connection].kind != "service-bus"
    ]
    if problems:
        raise ConfigError(problems)
    return Failover(file, _register(file, folder, clock), configuration)


def _register(file: FailoverFile, folder: Path, clock: Clock) -> Register:
    names = {site: each.name for site, each in file.sites.items() if each.name is not None}
    if file.zone is not None:
        return ZoneFile(folder / file.zone.file, file.zone.origin, file.aliases, names, file.prefix)
    if file.azure_dns is not None:
        return _azure_dns(file, names, clock)
    assert file.endpoints is not None  # noqa: S101 - the model wants one of the three
    key = _private_key(file.endpoints.key_setting)
    path = folder / file.endpoints.file
    return EndpointFile(path, ROLES, clock, private_key=key, key=file.endpoints.key_id or "")


def _azure_dns(file: FailoverFile, names: Mapping[str, str], clock: Clock) -> Register:
    place = file.azure_dns
    assert place is not None  # noqa: S101 - asked for by the caller
    try:
        from azure.mgmt.dns import DnsManagementClient  # noqa: PLC0415 - only this register needs the package
    except ImportError as error:
        hint = "pip install azure-mgmt-dns azure-identity"
        raise ConfigError([Problem(FAILOVER, "azure_dns needs a package that is not installed", hint)]) from error
    from azure.identity import DefaultAzureCredential  # noqa: PLC0415 - likewise

    client = DnsManagementClient(DefaultAzureCredential(), place.subscription)
    return AzureDns(
        client,
        resource_group=place.resource_group,
        zone=place.zone,
        aliases=file.aliases,
        names=names,
        prefix=file.prefix,
        clock=clock,
    )


def _private_key(setting: str | None) -> bytes | None:
    if setting is None:
        return None
    if setting not in os.environ:
        raise ConfigError([Problem(setting, "the app setting is missing", "it holds the private key in PEM")])
    return os.environ[setting].encode()
