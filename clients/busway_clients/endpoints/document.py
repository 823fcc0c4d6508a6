"""
The endpoint document: a small JSON file that names the site to use.

    {
      "version": 1,
      "serial": 12,
      "ttl_seconds": 30,
      "sites": {
        "west": [{"namespace": "west-example.servicebus.windows.net", "port": 5671}],
        "east": [{"namespace": "east-example.servicebus.windows.net"}]
      },
      "active": {"send": "west", "receive": "west"}
    }

1. `version` is 1; other versions are rejected. `serial` grows with every change. `ttl_seconds` is 1 to 86400.
2. A site lists its endpoints in the order to try them; a port is 5671 (AMQP, the default) or 443 (over WebSockets).
3. `active` names the site for each role, since senders and receivers return at different times after an outage.
4. `expires` is optional: a time with its offset from UTC after which the document must not be used.
5. An unknown key is an error.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from busway_clients.endpoints.endpoint import (
    AMQP_PORT,
    NAMESPACES,
    PORTS,
    Answer,
    Endpoint,
    EndpointUnresolved,
    Offer,
    parse_namespace,
)

VERSION = 1
LONGEST_DOCUMENT_BYTES = 65_536

SEND = "send"
RECEIVE = "receive"

_KEYS = {"version", "serial", "ttl_seconds", "sites", "active"}
_LONGEST_TTL_SECONDS = 86_400
_LARGEST_SERIAL = 2**53 - 1


@dataclass(frozen=True)
class EndpointDocument:
    """A valid endpoint document."""

    serial: int
    ttl_seconds: int
    sites: Mapping[str, tuple[Endpoint, ...]]
    active: Mapping[str, str]
    expires: datetime | None = None

    def answer(self, role: str, where: str) -> Answer:
        """Return the answer for *role*; raises EndpointUnresolved if the document has no such role."""
        if role not in self.active:
            raise EndpointUnresolved(f"{where}: active has no {role!r}, only {_listed(self.active)}")
        site = self.active[role]
        offers = tuple(Offer(endpoint, priority=index) for index, endpoint in enumerate(self.sites[site]))
        return Answer(site, offers, self.ttl_seconds, self.serial)


def read_document(
    content: bytes, where: str, now: datetime, *, domains: Sequence[str] = NAMESPACES
) -> EndpointDocument:
    """Parse an endpoint document; raises EndpointUnresolved with *where* it was found."""
    document = json_object(content, where)
    if document.get("version") != VERSION or isinstance(document.get("version"), bool):
        raise EndpointUnresolved(f"{where}: version is {document.get('version')!r}, expected {VERSION}")
    for key in sorted(_KEYS - document.keys()):
        raise EndpointUnresolved(f"{where}: {key} is missing")
    for key in sorted(document.keys() - _KEYS - {"expires"}):
        raise EndpointUnresolved(f"{where}: unknown key {key!r}, expected {_listed(_KEYS)} or expires")
    sites = {
        site: _endpoints(listed, f"{where}: sites.{site}", domains)
        for site, listed in _object(document["sites"], f"{where}: sites").items()
    }
    active = _object(document["active"], f"{where}: active")
    for role, site in active.items():
        if not isinstance(site, str) or site not in sites:
            raise EndpointUnresolved(f"{where}: active.{role} is {site!r}, expected one of {_listed(sites)}")
    expires = _expiry(document.get("expires"), where, now)
    return EndpointDocument(
        _number(document["serial"], f"{where}: serial", 1, _LARGEST_SERIAL),
        _number(document["ttl_seconds"], f"{where}: ttl_seconds", 1, _LONGEST_TTL_SECONDS),
        sites,
        {role: str(site) for role, site in active.items()},
        expires,
    )


def write_document(document: EndpointDocument) -> bytes:
    """Return *document* as the content of a file."""
    written: dict[str, object] = {
        "version": VERSION,
        "serial": document.serial,
        "ttl_seconds": document.ttl_seconds,
        "sites": {
            site: [{"namespace": endpoint.namespace, "port": endpoint.port} for endpoint in endpoints]
            for site, endpoints in document.sites.items()
        },
        "active": dict(document.active),
    }
    if document.expires is not None:
        written["expires"] = document.expires.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return (json.dumps(written, indent=2) + "\n").encode()


def json_object(content: bytes, where: str) -> dict[str, object]:
    """Parse a JSON object; raises EndpointUnresolved, whose text distinguishes a web page from a half-written file."""
    if len(content) > LONGEST_DOCUMENT_BYTES:
        raise EndpointUnresolved(f"{where}: has more than {LONGEST_DOCUMENT_BYTES:,} bytes, expected a small document")
    if not content.strip():
        raise EndpointUnresolved(f"{where}: is empty, expected a JSON document")
    if content.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"<":
        raise EndpointUnresolved(f"{where}: is a web page, perhaps a login page, expected a JSON document")
    try:
        value = json.loads(content, object_pairs_hook=_unique_keys)
    except (ValueError, RecursionError) as error:
        what = "its nesting is too deep" if isinstance(error, RecursionError) else str(error)
        raise EndpointUnresolved(f"{where}: is invalid JSON, perhaps half-written: {what}") from error
    return _object(value, where)


def _unique_keys(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key occurs twice")
    return found


def _object(value: object, where: str) -> dict[str, object]:
    if not isinstance(value, dict) or not value:
        raise EndpointUnresolved(f"{where}: is {_kind(value)}, expected an object with members")
    return value


def _endpoints(value: object, where: str, domains: Sequence[str]) -> tuple[Endpoint, ...]:
    if not isinstance(value, list) or not value:
        raise EndpointUnresolved(f"{where}: is {_kind(value)}, expected a list of endpoints")
    return tuple(_endpoint(each, f"{where}[{index}]", domains) for index, each in enumerate(value))


def _endpoint(value: object, where: str, domains: Sequence[str]) -> Endpoint:
    described = _object(value, where)
    for key in sorted(described.keys() - {"namespace", "port"}):
        raise EndpointUnresolved(f"{where}: unknown key {key!r}, expected namespace or port")
    port = described.get("port", AMQP_PORT)
    if not isinstance(port, int) or port not in PORTS:
        raise EndpointUnresolved(f"{where}: port is {port!r}, expected {' or '.join(map(str, PORTS))}")
    return Endpoint(parse_namespace(described.get("namespace"), f"{where}.namespace", domains), port)


def _number(value: object, where: str, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise EndpointUnresolved(f"{where}: is {value!r}, expected a whole number from {least} to {most}")
    return value


def _expiry(value: object, where: str, now: datetime) -> datetime | None:
    if value is None:
        return None
    try:
        expires = datetime.fromisoformat(str(value))
    except ValueError as error:
        raise EndpointUnresolved(f"{where}: expires is {value!r}, expected a time such as 2026-12-31T00:00Z") from error
    if expires.tzinfo is None:
        raise EndpointUnresolved(f"{where}: expires is {value!r}, expected a time with its offset from UTC")
    if expires <= now:
        raise EndpointUnresolved(f"{where}: expired at {expires.isoformat()}, expected a newer document")
    return expires


def _kind(value: object) -> str:
    return "empty" if value in ({}, []) else f"a {type(value).__name__}"


def _listed(names: object) -> str:
    return ", ".join(sorted(map(str, names))) if isinstance(names, (Mapping, set)) else str(names)
