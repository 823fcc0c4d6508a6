"""Both namespaces of the local broker, an application at them, and what they hold."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from busway_broker.config import NamespaceConfig, QueueConfig
from busway_broker.core.namespace import Namespace
from busway_broker.thread import NamespaceFaults, RunningBroker
from shared.message.arrival import Origin
from shared.message.message import Message
from tests.clients.applications import Application
from tests.messages import received

both_kinds = pytest.mark.parametrize("site", ["sync", "aio"], indirect=True)
"""For tests of what waits: locks, timeouts and threads differ between the two kinds, and all else is generated."""

NAMES = ("west", "east")
QUEUES = 500
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "sessions": {"requires_session": True},
    "twice": {"max_delivery_count": 2, "lock_duration": timedelta(seconds=30)},
}


def namespaces() -> list[NamespaceConfig]:
    """Return west and east, with as many queues of each kind as the tests of one worker use."""
    queues = [
        QueueConfig(name=f"{kind}-{number}", **options) for kind, options in KINDS.items() for number in range(QUEUES)
    ]
    return [NamespaceConfig(name=name, queues=tuple(queues)) for name in NAMES]


class Site(Application):
    """An application at two namespaces; with its context all faults end."""

    def __init__(self, kind: str, broker: RunningBroker, fresh: Callable[[], int]) -> None:
        super().__init__(kind, {name: broker.connection_string(name) for name in NAMES})
        self.broker = broker
        self._fresh = fresh
        self._down: set[str] = set()

    def __exit__(self, *error: object) -> None:
        for name in NAMES:
            self.faults(name).clear()
            self.come_up(name)
        super().__exit__(*error)

    def queue(self, kind: str = "plain") -> str:
        """Return the name of a queue of a kind that no other test uses."""
        return f"{kind}-{self._fresh()}"

    def go_down(self, name: str) -> None:
        self.faults(name).go_down()
        self._down.add(name)

    def come_up(self, name: str) -> None:
        if name in self._down:
            self.faults(name).come_up()
            self._down.remove(name)

    def faults(self, name: str) -> NamespaceFaults:
        return self.broker.faults(name)

    def held(self, name: str, entity: str) -> list[Message]:
        """Return the messages that a queue holds; scheduled ones are not there yet."""

        def look(namespace: Namespace) -> list[bytes]:
            return [message.encode() for message in namespace.store(entity).peek(0)]

        return [received(encoded, Origin("", "")) for encoded in self.broker.inspect(name, look)]

    def ids(self, name: str, entity: str) -> list[object]:
        held = self.held(name, entity)
        return [None if message.message_id is None else message.message_id.payload for message in held]

    def bodies(self, name: str, entity: str) -> list[str]:
        return [(message.body or b"").decode() for message in self.held(name, entity)]

    def locked(self, name: str, entity: str) -> int:
        """Return how many messages of a queue are locked."""
        return self.broker.inspect(name, lambda namespace: len(namespace.store(entity)._locks))

    def dead(self, name: str, entity: str) -> list[object]:
        return self.ids(name, f"{entity}/$DeadLetterQueue")
