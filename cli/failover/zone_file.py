"""The register in a DNS zone file."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path

import dns.exception
import dns.name
import dns.rdatatype
import dns.zone

from cli.failover.atomic_file import lock, read_file, replace_file
from cli.failover.register import DnsRegister, FailoverRefused, RegisterState

# Other directives would be written as the records that they expand to.
_DIRECTIVES = {"$ORIGIN", "$TTL"}


class ZoneFile(DnsRegister[dns.zone.Zone, dns.name.Name]):
    """The register in a zone file; the name server must reload it after a change."""

    def __init__(
        self, path: Path, origin: str, aliases: Mapping[str, str], names: Mapping[str, str], prefix: str
    ) -> None:
        """Use the zone *origin* in *path*: an alias for each role, and for each site the name that it points to."""
        self._path = path
        self.where = str(path)
        self._origin = dns.name.from_text(origin)
        self._aliases = {role: dns.name.from_text(alias) for role, alias in aliases.items()}
        self._names = {site: dns.name.from_text(name) for site, name in names.items()}
        self._prefix = dns.name.from_text(prefix, origin=None)
        # The file does not show whether that has been done.
        zone = self._origin.to_text(omit_final_dot=True)
        self.reload_command = f"let the name server load the zone (rndc reload {zone})"

    def _turn(self) -> AbstractContextManager[None]:
        return lock(self._path)

    def _changes(self, content: dns.zone.Zone, roles: Mapping[str, str], state: RegisterState) -> list[str]:
        lines = super()._changes(content, roles, state)
        serial = f"{self._origin} SOA serial {state.version} -> {_next_serial(int(state.version))}"
        return [*lines, serial] if lines else []

    def _point(self, content: dns.zone.Zone, roles: Mapping[str, str]) -> None:
        serial = _next_serial(int(self._state(content).version))
        with content.writer() as transaction:
            for role, site in roles.items():
                alias = self._aliases[role]
                found = content.find_rdataset(alias, dns.rdatatype.CNAME)
                # With the comment on its line.
                transaction.replace(alias, found.ttl, found[0].replace(target=self._names[site]))
            transaction.update_serial(serial, relative=False, name=self._origin)
        # By convention the SOA record comes first, and some name servers require it.
        content.nodes[self._origin].rdatasets.sort(key=lambda rdataset: rdataset.rdtype != dns.rdatatype.SOA)
        text = content.to_text(relativize=True, want_comments=True, want_origin=True)
        replace_file(self._path, (text if isinstance(text, bytes) else text.encode()))

    def _content(self) -> dns.zone.Zone:
        try:
            text = read_file(self._path).decode()
            return dns.zone.from_text(
                text, self._origin, relativize=False, allow_include=False, allow_directives=_DIRECTIVES
            )
        except (dns.exception.DNSException, UnicodeDecodeError, ValueError) as error:
            raise FailoverRefused(f"{self._path}: cannot be parsed as zone {self._origin}, {error}") from error

    def _state(self, content: dns.zone.Zone) -> RegisterState:
        soa = content.find_rdataset(self._origin, dns.rdatatype.SOA)
        active, ttl = {}, 0
        for role, alias in self._aliases.items():
            found = content.get_rdataset(alias, dns.rdatatype.CNAME)
            if found is None:
                raise FailoverRefused(f"{self._path}: {alias} has no CNAME record, expected the alias for {role}")
            active[role], ttl = self._site_of(str(alias), found[0].target), max(ttl, found.ttl)
        changed = datetime.fromtimestamp(self._path.stat().st_mtime, UTC)
        return RegisterState(active, ttl, str(soa[0].serial), changed)

    def _check(self, content: dns.zone.Zone, site: str) -> None:
        name = self._prefix.concatenate(self._names[site])
        is_here = name.is_subdomain(self._origin)
        if is_here and content.get_rdataset(name, dns.rdatatype.SRV) is None:
            raise FailoverRefused(f"{self._path}: SRV record {name} is missing, expected the endpoints of {site}")


def _next_serial(serial: int) -> int:
    # RFC 1982: the highest is followed by 0, which some servers skip, and dnspython too.
    return serial % 0xFFFFFFFF + 1
