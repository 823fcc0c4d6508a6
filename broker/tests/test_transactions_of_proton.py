"""
Transactions as Apache Qpid Proton drives them: a client that Microsoft did not write, over sockets.

Proton is compiled when it is installed, so it is no package of this repository; without it, these tests are skipped.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from busway_broker.config import NamespaceConfig, QueueConfig
from busway_broker.thread import RunningBroker

proton = pytest.importorskip("proton")
handlers = pytest.importorskip("proton.handlers")
reactor = pytest.importorskip("proton.reactor")
blocking = pytest.importorskip("proton.utils")

COUNT = 20


Handler: Any = type("Handler", (handlers.MessagingHandler, handlers.TransactionHandler), {})


class Mover(Handler):  # type: ignore[misc] # Proton has no types
    """Moves messages one by one from `source` to `target`, each within a transaction that ends as *decide* says."""

    def __init__(self, broker: RunningBroker, decide: Callable[[int], str]) -> None:
        super().__init__(prefetch=0, auto_accept=False)
        self.broker = broker
        self.decide = decide
        self.ends: list[str] = []
        self.transaction: Any = None

    def on_start(self, event: Any) -> None:
        self.container = event.container
        self.connection = event.container.connect(f"127.0.0.1:{self.broker.port('n')}", reconnect=False)
        # The coordinator's link is the first one of the session, which may therefore span entities.
        self.container.declare_transaction(self.connection, handler=self)
        self.receiver = self.container.create_receiver(self.connection, "source")
        self.sender = self.container.create_sender(self.connection, "target")

    def on_transaction_declared(self, event: Any) -> None:
        self.transaction = event.transaction
        self.receiver.flow(1)

    def on_message(self, event: Any) -> None:
        decision = self.decide(len(self.ends))
        self.transaction.accept(event.delivery)
        self.transaction.send(self.sender, event.message)
        if decision == "cut":
            self.broker.faults("n").cut_connections()
        elif decision == "commit":
            self.transaction.commit()
        else:
            self.transaction.abort()

    def on_transaction_committed(self, event: Any) -> None:  # noqa: ARG002 - Proton passes it
        self.go_on("commit")

    def on_transaction_aborted(self, event: Any) -> None:  # noqa: ARG002 - likewise
        self.go_on("abort")

    def go_on(self, end: str) -> None:
        self.ends.append(end)
        if len(self.ends) == COUNT:
            self.connection.close()
        else:
            self.container.declare_transaction(self.connection, handler=self)

    def on_transport_error(self, event: Any) -> None:
        event.container.stop()


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    queues = tuple(QueueConfig(name=name) for name in ("source", "target"))
    with RunningBroker([NamespaceConfig(name="n", queues=queues)]) as running:
        yield running


@pytest.fixture
def broker(running: RunningBroker) -> RunningBroker:
    running.reset()
    connection = blocking.BlockingConnection(f"127.0.0.1:{running.port('n')}")
    sender = connection.create_sender("source")
    for number in range(COUNT):
        sender.send(proton.Message(id=str(number), body=f"message {number}"))
    connection.close()
    return running


def ids(broker: RunningBroker, path: str) -> list[int]:
    found = broker.inspect("n", lambda n: [message.content.message_id for message in n.store(path).messages.values()])
    return sorted(int(each[2:]) for each in found)


def test_commits_move_and_rollbacks_do_not(broker: RunningBroker) -> None:
    mover = Mover(broker, lambda number: "commit" if number % 3 else "abort")
    reactor.Container(mover).run()
    assert mover.ends == ["commit" if number % 3 else "abort" for number in range(COUNT)]
    assert len(ids(broker, "target")) == mover.ends.count("commit")
    assert sorted(ids(broker, "source") + ids(broker, "target")) == list(range(COUNT))


def test_a_cut_connection_rolls_back(broker: RunningBroker) -> None:
    mover = Mover(broker, lambda number: "cut" if number == 5 else "commit")
    reactor.Container(mover).run()
    assert len(ids(broker, "target")) == 5
    assert sorted(ids(broker, "source") + ids(broker, "target")) == list(range(COUNT))
