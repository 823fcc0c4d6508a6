"""
Messages with three targets, one of which is away while hosts are killed.

Each copy counts by itself: the oracle gets its name with the target for which it is.
"""

import asyncio
import gzip
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Self

from azure.servicebus.aio import ServiceBusClient
from azure.storage.blob import ContainerClient

from busway_broker.config import NamespaceConfig, QueueConfig
from busway_broker.thread import RunningBroker
from tests.azurite import running_azurite
from tests.end_to_end.host_process import HostProcess
from tests.faults.conservation import Account, Balance, Copy, balance
from tests.faults.kills import SENT_BUT_UNSETTLED
from tests.faults.line import Line, sessions_of
from tests.faults.parties import drafts, read_sessions
from tests.faults.routes import CONNECTIONS, EAST_LIMIT, REJECTED, THREE_TARGETS, Route, east, west
from tests.faults.scenario import Scenario

_KILLS = 10
_HOLDS = "the batch waits and is retried"
_WINDOW = timedelta(minutes=30)
_TARGETS = (("east", "orders"), ("east", "twins"), ("north", "orders"))


class LineToSeveral(Line):
    """A line from one queue to three, the last of which is in a namespace of its own."""

    def __init__(self, route: Route, folder: Path, **options: Any) -> None:
        """Prepare as `Line`; the source gives no message up, however often a host is killed."""
        super().__init__(route, folder, **options)
        there = east(options["duplicate_window"])
        fans = QueueConfig(name="fans", requires_session=True, max_delivery_count=1000)
        here = west(options["lock"])
        north = NamespaceConfig(name="north", queues=there.queues, max_message_size=EAST_LIMIT)
        self._broker = RunningBroker([replace(here, queues=(*here.queues, fans)), there, north])
        folder.joinpath("connections.yaml").write_text(
            f"{CONNECTIONS}north: {{kind: service-bus, setting: NORTH}}\n", encoding="utf-8"
        )

    def _settings(self) -> dict[str, str]:
        return super()._settings() | {"NORTH": self._broker.connection_string("north")}

    def copies(self) -> Mapping[tuple[str, str], Sequence[str]]:
        """Return the names of the messages at each target."""
        return {target: self.stored(*target) for target in _TARGETS}

    def sent_but_unsettled(self) -> frozenset[str]:
        """Return the copies that a target has and whose message the source still holds."""
        remaining = self.remaining()
        return frozenset(
            _at(name, *target) for target, names in self.copies().items() for name in remaining.intersection(names)
        )

    def balance(self) -> Balance:
        """Read the targets and return the oracle's result for all copies."""
        delivered = asyncio.run(self._read_all())
        withheld, remaining = self._journalled(), self.remaining()
        return balance(
            Account(
                accepted=[Copy(_at(key, *each), _at(name, *each)) for each in _TARGETS for key, name in self.accepted],
                delivered=delivered,
                withheld=frozenset(_at(name, *each) for each in _TARGETS for name in withheld),
                rejected=self.stored("west", REJECTED),
                remaining=frozenset(_at(name, *each) for each in _TARGETS for name in remaining),
                dead_lettered=self._dead_letters(),
                repeatable=self.repeatable,
            )
        )

    async def _read_all(self) -> list[Copy]:
        """Return the copies at the targets."""
        delivered: list[Copy] = []
        for site, path in _TARGETS:
            client = ServiceBusClient.from_connection_string(self._broker.connection_string(site))
            async with client:
                counts = Counter(self._broker.inspect(site, partial(sessions_of, path=path)))
                found = await read_sessions(client, path, counts)
            delivered += [Copy(_at(key, site, path), _at(name, site, path)) for key, name in found]
        return delivered


class LineWithJournal(LineToSeveral):
    """The same with a journal in blobs, from which the next host reads what the one before has sent."""

    def __init__(self, route: Route, folder: Path, **options: Any) -> None:
        """Prepare as `LineToSeveral`."""
        super().__init__(route, folder, **options)
        (self._folder / "journal.yaml").write_text("blob: {setting: JOURNAL}\n", encoding="utf-8")
        self._storage = ""

    def __enter__(self) -> Self:
        """Start the broker and the storage."""
        super().__enter__()
        self._storage = self._stack.enter_context(running_azurite(self._folder))
        return self

    def _settings(self) -> dict[str, str]:
        return super()._settings() | {"JOURNAL": self._storage}

    def sent_but_unsettled(self) -> frozenset[str]:
        """Return only the copies of these that are not on record: a host was killed between a send and its record."""
        return super().sent_but_unsettled() - self._on_record()

    def _on_record(self) -> frozenset[str]:
        """Return the copies that the journal has as sent."""
        with ContainerClient.from_connection_string(self._storage, "journal") as container:
            blobs = [each.name for each in container.list_blobs()] if container.exists() else []
            texts = [gzip.decompress(container.download_blob(each).readall()) for each in sorted(blobs)]
        records = [json.loads(line) for text in texts for line in text.splitlines()]
        names = {each["src_seq"]: each["message_id"] for each in records if each["role"] == "source"}
        return frozenset(
            f"{names[each['src_seq']]} at {each['target']}"
            for each in records
            if each["outcome"] == "sent" and "target" in each
        )


def _at(name: str, site: str, path: str) -> str:
    return f"{name} at {site}/{path}"


def _holds(host: HostProcess) -> bool:
    return _HOLDS in host.log()


def kill_while_one_is_away(line: Line) -> None:
    """Kill ten hosts, each when two targets have a session of which the third one, which is away, has nothing."""
    north = line.broker.faults("north")
    north.go_down()
    for number in range(_KILLS):
        line.send(drafts(line.route, f"{number}-", keys=2, each=3))
        host = line.host(is_awaited=False)
        line.wait_until(partial(_holds, host), "waiting for the third target")
        assert LineToSeveral.sent_but_unsettled(line)  # type: ignore[arg-type] # the scenarios have no other
        host.kill()
        line.expect_repeats(line.sent_but_unsettled())
        line.end_locks()
    north.come_up()
    line.host()
    line.wait_until_drained()


SEVERAL_TARGETS = [
    Scenario(
        "kill -9 ten times while one of three targets is away",
        THREE_TARGETS,
        kill_while_one_is_away,
        line=LineToSeveral,
        duplicate_window=_WINDOW,
    ),
    Scenario(
        "kill -9 ten times while one of three targets is away, with a journal and without duplicate detection",
        THREE_TARGETS,
        kill_while_one_is_away,
        explains="sent but not on record before the kill: sent again",
        repeats=None,
        line=LineWithJournal,
    ),
    Scenario(
        "kill -9 ten times while one of three targets is away, without journal and duplicate detection",
        THREE_TARGETS,
        kill_while_one_is_away,
        explains=SENT_BUT_UNSETTLED,
        repeats=True,
        line=LineToSeveral,
    ),
]
