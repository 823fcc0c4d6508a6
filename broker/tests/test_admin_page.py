"""The administration in a browser: the page, and the JSON API behind it for messages, events and connections."""

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen
from uuid import UUID

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage

from busway_broker.admin.messages import MAX_BODY
from busway_broker.admin.thread import RunningAdmin
from busway_broker.config import (
    HubConfig,
    NamespaceConfig,
    QueueConfig,
    SharedAccessKey,
    SubscriptionConfig,
    TopicConfig,
)
from busway_broker.core.content import read_content
from busway_broker.thread import RunningBroker
from cli.property_types import date_time_offset, decimal, time_span, uri
from shared.amqp.values import char, double, timestamp, uuid
from tests.browser import CONTRAST, CUT, Tab, running_browser
from tests.messages import delivered

KEY = SharedAccessKey(name="RootManageSharedAccessKey", key="c2VjcmV0")
OPEN = NamespaceConfig(
    name="open",
    queues=(QueueConfig(name="orders"),),
    topics=(TopicConfig(name="prices", subscriptions=(SubscriptionConfig(name="eu"),)),),
    hubs=(HubConfig(name="telemetry", partition_count=2),),
)
KEYED = NamespaceConfig(name="keyed", queues=(QueueConfig(name="orders"),), shared_access_keys=(KEY,))
HOSTILE = "</td><script>document.title='run'</script><img src=x onerror=\"document.title='run'\">"


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[RunningBroker, RunningAdmin]]:
    with RunningBroker([OPEN, KEYED]) as broker, RunningAdmin(broker) as admin:
        yield broker, admin


@pytest.fixture
def broker(running: tuple[RunningBroker, RunningAdmin]) -> RunningBroker:
    running[0].reset()
    return running[0]


@pytest.fixture
def admin(running: tuple[RunningBroker, RunningAdmin]) -> RunningAdmin:
    return running[1]


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with running_browser(tmp_path_factory.mktemp("profile")) as tab:
        yield tab


def ask(admin: RunningAdmin, path: str, body: object = None, name: str = "open", **headers: str) -> Any:
    content = None if body is None else json.dumps(body).encode()
    address = f"{admin.address(name)}/$busway/{path}"
    request = Request(address, content, headers={"Content-Type": "application/json"} | headers)  # noqa: S310 - the broker's own address
    with urlopen(request, timeout=60) as answer:  # noqa: S310 - likewise
        return json.load(answer)


def refused(admin: RunningAdmin, path: str, body: object = None, **headers: str) -> tuple[int, str]:
    with pytest.raises(HTTPError) as caught:
        ask(admin, path, body, **headers)
    with caught.value as error:
        return error.code, error.read().decode()


# JSON


def test_a_message_is_sent_and_peeked(broker: RunningBroker, admin: RunningAdmin) -> None:
    message = {
        "body": "héllo",
        "message_id": "1",
        "subject": "s",
        "content_type": "text/plain",
        "session_id": "k",
        "partition_key": "k",
        "correlation_id": "c",
        "application_properties": {"text": "t", "whole": 5, "large": 2**40, "float": 1.5, "yes": True, "none": None},
    }
    assert ask(admin, "messages?path=orders", message) == {}
    with (
        ServiceBusClient.from_connection_string(broker.connection_string("open")) as client,
        client.get_queue_receiver("orders") as receiver,
    ):
        (received,) = receiver.receive_messages()
    assert (str(received), received.message_id, received.subject) == ("héllo", "1", "s")
    assert (received.content_type, received.session_id, received.correlation_id) == ("text/plain", "k", "c")
    (found,) = ask(admin, "messages?path=orders&body=true")
    assert found.items() >= message.items()
    assert "body" not in ask(admin, "messages?path=orders")[0]


def test_dead_letters_show_why(broker: RunningBroker, admin: RunningAdmin) -> None:
    with (
        ServiceBusClient.from_connection_string(broker.connection_string("open")) as client,
        client.get_queue_sender("orders") as sender,
        client.get_queue_receiver("orders") as receiver,
    ):
        sender.send_messages([ServiceBusMessage("a"), ServiceBusMessage("b")])
        for message in receiver.receive_messages(2):
            receiver.dead_letter_message(message, reason="why", error_description="how")
    found = ask(admin, "messages?path=orders/$DeadLetterQueue&body=true&from=2")
    assert [(each["body"], each["dead_letter_reason"], each["dead_letter_description"]) for each in found] == [
        ("b", "why", "how")
    ]


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ({"data_body": b"\xff\x00"}, {"body_base64": "/wA="}),
        ({"data_body": b""}, {"body": ""}),
        ({"data_body": "é".encode() * MAX_BODY}, {"body": "é" * (MAX_BODY // 2), "body_size": 2 * MAX_BODY}),
        ({"data_body": b"\xff" * (MAX_BODY + 1)}, {"body_size": MAX_BODY + 1}),
        ({"value_body": {"key": [1, b"\x00", None]}}, {"body": {"key": [1, "AA==", None]}}),
        ({"sequence_body": [1, "two"]}, {"body": [1, "two"]}),
    ],
)
def test_every_kind_of_body_is_shown(
    broker: RunningBroker, admin: RunningAdmin, body: dict[str, Any], found: dict[str, Any]
) -> None:
    with (
        ServiceBusClient.from_connection_string(broker.connection_string("open")) as client,
        client.get_queue_sender("orders") as sender,
    ):
        sender.send_messages(AmqpAnnotatedMessage(**body))
    (message,) = ask(admin, "messages?path=orders&body=true")
    assert message.items() >= found.items()


def test_values_of_every_type_are_shown_as_what_they_are(broker: RunningBroker, admin: RunningAdmin) -> None:
    named = {
        "price": decimal(Decimal("12.50")),
        "exact": decimal(Decimal("0.1234567890123456789012345678")),
        "when": date_time_offset(638_000_000_000_000_001),
        "day": timestamp(0),
        "wait": time_span(-1),
        "link": uri("https://example.test/a"),
        "guid": uuid(UUID(int=7)),
        "grade": char("A"),
        "rate": double(float("inf")),
    }
    raw = delivered(None, named=named)
    broker.inspect("open", lambda each: each.target("orders").publish(read_content(raw)))
    (message,) = ask(admin, "messages?path=orders&body=true")
    assert message["application_properties"] == {
        "price": 12.5,
        "exact": "0.1234567890123456789012345678",
        "when": "2022-09-28T22:13:20.0000001Z",
        "day": "1970-01-01T00:00:00Z",
        "wait": "-00:00:00.0000001",
        "link": "https://example.test/a",
        "guid": str(UUID(int=7)),
        "grade": "A",
        "rate": "inf",
    }


def test_events_are_sent_and_read(broker: RunningBroker, admin: RunningAdmin) -> None:
    assert broker.port("open")
    for body in ("a", "b"):
        ask(admin, "events?hub=telemetry", {"body": body, "partition_key": "k", "application_properties": {"n": 1}})
    found = ask(admin, "events?hub=telemetry&partition=0") + ask(admin, "events?hub=telemetry&partition=1")
    assert [(each["body"], each["partition_key"], each["application_properties"]) for each in found] == [
        ("a", "k", {"n": 1}),
        ("b", "k", {"n": 1}),
    ]


def test_connections_are_listed_with_their_links(broker: RunningBroker, admin: RunningAdmin) -> None:
    with (
        ServiceBusClient.from_connection_string(broker.connection_string("open")) as client,
        client.get_queue_sender("orders"),
    ):
        (found,) = ask(admin, "connections")
        assert found["transport"] == "TCP"
        assert {"path": "orders", "role": "sender"} in found["links"]


@pytest.mark.parametrize(
    ("path", "body", "text"),
    [
        ("messages?path=orders", {"bodi": "x"}, "bodi: unknown"),
        ("messages?path=orders", {"body": 1}, "body: expected text"),
        ("messages?path=orders", {"application_properties": []}, "expected an object"),
        ("messages?path=orders", {"application_properties": {"x": [1]}}, "application_properties.x"),
        ("messages?path=orders", {"application_properties": {"x": 2**70}}, "application_properties.x"),
        ("messages?path=orders", {"subject": 5}, "subject: expected text"),
        ("messages?path=orders", [], "expected a message"),
        ("messages?path=orders&from=x", None, "from is 'x'"),
        ("messages?path=missing", {}, "could not be found"),
        ("messages?path=prices/Subscriptions/eu", {}, "subscription"),
        ("events?hub=missing", {}, "could not be found"),
        ("events?hub=telemetry&partition=7", None, "expected 0 to 1"),
    ],
)
def test_a_wrong_request_says_what_is_wrong(
    broker: RunningBroker, admin: RunningAdmin, path: str, body: object, text: str
) -> None:
    assert broker.port("open")
    status, answer = refused(admin, path, body)
    assert status in (400, 404)
    assert text in json.loads(answer)["error"]


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost:3000"])
def test_a_page_of_another_site_is_refused(broker: RunningBroker, admin: RunningAdmin, origin: str) -> None:
    assert refused(admin, "messages?path=orders", {"body": "x"}, Origin=origin)[0] in (400, 401)
    assert refused(admin, "", Origin=origin)[0] in (400, 401)
    assert broker.counts("open")["orders"].active == 0
    assert ask(admin, "", Origin=admin.address("open"))["name"] == "open"


# The page


def wait_for(tab: Tab, expression: str) -> None:
    tab.evaluate(
        f"new Promise((done, fail) => {{ const end = Date.now() + 10000; (function look() {{ if ({expression}) done(); "
        "else if (Date.now() > end) fail(new Error(document.body.innerText)); else setTimeout(look, 20); })(); })"
    )


def test_the_page_shows_and_sends_messages(broker: RunningBroker, admin: RunningAdmin, tab: Tab) -> None:
    ask(admin, "messages?path=orders", {"body": HOSTILE, "subject": HOSTILE})
    tab.open(f"{admin.address('open')}/", width=1000)
    wait_for(tab, "document.body.innerText.includes('orders')")
    tab.evaluate("[...document.querySelectorAll('button')].find(each => each.textContent === 'orders').click()")
    wait_for(tab, "document.querySelector('#messages').innerText.includes('onerror')")
    tab.evaluate(
        "document.querySelector('#body').value = 'from the page';"
        "document.querySelector('#application_properties').value = '{\"priority\": 5}';"
        "document.querySelector('#send button').click()"
    )
    wait_for(tab, "document.querySelector('#messages').innerText.includes('from the page')")
    assert tab.evaluate("document.title") == "busway-broker"
    assert tab.evaluate("document.querySelectorAll('img').length") == 0
    assert broker.counts("open")["orders"].active == 2
    for width, dark in ((360, False), (1000, True)):
        tab.open(f"{admin.address('open')}/", width=width, dark=dark)
        wait_for(tab, "document.body.innerText.includes('orders')")
        assert tab.evaluate(CUT.replace("WIDTH", str(width))) == []
        assert tab.evaluate(CONTRAST)[0] >= 4.5


def test_a_mistake_stays_on_the_screen_until_the_next_attempt(
    admin: RunningAdmin, broker: RunningBroker, tab: Tab
) -> None:
    assert broker.port("open")
    tab.open(f"{admin.address('open')}/", width=360)
    wait_for(tab, "document.body.innerText.includes('orders')")
    tab.evaluate("[...document.querySelectorAll('button')].find(each => each.textContent === 'orders').click()")
    wait_for(tab, "!document.querySelector('#details').hidden && scrollY > 0")
    tab.evaluate(
        "document.querySelector('#application_properties').value = '{'; document.querySelector('#send button').click()"
    )
    problem = "document.querySelector('#problem')"
    wait_for(tab, f"{problem}.textContent.startsWith('application properties: ')")
    tab.evaluate("attempt(refresh)")
    assert tab.evaluate(f"{problem}.textContent.length") > 0
    tab.evaluate("scrollTo(0, document.body.scrollHeight)")
    assert 0 <= tab.evaluate(f"{problem}.getBoundingClientRect().top") < 800
    tab.evaluate(
        "document.querySelector('#application_properties').value = ''; document.querySelector('#send button').click()"
    )
    wait_for(tab, f"{problem}.textContent === ''")


def test_a_phone_shows_the_whole_of_a_message(admin: RunningAdmin, broker: RunningBroker, tab: Tab) -> None:
    ask(admin, "messages?path=orders", {"body": "x" * 300, "application_properties": {"priority": 5}})
    assert broker.counts("open")["orders"].active == 1
    tab.open(f"{admin.address('open')}/", width=360)
    wait_for(tab, "document.body.innerText.includes('orders')")
    tab.evaluate("[...document.querySelectorAll('button')].find(each => each.textContent === 'orders').click()")
    wait_for(tab, "document.querySelector('#messages').innerText.includes('xxx')")
    cells = "[...document.querySelectorAll('td')]"
    assert tab.evaluate(f"{cells}.filter(each => each.getBoundingClientRect().right > 361).length") == 0
    assert tab.evaluate(f"{cells}.map(each => each.dataset.name).includes('body')")


def test_the_page_asks_for_a_key_and_signs_with_it(broker: RunningBroker, admin: RunningAdmin, tab: Tab) -> None:
    assert broker.port("keyed")
    tab.open(f"{admin.address('keyed')}/", width=1000)
    wait_for(tab, "!document.querySelector('#key').hidden")
    assert "orders" not in tab.evaluate("document.body.innerText")
    tab.evaluate(
        "document.querySelector('#key-value').value = 'd3Jvbmc='; document.querySelector('#key button').click()"
    )
    wait_for(tab, "document.querySelector('#problem').textContent.startsWith('the key is refused')")
    tab.evaluate(
        "document.querySelector('#key-value').value = 'c2VjcmV0'; document.querySelector('#key button').click()"
    )
    wait_for(tab, "document.body.innerText.includes('orders')")


def test_the_page_loads_nothing_from_elsewhere(admin: RunningAdmin) -> None:
    with urlopen(f"{admin.address('open')}/", timeout=60) as answer:  # noqa: S310 - the broker's own address
        policy, text = answer.headers["Content-Security-Policy"], answer.read().decode()
    assert "default-src 'none'" in policy
    assert "NONCE" not in text
    assert "http" not in text
    assert len(text) < 16_000


def test_the_file_is_in_the_wheel() -> None:
    configuration = Path(__file__).parents[2] / "broker/pyproject.toml"
    assert '"admin/page.html"' in configuration.read_text(encoding="utf-8")
