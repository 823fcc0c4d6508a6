"""
The endpoint in DNS: an alias (CNAME) names the zone of a site, and SRV records there name its namespace.

    servicebus.example.com.                           CNAME  west.example.com.
    _azure_servicebus._amqp.west.example.com.  SRV    1 1 5671 west-example.servicebus.windows.net.
    _azure_servicebus._amqp.west.example.com.  SRV    2 2 443  west-example.servicebus.windows.net.

A failover points the alias elsewhere. Needs dnspython (`busway-clients[dns]`). Source: Microsoft Learn, "Message
replication tasks patterns", DNS-based failover configuration; RFC 2782.
"""

import time
from collections.abc import Sequence

from busway_clients.endpoints.endpoint import (
    NAMESPACES,
    PORTS,
    Answer,
    Endpoint,
    EndpointUnresolved,
    Offer,
    parse_namespace,
)
from busway_clients.errors import extra

with extra("dns"):
    import dns.exception
    import dns.name
    import dns.rdatatype
    import dns.resolver

PREFIX = "_azure_servicebus._amqp"

_MOST_ALIASES = 8


class DnsSource:
    """The endpoints behind an alias; the site is the name that the alias points to, without the final dot."""

    def __init__(
        self,
        alias: str,
        *,
        prefixes: Sequence[str] = (PREFIX,),
        nameservers: Sequence[str] | None = None,
        port: int = 53,
        domains: Sequence[str] = NAMESPACES,
        timeout_seconds: float = 5.0,
    ) -> None:
        """
        Query *alias*, then SRV records under each of *prefixes* until some exist.

        *nameservers* are addresses, by default those of the machine. *timeout_seconds* limits a read, with all its
        queries and their attempts. Raises EndpointUnresolved if the machine has no name servers.
        """
        try:
            self._alias = dns.name.from_text(alias)
            self._prefixes = [dns.name.from_text(prefix, origin=None) for prefix in prefixes]
            self._resolver = dns.resolver.Resolver(configure=nameservers is None)
        except dns.exception.DNSException as error:
            raise EndpointUnresolved(f"{alias}: {error}") from error
        if nameservers is not None:
            self._resolver.nameservers = list(nameservers)
            self._resolver.port = port
        self._timeout = timeout_seconds
        self._domains = domains

    def read(self) -> Answer:
        """Return the current answer of DNS; raises EndpointUnresolved."""
        end = time.monotonic() + self._timeout
        zone, ttl = self._zone(end)
        for prefix in self._prefixes:
            found = self._query(prefix.concatenate(zone), "SRV", end)
            if found is not None and found.rrset is not None:
                return Answer(_text(zone), self._offers(found), min(ttl, found.rrset.ttl))
        names = ", ".join(_text(prefix.concatenate(zone)) for prefix in self._prefixes)
        raise EndpointUnresolved(f"{_text(self._alias)}: SRV record {names} is missing")

    def _zone(self, end: float) -> tuple[dns.name.Name, float]:
        """Return the name at the end of the chain of aliases; a name without a CNAME is its own zone."""
        name, ttl = self._alias, float("inf")
        for _ in range(_MOST_ALIASES):
            found = self._query(name, "CNAME", end)
            if found is None or found.rrset is None:
                return name, ttl
            name, ttl = found.rrset[0].target, min(ttl, found.rrset.ttl)
        raise EndpointUnresolved(f"{_text(self._alias)}: a chain of more than {_MOST_ALIASES} aliases")

    def _offers(self, found: dns.resolver.Answer) -> tuple[Offer, ...]:
        where = _text(found.qname)
        offers = []
        for record in sorted(found, key=lambda each: (each.priority, each.port, each.target)):
            if record.port in PORTS:
                name = parse_namespace(_text(record.target), f"{where} SRV", self._domains)
                offers.append(Offer(Endpoint(name, record.port), record.priority, record.weight))
        if not offers:
            ports = ", ".join(str(record.port) for record in found)
            raise EndpointUnresolved(f"{where} SRV: has port {ports}, expected {' or '.join(map(str, PORTS))}")
        return tuple(offers)

    def _query(self, name: dns.name.Name, kind: str, end: float) -> dns.resolver.Answer | None:
        """Return the records, None if the name has no records of this kind."""
        where = f"{_text(name)} {kind}"
        try:
            lifetime = max(end - time.monotonic(), 0.0)
            return self._resolver.resolve(name, kind, search=False, lifetime=lifetime)
        except dns.resolver.NoAnswer:
            return None
        except dns.resolver.NXDOMAIN as error:
            if kind == "SRV":
                return None
            raise EndpointUnresolved(f"{where}: the name does not exist") from error
        except dns.resolver.LifetimeTimeout as error:
            servers = ", ".join(map(str, self._resolver.nameservers))
            text = f"{where}: no answer within {self._timeout:g} s from {servers}"
            raise EndpointUnresolved(text) from error
        except dns.resolver.NoNameservers as error:
            raise EndpointUnresolved(f"{where}: no name server could answer: {_first_line(error)}") from error
        except dns.exception.DNSException as error:
            raise EndpointUnresolved(f"{where}: {type(error).__name__}: {_first_line(error)}") from error


def _text(name: dns.name.Name) -> str:
    return name.to_text(omit_final_dot=True)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
