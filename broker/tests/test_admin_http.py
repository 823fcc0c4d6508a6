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
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from broker.tests.admin_requests import WEST, AdminRequests
from busway_broker.admin.certificate import AUTHORITY_FILE
from busway_broker.admin.thread import RunningAdmin
from busway_broker.admin.xml import MAX_DEPTH, MAX_ELEMENTS, BadXml, read_xml, text_tag
from busway_broker.config import (
    NamespaceConfig,
    SharedAccessKey,
)
from busway_broker.thread import RunningBroker

ROOT = Path(__file__).parents[2]
NAMESPACES = (WEST,)
ATOM = 'xmlns="http://www.w3.org/2005/Atom"'
CONNECT = 'xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"'


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
def test_hostile_or_invalid_bodies_are_refused_at_once(requests: AdminRequests, body: str | bytes) -> None:
    start = time.monotonic()
    status, answer = requests.text("PUT", "/new", body)
    assert status == 400
    assert answer.startswith("<Error><Code>400</Code><Detail>SubCode=40000. ")
    assert "root:" not in answer
    assert time.monotonic() - start < 5  # what is expanded takes minutes
    assert requests.text("GET", "/new")[0] == 404


def test_a_body_too_large_is_refused(requests: AdminRequests) -> None:
    assert requests.text("PUT", "/new", b"x" * (1024 * 1024 + 1))[0] == 413
    assert requests.text("PUT", "/new", entry(""))[0] == 201


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
def test_what_is_not_there_says_so(requests: AdminRequests, method: str, path: str, status: int) -> None:
    assert requests.text(method, path)[0] == status


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example:80", "127.0.0.1.evil.example", ""])
def test_a_page_from_elsewhere_cannot_reach_it(requests: AdminRequests, host: str) -> None:
    assert requests.text("GET", "/orders", Host=host)[0] in (400, 401)
    assert requests.text("POST", "/$busway/reset", "{}", **{"Content-Type": "text/plain"})[0] == 415
    assert requests.text("GET", "/orders", Host="127.0.0.1:80")[0] == 200
    assert requests.text("GET", "/orders", Host="[::1]:80")[0] == 200


def test_health_needs_no_key_and_hides_no_queue(requests: AdminRequests) -> None:
    assert requests.text("GET", "/health") == (200, '{"status": "healthy"}')
    assert requests.text("GET", "/health?api-version=2021-05")[0] == 404
    assert requests.text("GET", "/health", Host="attacker.example")[0] in (400, 401)
    keyed = NamespaceConfig(name="keyed", shared_access_keys=(SharedAccessKey(name="root", key="c2VjcmV0"),))
    with RunningBroker([keyed]) as broker, RunningAdmin(broker) as admin:
        with urlopen(f"{admin.address('keyed')}/health", timeout=60) as answer:  # noqa: S310 - the broker's own address
            assert answer.status == 200
        with pytest.raises(HTTPError, match="401"):
            urlopen(f"{admin.address('keyed')}/$busway", timeout=60)  # noqa: S310 - likewise


def test_half_a_request_holds_up_nobody(admin: RunningAdmin, requests: AdminRequests) -> None:
    port = int(admin.address("west").rpartition(":")[2])
    peers = [socket.create_connection(("127.0.0.1", port), timeout=5) for _ in range(50)]
    for peer in peers:
        peer.sendall(b"PUT /new HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n<entry")
    assert requests.text("GET", "/orders")[0] == 200
    for peer in peers:
        peer.close()


def test_requests_at_once_are_answered_one_by_one(requests: AdminRequests) -> None:
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: requests.text("PUT", "/contested", entry(""))[0], range(16)))
    assert sorted(answers) == [201, *[409] * 15]


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
