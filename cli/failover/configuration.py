"""Opens failover.yaml: the register and the sites that it names."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from busway_clients.endpoints.signature import public_key_of
from cli.failover.azure_dns import AzureDns
from cli.failover.endpoint_file import EndpointFile
from cli.failover.register import FailoverRefused, Register, RegisterState
from cli.failover.zone_file import ZoneFile
from shared.access.identity import credential
from shared.clock import Clock
from shared.errors import ConfigError, Problem
from shared.resend.places import Place
from shared.tasks.failover import FAILOVER, RECEIVE, SEND, FailoverFile
from shared.tasks.files import load_connections, read_one
from shared.tasks.models import Connection

ROLES = (SEND, RECEIVE)


@dataclass(frozen=True)
class Failover:
    """The configuration that the commands use."""

    file: FailoverFile
    register: Register[Any]
    connections: Mapping[str, Connection]

    @property
    def secondaries(self) -> list[str]:
        """All sites except the primary."""
        return [site for site in self.file.sites if site != self.file.primary]

    @property
    def shares_alias(self) -> bool:
        """Whether publishers and consumers look up the same name, so that they can only move together."""
        aliases = [alias.rstrip(".").lower() for alias in self.file.aliases.values()]
        return len(aliases) > len(set(aliases))

    def path_name(self, site: str) -> str:
        """Return the name of *site* on repl-path."""
        alias = self.file.sites[site].connection
        return self.connections[alias].site or alias

    def places(self, site: str, entities: Sequence[str]) -> list[Place]:
        """Return *entities* of *site*."""
        alias = self.file.sites[site].connection
        return [Place(alias, site, self.connections[alias].key, entity) for entity in entities]

    def changes(
        self, site: str, roles: Mapping[str, str], state: RegisterState, *, force: bool = False
    ) -> Sequence[str]:
        """Return what a switch to *site* changes; raises FailoverRefused if it is not allowed."""
        if site == self.file.primary and RECEIVE in roles and state.active[RECEIVE] != site and not force:
            raise FailoverRefused(
                f"{site} is the primary site: run `busway failover failback`, which leaves no messages behind "
                "(or `switch --force`, which does not check)"
            )
        return self.register.changes(roles, state)

    def document(self, state: RegisterState) -> dict[str, object]:
        """Return the *state* of its register as JSON values."""
        return {
            "register": self.register.where,
            "primary": self.file.primary,
            "active": dict(state.active),
            "ttl_seconds": state.ttl_seconds,
            "version": state.version,
            "changed": None if state.changed is None else state.changed.isoformat(timespec="seconds"),
        }

    def site(self, name: str) -> str:
        """Return *name* if it is a site; raises ConfigError."""
        if name not in self.file.sites:
            raise ConfigError([Problem(name, "unknown site", f"{FAILOVER} has {', '.join(self.file.sites)}")])
        return name


def open_failover(folder: Path, clock: Clock, renewed_serial: int | None = None) -> Failover:
    """Read *folder* and open its register; raises ConfigError."""
    # The tasks are not read: a mistake in one of them must not prevent a switch.
    connections = load_connections(folder)
    file = read_one(folder / FAILOVER, FailoverFile)
    problems = [
        Problem(f"{folder / FAILOVER}: sites.{site}", f"no connection to Service Bus is called {each.connection!r}")
        for site, each in file.sites.items()
        if each.connection not in connections or not connections[each.connection].end.has_dead_letters
    ]
    if problems:
        raise ConfigError(problems)
    return Failover(file, _register(file, folder, clock, renewed_serial), connections)


def _register(file: FailoverFile, folder: Path, clock: Clock, renewed_serial: int | None) -> Register[Any]:
    names = {site: each.name for site, each in file.sites.items() if each.name is not None}
    if file.zone is not None:
        return ZoneFile(folder / file.zone.file, file.zone.origin, file.aliases, names, file.prefix)
    if (place := file.azure_dns) is not None:
        try:
            from azure.mgmt.dns import DnsManagementClient
        except ImportError as error:
            hint = "pip install azure-mgmt-dns"
            raise ConfigError([Problem(FAILOVER, "azure_dns needs a package that is not installed", hint)]) from error
        return AzureDns(
            DnsManagementClient(credential(), place.subscription),
            resource_group=place.resource_group,
            zone=place.zone,
            aliases=file.aliases,
            names=names,
            prefix=file.prefix,
            clock=clock,
        )
    assert file.endpoints is not None  # noqa: S101 - the model requires one of the three
    days = file.endpoints.valid_days
    return EndpointFile(
        folder / file.endpoints.file,
        ROLES,
        clock,
        private_key=_private_key(file.endpoints.key_setting),
        key=file.endpoints.key_id or "",
        validity=None if days is None else timedelta(days=days),
        renewed_serial=renewed_serial,
    )


def _private_key(setting: str | None) -> bytes | None:
    if setting is None:
        return None
    if setting not in os.environ:
        raise ConfigError([Problem(setting, "the app setting is missing", "it holds the private key in PEM")])
    key = os.environ[setting].encode()
    try:
        public_key_of(key)
    except (ValueError, TypeError):
        # The error may quote the key.
        problem = Problem(setting, "the app setting has no private key", "expected Ed25519 in PEM, without a password")
        raise ConfigError([problem]) from None
    return key
