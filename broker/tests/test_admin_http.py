"""The administration's HTTP: hostile bodies, other hosts, the JSON API, the command."""

import concurrent.futures
import http.client
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusServerBusyError

from busway_broker.admin.certificate import AUTHORITY_FILE
from busway_broker.admin.thread import RunningAdmin
from busway_broker.admin.xml import MAX_DEPTH, MAX_ELEMENTS, BadXml, read_xml, text_tag
from busway_broker.config import (
    HubConfig,
    NamespaceConfig,
    QueueConfig,
    SharedAccessKey,
    SubscriptionConfig,
    TopicConfig,
)
from busway_broker.thread import RunningBroker

ROOT = Path(__file__).parents[2]
CONFIG = NamespaceConfig(
    name="west",
    queues=(QueueConfig(name="orders"),),
    topics=(TopicConfig(name="events", subscriptions=(SubscriptionConfig(name="all"),)),),
    hubs=(HubConfig(name="hub", partition_count=2),),
)
ATOM = 'xmlns="http://www.w3.org/2005/Atom"'
CONNECT = 'xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"'


type HttpRequest = Callable[..., tuple[int, str]]
type JsonRequest = Callable[..., tuple[int, Any]]


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[RunningBroker, RunningAdmin]]:
    with RunningBroker([CONFIG]) as broker, RunningAdmin(broker) as admin:
        yield broker, admin


@pytest.fixture
def broker(running: tuple[RunningBroker, RunningAdmin]) -> RunningBroker:
    running[0].reset()
    return running[0]


@pytest.fixture
def request_of(running: tuple[RunningBroker, RunningAdmin], broker: RunningBroker) -> HttpRequest:  # noqa: ARG001 - reset comes first
    host = running[1].address("west").removeprefix("http://")

    def request(method: str, path: str, body: str | bytes | None = None, **headers: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection(host, timeout=10)
        try:
            connection.request(method, path, body.encode() if isinstance(body, str) else body, headers)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    return request


@pytest.fixture
def json_of(request_of: HttpRequest) -> JsonRequest:
    def request(method: str, path: str, body: object = None) -> tuple[int, Any]:
        text = None if body is None else json.dumps(body)
        status, answer = request_of(method, f"/$busway/{path}", text, **{"Content-Type": "application/json"})
        return status, json.loads(answer)

    return request


def entry(description: str, name: str = "QueueDescription") -> str:
    return f'<entry {ATOM}><content type="application/xml"><{name} {CONNECT}>{description}</{name}></content></entry>'


BILLION_LAUGHS = (
    '<!DOCTYPE entry [<!ENTITY a "ha">'
    + "".join(f'<!ENTITY {chr(98 + n)} "{f"&{chr(97 + n)};" * 10}">' for n in range(9))
    + "]>"
    + entry("<UserMetadata>&j;</UserMetadata>")
)
EXTERNAL = '<!DOCTYPE entry [<!ENTITY x SYSTEM "file:///etc/passwd">]>' + entry("<UserMetadata>&x;</UserMetadata>")


@pytest.mark.parametrize(
    "body",
    [
        BILLION_LAUGHS,
        EXTERNAL,
        '<!DOCTYPE entry SYSTEM "http://127.0.0.1:9/x.dtd">' + entry(""),
        "<a>" * 100_000,
        "<a>" * MAX_DEPTH + "<b/>" + "</a>" * MAX_DEPTH,
        f"<a>{'<b/>' * MAX_ELEMENTS}</a>",
        entry("<UserMetadata>&nothing;</UserMetadata>"),
        entry("<LockDuration>PT1M"),
        entry("<LockDuration>" + "9" * 100_000 + "</LockDuration>"),
        entry("<MaxDeliveryCount>\u0663</MaxDeliveryCount>"),
        entry("<MaxDeliveryCount>" + "9" * 5_000 + "</MaxDeliveryCount>"),
        entry("<Unheard/>"),
        entry("<UserMetadata>" + "x" * 1025 + "</UserMetadata>"),
        entry("", "RuleDescription"),
        f"<entry {ATOM}/>",
        "<x:entry/>",
        '<?xml version="1.0" encoding="nonsense"?><a/>',
        '<?xml version="1.0" encoding="utf-16"?><a/>',
        b"\xff\xfe\x00\x00",
        b"\x00" * 1000,
        "{}",
        "",
    ],
    ids=range(22),
)
def test_hostile_or_invalid_bodies_are_refused_at_once(request_of: HttpRequest, body: str | bytes) -> None:
    start = time.monotonic()
    status, answer = request_of("PUT", "/new", body)
    assert status == 400
    assert answer.startswith("<Error><Code>400</Code><Detail>SubCode=40000. ")
    assert "root:" not in answer
    assert time.monotonic() - start < 5  # what is expanded takes minutes
    assert request_of("GET", "/new")[0] == 404


def test_a_body_too_large_is_refused(request_of: HttpRequest) -> None:
    assert request_of("PUT", "/new", b"x" * (1024 * 1024 + 1))[0] == 413
    assert request_of("PUT", "/new", entry(""))[0] == 201


def test_characters_that_xml_cannot_contain_are_replaced() -> None:
    assert text_tag("a", "\x00<\ud800&'\uffff") == "<a>\ufffd&lt;\ufffd&amp;'\ufffd</a>"
    assert read_xml(text_tag("a", "<&>'\"\u00e9").encode()).text == "<&>'\"\u00e9"


def test_xml_without_a_root_is_refused() -> None:
    with pytest.raises(BadXml):
        read_xml(b"<!-- nothing -->")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/$resources", 404),
        ("GET", "/$Resources/nonsense", 404),
        ("POST", "/orders", 400),
        ("PUT", "/$namespaceinfo", 400),
        ("GET", "/$Resources/queues?$skip=-1", 400),
        ("GET", "/$Resources/queues?$top=x", 400),
        ("GET", "/$Resources/queues?$skip=99999999999999", 400),
        ("GET", "/orders/Subscriptions/x", 404),
        ("GET", "/events/Subscriptions/all/Rules/x", 404),
        ("GET", "/%2e%2e/%2e%2e/etc/passwd", 404),
        ("GET", "/%ff%00", 404),
        ("PATCH", "/events/Subscriptions/all", 400),
        ("DELETE", "/events/Subscriptions/all/Rules", 400),
    ],
)
def test_what_is_not_there_says_so(request_of: HttpRequest, method: str, path: str, status: int) -> None:
    assert request_of(method, path)[0] == status


@pytest.mark.parametrize("origin", ["http://evil.example", "http://[", "null", ""])
def test_an_origin_that_is_not_its_own_is_refused(request_of: HttpRequest, origin: str) -> None:
    assert request_of("GET", "/$busway", Origin=origin)[0] in (400, 401)


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example:80", "127.0.0.1.evil.example", ""])
def test_a_page_from_elsewhere_cannot_reach_it(request_of: HttpRequest, host: str) -> None:
    assert request_of("GET", "/orders", Host=host)[0] in (400, 401)
    assert request_of("POST", "/$busway/reset", "{}", **{"Content-Type": "text/plain"})[0] == 415
    assert request_of("GET", "/orders", Host="127.0.0.1:80")[0] == 200
    assert request_of("GET", "/orders", Host="[::1]:80")[0] == 200


def test_health_needs_no_key_and_hides_no_queue(request_of: HttpRequest) -> None:
    assert request_of("GET", "/health") == (200, '{"status": "healthy"}')
    assert request_of("GET", "/health?api-version=2021-05")[0] == 404
    assert request_of("GET", "/health", Host="attacker.example")[0] in (400, 401)
    keyed = NamespaceConfig(name="keyed", shared_access_keys=(SharedAccessKey(name="root", key="c2VjcmV0"),))
    with RunningBroker([keyed]) as broker, RunningAdmin(broker) as admin:
        with urlopen(f"{admin.address('keyed')}/health", timeout=60) as answer:  # noqa: S310 - the broker's own address
            assert answer.status == 200
        with pytest.raises(HTTPError, match="401"):
            urlopen(f"{admin.address('keyed')}/$busway", timeout=60)  # noqa: S310 - likewise


def test_half_a_request_holds_up_nobody(running: tuple[RunningBroker, RunningAdmin], request_of: HttpRequest) -> None:
    port = int(running[1].address("west").rpartition(":")[2])
    peers = [socket.create_connection(("127.0.0.1", port), timeout=5) for _ in range(50)]
    for peer in peers:
        peer.sendall(b"PUT /new HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n<entry")
    assert request_of("GET", "/orders")[0] == 200
    for peer in peers:
        peer.close()


def test_requests_at_once_are_answered_one_by_one(request_of: HttpRequest) -> None:
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: request_of("PUT", "/contested", entry(""))[0], range(16)))
    assert sorted(answers) == [201, *[409] * 15]


# The JSON API


def test_the_state_is_shown_and_reset(broker: RunningBroker, json_of: JsonRequest) -> None:
    with (
        ServiceBusClient.from_connection_string(broker.connection_string("west"), retry_total=0) as client,
        client.get_queue_sender("orders") as sender,
        client.get_queue_receiver("orders") as receiver,
    ):
        sender.send_messages([ServiceBusMessage("secret body", message_id="one"), ServiceBusMessage("two")])
        receiver.receive_messages(1, max_wait_time=2)
        assert json_of("GET", "counts")[1]["orders"]["active"] == 2
        status, shown = json_of("GET", "")
        assert (status, shown["name"], shown["queues"]["orders"]["counts"]["active"]) == (200, "west", 2)
        assert shown["topics"]["events"]["subscriptions"]["all"]["rules"] == ["$Default"]
        assert len(shown["hubs"]["hub"]["partitions"]) == 2
        _, messages = json_of("GET", "messages?path=orders")
        assert (messages[0]["message_id"], messages[0]["is_locked"]) == ("one", True)
        assert "secret" not in json.dumps(messages)
        assert len(json_of("GET", "messages?path=orders&limit=1")[1]) == 1
        assert json_of("GET", "messages?path=orders/$deadletterqueue") == (200, [])
        assert json_of("GET", "messages?path=events/subscriptions/all") == (200, [])
    assert json_of("POST", "reset") == (200, {})
    assert json_of("GET", "messages?path=orders") == (200, [])


def test_faults_are_set_shown_and_cleared(broker: RunningBroker, json_of: JsonRequest) -> None:
    status, faults = json_of("POST", "faults", {"effect": "throttle", "entity": "orders", "operations": ["send"]})
    assert (status, faults[0]["effect"], faults[0]["struck"]) == (201, "throttle", 0)
    with ServiceBusClient.from_connection_string(broker.connection_string("west"), retry_total=0) as client:
        with pytest.raises(ServiceBusServerBusyError), client.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage("body"))
        assert json_of("GET", "faults")[1][0]["struck"] == 1
        assert json_of("DELETE", "faults") == (200, [])
        with client.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage("body"))


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "nonsense", None, 404),
        ("POST", "counts", None, 405),
        ("PATCH", "reset", None, 405),
        ("POST", "hubs", {"name": "new", "retention_hours": -5}, 400),
        ("POST", "hubs", {"name": "new", "retention_hours": 10**12}, 400),
        ("POST", "hubs", {"name": "new", "partition_count": True}, 400),
        ("POST", "hubs", {"name": "new", "consumer_groups": [5]}, 400),
        ("GET", "messages?path=orders&limit=99999999999999999999", None, 400),
        ("POST", "messages?path=orders", {"body": "\ud800"}, 400),
        ("POST", "clock", {"advance": 60}, 400),
        ("POST", "clock", {"advance": True}, 400),
        ("POST", "clock", {"advance": 0}, 400),
        ("POST", "clock", {"seconds": 1}, 400),
        ("GET", "messages?path=missing", None, 404),
        ("GET", "messages?path=events", None, 200),
        ("GET", "messages?path=orders&limit=x", None, 400),
        ("POST", "faults", {"effect": "nonsense"}, 400),
        ("POST", "faults", [], 400),
        ("POST", "faults", None, 400),
    ],
)
def test_an_invalid_request_is_answered_with_the_reason(
    json_of: JsonRequest, method: str, path: str, body: object, status: int
) -> None:
    answer = json_of(method, path, body)
    assert answer[0] == status
    assert status == 200 or answer[1]["error"]


def test_a_body_that_is_not_json_is_refused(request_of: HttpRequest) -> None:
    status, answer = request_of("POST", "/$busway/faults", "{", **{"Content-Type": "application/json"})
    assert (status, "the body is not JSON: " in answer) == (400, True)
    deep = "[" * 100_000
    assert request_of("POST", "/$busway/faults", deep, **{"Content-Type": "application/json"})[0] == 400


# The command


def test_the_command_serves_the_administration_of_each_namespace(tmp_path: Path) -> None:
    config = tmp_path / "Config.json"
    names = ("one", "two")
    config.write_text(
        json.dumps({"UserConfig": {"Namespaces": [{"Name": name, "Queues": [{"Name": "q"}]} for name in names]}})
    )
    with subprocess.Popen(  # noqa: S603 - this repository's own command
        [sys.executable, "-m", "cli", "broker", "--config", config, "--port", "0", "--admin-tls", tmp_path / "tls"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            ready = [process.stdout.readline() for _ in names]
            addresses = [process.stderr.readline() for _ in names]
            assert [line.split()[:2] for line in ready] == [["ready", name] for name in names]
            found = [re.findall(r"^admin (\S+) https://localhost:(\d+)\n$", line) for line in addresses]
            assert [name for ((name, _),) in found] == list(names)
            context = ssl.create_default_context(cafile=tmp_path / "tls" / AUTHORITY_FILE)
            for ((name, port),) in found:
                connection = http.client.HTTPSConnection("localhost", int(port), context=context, timeout=5)
                connection.request("GET", "/$busway")
                assert json.loads(connection.getresponse().read())["name"] == name
                connection.close()
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(10)
    assert process.returncode == 0


def test_hubs_are_created_and_deleted(broker: RunningBroker, json_of: JsonRequest) -> None:
    body = {"name": "new", "partition_count": 3, "consumer_groups": ["g"], "retention_hours": 2}
    assert json_of("POST", "hubs", body) == (201, {})
    assert json_of("POST", "events?hub=new", {"body": "x"})[0] == 201
    assert len(json_of("GET", "")[1]["hubs"]["new"]["partitions"]) == 3
    for wrong in ({"name": "new"}, {"name": 5}, {"name": "other", "partition_count": 0}, {"nam": "other"}, {}):
        assert json_of("POST", "hubs", wrong)[0] == 400
    assert json_of("DELETE", "hubs?hub=new") == (200, {})
    assert json_of("DELETE", "hubs?hub=new")[0] == 404
    assert json_of("POST", "hubs", {"name": "new"})[0] == 201
    assert broker.inspect("west", lambda namespace: namespace.hub("new").partition("0").next_sequence_number) == 0
