"""The file of an outbox: its limits, full disks, restarts and files of another kind."""

import resource
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage

from busway_clients import (
    Outbox,
    OutboxFull,
    OutboxInUse,
    SendFailed,
    StoreUnavailable,
    WrongUse,
)
from busway_clients.senders.messages import with_ids
from busway_clients.senders.serialization import freeze, parts, thaw
from tests.clients.applications import ENVIRONMENT, Application
from tests.clients.senders.conftest import parcel
from tests.clients.site import Site
from tests.site import until


def test_full_disk_after_a_partial_send_is_reported(sync_site: Site, outbox: Outbox) -> None:
    with Application("sync", sync_site.places) as application:
        sender = application.classes.DurableSender(application.passive(sync_site.queue("sessions")), outbox)
        outbox.put(with_ids(parcel(1)))
        letter, behind = parcel(1, "letter"), parcel(2)
        with full_disk(outbox):
            with pytest.raises(SendFailed, match="1 of 2 messages were sent, the others are not kept") as failed:
                sender.send([letter, behind], timeout=10)
            assert failed.value.unsent == (behind.message_id,)
            with pytest.raises(StoreUnavailable):
                sender.send(behind, timeout=10)
    assert len(outbox) == 1


def test_stored_messages_survive_kill_9(tmp_path: Path) -> None:
    script = textwrap.dedent("""
        import sys, itertools
        from azure.servicebus import ServiceBusMessage
        from busway_clients import Outbox
        from busway_clients.senders.messages import with_ids
        outbox = Outbox(sys.argv[1])
        for number in itertools.count():
            outbox.put(with_ids(ServiceBusMessage(f"{number}", session_id="s", message_id=f"{number}")))
            print(number, flush=True)
    """)
    path = tmp_path / "outbox.db"
    command = [sys.executable, "-c", script, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as process:  # noqa: S603 - our own script
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(30)]
        with pytest.raises(OutboxInUse, match="another outbox has the file open"):
            Outbox(path)
        process.send_signal(signal.SIGKILL)
        lines += process.stdout.readlines()
    accepted = [int(line) for line in lines if line.endswith("\n")]
    outbox = Outbox(path)
    waiting = [int(each.message.message_id) for each in outbox.next(100_000)]
    outbox.close()
    assert waiting[: len(accepted)] == accepted
    # One more at most: on the disk, and not yet reported.
    assert len(waiting) - len(accepted) <= 1


def test_outbox_is_bounded_and_accepts_all_messages_or_none(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "outbox.db", max_messages=3)
    outbox.put(with_ids([ServiceBusMessage("1"), ServiceBusMessage("2")]))
    with pytest.raises(OutboxFull, match=r"2 more messages .* beside 2 .*, expected at most 3"):
        outbox.put(with_ids([ServiceBusMessage("3"), ServiceBusMessage("4")]))
    assert len(outbox) == 2
    outbox.put(with_ids(ServiceBusMessage("3")))
    outbox.close()
    again = Outbox(tmp_path / "outbox.db", max_bytes=1)
    assert len(again) == 3
    with pytest.raises(OutboxFull):
        again.put(with_ids(ServiceBusMessage("4")))
    again.close()


@contextmanager
def full_disk(outbox: Outbox) -> Iterator[Any]:
    """Let no file grow beyond what the outbox has written."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (Path(f"{outbox._database.path}-wal").stat().st_size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_counts_are_correct_after_a_full_disk(outbox: Outbox) -> None:
    outbox.put(with_ids([parcel(1), parcel(2)]))
    size = outbox.size_in_bytes
    waiting = outbox.next(2)
    with full_disk(outbox):
        for _ in range(3):
            with pytest.raises(StoreUnavailable):
                outbox.put(with_ids(parcel(3)))
            with pytest.raises(StoreUnavailable):
                outbox.remove([each.number for each in waiting])
            assert (len(outbox), outbox.size_in_bytes) == (len(outbox.next(9)), size) == (2, size)
    outbox.remove([each.number for each in waiting])
    assert (len(outbox), outbox.size_in_bytes) == (0, 0)


def test_full_disk_does_not_stop_draining_and_sends_nothing_twice(
    sync_site: Site, outbox: Outbox, caplog: pytest.LogCaptureFixture
) -> None:
    entity = sync_site.queue("sessions")
    outbox.put(with_ids([parcel(1), parcel(2)]))
    with Application("sync", sync_site.places) as application:
        sender = application.classes.DurableSender(application.passive(entity), outbox)
        stop = threading.Event()
        thread = threading.Thread(target=sender.keep_draining, args=(stop,), kwargs={"pause": 0.01})
        with full_disk(outbox):
            thread.start()
            until(lambda: caplog.text.count("outbox: drain failed and is retried") > 1)
        until(lambda: not len(outbox))
        stop.set()
        thread.join()
    assert sync_site.bodies("west", entity) == ["parcel-1", "parcel-2"]


@pytest.mark.parametrize("value", [object(), 2**40, {"a": object()}])
def test_unencodable_message_is_refused_at_once(outbox: Outbox, value: Any) -> None:
    with pytest.raises(WrongUse):
        outbox.put(with_ids(ServiceBusMessage("x", application_properties={"secret": value})))
    assert len(outbox) == 0


def test_message_is_unchanged_after_a_restart() -> None:
    values: dict[str, Any] = {
        "application_properties": {
            "long": {"TYPE": "LONG", "VALUE": 2**40},
            b"bytes": UUID(int=7),
            "when": datetime(2026, 1, 2, 3, 4, 5, 6000, UTC),
        },
        "annotations": {b"x-opt-partition-key": "s"},
    }
    raw = AmqpAnnotatedMessage(
        value_body=[{"k": (b"\x00", None, True, 1.5)}],
        header={"time_to_live": 1000, "priority": 3},
        properties={"message_id": "m", "group_id": "s", "user_id": b"\xff"},
        delivery_annotations={"d": 1},
        footer={"f": "g"},
        **values,
    )
    assert parts(thaw(freeze(parts(raw)))) == parts(raw)


def test_limits_of_nothing_are_refused(tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match="expected 1 or more"):
        Outbox(tmp_path / "new.db", max_messages=0)
