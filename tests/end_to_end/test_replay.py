"""`busway replay` with the local broker and Microsoft's SDKs."""

import asyncio
import gzip
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from azure.eventhub import EventData
from azure.servicebus import ServiceBusMessage
from typer.testing import Result

from cli.letters.ledger_file import LedgerFile
from shared.ends import namespace
from shared.ends.event_hubs.receiver import EventHub
from shared.message.message import Message
from tests.end_to_end.repair_site import RepairSite, encoded, row


@pytest.fixture
def site(tmp_path: Path) -> Iterator[RepairSite]:
    with RepairSite(tmp_path) as site:
        yield site


def replay(site: RepairSite, task: str, *options: str, yes: bool = True) -> Result:
    return site.run("replay", task, *options, *["--yes"] * yes)


def send_events(site: RepairSite, count: int) -> None:
    """Send events, the even ones to one partition, the odd ones to the other."""
    for partition in (0, 1):
        events = []
        for n in range(partition, count, 2):
            event = EventData(b"event %d" % n)
            event.message_id, event.properties = f"e-{n}", {"n": n}
            events.append(event)
        site.publish_events("west/telemetry", *events, partition_id=str(partition))


def copies(site: RepairSite, queue: str = "events") -> list[Message]:
    """Return the messages in a queue of *east*."""
    return site.there(f"east/{queue}")


def texts(found: list[Message], name: str) -> list[Any]:
    return [None if (value := message.application_property(name)) is None else value.payload for message in found]


def test_events_between_two_positions_go_through_the_task_again(site: RepairSite) -> None:
    send_events(site, 8)
    shown = replay(site, "telemetry", "--from", "start", "--where", "n > 1", "--new-ids", yes=False)
    assert (shown.exit_code, shown.stderr) == (0, "Nothing was changed: --yes does it.\n"), shown.stdout
    assert "telemetry: would replay 6 messages" in shown.stdout
    assert "       3 in partition 1, sequence numbers 1 to 3" in shown.stdout
    assert not (site.folder / "build").exists()
    done = replay(site, "telemetry", "--from", "1", "--to", "2", "--partition", "1")
    assert (done.exit_code, "2 sent" in done.stdout) == (0, True), done.stdout + done.stderr
    found = copies(site)
    assert [message.body for message in found] == [b"event 3", b"event 5"]
    assert (texts(found, "repl-path"), texts(found, "repl-sequence")) == (["west"] * 2, ["1", "2"])
    (mark, _) = texts(found, "repl-replay")
    assert mark.startswith("telemetry~")
    assert mark.split("/")[1:3] == ["1", "1"]
    more = replay(site, "telemetry", "--from", "1h", "--new-ids", "--where", "n = 0")
    assert (more.exit_code, "1 sent" in more.stdout) == (0, True), more.stdout + more.stderr
    last = copies(site)[-1]
    assert (last.body, last.message_id is not None and last.message_id.payload != "e-0") == (b"event 0", True)


class Killed(BaseException):
    """Ends a run as SIGKILL would."""


def test_a_killed_replay_continues_with_what_it_had_selected(site: RepairSite, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert (refused.exit_code, "continue it with --resume" in refused.stderr) == (1, True)
    done = replay(site, "telemetry", "--resume")
    assert (done.exit_code, "4 not sent: an earlier run" in done.stdout) == (0, True), done.stdout + done.stderr
    assert sorted(texts(copies(site), "n")) == [*range(8)]
    none = replay(site, "telemetry", "--resume")
    assert (none.exit_code, "has no replay to resume" in none.stderr) == (1, True)


def test_messages_of_a_queue_are_replayed_from_their_copies_with_their_own_numbers(site: RepairSite) -> None:
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
    for n in (5, 1, 0):
        copy = ServiceBusMessage(b"order %d" % n, message_id=f"o-{n}", application_properties={"n": n})
        site.send("west/gone", copy)
    options = ("--from", "1h", "--copies", "west/gone", "--journal", str(site.folder / "journal"))
    done = replay(site, "orders", *options)
    assert done.exit_code == 1
    assert "2 sent" in done.stdout
    assert "1 without a copy (sequence number 72): see --copies" in done.stdout
    found = copies(site, "orders")
    assert (texts(found, "repl-sequence"), texts(found, "n")) == (["70", "71"], [0, 1])
    assert all(text.startswith("orders~") for text in texts(found, "repl-replay"))


def test_wrong_positions_and_an_unavailable_target_are_reported(site: RepairSite) -> None:
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
        assert (wrong.exit_code, text in wrong.stderr) == (1, True), wrong.stderr
    assert "unknown task" in replay(site, "nothing", "--from", "start").stderr


def test_a_running_app_keeps_its_consumer_group(site: RepairSite) -> None:
    """It reads with an epoch, as the Functions host does."""
    send_events(site, 4)
    site.missing([row("telemetry", "telemetry", 0, encoded=encoded("e-0", b"", {}), enqueued_time=0)])

    async def beside_the_app() -> tuple[Result, Result]:
        hub = EventHub(namespace.Namespace("WEST", site.settings["WEST"]), "telemetry", "$Default")
        opened = await hub.open("0", "-1", 0, epoch=0)
        try:
            replayed = await asyncio.to_thread(replay, site, "telemetry", "--from", "start")
            return replayed, await asyncio.to_thread(site.repair, "--yes")
        finally:
            await opened.close()
            await hub.close()

    refused, unrepaired = asyncio.run(beside_the_app())
    assert (refused.exit_code, unrepaired.exit_code, copies(site)) == (1, 1, [])
    assert "name another one with --consumer-group; continue with --resume" in refused.stderr
    assert "name another one with --consumer-group" in unrepaired.stdout
