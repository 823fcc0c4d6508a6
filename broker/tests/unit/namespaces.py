"""Namespaces whose clock only the tests move: what is sent to their entities, and who receives it."""

import datetime as dt
from typing import Any

from busway_broker import errors
from busway_broker.config import HubConfig, NamespaceConfig, QueueConfig, TopicConfig
from busway_broker.core.content import read_content
from busway_broker.core.message import StoredMessage
from busway_broker.core.namespace import Namespace
from busway_broker.core.ready_queue import MessageSession
from busway_broker.core.store import MessageStore
from busway_broker.errors import Refusal
from shared.clock import ManualClock
from tests.messages import delivered

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def namespace_of(*entities: QueueConfig | TopicConfig | HubConfig, **options: Any) -> Namespace:
    """Return a namespace with these entities."""
    kinds = {"queues": QueueConfig, "topics": TopicConfig, "hubs": HubConfig}
    declared: Any = {name: tuple(each for each in entities if isinstance(each, kind)) for name, kind in kinds.items()}
    return Namespace(NamespaceConfig(name="n", **declared, **options), ManualClock(START))


def wait(namespace: Namespace, seconds: float) -> None:
    clock = namespace.clock
    assert isinstance(clock, ManualClock)
    clock.advance(seconds)
    namespace.advance()


def send(namespace: Namespace, path: str, *message_ids: str, **options: Any) -> None:
    """Publish messages; *options* are those of `delivered`."""
    for message_id in message_ids:
        namespace.target(path).publish(read_content(delivered(None, message_id=message_id, **options)))


def identity(message: StoredMessage) -> str:
    return message.content.message_id[2:].decode()


def ids_in(namespace: Namespace, path: str) -> list[str]:
    return [identity(message) for message in namespace.store(path).peek(0)]


class Taker:
    """A consumer that keeps what it gets, and settles nothing."""

    def __init__(self, store: MessageStore, *, credit: int = 0, is_destructive: bool = False) -> None:
        self.store = store
        self.credit = credit
        self.is_destructive = is_destructive
        self.taken: list[tuple[bytes, str]] = []
        """The lock token and the id of each message."""
        self.connection = object()
        self.session: MessageSession | None = None
        self.refusal: Refusal | None = None

    def can_take(self) -> bool:
        return self.credit > 0

    def take(self, tag: bytes, encoded: bytes) -> None:
        self.credit -= 1
        self.taken.append((tag, read_content(encoded).message_id[2:].decode()))

    def session_granted(self, session: MessageSession) -> None:
        self.session = session

    def session_refused(self) -> None:
        self.refusal = Refusal(errors.TIMEOUT, "")

    def session_lost(self, refusal: Refusal) -> None:
        self.refusal = refusal


def join(namespace: Namespace, path: str, credit: int) -> Taker:
    """Return a consumer of an entity, which has got what was ready."""
    store = namespace.store(path)
    taker = Taker(store, credit=credit)
    store.join(taker)
    store.dispatch()
    return taker


def take_all(namespace: Namespace, path: str = "plain") -> list[bytes]:
    """Lock all messages that are ready, and return their lock tokens."""
    taker = join(namespace, path, 10**6)
    taker.store.leave(taker)
    return [token for token, _ in taker.taken]
