"""
Transactions conserve messages: whatever commits or fails, each message is at the source or at the target.

Two clients move messages of one queue to another within transactions, as NServiceBus does: settle here and send there.
"""

import datetime as dt
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from broker.tests.unit import controller
from broker.tests.unit.controller import CONFIG, Controller, deliveries, new_namespace, texts
from busway_broker.config import EntityStatus
from busway_broker.core.administration import Administration
from busway_broker.core.namespace import Namespace
from busway_broker.storage.namespace_storage import NamespaceStorage
from shared.amqp.performatives import ACCEPTED
from shared.clock import ManualClock

NAMES = [b"a", b"b", b"c", b"d", b"e"]
PLACES = ("source", "source/$deadletterqueue", "source/$transfer/$deadletterqueue", "target", "target/$deadletterqueue")


class Client:
    """A client that moves what it has received, each time within a transaction."""

    def __init__(self, namespace: Namespace) -> None:
        self.namespace = namespace
        self.peer = Controller(namespace, spans_entities=True)
        self.receiver, heard = self.peer.receiver("source", credit=2)
        self.count = 0
        self.received: list[tuple[int, bytes]] = []
        self.moved: list[tuple[int, bytes]] = []
        self.transaction: bytes | None = None
        self.hear(heard)
        self.sender = self.peer.sender("target")

    def hear(self, heard: list[Any]) -> None:
        payloads = [payload for _, code, _, payload in heard if code == 0x14]
        self.received += zip(
            deliveries(heard), [payload.rpartition(b"\xa0")[2][1:] for payload in payloads], strict=True
        )
        self.count += len(payloads)

    def move(self, index: int) -> None:
        self.hear(self.peer.heard())
        self.hear(self.peer.say(self.peer.flow(self.receiver, 2, delivery_count=self.count)))
        if not self.received:
            return
        number, name = self.received.pop(index % len(self.received))
        self.moved.append((number, name))
        if self.transaction is None:
            self.transaction = self.peer.declare()
        settle = partial(self.peer.settle_in, self.transaction, number)
        send = partial(self.peer.send_in, self.transaction, self.sender, name)
        states = [each() for each in ((settle, send) if index % 2 else (send, settle))]
        if any(state is None or state.code != ACCEPTED or state.transaction_id is None for state in states):
            self.discharge(fail=True)

    def settle(self, index: int) -> None:
        """Abandon a message outside of the transaction, which may settle it too."""
        known = [*self.moved, *self.received]
        if known:
            self.peer.settle(known[index % len(known)][0], controller.ABANDONED)

    def discharge(self, *, fail: bool) -> None:
        if self.transaction is not None:
            state = self.peer.discharge(self.transaction, fail=fail)
            if fail or state.code != ACCEPTED:
                self.received += self.moved
            self.transaction, self.moved = None, []


class World:
    """A namespace, perhaps with a storage that survives the process, and two clients."""

    def __init__(self, namespace: Namespace, storage: NamespaceStorage | None = None) -> None:
        self.namespace = namespace
        self.storage = storage
        self.clients = [Client(namespace), Client(namespace)]

    def step(self, kind: str, which: int, number: int) -> None:
        client = self.clients[which]
        match kind:
            case "move":
                client.move(number)
            case "commit" | "roll back":
                client.discharge(fail=kind != "commit")
            case "settle":
                client.settle(number)
            case "cut":
                client.peer.connection.release()
                self.clients[which] = Client(self.namespace)
            case "wait":
                assert isinstance(self.namespace.clock, ManualClock)
                self.namespace.clock.advance(25 * number)
                self.namespace.advance()
            case "disable" | "enable":
                status = EntityStatus.DISABLED if kind == "disable" else EntityStatus.ACTIVE
                queue = self.namespace.queue("target")
                Administration(self.namespace).update(queue, replace(queue.config, status=status))
                if kind == "enable":
                    for each in self.clients:
                        each.sender = each.peer.sender("target")
        if self.storage is not None:
            self.storage.commit()
        found = [name for place in PLACES for name in texts(self.namespace, place)]
        assert sorted(found) == NAMES


STEP = st.tuples(
    st.sampled_from([*["move"] * 6, *["commit"] * 4, "roll back", "settle", "cut", "wait", "disable", "enable"]),
    st.integers(0, 1),
    st.integers(0, 4),
)
STEPS = st.lists(STEP, min_size=15, max_size=40)
# Each is written to the disk.
STORED_STEPS = st.lists(STEP, min_size=5, max_size=20)


def fill(namespace: Namespace) -> None:
    peer = Controller(namespace)
    sender = peer.sender("source")
    for name in NAMES:
        peer.send_text(sender, name)
    peer.connection.release()


@given(steps=STEPS)
def test_each_message_is_at_the_source_or_at_the_target(steps: list[tuple[str, int, int]]) -> None:
    namespace = new_namespace()
    fill(namespace)
    world = World(namespace)
    for step in steps:
        world.step(*step)


@contextmanager
def opened(folder: Path) -> Iterator[World]:
    clock = ManualClock(dt.datetime(2026, 1, 1, tzinfo=dt.UTC))
    with NamespaceStorage(folder, CONFIG, clock, is_synced=False) as storage:
        if not any(texts(storage.namespace, place) for place in PLACES):
            fill(storage.namespace)
        yield World(storage.namespace, storage)


@given(before=STORED_STEPS, after=STORED_STEPS)
def test_so_it_is_after_a_restart(before: list[tuple[str, int, int]], after: list[tuple[str, int, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for steps in (before, after):
            # The transactions that are open at the end are rolled back: of a broker that is killed, see broker/tests.
            with opened(Path(folder)) as world:
                for step in steps:
                    world.step(*step)
