"""Keys that a namespace declares: who is let in, who is not, and what the SDKs raise."""

import contextlib
import datetime as dt
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from azure.core.credentials import AzureSasCredential
from azure.core.exceptions import ClientAuthenticationError
from azure.eventhub import EventData, EventHubConsumerClient, EventHubProducerClient
from azure.eventhub.exceptions import AuthenticationError, EventHubError
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.exceptions import ServiceBusAuthenticationError, ServiceBusAuthorizationError
from azure.servicebus.management import ServiceBusAdministrationClient

from broker.tests.javascript_client import run_script
from broker.tests.signatures import signature
from busway_broker.admin.thread import RunningAdmin
from busway_broker.config import HubConfig, NamespaceConfig, QueueConfig, Right, SharedAccessKey
from busway_broker.server import BrokerServer
from busway_broker.thread import RunningBroker
from shared.amqp import sasl
from shared.amqp.codec import encode
from shared.amqp.fields import compose_list
from shared.amqp.frames import SASL, compose
from shared.amqp.values import binary, symbol
from shared.clock import ManualClock

SENDER = SharedAccessKey(name="sender", key="send key", rights=frozenset((Right.SEND,)))
LISTENER = SharedAccessKey(name="listener", key="listen+key/=", rights=frozenset((Right.LISTEN,)))
OWNER = SharedAccessKey(name="owner", key="owner key")
KEEPER = SharedAccessKey(name="keeper", key="keeper's key")
OWN = SharedAccessKey(name="own", key="own key", secondary_key="other key", rights=frozenset((Right.SEND,)))
CONFIG = NamespaceConfig(
    name="west",
    queues=(QueueConfig(name="orders"), QueueConfig(name="guarded", authorization_rules=(OWN, KEEPER))),
    hubs=(HubConfig(name="hub"),),
    shared_access_keys=(SENDER, LISTENER, OWNER),
)


# Tokens expire by the machine's clock, not by the broker's.
NAMESPACES, CLOCK = [CONFIG], ManualClock(dt.datetime(2099, 1, 1, tzinfo=dt.UTC))


@pytest.fixture(scope="module")
def running_admin(running_broker: RunningBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningAdmin]:
    with RunningAdmin(running_broker, tmp_path_factory.mktemp("tls")) as admin:
        yield admin


def connection_string(broker: RunningBroker, name: str, key: str, extra: str = "") -> str:
    endpoint = f"Endpoint=sb://localhost:{broker.port('west')}"
    return f"{endpoint};SharedAccessKeyName={name};SharedAccessKey={key};UseDevelopmentEmulator=true{extra}"


@contextlib.contextmanager
def service_bus(broker: RunningBroker, name: str, key: str) -> Iterator[ServiceBusClient]:
    with ServiceBusClient.from_connection_string(connection_string(broker, name, key), retry_total=0) as client:
        yield client


def send(client: ServiceBusClient, queue: str = "orders") -> None:
    with client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage("body"))


def receive(client: ServiceBusClient, queue: str = "orders") -> list[ServiceBusReceivedMessage]:
    with client.get_queue_receiver(queue) as receiver:
        return receiver.receive_messages(max_wait_time=0.2)


@pytest.mark.parametrize(("name", "key"), [("owner", "wrong"), ("nobody", "owner key")])
def test_a_wrong_key_is_refused(broker: RunningBroker, name: str, key: str) -> None:
    with service_bus(broker, name, key) as client:
        with pytest.raises(ServiceBusAuthenticationError) as caught:
            send(client)
        # The answer has a condition, as in Azure: then the SDK forgets its status and its description.
        assert "Status code: None" in str(caught.value.inner_exception)
        with pytest.raises(ServiceBusAuthenticationError):
            receive(client)


def test_a_key_gives_its_rights_and_no_others(broker: RunningBroker) -> None:
    with service_bus(broker, "sender", "send key") as client:
        send(client)
        with pytest.raises(ServiceBusAuthorizationError, match="'Listen' claim"):
            receive(client)
    with service_bus(broker, "listener", "listen+key/=") as client:
        assert receive(client)
        with pytest.raises(ServiceBusAuthorizationError, match="'Send' claim"):
            send(client)
    with ServiceBusClient.from_connection_string(broker.connection_string("west"), retry_total=0) as client:
        send(client)
        assert receive(client)


def test_requests_ask_for_the_right_they_need(broker: RunningBroker) -> None:
    later = dt.datetime.now(dt.UTC) + dt.timedelta(days=40_000)
    with service_bus(broker, "sender", "send key") as client, client.get_queue_sender("orders") as sender:
        (number,) = sender.schedule_messages(ServiceBusMessage("later"), later)
        sender.cancel_scheduled_messages(number)
        with pytest.raises(ServiceBusAuthorizationError), client.get_queue_receiver("orders") as receiver:
            receiver.peek_messages()
    with service_bus(broker, "listener", "listen+key/=") as client:
        with client.get_queue_receiver("orders") as receiver:
            receiver.peek_messages()
        with pytest.raises(ServiceBusAuthorizationError), client.get_queue_sender("orders") as sender:
            sender.schedule_messages(ServiceBusMessage("later"), later)


@pytest.mark.parametrize("key", ["own key", "other key"])
def test_the_key_of_an_entity_is_for_that_entity(broker: RunningBroker, key: str) -> None:
    with service_bus(broker, "own", key) as client:
        send(client, "guarded")
        with pytest.raises(ServiceBusAuthenticationError):
            send(client, "orders")


@pytest.mark.parametrize("resource", ["sb://localhost/orders", "https://localhost/ORDERS/", "amqp://localhost"])
def test_a_token_for_the_entity_or_the_namespace_is_taken(broker: RunningBroker, resource: str) -> None:
    credential = AzureSasCredential(signature(resource, OWNER))
    with ServiceBusClient(f"localhost:{broker.port('west')}", credential, retry_total=0, use_tls=False) as client:
        send(client)


def test_a_link_ends_with_its_token(broker: RunningBroker) -> None:
    with ServiceBusClient(
        f"localhost:{broker.port('west')}",
        AzureSasCredential(signature("sb://localhost/orders", OWNER, seconds=2)),
        retry_total=0,
        use_tls=False,
    ) as client:
        send(client)
        # Run the check that the connection's timer makes every few seconds.
        with client.get_queue_receiver("orders") as receiver:
            receiver.peek_messages()
            time.sleep(2)

            def tick(peers: Any) -> None:
                for peer in peers:
                    peer._connection.tick()
                    peer._flush()

            async def tick_all(server: BrokerServer) -> None:
                tick(list(server._listeners["west"].peers))

            broker.run(tick_all)
            with pytest.raises((ServiceBusAuthorizationError, ServiceBusAuthenticationError)):
                receiver.receive_messages(max_wait_time=2)


def test_event_hubs_clients_are_checked_too(broker: RunningBroker) -> None:
    def producer(name: str, key: str) -> EventHubProducerClient:
        text = connection_string(broker, name, key)
        return EventHubProducerClient.from_connection_string(text, eventhub_name="hub", retry_total=0)

    with producer("sender", "send key") as client:
        client.send_batch([EventData("body")])
        assert client.get_partition_ids() == ["0"]
    with producer("sender", "wrong") as client, pytest.raises(AuthenticationError):
        client.send_batch([EventData("body")])
    with producer("listener", "listen+key/=") as client, pytest.raises(EventHubError, match="unauthorized-access"):
        client.send_batch([EventData("body")])
    with (
        EventHubConsumerClient.from_connection_string(
            connection_string(broker, "sender", "wrong"), consumer_group="$Default", eventhub_name="hub", retry_total=0
        ) as consumer,
        pytest.raises(AuthenticationError),
    ):
        consumer.get_eventhub_properties()


def test_the_administration_requires_manage(admin: RunningAdmin) -> None:
    def client(name: str, key: str) -> ServiceBusAdministrationClient:
        endpoint = admin.address("west").replace("https", "sb")
        return ServiceBusAdministrationClient.from_connection_string(
            f"Endpoint={endpoint};SharedAccessKeyName={name};SharedAccessKey={key}",
            connection_verify=str(admin.authority),
            retry_total=0,
        )

    with client("owner", "owner key") as owner:
        assert owner.get_queue("orders").name == "orders"
        rules = owner.get_queue("guarded").authorization_rules
        assert rules is not None
        assert rules[0].key_name == "own"
    for name, key, reason in (
        ("owner", "wrong", "InvalidSignature"),
        ("nobody", "key", "InvalidSignature"),
        ("sender", "send key", "Manage"),
        ("listener", "listen+key/=", "Manage"),
    ):
        with client(name, key) as stranger:
            with pytest.raises(ClientAuthenticationError, match=reason) as caught:
                stranger.get_queue("orders")
            assert caught.value.status_code == 401
            with pytest.raises(ClientAuthenticationError):
                stranger.create_queue("new")


@pytest.mark.parametrize("path", ["$busway", "$busway/counts", "orders"])
def test_nothing_is_shown_without_a_token(broker: RunningBroker, path: str) -> None:
    with RunningAdmin(broker) as plain, pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"{plain.address('west')}/{path}", timeout=5)  # noqa: S310 - it is http
    assert caught.value.code == 401
    assert b"MissingToken" in caught.value.read()


def forwarding(to: str, element: str = "ForwardTo") -> bytes:
    # What a description leaves out is removed.
    rights = "".join(f"<AccessRights>{right}</AccessRights>" for right in Right)
    keys = f"<KeyName>{KEEPER.name}</KeyName><PrimaryKey>{KEEPER.key}</PrimaryKey>"
    rules = f"<AuthorizationRule><Rights>{rights}</Rights>{keys}</AuthorizationRule>"
    content = f"<AuthorizationRules>{rules}</AuthorizationRules><{element}>{to}</{element}>"
    connect = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
    description = f'<QueueDescription xmlns="{connect}">{content}</QueueDescription>'
    return f'<entry xmlns="http://www.w3.org/2005/Atom"><content>{description}</content></entry>'.encode()


@pytest.mark.parametrize("element", ["ForwardTo", "ForwardDeadLetteredMessagesTo"])
@pytest.mark.parametrize(
    ("key", "supplement", "status"),
    [
        (KEEPER, None, 401),
        (KEEPER, lambda: signature("sb://localhost/guarded", KEEPER), 401),
        (KEEPER, lambda: signature("sb://localhost/orders", SENDER, secret="wrong"), 401),
        (KEEPER, lambda: signature("sb://localhost/orders", LISTENER), 401),
        (KEEPER, lambda: signature("sb://localhost/orders", SENDER), 200),
        (OWNER, None, 401),
        (OWNER, lambda: signature("sb://localhost/orders", OWNER), 200),
    ],
)
def test_who_lets_an_entity_forward_needs_the_right_to_send_to_the_other_one(
    broker: RunningBroker,
    key: SharedAccessKey,
    supplement: Callable[[], str] | None,
    status: int,
    element: str,
) -> None:
    headers = {"Authorization": signature("sb://localhost/guarded", key), "If-Match": "*"}
    header = f"ServiceBus{'' if element == 'ForwardTo' else 'Dlq'}SupplementaryAuthorization"
    headers |= {header: supplement()} if supplement else {}
    with RunningAdmin(broker) as plain:
        assert put(plain, forwarding("sb://localhost/orders", element), headers) == status
        headers = {"Authorization": signature("sb://localhost/guarded", OWNER), "If-Match": "*"}
        assert put(plain, forwarding("", element), headers) == 200


def put(admin: RunningAdmin, body: bytes, headers: dict[str, str]) -> int:
    address = f"{admin.address('west')}/guarded?api-version=2021-05"
    request = urllib.request.Request(address, body, headers, method="PUT")  # noqa: S310 - it is http
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:  # noqa: S310 - likewise
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.parametrize(
    "token",
    [
        f"SharedAccessSignature sr=orders&sig=x&se={'9' * 5000}&skn=owner",
        "SharedAccessSignature sr=\xff&sig=x&se=99999999999&skn=owner",
        "SharedAccessSignature sr=orders&sig=\xff&se=99999999999&skn=owner",
        "Bearer \xff",
    ],
)
def test_a_malformed_token_is_refused_by_the_administration(broker: RunningBroker, token: str) -> None:
    with RunningAdmin(broker) as plain:
        assert put(plain, forwarding(""), {"Authorization": token}) == 401


@pytest.mark.parametrize(("script", "arguments"), [("administration", ["unauthorized"]), ("authentication", [])])
def test_the_javascript_clients_work(
    broker: RunningBroker, admin: RunningAdmin, script: str, arguments: list[str]
) -> None:
    if script == "administration":
        text = admin.connection_string("west").replace("owner key", "wrong")
    else:
        text = broker.connection_string("west")
    run_script(script, text, *arguments, authority=admin.authority)


def _sasl_plain(broker: RunningBroker, response: bytes) -> bytes:
    mechanism = encode(symbol("PLAIN"))
    with socket.create_connection(("127.0.0.1", broker.port("west")), timeout=5) as peer:
        peer.sendall(b"AMQP\x03\x01\x00\x00")
        peer.sendall(compose(0, compose_list(sasl.INIT, [mechanism, encode(binary(response))]), kind=SASL))
        received = b""
        while b"\x00\x53\x44" not in received or len(received) < received.index(b"\x00\x53\x44") + 8:
            part = peer.recv(4096)
            if not part:
                break
            received += part
    return received[received.index(b"\x00\x53\x44") :]


def test_sasl_plain_accepts_the_key(broker: RunningBroker) -> None:
    assert b"\x50\x00" in _sasl_plain(broker, b"\x00owner\x00owner key")
    for wrong in (b"\x00owner\x00wrong", b"\x00nobody\x00owner key", b"", b"\x00owner", b"\x00\xff\x00\xff"):
        assert b"\x50\x01" in _sasl_plain(broker, wrong)
