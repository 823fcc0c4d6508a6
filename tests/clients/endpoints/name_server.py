"""A name server on the loopback interface: real datagrams, answered from a zone that a test may edit."""

import socket
import threading
import time
from typing import Self

import dns.exception
import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.zone

ZONE = """\
$ORIGIN example.test.
$TTL 30
@ SOA ns hostmaster 2026112101 3600 600 86400 30
@ NS ns
ns A 127.0.0.1
servicebus 20 CNAME west
_azure_servicebus._amqp.west SRV 1 1 5671 west-example.servicebus.windows.net.
_azure_servicebus._amqp.west SRV 2 2 443 west-example.servicebus.windows.net.
_azure_servicebus._amqp.east SRV 1 1 5671 east-example.servicebus.windows.net.
_azure_servicebus._amqp.east SRV 2 2 443 east-example.servicebus.windows.net.
"""


class NameServer:
    """Serves `zone`, until its context ends; `rcode` answers everything with an error, `is_silent` with nothing."""

    def __init__(self) -> None:
        self.load(ZONE)
        self.rcode: dns.rcode.Rcode | None = None
        self.is_silent = False
        self.delay = 0.0
        self.answers_garbage = False
        self.queries: list[str] = []

    def load(self, text: str) -> None:
        """Serve this zone from now on."""
        self.zone = dns.zone.from_text(text, "example.test.", relativize=False)

    def replace(self, before: str, after: str) -> None:
        """Serve the zone of the beginning with something else in it."""
        assert before in ZONE
        self.load(ZONE.replace(before, after))

    def __enter__(self) -> Self:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as waker:
            self._is_ended = True
            waker.sendto(b"", ("127.0.0.1", self.port))
        self._thread.join(5)
        self._socket.close()

    _is_ended = False

    def _serve(self) -> None:
        while True:
            content, client = self._socket.recvfrom(4096)
            if self._is_ended:
                return
            if not self.is_silent:
                time.sleep(self.delay)
                self._socket.sendto(self._answer(content), client)

    def _answer(self, content: bytes) -> bytes:
        query = dns.message.from_wire(content)
        question = query.question[0]
        self.queries.append(f"{question.name} {dns.rdatatype.to_text(question.rdtype)}")
        if self.answers_garbage:
            return content[:2] + b"\xff" * 20
        response = dns.message.make_response(query)
        response.flags |= dns.flags.AA
        if self.rcode is not None:
            response.set_rcode(self.rcode)
            return response.to_wire()
        node = self.zone.get_node(question.name)
        if node is None:
            is_parent = any(name.is_subdomain(question.name) for name in self.zone)
            response.set_rcode(dns.rcode.NOERROR if is_parent else dns.rcode.NXDOMAIN)
            return response.to_wire()
        found = self.zone.get_rrset(question.name, question.rdtype)
        alias = self.zone.get_rrset(question.name, dns.rdatatype.CNAME)
        if found is not None:
            response.answer.append(found)
        elif alias is not None:
            response.answer.append(alias)
        return response.to_wire()
