"""
A route in operation: a broker with both namespaces in this process, and hosts of the function app in their own.

Faults are set in the broker. The SDKs read the targets for the oracle; only state that no client can see
without changing it (the source, dead letters, a hub's checkpoints) is read from the broker.
"""

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Self

from azure.servicebus.aio import ServiceBusClient

from busway_broker.core.namespace import Namespace
from busway_broker.thread import NamespaceFaults, RunningBroker
from shared.codecs.envelope import open_envelope
from shared.message.arrival import Origin
from shared.message.message import Message
from tests.end_to_end.host_process import ROOT, HostProcess
from tests.faults.conservation import Account, Balance, Copy, balance
from tests.faults.parties import Draft, name_of, read_hub, read_queue, read_sessions, send
from tests.faults.routes import CARRIER, CONNECTIONS, CONSUMER_GROUP, EAST, REJECTED, Kind, Route, west

_WAIT_SECONDS = 40.0
_POLL_SECONDS = 0.05
_JOURNAL = re.compile(r"busway\.journal: (\{.*\})$", re.MULTILINE)
_WITHHELD = ("filtered", "looped", "expired")
_MINUTE = timedelta(minutes=1)


class Line:
    """One route with its broker and its hosts; the end of the context stops all."""

    def __init__(
        self,
        route: Route,
        folder: Path,
        *,
        lock: timedelta = _MINUTE,
        link_idle: timedelta | None = None,
    ) -> None:
        """Prepare in *folder*."""
        self.route = route
        self.accepted: list[Copy] = []
        self.repeatable: Counter[str] = Counter()
        self.deliveries = 0
        """The most failed deliveries of a message that were seen at the source."""
        self.hosts: list[HostProcess] = []
        self._folder = folder
        self._broker = RunningBroker([west(lock, link_idle), EAST])
        self._stack = ExitStack()
        (folder / "tasks").mkdir(parents=True)
        (folder / "connections.yaml").write_text(CONNECTIONS)
        (folder / "tasks" / "carry.yaml").write_text(route.task())

    def __enter__(self) -> Self:
        """Start the broker."""
        self._stack.enter_context(self._broker)
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the hosts, then the broker."""
        self._stack.close()

    # The parts

    @property
    def broker(self) -> RunningBroker:
        """Return the broker."""
        return self._broker

    @property
    def source(self) -> NamespaceFaults:
        """Return the faults of the source's namespace."""
        return self._broker.faults("west")

    @property
    def target(self) -> NamespaceFaults:
        """Return the faults of the target's namespace."""
        return self._broker.faults("east")

    def host(
        self,
        *,
        is_awaited: bool = True,
        settings: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
    ) -> HostProcess:
        """Start another host, with app settings and arguments of its own, and wait until it is ready."""
        folder = self._folder / f"host-{len(self.hosts)}"
        folder.mkdir()
        host = self._make_host(folder, settings or {}, arguments)
        self.hosts.append(self._stack.enter_context(host))
        if is_awaited:
            host.wait_until_ready(_WAIT_SECONDS)
        return host

    def _make_host(self, folder: Path, settings: Mapping[str, str], arguments: Sequence[str]) -> HostProcess:
        return HostProcess(str(ROOT), folder, self._settings() | dict(settings), *arguments)

    def _settings(self) -> dict[str, str]:
        return {
            "BUSWAY_CONFIG": str(self._folder),
            "BUSWAY_CHECKPOINTS": str(self._checkpoints),
            "WEST": self._broker.connection_string("west"),
            "EAST": self._broker.connection_string("east"),
            # The same namespace, as a broker of which the app knows only that it speaks AMQP 1.0.
            "PLANT": f"amqp://127.0.0.1:{self._broker.port('east')}",
        }

    def send(self, messages: Sequence[Draft]) -> None:
        """Send *messages* to the source, as an application."""
        send(self._broker.connection_string("west"), self.route, messages)
        self.accepted += [draft.copy for draft in messages]

    def end_locks(self) -> None:
        """Expire the locks at the source; a hub has none."""
        if self.route.source is not Kind.HUB:
            self.source.expire_locks(self.route.source_path)
        if self.route.has_carrier:
            self.target.expire_locks(CARRIER)

    def go_on_with_another_host(self, *more: str) -> None:
        """Let another host finish what one that is gone has left; what that one has sent and *more* may be repeated."""
        self.expect_repeats(self.sent_but_unsettled())
        self.expect_repeats(more)
        self.end_locks()
        self.host()
        self.wait_until_drained()

    # Waiting

    def wait_until(self, condition: Callable[[], object], what: str, seconds: float = _WAIT_SECONDS) -> None:
        """Wait for *condition*; fail with the hosts' logs if it stays false."""
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, f"{self.route}: not {what} within {seconds} s\n{self._logs()}"
            time.sleep(_POLL_SECONDS)

    def wait_until_struck(self, faults: NamespaceFaults, times: int = 1) -> None:
        """Wait until the first fault of a namespace has occurred *times* times."""
        self.wait_until(lambda: strikes(faults) >= times, f"struck {times} times by {faults.plain()[0]}")

    def let_pass(self, seconds: float) -> None:
        """Let real time pass, in which nothing is to happen."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.remaining()
            time.sleep(_POLL_SECONDS)

    def wait_until_drained(self, seconds: float = _WAIT_SECONDS) -> None:
        """Wait until the source is empty."""
        self.wait_until(lambda: not self.remaining(), "drained", seconds)

    def _logs(self) -> str:
        lines = [f"at the source: {sorted(self.remaining())}"]
        lines += [f"host {number}:\n{host.log()[-3000:]}" for number, host in enumerate(self.hosts)]
        return "\n".join(lines)

    # Observations

    def remaining(self) -> frozenset[str]:
        """Return the names of the messages at the source, or of a hub's events beyond the checkpoints."""
        if self.route.source is Kind.HUB:
            return frozenset(self._broker.inspect("west", self._beyond_checkpoints))
        self.deliveries = max(self.deliveries, self._broker.inspect("west", self._delivery_count))
        return frozenset([*self.stored("west", self.route.source_path), *self.carried()])

    def carried(self) -> list[str]:
        """Return the names of the messages in envelopes that no task has opened."""
        return self._broker.inspect("east", _enveloped)

    def names_at_target(self) -> list[str]:
        """Return the names of the messages at the target, in order of arrival within each key."""
        if self.route.target is Kind.HUB:
            return self._broker.inspect("east", lambda namespace: _events(namespace, self.route.target_path))
        return self.stored("east", self.route.target_path)

    def sent_but_unsettled(self) -> frozenset[str]:
        """Return the names of the messages that the target or rejects have and the source still holds."""
        return self.remaining().intersection([*self.names_at_target(), *self.stored("west", REJECTED)])

    def expect_repeats(self, names: Iterable[str]) -> None:
        """Allow one more copy of each of *names*."""
        self.repeatable.update(names)

    def balance(self) -> Balance:
        """Read the targets and return the oracle's result."""
        delivered, rejected = asyncio.run(self._read())
        return balance(
            Account(
                accepted=self.accepted,
                delivered=delivered,
                withheld=frozenset(self._journalled()),
                rejected=rejected,
                remaining=self.remaining(),
                dead_lettered=self._dead_letters(),
                deliveries=self.deliveries,
                repeatable=self.repeatable,
            )
        )

    async def _read(self) -> tuple[list[Copy], list[str]]:
        """Return the messages at the target and in rejects."""
        at_west, at_east = self._broker.connection_string("west"), self._broker.connection_string("east")
        path = self.route.target_path
        async with (
            ServiceBusClient.from_connection_string(at_west) as west_client,
            ServiceBusClient.from_connection_string(at_east) as east_client,
        ):
            rejects = read_queue(west_client, REJECTED, len(self.stored("west", REJECTED)))
            if self.route.target is Kind.HUB:
                return await asyncio.gather(read_hub(at_east, path), rejects)
            if self.route.target is Kind.SESSIONS:
                counts = Counter(self._broker.inspect("east", lambda namespace: sessions_of(namespace, path)))
                return await asyncio.gather(read_sessions(east_client, path, counts), rejects)
            names, rejected = await asyncio.gather(
                read_queue(east_client, path, len(self.stored("east", path))), rejects
            )
            key_of = {copy.name: copy.key for copy in self.accepted}
            return [Copy(key_of.get(name, ""), name) for name in names], rejected

    def _journalled(self) -> list[str]:
        records = [json.loads(line) for host in self.hosts for line in _JOURNAL.findall(host.log())]
        return [record["message_id"] for record in records if record["outcome"] in _WITHHELD]

    def _dead_letters(self) -> list[str]:
        if self.route.source is Kind.HUB:
            return []
        return self.stored("west", f"{self.route.source_path}/$DeadLetterQueue")

    def stored(self, site: str, path: str) -> list[str]:
        """Return the names of the messages that an entity holds."""
        return self._broker.inspect(site, lambda namespace: [named(message) for message in _messages(namespace, path)])

    def _delivery_count(self, namespace: Namespace) -> int:
        stored = namespace.store(self.route.source_path).peek(0)
        return max((message.delivery_count for message in stored), default=0)

    @property
    def _checkpoints(self) -> Path:
        return self._folder / "checkpoints.json"

    def _beyond_checkpoints(self, namespace: Namespace) -> list[str]:
        offsets = json.loads(self._checkpoints.read_text()) if self._checkpoints.exists() else {}
        path = self.route.source_path
        return [
            named(event.encode())
            for partition in namespace.hub(path).partitions
            for event in partition.events
            if event.offset > int(offsets.get(f"WEST/{path}/{CONSUMER_GROUP}/{partition.partition_id}", -1))
        ]


def strikes(faults: NamespaceFaults) -> int:
    """Return how often the first fault of a namespace has occurred."""
    return int(str(faults.plain()[0]["struck"]))


def named(encoded: bytes) -> str:
    """Return the name of an encoded message."""
    return name_of(Message.received(encoded, Origin("", "")).body or b"")


def _messages(namespace: Namespace, path: str) -> list[bytes]:
    return [message.encode() for message in namespace.store(path).peek(0)]


def _enveloped(namespace: Namespace) -> list[str]:
    bodies = [Message.received(message, Origin("", "")).body or b"" for message in _messages(namespace, CARRIER)]
    return [named(event.content) for body in bodies for event in open_envelope(body)]


def sessions_of(namespace: Namespace, path: str) -> list[str]:
    received = [Message.received(message, Origin("", "")) for message in _messages(namespace, path)]
    return [str(message.session_id) for message in received]


def _events(namespace: Namespace, path: str) -> list[str]:
    partitions = namespace.hub(path).partitions
    return [named(event.encode()) for partition in partitions for event in partition.events]
