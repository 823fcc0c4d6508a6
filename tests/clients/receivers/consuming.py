"""An application that receives each message once, and counts its effects."""

from collections import Counter
from datetime import timedelta
from typing import Any

from busway_clients import MemoryStore
from tests.clients.applications import Application


class Effects:
    """The effects of the application, counted; it fails for a body as often as configured."""

    def __init__(self, failures: Any = (), error: Any = None) -> None:
        self.done = Counter[str]()
        self.seen = Counter[str]()
        self._failures = Counter(failures)
        self._error = error or RuntimeError("no")

    def __call__(self, message: Any) -> None:
        body = str(message)
        self.seen[body] += 1
        if self._failures[body] > 0:
            self._failures[body] -= 1
            raise self._error
        self.done[body] += 1


def consume(site: Application, entity: str, effects: Any, store: Any = None, idle: float = 0.5, **options: Any) -> Any:
    """Let a receiver run until nothing comes any more; return it."""
    links = site.receivers(entity)
    receiver = site.classes.DeduplicatingReceiver(links, MemoryStore() if store is None else store, **options)
    site.call(receiver.run(site.function(effects), site.event(), idle=idle))
    for link in links.values():
        site.call(link.close())
    return receiver


def send_to_both(site: Application, entity: str, messages: Any) -> None:
    site.call(site.active(entity, delay=timedelta()).send(messages))
