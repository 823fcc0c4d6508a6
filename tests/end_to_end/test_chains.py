"""Chained and encrypted on one side, decrypted and verified on the other, in an app that is killed on the way."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from busway_broker.config import NamespaceConfig, QueueConfig
from busway_broker.thread import RunningBroker
from tests.end_to_end.host_process import ROOT, HostProcess
from tests.keys import jwks, made, settings

WEST = NamespaceConfig(name="west", queues=(QueueConfig(name="payments", requires_session=True),))
EAST = NamespaceConfig(
    name="east",
    queues=(
        QueueConfig(name="arrived", requires_session=True),
        QueueConfig(name="payments", requires_session=True),
        QueueConfig(name="set-aside"),
    ),
)
CONNECTIONS = """
west: {kind: service-bus, setting: WEST}
east: {kind: service-bus, setting: EAST}
"""
TASKS = """
task: out
source: {connection: west, queue: payments, sessions: true}
editors:
  - chain: {key: sign, sequence: session, store: {setting: STATE}}
  - encrypt: {key: seal, bind: [sys.MessageId]}
routes: [{target: {connection: east, queue: arrived}}]
---
task: in
source: {connection: east, queue: arrived, sessions: true}
editors:
  - decrypt: {key: seal, bind: [sys.MessageId]}
  - verify-chain: {key: sign, chain_of: west/payments, store: {setting: STATE}}
routes: [{target: {connection: east, queue: payments}}]
rejects: {connection: east, queue: set-aside}
loop_prevention: off
"""
SESSIONS = ("a", "b")
EACH = 40


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    with RunningBroker([WEST, EAST]) as running:
        yield running


def test_a_killed_app_breaks_no_chain_and_loses_no_message(broker: RunningBroker, tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "connections.yaml").write_text(CONNECTIONS)
    (tmp_path / "tasks" / "tasks.yaml").write_text(TASKS)
    app = {
        "BUSWAY_CONFIG": str(tmp_path),
        "WEST": broker.connection_string("west"),
        "EAST": broker.connection_string("east"),
        "STATE": f"file:{tmp_path / 'state.db'}",
        **settings(sign=jwks(made("Ed25519", "s1")), seal=jwks(made("oct", "e1"))),
    }

    def active(site: str, queue: str) -> int:
        return broker.counts(site)[queue].active

    with ServiceBusClient.from_connection_string(app["WEST"]) as client, client.get_queue_sender("payments") as sender:
        for session in SESSIONS:
            numbers = range(1, EACH + 1)
            sender.send_messages(
                [
                    ServiceBusMessage(b"%d" % each, message_id=f"{session}-{each}", session_id=session)
                    for each in numbers
                ]
            )
    with HostProcess(str(ROOT), tmp_path, app) as host:
        host.wait_until_ready()
        host.wait_for(lambda: active("east", "arrived") + active("east", "payments"))
        host.kill()
    with HostProcess(str(ROOT), tmp_path, app) as host:
        host.wait_until_ready()
        received = {session: received_in(app["EAST"], session) for session in SESSIONS}
        assert host.stop() == 0
    for bodies in received.values():
        # What the crash has doubled comes again; the first of each are in their order.
        assert list(dict.fromkeys(bodies)) == [str(number) for number in range(1, EACH + 1)]
    assert active("east", "set-aside") == 0


def received_in(namespace: str, session: str) -> list[str]:
    """Return the bodies of a session as they come, until each has come."""
    bodies: list[str] = []
    with ServiceBusClient.from_connection_string(namespace) as client:
        receiver = client.get_queue_receiver("payments", session_id=session)
        with receiver:
            while len(set(bodies)) < EACH:
                batch = receiver.receive_messages(EACH, max_wait_time=60)
                assert batch, bodies
                for each in batch:
                    receiver.complete_message(each)
                    bodies.append(b"".join(each.body).decode())
    return bodies
