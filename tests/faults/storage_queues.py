"""
Faults on messages that go through a storage queue: of the requests to it, and of hosts with messages in hand.

A storage queue recognizes no duplicates. The task that takes envelopes out of it sends each once while it remembers it;
a new process remembers nothing.
"""

from functools import partial
from pathlib import Path
from typing import Any, Self

from azure.storage.queue import QueueServiceClient

from busway_broker.faults import Effect, Fault, Operation
from shared.codecs.envelope import envelope_in, open_envelope
from tests.azurite import queue_account
from tests.faults.kills import SENT_BUT_UNSETTLED, held
from tests.faults.line import Line, named
from tests.faults.parties import drafts
from tests.faults.routes import CARRIER, THROUGH_STORAGE
from tests.faults.scenario import Scenario
from tests.faults.storage_proxy import StorageProxy, Strike

_PEEKED = 32


class StorageLine(Line):
    """A line through a queue of Azurite, behind a proxy that strikes."""

    def __init__(self, route: Any, folder: Path, **options: Any) -> None:
        """Prepare in *folder*."""
        super().__init__(route, folder, **options)
        with (folder / "connections.yaml").open("a") as file:
            file.write("store: {kind: storage-queue, setting: STORE}\n")

    def __enter__(self) -> Self:
        """Start the broker, Azurite and the proxy."""
        super().__enter__()
        try:
            self._open()
        except BaseException:
            self._stack.close()
            raise
        return self

    def _open(self) -> None:
        account = queue_account()
        self.proxy = self._stack.enter_context(StorageProxy(account))
        service = self._stack.enter_context(QueueServiceClient.from_connection_string(account))
        self._queue = service.create_queue(CARRIER)

    def _settings(self) -> dict[str, str]:
        return super()._settings() | {"STORE": self.proxy.connection_string}

    def carried(self) -> list[str]:
        """Return the names of the messages in the queue, and a mark for those that a host has in hand."""
        count = self._queue.get_queue_properties().approximate_message_count or 0
        if not count:
            return []
        texts = [str(message.content).encode() for message in self._queue.peek_messages(_PEEKED)]
        events = [event for text in texts for event in open_envelope(envelope_in(text) or b"[]")]
        return [*(named(event.content) for event in events), *(["(in hand)"] if count > len(texts) else [])]

    def end_locks(self) -> None:
        """Expire the locks at the source; the proxy has shortened those of the queue."""
        self.source.expire_locks(self.route.source_path)


def _strike(line: Line, strike: Strike) -> None:
    """Let requests to the queue fail while the host runs."""
    assert isinstance(line, StorageLine)
    line.proxy.set(strike)
    line.send(drafts(line.route))
    line.host()
    line.wait_until(lambda: line.proxy.struck >= strike.times, f"struck by {strike}")
    line.wait_until_drained()


def _kill(line: Line, strike: Strike) -> None:
    """Kill the host while Azurite has carried out a request whose answer is withheld, and let another continue."""
    assert isinstance(line, StorageLine)
    line.proxy.set(strike)
    line.send(drafts(line.route))
    host = line.host(is_awaited=False)
    line.wait_until(lambda: line.proxy.struck, f"struck by {strike}")
    host.kill()
    line.proxy.set(None)
    _continue(line)


def _kill_at_target(line: Line) -> None:
    """Kill the host when the target behind the queue has accepted messages and not answered."""
    line.target.add(held(Operation.SEND))
    line.send(drafts(line.route))
    host = line.host(is_awaited=False)
    line.wait_until_struck(line.target)
    host.kill()
    line.target.clear()
    _continue(line)


def _continue(line: Line) -> None:
    # What was carried or sent without being settled may come again, and be sent again by a process that forgot it.
    line.go_on_with_another_host(*(copy.name for copy in line.accepted))


def _target_down(line: Line) -> None:
    """Let the target behind the queue fail for a while: the messages stay in the queue or in hand."""
    line.target.add(Fault(effect=Effect.THROTTLE, operations=frozenset({Operation.SEND}), times=2))
    line.send(drafts(line.route))
    line.host()
    line.wait_until_struck(line.target, 2)
    line.wait_until_drained()


def _scenario(name: str, action: Any, **options: Any) -> Scenario:
    return Scenario(name, THROUGH_STORAGE, action, line=StorageLine, **options)


STORAGE_QUEUES = [
    *(
        _scenario(f"storage queue: {strike.kind} {effect}", partial(_strike, strike=strike))
        for strike in (
            Strike("send", "cut", at=5, times=3),
            Strike("send", "cut after", at=5, times=3),
            Strike("send", "throttle", at=5, times=3),
            Strike("receive", "cut", at=2, times=3),
        )
        for effect in (strike.effect,)
    ),
    # Its messages come back after three seconds, and the process remembers that it has sent them.
    _scenario("storage queue: delete cut", partial(_strike, strike=Strike("delete", "cut", at=5, times=3))),
    _scenario("storage queue: target behind it throttles", _target_down),
    *(
        _scenario(
            f"kill -9: storage queue has carried out a {kind}, without an answer",
            partial(_kill, strike=Strike(kind, "hold", at=5)),
            explains=SENT_BUT_UNSETTLED,
            repeats=None,
        )
        for kind in ("send", "receive", "delete")
    ),
    _scenario(
        "kill -9: target behind the storage queue has accepted, without an answer",
        _kill_at_target,
        explains=SENT_BUT_UNSETTLED,
        repeats=True,
    ),
]
