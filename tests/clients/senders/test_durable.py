"""The durable sender over the wire: outages, restarts, poison, kill -9."""

import asyncio
import resource
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage

import busway_clients.aio
from busway_clients import (
    Outbox,
    OutboxFull,
    OutboxInUse,
    Outcome,
    SendFailed,
    StoreUnavailable,
    UnusableFile,
    WrongUse,
)
from busway_clients.senders.messages import with_ids
from busway_clients.senders.serialization import freeze, parts, thaw
from local.broker.faults import Effect, Fault
from tests.clients.applications import ENVIRONMENT, Application
from tests.clients.conftest import Pair

SECONDS = 30


@pytest.fixture
def outbox(tmp_path: Path) -> Iterator[Any]:
    opened = Outbox(tmp_path / "outbox.db")
    yield opened
    opened.close()


@pytest.fixture
def durable(application: Application, outbox: Outbox) -> Any:
    return lambda entity: application.classes.DurableSender(application.passive(entity), outbox)


def parcel(number: int, session: str = "parcel") -> ServiceBusMessage:
    return ServiceBusMessage(f"{session}-{number}", session_id=session)


def outage(pair: Pair) -> None:
    for name in ("west", "east"):
        pair.go_down(name)


def recovery(pair: Pair) -> None:
    for name in ("west", "east"):
        pair.come_up(name)


def test_without_an_outage_nothing_is_stored(
    application: Application, pair: Pair, queue: Callable[..., str], outbox: Outbox, durable: Callable[[str], Any]
) -> None:
    entity = queue("sessions")
    message = parcel(1)
    accepted = application.call(durable(entity).send(message))
    assert accepted == ((message.message_id,), ())
    assert len(outbox) == 0
    assert pair.bodies("west", entity) == ["parcel-1"]


def test_outage_keeps_the_order_of_each_session(
    application: Application, pair: Pair, queue: Callable[..., str], outbox: Outbox, durable: Callable[[str], Any]
) -> None:
    entity = queue("sessions")
    sender = durable(entity)
    application.call(sender.send(parcel(0)))
    outage(pair)
    for number in range(1, 4):
        accepted = application.call(sender.send([parcel(number), parcel(number, "letter")], timeout=2))
        assert len(accepted.kept) == 2
    recovery(pair)
    # What comes now must not overtake what waits; a session of which nothing waits is free.
    assert len(application.call(sender.send(parcel(4))).kept) == 1
    assert len(application.call(sender.send(parcel(0, "other"))).sent) == 1
    drained = application.call(sender.drain())
    assert (drained.sent, drained.held, drained.left, drained.error) == (7, 0, 0, None)
    assert len(outbox) == outbox.size_in_bytes == 0
    arrived = pair.bodies("west", entity)
    assert [body for body in arrived if body.startswith("parcel")] == [f"parcel-{number}" for number in range(5)]
    assert [body for body in arrived if body.startswith("letter")] == [f"letter-{number}" for number in range(1, 4)]


def test_session_given_by_the_inner_sender_is_kept_in_order(
    application: Application, pair: Pair, queue: Callable[..., str], outbox: Outbox
) -> None:
    entity = queue("sessions")
    passive = application.passive(entity, session_of=lambda raw: raw.application_properties["parcel"])
    sender = application.classes.DurableSender(passive, outbox)
    first, second = (ServiceBusMessage(text, application_properties={"parcel": "p"}) for text in ("1", "2"))
    outage(pair)
    application.call(sender.send(first, timeout=2))
    recovery(pair)
    assert application.call(sender.send(second)).kept == (second.message_id,)
    application.call(sender.drain())
    assert pair.bodies("west", entity) == ["1", "2"]


def test_drain_during_the_outage_reports_why_it_stopped(
    application: Application, pair: Pair, queue: Callable[..., str], outbox: Outbox, durable: Callable[[str], Any]
) -> None:
    sender = durable(queue())
    outage(pair)
    application.call(sender.send(ServiceBusMessage("x"), timeout=2))
    drained = application.call(sender.drain(timeout=2))
    assert (drained.sent, drained.left) == (0, 1)
    assert isinstance(drained.error, SendFailed)
    assert len(outbox) == 1


def test_messages_with_the_same_id_are_counted_individually(
    pair: Pair, queue: Callable[..., str], outbox: Outbox
) -> None:
    def replay(letters: Any) -> list[Any]:
        return [ServiceBusMessage(each, message_id=each, session_id="s") for each in letters]

    with Application("sync", pair.places) as application:
        sender = application.classes.DurableSender(application.passive(queue("sessions")), outbox)
        outage(pair)
        assert sender.send(replay("abb"), timeout=2) == ((), ("a", "b", "b"))
        drained = sender.drain(timeout=2)
        assert (drained.sent, drained.left) == (0, 3)
        recovery(pair)
        assert sender.drain().sent == 3


def test_poison_message_blocks_only_its_session(
    application: Application, pair: Pair, queue: Callable[..., str], outbox: Outbox, durable: Callable[[str], Any]
) -> None:
    entity = queue("sessions")
    sender = durable(entity)
    outage(pair)
    application.call(
        sender.send(
            [
                parcel(1),
                ServiceBusMessage("x" * 400_000, session_id="parcel"),
                parcel(3),
                parcel(1, "letter"),
                ServiceBusMessage("without a session"),
                parcel(2, "letter"),
            ],
            timeout=2,
        )
    )
    recovery(pair)
    drained = application.call(sender.drain(timeout=10))
    assert (drained.sent, drained.held, drained.left) == (3, 2, 1)
    assert sorted(pair.bodies("west", entity)) == ["letter-1", "letter-2", "parcel-1"]
    large, bare = sorted(outbox.held(), key=lambda each: each.lane or "~")
    assert (large.lane, bare.lane) == ("parcel", None)
    assert "MessageSizeExceededError" in large.fault
    assert "amqp:not-allowed" in bare.fault
    # A person decides: without the large one its session goes on, and a fault that stays is found again.
    outbox.remove([large.number])
    outbox.release(bare.number)
    drained = application.call(sender.drain(timeout=10))
    assert (drained.sent, drained.held, drained.left) == (1, 1, 0)
    assert pair.bodies("west", entity)[-1] == "parcel-3"


def test_drain_with_closed_senders_holds_no_message(pair: Pair, queue: Callable[..., str], outbox: Outbox) -> None:
    with Application("sync", pair.places) as application:
        senders = application.senders(queue())
        with application.classes.PassiveSender(senders) as passive:
            sender = application.classes.DurableSender(passive, outbox)
            outage(pair)
            sender.send(ServiceBusMessage("x"), timeout=2)
            with pytest.raises(WrongUse, match="got 0 s"):
                sender.drain(timeout=0)
            for each in senders.values():
                each.close()
            with pytest.raises(WrongUse, match="expected an open sender"):
                sender.drain(timeout=2)
    assert (len(outbox), outbox.held()) == (1, [])


def test_error_that_is_not_an_outage_is_raised(
    application: Application, pair: Pair, queue: Callable[..., str], outbox: Outbox, durable: Callable[[str], Any]
) -> None:
    pair.faults("west").add(Fault(effect=Effect.FILL))
    with pytest.raises(SendFailed, match="QuotaExceeded"):
        application.call(durable(queue()).send(ServiceBusMessage("x"), timeout=2))
    assert len(outbox) == 0


def test_messages_neither_sent_nor_kept_are_reported(pair: Pair, queue: Callable[..., str], tmp_path: Path) -> None:
    entity = queue("sessions")
    outbox = Outbox(tmp_path / "small.db", max_messages=1)
    with Application("sync", pair.places) as application:
        sender = application.classes.DurableSender(application.passive(entity), outbox)
        outage(pair)
        sender.send(parcel(1), timeout=2)
        recovery(pair)
        letter, behind = parcel(1, "letter"), parcel(2)
        large = ServiceBusMessage("x" * 400_000, session_id="letter")
        with pytest.raises(
            SendFailed, match=r"MessageSizeExceededError.*; messages of 1 sessions in the outbox"
        ) as failed:
            sender.send([letter, behind, large], timeout=10)
        assert failed.value.outcome.deliveries["west"].accepted == (letter.message_id,)
        assert failed.value.unsent == (behind.message_id, large.message_id)
        with pytest.raises(OutboxFull, match="beside 1 ") as full:
            sender.send([parcel(2, "letter"), behind], timeout=10)
        assert full.value.outcome is not None
        assert full.value.outcome.accepted_by == ("west",)
        assert full.value.unsent == (behind.message_id,)
        outage(pair)
        with pytest.raises(OutboxFull) as full:
            sender.send(parcel(3, "letter"), timeout=2)
        assert isinstance(full.value.__cause__, SendFailed)
        recovery(pair)
    assert pair.bodies("west", entity) == ["letter-1", "letter-2"]
    assert len(outbox) == 1
    outbox.close()


def test_full_disk_after_a_partial_send_is_reported(pair: Pair, queue: Callable[..., str], outbox: Outbox) -> None:
    with Application("sync", pair.places) as application:
        sender = application.classes.DurableSender(application.passive(queue("sessions")), outbox)
        outbox.put(with_ids(parcel(1)))
        letter, behind = parcel(1, "letter"), parcel(2)
        with full_disk(outbox):
            with pytest.raises(SendFailed, match="1 of 2 messages were sent, the others are not kept") as failed:
                sender.send([letter, behind], timeout=10)
            assert failed.value.unsent == (behind.message_id,)
            with pytest.raises(StoreUnavailable):
                sender.send(behind, timeout=10)
    assert len(outbox) == 1


def test_full_entity_stops_a_drain_and_holds_no_message(
    application: Application, pair: Pair, queue: Callable[..., str], durable: Callable[[str], Any]
) -> None:
    sender = durable(queue())
    outage(pair)
    application.call(sender.send(ServiceBusMessage("x"), timeout=2))
    recovery(pair)
    pair.faults("west").add(Fault(effect=Effect.FILL))
    drained = application.call(sender.drain(timeout=2))
    assert (drained.held, drained.left) == (0, 1)


def test_active_sender_leaves_unsent_messages_to_the_outbox(
    application: Application, pair: Pair, queue: Callable[..., str], outbox: Outbox
) -> None:
    entity = queue()
    sender = application.classes.DurableSender(application.active(entity, success="all"), outbox)
    message = ServiceBusMessage("x")
    pair.go_down("east")
    accepted = application.call(sender.send(message, timeout=2))
    assert accepted.kept == (message.message_id,)
    pair.come_up("east")
    assert application.call(sender.drain()).sent == 1
    assert set(pair.ids("west", entity)) == {message.message_id}


def test_keep_draining_runs_until_it_is_stopped(
    application: Application, pair: Pair, queue: Callable[..., str], outbox: Outbox, durable: Callable[[str], Any]
) -> None:
    entity = queue()
    sender = durable(entity)
    outage(pair)
    application.call(sender.send(ServiceBusMessage("x"), timeout=2))
    recovery(pair)
    if application.kind == "sync":
        stop = threading.Event()
        thread = threading.Thread(target=sender.keep_draining, args=(stop,), kwargs={"pause": 0.01})
        thread.start()
        deadline = time.monotonic() + SECONDS
        while len(outbox) and time.monotonic() < deadline:
            stop.wait(0.01)
        stop.set()
        thread.join()
    else:

        async def until_empty() -> None:
            task = asyncio.create_task(sender.keep_draining(pause=0.01))
            async with asyncio.timeout(SECONDS):
                while len(outbox):  # noqa: ASYNC110 - the outbox tells nobody
                    await asyncio.sleep(0.01)
            task.cancel()

        application.call(until_empty())
    assert len(outbox) == 0
    assert pair.bodies("west", entity) == ["x"]


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


def test_file_is_readable_by_its_owner_only(outbox: Outbox) -> None:
    outbox.put(with_ids(parcel(1)))
    path = Path(outbox._database.path)
    assert {each.stat().st_mode & 0o777 for each in (path, Path(f"{path}-wal"))} == {0o600}


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
    pair: Pair, queue: Callable[..., str], outbox: Outbox, caplog: pytest.LogCaptureFixture
) -> None:
    entity = queue("sessions")
    outbox.put(with_ids([parcel(1), parcel(2)]))
    with Application("sync", pair.places) as application:
        sender = application.classes.DurableSender(application.passive(entity), outbox)
        stop = threading.Event()
        thread = threading.Thread(target=sender.keep_draining, args=(stop,), kwargs={"pause": 0.01})
        with full_disk(outbox):
            thread.start()
            until(lambda: caplog.text.count("outbox: drain failed and is retried") > 1)
        until(lambda: not len(outbox))
        stop.set()
        thread.join()
    assert pair.bodies("west", entity) == ["parcel-1", "parcel-2"]


def until(is_so: Any) -> None:
    deadline = time.monotonic() + SECONDS
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_asyncio_continues_draining_after_a_full_disk(outbox: Outbox, caplog: pytest.LogCaptureFixture) -> None:
    outbox.put(with_ids(ServiceBusMessage("x")))

    class Sender:
        async def send(self, messages: Any, *, timeout: Any = None) -> Outcome:  # noqa: ARG002, ASYNC109 - a sender's
            return Outcome({})

    async def until_empty() -> None:
        task = asyncio.create_task(busway_clients.aio.DurableSender(Sender(), outbox).keep_draining(pause=0.01))
        with full_disk(outbox):
            await asyncio.to_thread(until, lambda: "outbox: drain failed and is retried" in caplog.text)
        await asyncio.to_thread(until, lambda: not len(outbox))
        task.cancel()

    asyncio.run(until_empty())


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


def test_a_file_of_another_kind_or_version_is_refused(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "other.db") as other:
        other.execute("CREATE TABLE t (x)")
    other.close()
    with pytest.raises(UnusableFile, match=r"other\.db: is a database of another kind, expected an outbox"):
        Outbox(tmp_path / "other.db")
    Outbox(tmp_path / "later.db").close()
    with sqlite3.connect(tmp_path / "later.db") as later:
        later.execute("PRAGMA user_version = 9")
    later.close()
    with pytest.raises(UnusableFile, match=r"later\.db: has version 9 of an outbox, expected 1"):
        Outbox(tmp_path / "later.db")
    with pytest.raises(WrongUse, match="expected 1 or more"):
        Outbox(tmp_path / "new.db", max_messages=0)


def test_order_within_one_durable_send_is_kept(pair: Pair, queue: Callable[..., str], outbox: Outbox) -> None:
    entity = queue("sessions")
    with Application("sync", pair.places) as application:
        sender = application.classes.DurableSender(application.passive(entity), outbox)
        sender.send([parcel(number) for number in range(50)])
    assert pair.bodies("west", entity) == [f"parcel-{number}" for number in range(50)]
