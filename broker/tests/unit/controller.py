"""A client that declares transactions, and sends and settles within them, in frames."""

import datetime as dt
from collections.abc import Iterable
from typing import Any, NamedTuple

from broker.tests.client_frames import terminus
from broker.tests.unit.peer import Peer
from busway_broker.config import NamespaceConfig, QueueConfig, SubscriptionConfig, TopicConfig
from busway_broker.core.namespace import Namespace
from busway_broker.protocol.requests import read_request
from shared.amqp import performatives
from shared.amqp.codec import encode, items_of, plain
from shared.amqp.fields import compose_list, fields_of, number_field
from shared.amqp.frames import compose
from shared.amqp.performatives import Attach
from shared.amqp.sections import data
from shared.amqp.values import FALSE, NULL, TRUE, Value, binary, described, list_, map_, string, symbol, ulong
from shared.clock import ManualClock

CONTROL = 50
ACCEPTED = described(ulong(0x24), list_([]))
RELEASED = described(ulong(0x26), list_([]))
ABANDONED = described(ulong(0x27), list_([]))
DEFERRED = described(ulong(0x27), list_([NULL, TRUE]))
DEAD_LETTERED = described(ulong(0x25), list_([]))
CONFIG = NamespaceConfig(
    name="n",
    queues=(
        QueueConfig(name="source"),
        QueueConfig(name="target"),
        QueueConfig(name="other"),
        QueueConfig(name="s", requires_session=True),
    ),
    topics=(TopicConfig(name="topic", subscriptions=(SubscriptionConfig(name="one"), SubscriptionConfig(name="two"))),),
)


class State(NamedTuple):
    """A delivery state: the outcome, within which transaction, why it is rejected, which transaction is declared."""

    code: int
    transaction_id: bytes | None = None
    condition: str | None = None
    declared: bytes | None = None


def new_namespace(config: NamespaceConfig = CONFIG) -> Namespace:
    return Namespace(config, ManualClock(dt.datetime(2026, 1, 1, tzinfo=dt.UTC)))


class Controller(Peer):
    """A peer with a control link on channel 1, or on channel 0 before all others if it spans entities."""

    def __init__(self, namespace: Namespace, *, spans_entities: bool = False, connection: Any = None) -> None:
        super().__init__(namespace=namespace, window=10_000)
        if connection is not None:
            self.connection = connection
        self._handles = iter(range(1, 50))
        self._numbers = iter(range(1, 100_000))
        self._channel = 0 if spans_entities else 1
        self.open()
        self.say(self.begin(1))
        coordinator = described(ulong(0x30), list_([symbol("amqp:local-transactions")]))
        link = Attach("control", CONTROL, False, 0, 0, terminus(0x28, "me"), coordinator, 0, None, (), None)
        attached = self.say(compose(self._channel, performatives.attach(link)))
        assert fields_of(attached[0][2][6], "target")[0] == 0x30

    def sender(self, address: str) -> int:
        handle = next(self._handles)
        self.say(self.attach(handle, receives=False, address=address))
        return handle

    def receiver(self, address: str, credit: int = 100) -> tuple[int, list[Any]]:
        """Attach a receiver and return its handle and what was heard."""
        handle = next(self._handles)
        return handle, self.say(self.attach(handle, receives=True, address=address), self.flow(handle, credit))

    def request(self, code: int, *fields: Value) -> State:
        """Send a request to the coordinator and return the state that it is answered with."""
        state = state_of(self.say(self._request(code, *fields)))
        assert state is not None
        return state

    def _request(self, code: int, *fields: Value) -> bytes:
        body = b"\x00\x53\x77" + encode(described(ulong(code), list_(fields)))
        return self.transfer(CONTROL, next(self._numbers), body, channel=self._channel)

    def declare(self) -> bytes:
        state = self.request(performatives.DECLARE)
        assert state.code == performatives.DECLARED
        assert isinstance(state.declared, bytes)
        return state.declared

    def discharge(self, transaction_id: bytes, *, fail: bool = False) -> State:
        return self.request(performatives.DISCHARGE, binary(transaction_id), TRUE if fail else FALSE)

    def discharging(self, transaction_id: bytes) -> bytes:
        """Return the frame that asks for a commit."""
        return self._request(performatives.DISCHARGE, binary(transaction_id), FALSE)

    def send_in(self, transaction_id: bytes, handle: int, text: bytes, *, settled: bool = False) -> State | None:
        """Send a message within a transaction and return the state that it is answered with."""
        heard = self.transfer_in(transaction_id, handle, data(text), settled=settled)
        return None if settled else state_of(heard)

    def transfer_in(
        self, transaction_id: bytes | None, handle: int, payload: bytes, *, settled: bool = False
    ) -> list[Any]:
        number = next(self._numbers)
        state = b"\x40" if transaction_id is None else encode(in_transaction(transaction_id))
        fields = [
            *(number_field(handle), number_field(number), encode(binary(number.to_bytes(4))), b"\x43"),
            *(b"\x41" if settled else b"\x42", b"\x42", b"\x40", state),
        ]
        return self.say(compose(0, compose_list(performatives.TRANSFER, fields), payload))

    def send_text(self, handle: int, text: bytes) -> State | None:
        return state_of(self.say(self.transfer(handle, next(self._numbers), data(text))))

    def settle_in(
        self, transaction_id: bytes, delivery_id: int, outcome: Value = ACCEPTED, *, settled: bool = False
    ) -> Any:
        return self.settle(delivery_id, in_transaction(transaction_id, outcome), settled=settled)

    def settle(self, delivery_id: int, state: Value = ACCEPTED, *, settled: bool = False) -> State | None:
        fields = [b"\x41", number_field(delivery_id), b"\x40", b"\x41" if settled else b"\x42", encode(state)]
        heard = self.say(compose(0, compose_list(performatives.DISPOSITION, fields)))
        return None if settled else state_of(heard)


def in_transaction(transaction_id: bytes, *outcome: Value) -> Value:
    return described(ulong(0x34), list_([binary(transaction_id), *outcome]))


def state_of(heard: Iterable[Any]) -> State | None:
    """Return the one delivery state that was heard; None if there was no disposition."""
    states = [fields[4] for _, code, fields, _ in heard if code == performatives.DISPOSITION]
    if not states:
        return None
    (state,) = states
    code, _ = fields_of(state, "state")
    if code != 0x34:
        return _state(code, state)
    transaction_id, outcome = items_of(state.payload.value)
    return _state(fields_of(outcome, "outcome")[0], outcome, transaction_id.payload)


def _state(code: int, state: Value, transaction_id: Any = None) -> State:
    fields: Any = plain(state)
    condition = fields[0][0] if code == performatives.REJECTED and fields else None
    return State(code, transaction_id, condition, fields[0] if code == performatives.DECLARED else None)


def deliveries(heard: Iterable[Any]) -> list[int]:
    """Return the delivery numbers of the transfers that were heard."""
    return [fields[1] for _, code, fields, _ in heard if code == performatives.TRANSFER]


def texts(namespace: Namespace, path: str) -> list[bytes]:
    """Return the texts of the messages in a store, in order."""
    return [message.content.bare.rpartition(b"\xa0")[2][1:] for message in namespace.store(path).messages.values()]


def put(namespace: Namespace, path: str, *names: bytes) -> None:
    """Send messages from another connection."""
    other = Controller(namespace)
    handle = other.sender(path)
    for name in names:
        other.send_text(handle, name)
    other.connection.release()


def requester(namespace: Namespace, path: str) -> Controller:
    """Return a client with links to the `$management` node of an entity."""
    peer = Controller(namespace)
    address = f"{path}/$management"
    peer.say(peer.attach(30, receives=False, address=address), peer.attach(31, receives=True, address=address))
    peer.say(peer.flow(31, 100))
    return peer


def ask(peer: Controller, transaction: bytes | None, operation: str, body: dict[str, Value]) -> dict[str, Any]:
    """Send a request to the node of a requester's entity and return the body of its answer."""
    properties = b"\x00\x53\x73" + encode(list_([string("1"), NULL, NULL, NULL, string("me")]))
    application = b"\x00\x53\x74" + encode(map_([(string("operation"), string(f"com.microsoft:{operation}"))]))
    content = b"\x00\x53\x77" + encode(map_([(string(key), value) for key, value in body.items()]))
    heard = peer.transfer_in(transaction, 30, properties + application + content)
    (payload,) = [payload for _, code, _, payload in heard if code == performatives.TRANSFER]
    answer = read_request(payload)
    status = {"status": answer.properties["statusCode"].payload, "text": answer.properties["statusDescription"].payload}
    return status | {key: plain(value) for key, value in answer.body.items()}
