"""`busway replay` with the local broker and Microsoft's SDKs."""

import asyncio
import gzip
import json
import os
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from azure.eventhub import EventData, EventHubProducerClient
from azure.servicebus import ServiceBusMessage
from typer.testing import CliRunner

from busway_broker.core.namespace import Namespace
from busway_broker.thread import RunningBroker
from cli.letters.ledger_file import LedgerFile
from cli.main import app
from shared.ends import namespace
from shared.ends.event_hubs.receiver import EventHub
from shared.message.arrival import Origin
from shared.message.message import Message
from tests.end_to_end.repair_site import CONNECTIONS, EAST, TASKS, WEST, Site, encoded, row
from tests.impatience import impatient_clients


@pytest.fixture(scope="module", autouse=True)
def hasty_clients() -> Iterator[None]:
    with impatient_clients():
        yield


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with RunningBroker([WEST, EAST]) as broker:
        yield broker


@pytest.fixture
def site(running: RunningBroker, tmp_path: Path) -> Site:
    running.reset()
    (tmp_path / "tasks").mkdir()
    (tmp_path / "connections.yaml").write_text(CONNECTIONS)
    (tmp_path / "tasks" / "all.yaml").write_text(TASKS)
    return Site(running, tmp_path)


def replay(site: Site, task: str, *options: str, yes: bool = True) -> subprocess.CompletedProcess[str]:
    before = Path.cwd()
    os.chdir(site.folder)
    try:
        arguments = ["replay", task, "--config", str(site.folder), *options, *["--yes"] * yes]
        result = CliRunner().invoke(app, arguments, env={**site.settings, "COLUMNS": "80"})
    finally:
        os.chdir(before)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return subprocess.CompletedProcess((), result.exit_code, result.stdout, result.stderr)


def send_events(site: Site, count: int) -> None:
    """Send events, the even ones to one partition, the odd ones to the other."""
    with EventHubProducerClient.from_connection_string(site.settings["WEST"], eventhub_name="telemetry") as producer:
        for partition in (0, 1):
            batch = producer.create_batch(partition_id=str(partition))
            for n in range(partition, count, 2):
                event = EventData(b"event %d" % n)
                event.message_id, event.properties = f"e-{n}", {"n": n}
                batch.add(event)
            producer.send_batch(batch)


def copies(site: Site, queue: str = "events") -> list[Message]:
    """Return the messages in a queue of *east*."""

    def peek(namespace: Namespace) -> list[bytes]:
        return [each.encode() for each in namespace.queue(queue).backlog.store.peek(0)]

    return [Message.received(each, Origin("east", queue)) for each in site.broker.inspect("east", peek)]


def texts(found: list[Message], name: str) -> list[Any]:
    return [None if (value := each.application_property(name)) is None else value.payload for each in found]


def test_events_between_two_positions_go_through_the_task_again(site: Site) -> None:
    send_events(site, 8)
    shown = replay(site, "telemetry", "--from", "start", "--where", "n > 1", "--new-ids", yes=False)
    assert (shown.returncode, shown.stderr) == (0, "Nothing was changed: --yes does it.\n"), shown.stdout
    assert "telemetry: would replay 6 messages" in shown.stdout
    assert "       3 in partition 1, sequence numbers 1 to 3" in shown.stdout
    assert not (site.folder / "build").exists()
    done = replay(site, "telemetry", "--from", "1", "--to", "2", "--partition", "1")
    assert (done.returncode, "2 sent" in done.stdout) == (0, True), done.stdout + done.stderr
    found = copies(site)
    assert [each.body for each in found] == [b"event 3", b"event 5"]
    assert (texts(found, "repl-path"), texts(found, "repl-sequence")) == (["west"] * 2, ["1", "2"])
    (mark, _) = texts(found, "repl-replay")
    assert mark.startswith("telemetry~")
    assert mark.split("/")[1:3] == ["1", "1"]
    more = replay(site, "telemetry", "--from", "1h", "--new-ids", "--where", "n = 0")
    assert (more.returncode, "1 sent" in more.stdout) == (0, True), more.stdout + more.stderr
    last = copies(site)[-1]
    assert (last.body, last.message_id is not None and last.message_id.payload != "e-0") == (b"event 0", True)


class Killed(BaseException):
    """Ends a run as SIGKILL would."""


def test_a_killed_replay_continues_with_what_it_had_selected(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.resend.run.AT_ONCE", 2)
    send_events(site, 8)
    append, left = LedgerFile.append, iter(range(4))

    async def dying(self: LedgerFile, line: str) -> None:
        if next(left, None) is None:
            raise Killed
        await append(self, line)

    monkeypatch.setattr(LedgerFile, "append", dying)
    with pytest.raises(Killed):
        replay(site, "telemetry", "--from", "start")
    monkeypatch.setattr(LedgerFile, "append", append)
    assert len(copies(site)) == 4
    send_events(site, 2)
    refused = replay(site, "telemetry", "--from", "start")
    assert (refused.returncode, "continue it with --resume" in refused.stderr) == (1, True)
    done = replay(site, "telemetry", "--resume")
    assert (done.returncode, "4 not sent: an earlier run" in done.stdout) == (0, True), done.stdout + done.stderr
    assert sorted(texts(copies(site), "n")) == [*range(8)]
    none = replay(site, "telemetry", "--resume")
    assert (none.returncode, "has no replay to resume" in none.stderr) == (1, True)


def test_messages_of_a_queue_are_replayed_from_their_copies_with_their_own_numbers(site: Site) -> None:
    now = datetime.now(UTC)
    enqueued = round(now.timestamp() * 1000) * 1000
    folder = site.folder / f"journal/task=orders/date={now:%Y-%m-%d}/hour={now:%H}/role=source"
    folder.mkdir(parents=True)
    records = [
        row("orders", "orders", 70 + n, encoded=encoded(f"o-{n}", b"order %d" % n, {"n": n}), enqueued_time=enqueued)
        for n in range(3)
    ]
    more = {"v": 1, "role": "source", "observer": "task", "outcome": "received"}
    more |= {"instance": "i-1", "batch_id": 1, "journal_time": enqueued}
    with gzip.open(folder / "i-1.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(each | more) + "\n" for each in [*records, records[0]])
    # The copies are in another queue, with other numbers.
    with site.west.get_queue_sender("gone") as sender:
        for n in (5, 1, 0):
            sender.send_messages(
                ServiceBusMessage(b"order %d" % n, message_id=f"o-{n}", application_properties={"n": n})
            )
    options = ("--from", "1h", "--copies", "west/gone", "--journal", str(site.folder / "journal"))
    done = replay(site, "orders", *options)
    assert done.returncode == 1
    assert "2 sent" in done.stdout
    assert "1 without a copy (sequence number 72): see --copies" in done.stdout
    found = copies(site, "orders")
    assert (texts(found, "repl-sequence"), texts(found, "n")) == (["70", "71"], [0, 1])
    assert all(each.startswith("orders~") for each in texts(found, "repl-replay"))


def test_wrong_positions_and_an_unavailable_target_are_reported(site: Site) -> None:
    send_events(site, 4)
    for options, text in (
        (("--from", "yesterday"), "is not a position"),
        ((), "--from: is missing"),
        (("--from", "2099-01-01"), "is behind the last message"),
        (("--from", "1"), "name it with --partition"),
        (("--from", "start", "--partition", "7"), "expected 0, 1"),
        (("--from", "start", "--where", "n ="), "--where"),
    ):
        wrong = replay(site, "telemetry", *options, yes=False)
        assert (wrong.returncode, text in wrong.stderr) == (1, True), wrong.stderr
    assert "unknown task" in replay(site, "nothing", "--from", "start").stderr


def test_a_running_app_keeps_its_consumer_group(site: Site) -> None:
    """It reads with an epoch, as the Functions host does."""
    send_events(site, 4)

    async def beside_the_app() -> subprocess.CompletedProcess[str]:
        hub = EventHub(namespace.Namespace("WEST", site.settings["WEST"]), "telemetry", "$Default")
        opened = await hub.open("0", "-1", 0, epoch=0)
        try:
            return await asyncio.to_thread(replay, site, "telemetry", "--from", "start")
        finally:
            await opened.close()
            await hub.close()

    refused = asyncio.run(beside_the_app())
    assert (refused.returncode, copies(site)) == (1, [])
    assert "name another one with --consumer-group; continue with --resume" in refused.stderr
