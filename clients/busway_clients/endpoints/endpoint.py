"""Endpoints of namespaces, and the interface of the sources that publish them."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from random import Random
from typing import Protocol

from azure.servicebus import TransportType

from busway_clients.errors import ClientsError

AMQP_PORT = 5671
WEBSOCKETS_PORT = 443
PORTS = (AMQP_PORT, WEBSOCKETS_PORT)

NAMESPACES = (
    "servicebus.windows.net",
    "servicebus.chinacloudapi.cn",
    "servicebus.usgovcloudapi.net",
)
"""The domains of Azure's clouds. A token is sent only to a namespace in one of them, unless others are allowed."""

_HOST = re.compile(r"(?!-)[a-z0-9-]{1,63}(?<!-)(\.(?!-)[a-z0-9-]{1,63}(?<!-))*")


class EndpointUnresolved(ClientsError):
    """The published endpoint is invalid or unavailable; clients keep the last good one."""


@dataclass(frozen=True)
class Endpoint:
    """A namespace's fully qualified name, and the port to reach it on."""

    namespace: str
    port: int = AMQP_PORT

    @property
    def transport_type(self) -> TransportType:
        """The SDK's transport for the port."""
        return TransportType.AmqpOverWebsocket if self.port == WEBSOCKETS_PORT else TransportType.Amqp

    def __str__(self) -> str:
        """Return the name for log lines."""
        return f"{self.namespace}:{self.port}"


@dataclass(frozen=True)
class Offer:
    """An endpoint with its rank: a lower priority comes first, a higher weight more often (RFC 2782)."""

    endpoint: Endpoint
    priority: int = 0
    weight: int = 0


@dataclass(frozen=True)
class Answer:
    """
    The answer of a source.

    Shape:  offers are those of one site, at least one; the serial, if the source has one, grows with every change.
    Units:  ttl_seconds is how long the answer may be used before the source is read again.
    """

    site: str
    offers: Sequence[Offer]
    ttl_seconds: float
    serial: int | None = None


class Source(Protocol):
    """A published endpoint, which an operator edits and applications read."""

    def read(self) -> Answer:
        """Return what is published now; raises EndpointUnresolved."""
        ...


def parse_namespace(text: object, where: str, domains: Sequence[str]) -> str:
    """Parse the name of a namespace in one of *domains*; raises EndpointUnresolved."""
    name = text.rstrip(".").lower() if isinstance(text, str) else ""
    if not _HOST.fullmatch(name):
        raise EndpointUnresolved(f"{where}: {_shown(text)} is not a host name, expected the name of a namespace")
    if not any(name == domain or name.endswith(f".{domain}") for domain in domains):
        raise EndpointUnresolved(f"{where}: {name} is not a namespace, expected a name in {', '.join(domains)}")
    return name


def order_endpoints(offers: Sequence[Offer], present: Endpoint | None, random: Random) -> tuple[Endpoint, ...]:
    """
    Return the endpoints in the order in which to try them.

    Endpoints of the same priority are shuffled by weight, but *present* stays first among them, so that reading the
    source again does not cause a move.
    """
    endpoints: list[Endpoint] = []
    for _, group in groupby(sorted(offers, key=_priority), key=_priority):
        # RFC 2782: endpoints without weight come first in the list, so that they keep a small chance.
        equals = [offer.endpoint for offer in _shuffled(sorted(group, key=lambda offer: offer.weight > 0), random)]
        equals.sort(key=lambda endpoint: endpoint != present)
        endpoints += equals
    return tuple(dict.fromkeys(endpoints))


def _priority(offer: Offer) -> int:
    return offer.priority


def _shuffled(offers: Sequence[Offer], random: Random) -> Iterator[Offer]:
    left = list(offers)
    while left:
        point = random.randint(0, sum(offer.weight for offer in left))
        for offer in left:
            point -= offer.weight
            if point <= 0:
                left.remove(offer)
                yield offer
                break


_LONGEST_SHOWN = 60


def _shown(text: object) -> str:
    shown = repr(text)
    return shown if len(shown) <= _LONGEST_SHOWN else f"{shown[:_LONGEST_SHOWN]}…"
