"""The endpoint in DNS, asked for over the wire."""

from collections.abc import Iterator
from random import Random
from typing import Any

import dns.rcode
import pytest

from busway_clients import EndpointWatch
from busway_clients.endpoints.cache import EndpointCache
from busway_clients.endpoints.dns import DnsSource
from busway_clients.endpoints.endpoint import Endpoint, EndpointUnresolved
from tests.clients.endpoints.name_server import NameServer
from tests.clients.endpoints.refreshing import endpoints_after_refresh

ALIAS = "servicebus.example.test"
WEST = "west-example.servicebus.windows.net"
EAST = "east-example.servicebus.windows.net"


@pytest.fixture
def server() -> Iterator[Any]:
    with NameServer() as running:
        yield running


def source_of(server: NameServer, **options: Any) -> DnsSource:
    return DnsSource(ALIAS, nameservers=["127.0.0.1"], port=server.port, timeout_seconds=0.3, **options)


def endpoints(server: NameServer, **options: Any) -> Any:
    return EndpointWatch(source_of(server, **options)).endpoints()


def test_the_alias_names_a_site_and_its_records_the_namespace(server: NameServer) -> None:
    answer = source_of(server).read()
    assert (answer.site, answer.ttl_seconds) == ("west.example.test", 20)
    assert endpoints(server) == (Endpoint(WEST, 5671), Endpoint(WEST, 443))
    server.replace("20 CNAME west", "20 CNAME east")
    assert endpoints(server) == (Endpoint(EAST, 5671), Endpoint(EAST, 443))


def test_the_lower_priority_comes_first_whatever_the_order_of_the_records(server: NameServer) -> None:
    server.replace("west SRV 1 1 5671", "west SRV 3 1 5671")
    assert endpoints(server) == (Endpoint(WEST, 443), Endpoint(WEST, 5671))


def test_equal_priorities_share_by_weight_and_rereading_moves_no_client(server: NameServer) -> None:
    server.replace("_azure_servicebus._amqp.west SRV 2 2 443 west", "_azure_servicebus._amqp.west SRV 1 3 5671 third")
    firsts = [
        EndpointWatch(source_of(server), cache=EndpointCache(random=Random(seed))).endpoints()[0].namespace
        for seed in range(60)
    ]
    assert 8 <= firsts.count(WEST) <= 25  # a quarter
    watch = EndpointWatch(source_of(server), cache=EndpointCache(shortest_seconds=0, longest_seconds=0))
    assert len({watch.endpoints()[0] for _ in range(20)}) == 1


def test_an_alias_of_an_alias_and_a_name_without_alias(server: NameServer) -> None:
    server.replace("servicebus 20 CNAME west", "servicebus 20 CNAME middle\nmiddle 7 CNAME west")
    assert source_of(server).read().ttl_seconds == 7
    assert endpoints(server)[0] == Endpoint(WEST)
    server.replace("servicebus 20 CNAME west", "_azure_servicebus._amqp.servicebus SRV 1 1 5671 " + EAST + ".")
    assert endpoints(server) == (Endpoint(EAST),)


def test_prefixes_are_tried_in_order(server: NameServer) -> None:
    prefixes = ("_azure_eventhubs._amqp", "_azure_servicebus._amqp")
    assert endpoints(server, prefixes=prefixes)[0] == Endpoint(WEST)
    assert [query for query in server.queries if "SRV" in query] == [
        f"{prefix}.west.example.test. SRV" for prefix in prefixes
    ]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("servicebus 20 CNAME west", "other A 127.0.0.1", "servicebus.example.test CNAME: the name does not exist"),
        ("CNAME west", "CNAME test1", "test1.example.test CNAME: the name does not exist"),
        ("CNAME west", "CNAME ns", "SRV record _azure_servicebus._amqp.ns.example.test"),
        ("CNAME west", "CNAME servicebus", "a chain of more than 8 aliases"),
        ("1 1 5671 west-example.servicebus.windows.net.", "1 1 5671 .", "'.' is not a host name"),
        ("1 1 5671 west-example.servicebus.windows.net.", "1 1 5671 bus.example.org.", "bus.example.org is not a name"),
        ("1 1 5671 west-example.servicebus.windows.net.", "1 1 5671 servicebus.windows.net.evil.org.", "is not a name"),
        ("1 1 5671 west-example.servicebus.windows.net.", "1 1 5671 evilservicebus.windows.net.", "is not a namespace"),
    ],
)
def test_invalid_records_are_reported_and_the_last_endpoint_is_kept(
    server: NameServer, before: str, after: str, expected: str
) -> None:
    clock = [0.0]
    errors: list[Any] = []
    watch = EndpointWatch(source_of(server), on_error=errors.append, monotonic=lambda: clock[0])
    good = watch.endpoints()
    server.replace(before, after)
    clock[0] += 21
    assert watch.consult() == good
    assert expected in str(watch.state.error)
    assert errors == [watch.state.error]
    server.replace("20 CNAME west", "20 CNAME east")
    clock[0] += 6
    assert endpoints_after_refresh(watch)[0] == Endpoint(EAST)
    assert watch.state.error is None


def test_records_with_unknown_ports_only_are_reported(server: NameServer) -> None:
    server.replace("west SRV 1 1 5671", "west SRV 1 1 5672")
    assert endpoints(server) == (Endpoint(WEST, 443),)
    text = "_azure_servicebus._amqp.west SRV 1 1 9000 x.servicebus.windows.net."
    server.load("$ORIGIN example.test.\n$TTL 30\n@ SOA n h 1 1 1 1 1\n@ NS n\nservicebus CNAME west\n" + text)
    with pytest.raises(EndpointUnresolved, match="has port 9000, expected 5671 or 443"):
        endpoints(server)


@pytest.mark.parametrize(
    ("attribute", "value", "expected"),
    [
        ("is_silent", True, "no answer within 0.3 s from 127.0.0.1"),
        ("rcode", dns.rcode.SERVFAIL, "no name server could answer"),
        ("rcode", dns.rcode.REFUSED, "no name server could answer"),
        ("rcode", dns.rcode.NXDOMAIN, "the name does not exist"),
        ("answers_garbage", True, "servicebus.example.test CNAME: no "),
    ],
)
def test_a_resolver_that_does_not_answer_keeps_the_last_answer(
    server: NameServer, attribute: str, value: Any, expected: str
) -> None:
    clock = [0.0]
    watch = EndpointWatch(source_of(server), monotonic=lambda: clock[0])
    good = watch.endpoints()
    setattr(server, attribute, value)
    clock[0] += 21
    assert watch.consult() == good
    assert expected in str(watch.state.error)
    assert (watch.state.failures, watch.state.age_seconds) == (1, 21)
    fresh = EndpointWatch(source_of(server))
    with pytest.raises(EndpointUnresolved, match=r"servicebus\.example\.test"):
        fresh.endpoints()


def test_source_is_not_read_again_while_the_answer_is_valid(server: NameServer) -> None:
    clock = [0.0]
    watch = EndpointWatch(source_of(server), monotonic=lambda: clock[0])
    endpoints_after_refresh(watch)
    asked = len(server.queries)
    clock[0] += 19
    endpoints_after_refresh(watch)
    assert len(server.queries) == asked
    clock[0] += 2
    endpoints_after_refresh(watch)
    assert len(server.queries) == 2 * asked


def test_an_invalid_alias_is_reported_at_once() -> None:
    with pytest.raises(EndpointUnresolved, match="empty"):
        DnsSource("a..b", nameservers=["127.0.0.1"])
