"""The register in a DNS zone file."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import dns.exception
import dns.name
import dns.rdatatype
import dns.zone

from cli.failover.atomic_file import lock, read_file, replace_file
from cli.failover.register import FailoverRefused, RegisterState, check_shared_aliases

# Other directives would be written as the records that they expand to.
_DIRECTIVES = {"$ORIGIN", "$TTL"}


class ZoneFile:
    """The register in a zone file; the name server must reload it after a change."""

    def __init__(
        self, path: Path, origin: str, aliases: Mapping[str, str], names: Mapping[str, str], prefix: str
    ) -> None:
        """Use the zone *origin* in *path*: an alias for each role, and for each site the name that it points to."""
        self._path = path
        self._origin = dns.name.from_text(origin)
        self._aliases = {role: dns.name.from_text(alias) for role, alias in aliases.items()}
        self._names = {site: dns.name.from_text(name) for site, name in names.items()}
        self._prefix = dns.name.from_text(prefix, origin=None)

    @property
    def where(self) -> str:
        """The file."""
        return str(self._path)

    @property
    def reload_command(self) -> str | None:
        """How to reload the zone; the file does not show whether that has been done."""
        return f"let the name server load the zone (rndc reload {self._origin.to_text(omit_final_dot=True)})"

    def read(self) -> RegisterState:
        """Return the content of the file; raises FailoverRefused if it is invalid."""
        return self._state(self._zone())

    def changes(self, roles: Mapping[str, str], state: RegisterState) -> Sequence[str]:
        """Return the old and new records, the serial last; raises FailoverRefused for an impossible change."""
        zone = self._zone()
        texts = {role: alias.to_text() for role, alias in self._aliases.items()}
        check_shared_aliases(texts, state.active, roles)
        lines = {}
        for role, site in roles.items():
            self._check(zone, site)
            before = self._names[state.active[role]]
            after = self._names[site]
            if before != after:
                lines[self._aliases[role]] = f"{texts[role]} CNAME {before} -> {after}"
        if not lines:
            return []
        serial = _next_serial(int(state.version))
        return [*lines.values(), f"{self._origin} SOA serial {state.version} -> {serial}"]

    def write(self, roles: Mapping[str, str], state: RegisterState) -> RegisterState:
        """Point *roles* to their sites and raise the serial, if the zone is unchanged; raises FailoverRefused."""
        with lock(self._path):
            zone = self._zone()
            if self._state(zone).version != state.version:
                raise FailoverRefused(f"{self._path}: someone else has changed it, expected serial {state.version}")
            if not self.changes(roles, state):
                return state
            with zone.writer() as transaction:
                for role, site in roles.items():
                    alias = self._aliases[role]
                    found = zone.find_rdataset(alias, dns.rdatatype.CNAME)
                    # With the comment on its line.
                    transaction.replace(alias, found.ttl, found[0].replace(target=self._names[site]))
                transaction.update_serial(_next_serial(int(state.version)), relative=False, name=self._origin)
            # By convention the SOA record comes first, and some name servers require it.
            zone.nodes[self._origin].rdatasets.sort(key=lambda each: each.rdtype != dns.rdatatype.SOA)
            text = zone.to_text(relativize=True, want_comments=True, want_origin=True)
            replace_file(self._path, (text if isinstance(text, bytes) else text.encode()))
        return self.read()

    def _zone(self) -> dns.zone.Zone:
        content = read_file(self._path)
        try:
            text = content.decode()
            return dns.zone.from_text(
                text, self._origin, relativize=False, allow_include=False, allow_directives=_DIRECTIVES
            )
        except (dns.exception.DNSException, UnicodeDecodeError, ValueError) as error:
            raise FailoverRefused(f"{self._path}: cannot be parsed as zone {self._origin}, {error}") from error

    def _state(self, zone: dns.zone.Zone) -> RegisterState:
        soa = zone.find_rdataset(self._origin, dns.rdatatype.SOA)
        active, ttl = {}, 0
        for role, alias in self._aliases.items():
            found = zone.get_rdataset(alias, dns.rdatatype.CNAME)
            if found is None:
                raise FailoverRefused(f"{self._path}: {alias} has no CNAME record, expected the alias for {role}")
            sites = [site for site, name in self._names.items() if name == found[0].target]
            if not sites:
                named = ", ".join(map(str, self._names.values()))
                raise FailoverRefused(f"{self._path}: {alias} points to {found[0].target}, expected one of {named}")
            active[role], ttl = sites[0], max(ttl, found.ttl)
        changed = datetime.fromtimestamp(self._path.stat().st_mtime, UTC)
        return RegisterState(active, ttl, str(soa[0].serial), changed)

    def _check(self, zone: dns.zone.Zone, site: str) -> None:
        """Raise FailoverRefused for a name of this zone without SRV records: no application could use it."""
        name = self._prefix.concatenate(self._names[site])
        is_here = name.is_subdomain(self._origin)
        if is_here and zone.get_rdataset(name, dns.rdatatype.SRV) is None:
            raise FailoverRefused(f"{self._path}: SRV record {name} is missing, expected the endpoints of {site}")


def _next_serial(serial: int) -> int:
    # RFC 1982: the highest is followed by 0, which some servers skip, and dnspython too.
    return serial % 0xFFFFFFFF + 1
