"""A site with dead letters, and the commands that work on them."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from busway_broker.config import NamespaceConfig
from busway_broker.core.content import read_content
from busway_broker.core.namespace import Namespace
from shared.amqp.values import long, string
from shared.message.arrival import Origin
from shared.message.message import Message
from shared.resend import evidence
from tests.messages import delivered
from tests.site import Site

ENTITIES = """
west:
  queues:
    orders: {lock_duration: 5}
    once: {requires_duplicate_detection: true}
    large: {max_message_size: 1048576}
    rejected: {lock_duration: 5}
    rejected-sessions: {requires_session: true, lock_duration: 5}
  topics: {news: [app, b]}
east: {queues: {orders: , small: {max_size: 1}, sessions: {requires_session: true}}}
"""
TASKS = """\
task: orders-west-to-east
source: {connection: west, queue: orders}
editors: [{properties: {action: "SET checked = 'yes'"}}]
routes: [{target: {connection: east, queue: orders}}]
rejects: {connection: west, queue: rejected}
"""


class DeadLetterSite(Site):
    """Two namespaces and one task, which does not run."""

    def __init__(
        self, folder: Path, entities: str | Sequence[NamespaceConfig] = ENTITIES, *, has_admin: bool = False
    ) -> None:
        super().__init__(folder, entities, TASKS, has_admin=has_admin)

    def bury(self, queue: str, contents: Sequence[bytes], reason: str | None = "Broken") -> None:
        """Put encoded messages into the dead-letter queue of a queue of *west*, as the broker would."""

        def put(namespace: Namespace) -> None:
            for content in contents:
                message = Message.received(content, Origin("west", queue))
                if reason is not None:
                    message.set_properties({"DeadLetterReason": string(reason)})
                namespace.queue(queue).backlog.dead_letters.add(read_content(message.encode()))

        self.broker.inspect("west", put)

    def dead(self, queue: str = "orders") -> list[Message]:
        """Return the dead letters of a queue of *west*."""
        return self.there(f"west/{queue}/$DeadLetterQueue")

    def empty(self, path: str) -> None:
        """Remove all messages of an entity."""
        site, _, entity = path.partition("/")

        def clear(namespace: Namespace) -> None:
            store = namespace.store(entity)
            for number in list(store.messages):
                store._forget(store.messages[number])

        self.broker.inspect(site, clear)


def property_of(message: Message, name: str) -> Any:
    """Return the payload of an application property."""
    value = message.application_property(name)
    return None if value is None else value.payload


def ids(messages: Sequence[Message]) -> list[Any]:
    """Return the message ids."""
    return [None if message.message_id is None else message.message_id.payload for message in messages]


def many(count: int, *, sessions: int = 3, **options: Any) -> list[bytes]:
    """Return messages with the property `n`, in turn of *sessions* sessions."""
    return [delivered(n, session_id=f"s-{n % sessions}", named={"n": long(n)}, **options) for n in range(count)]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DeadLetterSite]:
    """Return a site on which no process is killed while it sends."""
    monkeypatch.setattr(evidence, "SETTLE_SECONDS", 0.0)
    with DeadLetterSite(tmp_path) as site:
        yield site
