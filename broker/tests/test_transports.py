"""AMQP over TLS and over WebSockets, as the unmodified clients of Python and JavaScript use them."""

import asyncio
import contextlib
import os
import shutil
import socket
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from azure.eventhub import EventData, EventHubProducerClient, TransportType
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient as AsyncServiceBusClient
from azure.servicebus.exceptions import ServiceBusError

from busway_broker.admin.certificate import AUTHORITY_FILE, server_context
from busway_broker.admin.thread import RunningAdmin
from busway_broker.config import HubConfig, NamespaceConfig, QueueConfig, SharedAccessKey
from busway_broker.thread import RunningBroker
from shared.amqp.frames import AMQP_HEADER

SCRIPT = Path(__file__).parent / "javascript" / "transports.mjs"
PACKAGES = Path(__file__).parents[2] / "node_modules" / "@azure"
KEY = SharedAccessKey(name="root", key="secret")
CREDENTIALS = "SharedAccessKeyName=root;SharedAccessKey="
PATH = "/$servicebus/websocket"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def broker(folder: Path) -> Iterator[RunningBroker]:
    namespaces = [
        NamespaceConfig(name="n", queues=(QueueConfig(name="q"),), shared_access_keys=(KEY,)),
        NamespaceConfig(name="hubs", hubs=(HubConfig(name="h"),), shared_access_keys=(KEY,)),
    ]
    with RunningBroker(namespaces, tls=server_context(folder)) as running:
        yield running


@pytest.fixture
def authority(folder: Path) -> str:
    return str(folder / AUTHORITY_FILE)


def over(broker: RunningBroker, name: str, authority: str, **options: Any) -> dict[str, Any]:
    endpoint = f"https://localhost:{broker.port(name)}"
    return {"custom_endpoint_address": endpoint, "connection_verify": authority, "retry_total": 0, **options}


WAYS: list[dict[str, Any]] = [{}, {"transport_type": TransportType.AmqpOverWebsocket}]


@pytest.mark.parametrize("way", WAYS)
def test_messages_pass_with_the_synchronous_client(broker: RunningBroker, authority: str, way: dict[str, Any]) -> None:
    text = f"Endpoint=sb://localhost;{CREDENTIALS}secret"
    bodies = [str(number) * 20_000 for number in range(10)]
    with ServiceBusClient.from_connection_string(text, **over(broker, "n", authority, **way)) as client:
        with client.get_queue_sender("q") as sender:
            for body in bodies:
                sender.send_messages(ServiceBusMessage(body))
        with client.get_queue_receiver("q") as receiver:
            received: list[str] = []
            while len(received) < len(bodies):
                for message in receiver.receive_messages(10, max_wait_time=2):
                    received.append(str(message))
                    receiver.complete_message(message)
    assert received == bodies
    assert broker.counts("n")["q"].active == 0


@pytest.mark.parametrize("way", WAYS)
def test_messages_pass_with_the_asynchronous_client(broker: RunningBroker, authority: str, way: dict[str, Any]) -> None:
    async def exchange() -> str:
        text = f"Endpoint=sb://localhost;{CREDENTIALS}secret"
        client = AsyncServiceBusClient.from_connection_string(text, **over(broker, "n", authority, **way))
        async with client, client.get_queue_sender("q") as sender, client.get_queue_receiver("q") as receiver:
            await sender.send_messages(ServiceBusMessage("x" * 200_000))
            (message,) = await receiver.receive_messages(1, max_wait_time=2)
            await receiver.complete_message(message)
            return str(message)

    assert len(asyncio.run(exchange())) == 200_000


@pytest.mark.parametrize("way", WAYS)
def test_events_pass(broker: RunningBroker, authority: str, way: dict[str, Any]) -> None:
    text = f"Endpoint=sb://localhost;{CREDENTIALS}secret;EntityPath=h"
    with EventHubProducerClient.from_connection_string(text, **over(broker, "hubs", authority, **way)) as client:
        client.send_batch([EventData("x")])
        assert client.get_partition_properties("0")["is_empty"] is False


def test_web_sockets_are_on_the_port_of_the_administration_too(
    broker: RunningBroker, folder: Path, authority: str
) -> None:
    text = f"Endpoint=sb://localhost;{CREDENTIALS}secret"
    with RunningAdmin(broker, folder) as admin:
        options = {**over(broker, "n", authority, **WAYS[1]), "custom_endpoint_address": admin.address("n")}
        with ServiceBusClient.from_connection_string(text, **options) as client:
            with client.get_queue_sender("q") as sender:
                sender.send_messages(ServiceBusMessage("x"))
            with client.get_queue_receiver("q", receive_mode="receiveanddelete") as receiver:
                assert [str(message) for message in receiver.receive_messages(1, max_wait_time=5)] == ["x"]


def test_javascript_passes(broker: RunningBroker, authority: str) -> None:
    node = shutil.which("node")
    if node is None or not PACKAGES.exists():
        pytest.skip("needs node and the npm packages of @azure")
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout  # noqa: S603
    options = ["--experimental-websocket"] if int(version[1:].partition(".")[0]) < 22 else []
    texts = [f"Endpoint=sb://localhost:{broker.port(name)};{CREDENTIALS}secret" for name in ("n", "hubs")]
    run = subprocess.run(  # noqa: S603 - a script of this folder
        [node, *options, SCRIPT, *texts],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | {"NODE_EXTRA_CA_CERTS": authority},
    )
    assert run.returncode == 0, run.stderr


def test_a_wrong_key_is_refused(broker: RunningBroker, authority: str) -> None:
    text = f"Endpoint=sb://localhost;{CREDENTIALS}wrong"
    with (
        ServiceBusClient.from_connection_string(text, **over(broker, "n", authority)) as client,
        pytest.raises(ServiceBusError) as caught,
        contextlib.closing(client.get_queue_sender("q")) as sender,
    ):
        sender.send_messages(ServiceBusMessage("x"))
    # With an endpoint of its own, the client raises the error of a connection, not that of a token.
    assert "CBS Token authentication failed" in str(caught.value.inner_exception)


def test_a_client_that_does_not_trust_the_authority_fails_alone(broker: RunningBroker, authority: str) -> None:
    text = f"Endpoint=sb://localhost;{CREDENTIALS}secret"
    options = over(broker, "n", authority)
    del options["connection_verify"]
    with (
        ServiceBusClient.from_connection_string(text, **options) as client,
        pytest.raises(ServiceBusError),
        contextlib.closing(client.get_queue_sender("q")) as sender,
    ):
        sender.send_messages(ServiceBusMessage("x"))
    test_messages_pass_with_the_synchronous_client(broker, authority, {})


def test_the_same_port_takes_plain_connections(broker: RunningBroker) -> None:
    with socket.create_connection(("127.0.0.1", broker.port("n")), timeout=2) as peer:
        peer.sendall(AMQP_HEADER.encode())
        assert peer.recv(8) == AMQP_HEADER.encode()


def test_silent_and_broken_connections_end_with_the_broker(folder: Path) -> None:
    with RunningBroker([NamespaceConfig(name="n")], tls=server_context(folder)) as running:
        port = running.port("n")
        silent = socket.create_connection(("127.0.0.1", port), timeout=2)
        half = socket.create_connection(("127.0.0.1", port), timeout=2)
        half.sendall(b"\x16\x03\x01")
        gone = socket.create_connection(("127.0.0.1", port), timeout=2)
        gone.close()
        garbage = socket.create_connection(("127.0.0.1", port), timeout=2)
        garbage.sendall(b"\x16" + bytes(1000))
        assert b"HTTP" not in garbage.recv(1000)
    for peer in (silent, half, garbage):
        peer.close()


def test_only_the_owner_reads_the_key(folder: Path, broker: RunningBroker) -> None:
    assert broker.port("n")
    modes = {
        path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir() if b"PRIVATE" in path.read_bytes()
    }
    assert modes == {"busway-server.pem": 0o600}


# Requests that are no WebSockets, or not of a program on this machine


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/", {}, 400),
        ("/", {"Host": ""}, 400),
        (PATH, {}, 426),
        (PATH, {"Host": "evil.example:5672"}, 403),
        (PATH, {"Origin": "https://evil.example"}, 403),
        (PATH, {"Origin": "null"}, 403),
        (PATH, {"Origin": "http://localhost:3000"}, 426),
    ],
)
def test_other_requests_are_refused(broker: RunningBroker, path: str, headers: dict[str, str], status: int) -> None:
    async def ask() -> int:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{broker.port('n')}{path}", headers=headers) as answer,
        ):
            return answer.status

    assert asyncio.run(ask()) == status


@pytest.mark.parametrize("protocols", [(), ("mqtt",)])
def test_another_subprotocol_is_closed(broker: RunningBroker, protocols: tuple[str, ...]) -> None:
    async def ask() -> int | None:
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(f"http://127.0.0.1:{broker.port('n')}{PATH}", protocols=protocols) as peer,
        ):
            await peer.receive(timeout=2)
            return peer.close_code

    assert asyncio.run(ask()) == 1002


def test_amqp_may_be_cut_anywhere(broker: RunningBroker) -> None:
    async def ask() -> bytes:
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(f"http://localhost:{broker.port('n')}{PATH}/", protocols=("amqp",)) as peer,
        ):
            for byte in AMQP_HEADER.encode():
                await peer.send_bytes(bytes([byte]))
            header = await peer.receive_bytes(timeout=2)
            await peer.send_str("text")
            assert (await peer.receive(timeout=2)).type is aiohttp.WSMsgType.CLOSE
            return header

    assert asyncio.run(ask()) == AMQP_HEADER.encode()
