"""Chained and encrypted on one side, decrypted and verified on the other, in an app that is killed on the way."""

from pathlib import Path

from azure.servicebus import ServiceBusMessage

from tests.keys import jwks, made, settings
from tests.site import Site

ENTITIES = """
west: {queues: {payments: {requires_session: true}}}
east: {queues: {arrived: {requires_session: true}, payments: {requires_session: true}, set-aside: }}
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


def test_a_killed_app_breaks_no_chain_and_loses_no_message(tmp_path: Path) -> None:
    secrets = settings(sign=jwks(made("Ed25519", "s1")), seal=jwks(made("oct", "e1")))
    with Site(tmp_path, ENTITIES, TASKS, settings={"STATE": f"file:{tmp_path / 'state.db'}", **secrets}) as site:
        for session in SESSIONS:
            numbers = range(1, EACH + 1)
            site.send(
                "west/payments",
                *(ServiceBusMessage(b"%d" % n, message_id=f"{session}-{n}", session_id=session) for n in numbers),
            )
        with site.host() as host:
            host.wait_until_ready()
            host.wait_for(lambda: site.active("east/arrived") + site.active("east/payments"))
            host.kill()
        with site.running_host():
            received = {session: received_in(site, session) for session in SESSIONS}
        for bodies in received.values():
            # What the crash has doubled comes again; the first of each are in their order.
            assert list(dict.fromkeys(bodies)) == [str(number) for number in range(1, EACH + 1)]
        assert site.active("east/set-aside") == 0


def received_in(site: Site, session: str) -> list[str]:
    """Return the bodies of a session as they come, until each has come."""
    bodies: list[str] = []
    with site.receiver("east/payments", session_id=session) as receiver:
        while len(set(bodies)) < EACH:
            batch = receiver.receive_messages(EACH, max_wait_time=60)
            assert batch, bodies
            for message in batch:
                receiver.complete_message(message)
                bodies.append(str(message))
    return bodies
