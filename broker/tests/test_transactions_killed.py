"""A broker with `--data`, killed while clients are within transactions: each one is done as a whole or not at all."""

import datetime as dt
import random
import socket
import time
from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from broker.tests.broker_process import BrokerProcess
from broker.tests.unit.controller import Controller, deliveries, new_namespace, texts
from busway_broker.config import NamespaceConfig, QueueConfig
from busway_broker.storage.namespace_storage import NamespaceStorage
from shared.amqp import performatives
from shared.amqp.fields import read_list
from shared.amqp.frames import HEADER, compose
from shared.amqp.performatives import Flow
from shared.clock import ManualClock

LIVES = 3
CLIENTS = 3
MESSAGES = [b"%d" % number for number in range(60)]
PIECES = (b"a", b"b", b"c")
NAMESPACE = {"Name": "n", "Queues": [{"Name": "source"}, {"Name": "target"}]}
CONFIG = NamespaceConfig(name="n", queues=(QueueConfig(name="source"), QueueConfig(name="target")))
ECHO = compose(0, performatives.flow(Flow(1, 10_000, 0, 5000, None, None, None, drain=False, echo=True)))


class Wire:
    """A socket in place of a connection: a question follows whatever is said, and its answer ends what is heard."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=20)

    def receive(self, data: bytes) -> None:
        self._socket.sendall(data + ECHO)

    def send(self, data: bytes) -> None:
        """Send without a question."""
        self._socket.sendall(data)

    def take_output(self) -> bytes:
        heard = self._socket.recv(65536)
        position = 8 if heard.startswith(b"AMQP") else 0
        while heard:
            while len(heard) - position >= HEADER.size:
                size = HEADER.unpack_from(heard, position)[0]
                if len(heard) - position < size:
                    break
                code, fields, _ = read_list(heard[position + 8 : position + size])
                position += size
                if code == performatives.FLOW and fields[4] is None:
                    return heard[: position - size]
            received = self._socket.recv(65536)
            assert received, "the broker is gone"
            heard += received
        raise AssertionError("the broker is gone")

    def close(self) -> None:
        self._socket.close()


class Mover:
    """Moves messages, each in a transaction that completes it at the source and sends its pieces to the target."""

    def __init__(self, port: int) -> None:
        self.wire = Wire(port)
        self.committed: list[bytes] = []
        self.undone: list[bytes] = []
        self._peer = Controller(new_namespace(), spans_entities=True, connection=self.wire)
        _, heard = self._peer.receiver("source", credit=len(MESSAGES) // CLIENTS // LIVES)
        names = [payload.rpartition(b"\xa0")[2][1:] for _, code, _, payload in heard if code == performatives.TRANSFER]
        self._received = list(zip(deliveries(heard), names, strict=True))
        self._sender = self._peer.sender("target")
        self._steps: Iterator[None] = iter(())

    def step(self) -> None:
        """Do the next operation."""
        if next(self._steps, self) is self and self._received:
            self._steps = self._move(*self._received.pop(0))
            next(self._steps)

    def _move(self, number: int, name: bytes) -> Iterator[None]:
        self.undone.append(name)
        transaction = yield from self._work(number, name)
        fail = int(name) % 5 == 0
        assert self._peer.discharge(transaction, fail=fail).code == performatives.ACCEPTED
        if not fail:
            self.committed.append(self.undone.pop())

    def _work(self, number: int, name: bytes) -> Generator[None, None, bytes]:
        transaction = self._peer.declare()
        yield
        assert self._peer.settle_in(transaction, number).code == performatives.ACCEPTED
        for piece in PIECES:
            yield
            state = self._peer.send_in(transaction, self._sender, name + piece)
            assert state is not None
            assert state.code == performatives.ACCEPTED
        yield
        return transaction

    def ask_for_commit(self) -> None:
        """Do what another transaction needs, and ask for its commit without waiting for the answer."""

        def ask(number: int, name: bytes) -> Iterator[None]:
            transaction = yield from self._work(number, name)
            self.wire.send(self._peer.discharging(transaction))

        for _ in ask(*self._received.pop(0)):
            pass


@contextmanager
def killed(folder: Path) -> Iterator[int]:
    """Run a broker and yield its port; kill it at the end."""
    running = BrokerProcess(folder, [NAMESPACE], "--data", folder / "data").start()
    try:
        yield running.address("n")[1]
    finally:
        running.end()


def contents(folder: Path) -> tuple[list[bytes], list[bytes]]:
    """Return what source and target hold in the files of a broker that does not run."""
    clock = ManualClock(dt.datetime.now(dt.UTC))
    with NamespaceStorage(folder / "data" / "n", CONFIG, clock) as storage:
        return texts(storage.namespace, "source"), sorted(texts(storage.namespace, "target"))


def test_each_transaction_is_done_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    chance = random.Random(23)
    answered: set[bytes] = set()
    for life in range(LIVES):
        movers: list[Mover] = []
        with ExitStack() as wires, killed(tmp_path) as port:
            if life == 0:
                fill(port)
            for _ in range(CLIENTS):
                movers.append(Mover(port))
                wires.enter_context(closing(movers[-1].wire))  # it is closed after the kill
            for _ in range(chance.randrange(20, 40)):
                chance.choice(movers).step()
            # The first one stays in the middle of a transaction; the others have asked for their commits.
            for mover in movers[1:]:
                mover.ask_for_commit()
            time.sleep(chance.choice((0, 0.001, 0.003)))
        answered.update(*(mover.committed for mover in movers))
        left, arrived = contents(tmp_path)
        assert arrived == sorted(name + piece for name in set(MESSAGES) - set(left) for piece in PIECES)
        assert answered.isdisjoint(left)
        assert left == [name for name in MESSAGES if name in left]
        assert {name for mover in movers for name in mover.undone} <= set(left)
    assert len(answered) > LIVES


def fill(port: int) -> None:
    with closing(Wire(port)) as wire:
        peer = Controller(new_namespace(), connection=wire)
        sender = peer.sender("source")
        for name in MESSAGES:
            peer.send_text(sender, name)
