"""
The register in a zone of Azure DNS, with its SDK (azure-mgmt-dns, which only this register needs).

A record set is replaced only if its ETag is unchanged. Its metadata has the time of the last change, which the portal
shows. Source: Microsoft Learn, Azure DNS REST API, record sets.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from azure.core.exceptions import AzureError, HttpResponseError, ResourceNotFoundError

from cli.failover.register import DnsRegister, FailoverRefused, RegisterState
from shared.clock import Clock
from shared.tasks.failover import SEND

if TYPE_CHECKING:
    from azure.mgmt.dns import DnsManagementClient
    from azure.mgmt.dns.models import RecordSet

_CHANGED = "busway-changed"


class AzureDns(DnsRegister[Mapping[str, "RecordSet"], str]):
    """The register in a zone of Azure DNS, which publishes a change itself."""

    version_name = "ETag"

    def __init__(
        self,
        client: "DnsManagementClient",
        *,
        resource_group: str,
        zone: str,
        aliases: Mapping[str, str],
        names: Mapping[str, str],
        prefix: str,
        clock: Clock,
    ) -> None:
        """Use *zone*: an alias for each role, and for each site the name that it points to, all fully qualified."""
        self._client = client
        self._resource_group = resource_group
        self._zone = _plain(zone)
        self.where = f"Azure DNS zone {self._zone}"
        self._aliases = {role: _plain(alias) for role, alias in aliases.items()}
        self._names = {site: _plain(name) for site, name in names.items()}
        self._prefix = prefix
        self._clock = clock

    def _point(self, content: Mapping[str, "RecordSet"], roles: Mapping[str, str]) -> None:
        from azure.mgmt.dns.models import CnameRecord, RecordSet

        done = ""
        for alias, site in {self._aliases[role]: site for role, site in roles.items()}.items():
            before = content[alias]
            changed = self._clock.now().isoformat(timespec="seconds")
            parameters = RecordSet(
                ttl=before.ttl,
                metadata={**(before.metadata or {}), _CHANGED: changed},
                cname_record=CnameRecord(cname=self._names[site]),
            )
            place = (self._resource_group, self._zone, self._relative(alias), "CNAME")
            try:
                self._client.record_sets.create_or_update(*place, parameters, if_match=before.etag)
            except AzureError as error:
                raise FailoverRefused(f"{self.where}: {alias} was not changed, {_describe(error)}{done}") from error
            done += f"; {alias} was changed"

    def _content(self) -> dict[str, "RecordSet"]:
        found: dict[str, RecordSet] = {}
        for alias in self._aliases.values():
            try:
                get = self._client.record_sets.get
                found[alias] = get(self._resource_group, self._zone, self._relative(alias), "CNAME")
            except AzureError as error:
                raise FailoverRefused(f"{self.where}: {alias} CNAME cannot be read, {_describe(error)}") from error
        return found

    def _state(self, content: Mapping[str, "RecordSet"]) -> RegisterState:
        active = {}
        for role, alias in self._aliases.items():
            record = content[alias].cname_record
            target = _plain("" if record is None else record.cname or "")
            active[role] = self._site_of(alias, target)
        # A failback waits for publishers, so the time of their record counts.
        written = (content[self._aliases[SEND]].metadata or {}).get(_CHANGED)
        version = " ".join(str(each.etag) for each in content.values())
        changed = datetime.fromisoformat(written) if written else None
        return RegisterState(active, max(each.ttl or 0 for each in content.values()), version, changed)

    def _check(self, content: Mapping[str, "RecordSet"], site: str) -> None:  # noqa: ARG002 - the others are asked for
        name = f"{self._prefix}.{self._names[site]}"
        if not name.endswith(f".{self._zone}"):
            return
        try:
            self._client.record_sets.get(self._resource_group, self._zone, self._relative(name), "SRV")
        except ResourceNotFoundError as error:
            text = f"SRV record {name} is missing, expected the endpoints of {site}"
            raise FailoverRefused(f"{self.where}: {text}") from error
        except AzureError as error:
            raise FailoverRefused(f"{self.where}: {name} SRV cannot be read, {_describe(error)}") from error

    def _relative(self, name: str) -> str:
        relative = name.removesuffix(f".{self._zone}")
        if relative == name:
            raise FailoverRefused(f"{self.where}: {name} is not a name of this zone")
        return relative


def _plain(name: str) -> str:
    return name.rstrip(".").lower()


def _describe(error: AzureError) -> str:
    status = error.status_code if isinstance(error, HttpResponseError) else None
    return f"{type(error).__name__}" + (f" ({status})" if status else "")
