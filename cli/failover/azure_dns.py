"""
The aliases in a zone of Azure DNS, through its SDK (azure-mgmt-dns, which only this register needs).

A record set is replaced only if its ETag is the one that was read. When it was last changed stands in its metadata,
where the portal shows it. Source: Microsoft Learn, Azure DNS REST API, record sets.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from azure.core.exceptions import AzureError, HttpResponseError, ResourceNotFoundError

from cli.failover.register import FailoverRefused, Standing, together
from shared.clock import Clock
from shared.config.failover import SEND

if TYPE_CHECKING:
    from azure.mgmt.dns import DnsManagementClient
    from azure.mgmt.dns.models import RecordSet

_CHANGED = "busway-changed"


class AzureDns:
    """The register in a zone of Azure DNS."""

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
        self._aliases = {role: _plain(alias) for role, alias in aliases.items()}
        self._names = {site: _plain(name) for site, name in names.items()}
        self._prefix = prefix
        self._clock = clock

    @property
    def where(self) -> str:
        """The zone."""
        return f"Azure DNS zone {self._zone}"

    @property
    def loading(self) -> str | None:
        """Nothing: it is the name server."""
        return None

    def read(self) -> Standing:
        """Return what the zone says; raises FailoverRefused for what cannot be understood, or reached."""
        return self._standing(self._record_sets())

    def changes(self, roles: Mapping[str, str], standing: Standing) -> Sequence[str]:
        """Return the records before and after; raises FailoverRefused for what cannot be."""
        together(self._aliases, standing.active, roles)
        for site in set(roles.values()):
            self._check(site)
        lines = {
            self._aliases[role]: f"{self._aliases[role]} CNAME {self._names[standing.active[role]]} -> "
            f"{self._names[site]}"
            for role, site in roles.items()
            if standing.active[role] != site
        }
        return list(lines.values())

    def write(self, roles: Mapping[str, str], standing: Standing) -> Standing:
        """Point *roles* to their sites, if the records are as they were; raises FailoverRefused."""
        found = self._record_sets()
        if self._standing(found).version != standing.version:
            raise FailoverRefused(f"{self.where}: somebody has changed it meanwhile, expected ETag {standing.version}")
        if not self.changes(roles, standing):
            return standing
        done: list[str] = []
        for alias, site in {self._aliases[role]: site for role, site in roles.items()}.items():
            self._point(alias, site, found[alias], done)
            done.append(alias)
        return self.read()

    def _point(self, alias: str, site: str, record_set: "RecordSet", changed_before: Sequence[str]) -> None:
        from azure.mgmt.dns.models import CnameRecord, RecordSet

        changed = self._clock.now().isoformat(timespec="seconds")
        parameters = RecordSet(
            ttl=record_set.ttl,
            metadata={**(record_set.metadata or {}), _CHANGED: changed},
            cname_record=CnameRecord(cname=self._names[site]),
        )
        try:
            self._client.record_sets.create_or_update(
                self._resource_group, self._zone, self._relative(alias), "CNAME", parameters, if_match=record_set.etag
            )
        except AzureError as error:
            before = "".join(f"; {each} was, before" for each in changed_before)
            raise FailoverRefused(f"{self.where}: {alias} was not changed, {_told(error)}{before}") from error

    def _record_sets(self) -> dict[str, "RecordSet"]:
        return {alias: self._record_set(alias) for alias in self._aliases.values()}

    def _record_set(self, alias: str) -> "RecordSet":
        try:
            return self._client.record_sets.get(self._resource_group, self._zone, self._relative(alias), "CNAME")
        except AzureError as error:
            raise FailoverRefused(f"{self.where}: {alias} CNAME cannot be read, {_told(error)}") from error

    def _standing(self, found: Mapping[str, "RecordSet"]) -> Standing:
        active = {}
        for role, alias in self._aliases.items():
            record = found[alias].cname_record
            target = _plain("" if record is None else record.cname or "")
            sites = [site for site, name in self._names.items() if name == target]
            if not sites:
                named = ", ".join(self._names.values())
                raise FailoverRefused(f"{self.where}: {alias} points to {target}, expected one of {named}")
            active[role] = sites[0]
        # Whoever goes back waits for publishers: when their record was changed is what has to be known.
        told = (found[self._aliases[SEND]].metadata or {}).get(_CHANGED)
        version = " ".join(str(each.etag) for each in found.values())
        changed = datetime.fromisoformat(told) if told else None
        return Standing(active, max(each.ttl or 0 for each in found.values()), version, changed)

    def _check(self, site: str) -> None:
        """Refuse to point to a name of this zone that has no SRV records: nobody could use it."""
        name = f"{self._prefix}.{self._names[site]}"
        if not name.endswith(f".{self._zone}"):
            return
        try:
            self._client.record_sets.get(self._resource_group, self._zone, self._relative(name), "SRV")
        except ResourceNotFoundError as error:
            told = f"there is no SRV record {name}, expected the endpoints of {site}"
            raise FailoverRefused(f"{self.where}: {told}") from error
        except AzureError as error:
            raise FailoverRefused(f"{self.where}: {name} SRV cannot be read, {_told(error)}") from error

    def _relative(self, name: str) -> str:
        relative = name.removesuffix(f".{self._zone}")
        if relative == name:
            raise FailoverRefused(f"{self.where}: {name} is no name in it")
        return relative


def _plain(name: str) -> str:
    return name.rstrip(".").lower()


def _told(error: AzureError) -> str:
    status = error.status_code if isinstance(error, HttpResponseError) else None
    return f"{type(error).__name__}" + (f" ({status})" if status else "")
