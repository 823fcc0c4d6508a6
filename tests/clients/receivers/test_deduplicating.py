"""The de-duplicating receiver over the wire: each message once, whatever fails."""

import asyncio
import re
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from busway_clients import (
    Claim,
    DeadLetter,
    DeduplicatingReceiver,
    Handled,
    MemoryStore,
    SqliteStore,
    State,
    StoreUnavailable,
    Watermark,
    WrongUse,
    by_message_id,
    by_property,
)
from busway_clients.receivers.deduplication import PATIENCE
from busway_clients.receivers.identity import origin_time
from local.broker.faults import Effect, Fault, Operation
from tests.clients.applications import ENVIRONMENT, Application
from tests.clients.conftest import Pair


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

    async def awaited(self, message: Any) -> None:
        self(message)


def consume(
    application: Application, entity: str, effects: Any, store: Any = None, idle: float = 0.5, **options: Any
) -> Any:
    """Let a receiver run until nothing comes any more; return it."""
    links = application.receivers(entity)
    receiver = application.classes.DeduplicatingReceiver(links, MemoryStore() if store is None else store, **options)
    if application.kind == "sync":
        receiver.run(effects, threading.Event(), idle=idle)
    else:

        async def run() -> None:
            await receiver.run(effects.awaited, asyncio.Event(), idle=idle)

        application.call(run())
    for link in links.values():
        application.call(link.close())
    return receiver


def send_to_both(application: Application, entity: str, messages: Any) -> None:
    application.call(application.active(entity, delay=timedelta()).send(messages))


def test_one_of_two_copies_is_processed_and_both_queues_are_empty(
    application: Application, pair: Pair, queue: Callable[..., str]
) -> None:
    entity = queue()
    send_to_both(application, entity, [ServiceBusMessage(f"{number}") for number in range(10)])
    effects = Effects()
    receiver = consume(application, entity, effects)
    assert effects.seen == Counter({f"{number}": 1 for number in range(10)})
    assert sum(counts[Handled.PROCESSED] for counts in receiver.counts.values()) == 10
    assert sum(counts[Handled.DUPLICATE] for counts in receiver.counts.values()) == 10
    assert pair.ids("west", entity) == pair.ids("east", entity) == []


def test_failed_message_is_not_recorded_and_is_processed_later(
    application: Application, pair: Pair, queue: Callable[..., str]
) -> None:
    entity = queue()
    send_to_both(application, entity, [ServiceBusMessage("a"), ServiceBusMessage("b")])
    effects = Effects({"a": 3})
    consume(application, entity, effects)
    assert effects.done == {"a": 1, "b": 1}
    assert effects.seen["a"] == 4
    assert pair.ids("west", entity) == pair.ids("east", entity) == []


def test_poison_message_is_dead_lettered_and_blocks_no_other(
    application: Application, pair: Pair, queue: Callable[..., str]
) -> None:
    entity = queue("twice")
    messages = [ServiceBusMessage("bad"), ServiceBusMessage("good")]
    send_to_both(application, entity, messages)
    effects = Effects({"bad": 100})
    consume(application, entity, effects)
    assert effects.done == {"good": 1}
    assert pair.dead("west", entity) == pair.dead("east", entity) == [messages[0].message_id]


def test_dead_letter_error_dead_letters_at_once(application: Application, queue: Callable[..., str]) -> None:
    entity = queue()
    send_to_both(application, entity, ServiceBusMessage("bad"))
    effects = Effects({"bad": 100}, DeadLetter("NotAnOrder", "no number in it"))
    receiver = consume(application, entity, effects)
    assert effects.seen["bad"] == 2
    assert [counts[Handled.DEAD_LETTERED] for counts in receiver.counts.values()] == [1, 1]
    [dead] = application.call(application.receivers(entity, sub_queue="deadletter")["west"].receive_messages(1, 10))
    assert (dead.dead_letter_reason, dead.dead_letter_error_description) == ("NotAnOrder", "no number in it")


@pytest.mark.parametrize("fails", [False, True])
def test_other_copy_waits_while_one_is_processed(pair: Pair, queue: Callable[..., str], fails: bool) -> None:
    entity = queue()
    inside, may_go = threading.Event(), threading.Event()
    effects = Effects({"x": 1} if fails else {})

    def slow(message: Any) -> None:
        inside.set()
        assert may_go.wait(20)
        effects(message)

    with Application("sync", pair.places) as application:
        send_to_both(application, entity, ServiceBusMessage("x"))
        receiver = DeduplicatingReceiver(application.receivers(entity), MemoryStore())
        stop = threading.Event()
        running = threading.Thread(target=receiver.run, args=(slow, stop), kwargs={"idle": 0.5})
        running.start()
        assert inside.wait(20)
        # Both have theirs by now: the second is locked too, and neither settled nor processed.
        until(lambda: all(not unlocked for unlocked in locked_out(pair, entity)))
        assert effects.seen == {}
        may_go.set()
        running.join()
    assert effects.done == {"x": 1}
    assert effects.seen == {"x": 2 if fails else 1}
    assert pair.ids("west", entity) == pair.ids("east", entity) == []


def until(condition: Any, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def locked_out(pair: Pair, entity: str) -> list[Any]:
    return [pair.broker.counts(name)[entity].active - pair.locked(name, entity) for name in ("west", "east")]


def test_copy_that_waits_too_long_is_abandoned_and_redelivered(
    application: Application, pair: Pair, queue: Callable[..., str]
) -> None:
    entity = queue()
    store = MemoryStore()
    message = ServiceBusMessage("x", message_id="m")
    application.call(application.passive(entity).send(message))
    claim = store.claim("m", time.time())
    assert isinstance(claim, Claim)
    effects = Effects()
    receiver = application.classes.DeduplicatingReceiver(
        application.receivers(entity), store, patience=timedelta(seconds=0.1)
    )
    [received] = application.call(receiver._receiving.receivers["west"].receive_messages(1, 10))
    work = effects if application.kind == "sync" else effects.awaited
    assert application.call(receiver.handle("west", received, work)) is Handled.BUSY
    assert pair.ids("west", entity) == [message.message_id]
    store.record(claim, time.time())
    [received] = application.call(receiver._receiving.receivers["west"].receive_messages(1, 10))
    assert application.call(receiver.handle("west", received, work)) is Handled.DUPLICATE
    assert effects.seen == {}


def test_claim_of_a_dead_receiver_uses_up_no_delivery(
    application: Application, queue: Callable[..., str], tmp_path: Path
) -> None:
    entity = queue("twice")
    store = SqliteStore(tmp_path / "seen.db", lease=timedelta(seconds=1))
    application.call(application.passive(entity).send(ServiceBusMessage("x", message_id="m")))
    assert isinstance(store.claim("m", time.time()), Claim)
    effects = Effects()
    receiver = consume(application, entity, effects, store=store, patience=timedelta(seconds=0.1))
    store.close()
    assert effects.done == {"x": 1}
    assert receiver.counts["west"] == {Handled.PROCESSED: 1}


def test_claim_is_renewed_while_the_application_works(
    application: Application, queue: Callable[..., str], tmp_path: Path
) -> None:
    entity = queue()
    store = SqliteStore(tmp_path / "seen.db", lease=timedelta(seconds=0.8))
    application.call(application.passive(entity).send(ServiceBusMessage("x", message_id="m")))
    [received] = application.call(application.receivers(entity)["west"].receive_messages(1, 10))
    receiver = application.classes.DeduplicatingReceiver(application.receivers(entity), store)
    seen = []

    def slow(_: Any) -> None:
        time.sleep(1)
        seen.append(store.claim("m", time.time()))

    async def awaited(_: Any) -> None:
        await asyncio.sleep(1)
        seen.append(store.claim("m", time.time()))

    assert application.call(receiver.handle("west", received, slow if application.kind == "sync" else awaited))
    assert seen == [State.BUSY]
    store.close()


def test_cancelled_receiver_releases_its_requested_claim(pair: Pair, queue: Callable[..., str]) -> None:
    entity = queue()
    asked, may_answer, given_back = threading.Event(), threading.Event(), threading.Event()

    class Slow(MemoryStore):
        is_local = False

        def claim(self, identity: Any, now: Any) -> Any:
            asked.set()
            assert may_answer.wait(20)
            return super().claim(identity, now)

        def release(self, claim: Any) -> None:
            super().release(claim)
            given_back.set()

    store = Slow()
    with Application("aio", pair.places) as application:
        application.call(application.passive(entity).send(ServiceBusMessage("x", message_id="m")))
        receiver = application.classes.DeduplicatingReceiver(application.receivers(entity), store)

        async def interrupted() -> None:
            task = asyncio.create_task(receiver.run(Effects().awaited, asyncio.Event()))
            await asyncio.to_thread(asked.wait, 20)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            may_answer.set()

        application.call(interrupted())
    assert given_back.wait(20)
    assert isinstance(store.claim("m", time.time()), Claim)


def test_run_ends_when_all_namespaces_are_idle(pair: Pair, queue: Callable[..., str]) -> None:
    entity = queue()
    with Application("sync", pair.places) as application:
        senders = application.senders(entity)
        seen = []

        def slowly(message: Any) -> None:
            seen.append(str(message))
            time.sleep(0.3)
            if len(seen) < 5:
                senders["west"].send_messages(ServiceBusMessage(f"{len(seen)}"))
            elif len(seen) == 5:
                senders["east"].send_messages(ServiceBusMessage("at last"))

        senders["west"].send_messages(ServiceBusMessage("0"))
        receiver = DeduplicatingReceiver(application.receivers(entity), MemoryStore())
        receiver.run(slowly, threading.Event(), idle=0.5)
    assert seen == ["0", "1", "2", "3", "4", "at last"]


@pytest.mark.parametrize("ends_by", ["idle", "stop"])
@pytest.mark.parametrize("kind", ["sync", "aio"])
def test_silent_peer_does_not_block_the_end_of_a_run(
    pair: Pair, queue: Callable[..., str], kind: str, ends_by: str
) -> None:
    entity = queue()
    effects, idle = Effects(), 0.5 if ends_by == "idle" else None
    mute = socket.create_server(("127.0.0.1", 0))
    east = re.sub(r":\d+", f":{mute.getsockname()[1]}", pair.places["east"])
    with Application(kind, pair.places | {"east": east}) as application:
        with ServiceBusClient.from_connection_string(pair.places["west"]) as client:
            client.get_queue_sender(entity).send_messages(ServiceBusMessage("x"))
        receivers = application.receivers(entity)
        receiver = application.classes.DeduplicatingReceiver(receivers, MemoryStore(), open_seconds=2.0)
        stop = (threading if kind == "sync" else asyncio).Event()

        def work(message: Any) -> None:
            effects(message)
            if ends_by == "stop":
                stop.set()

        async def awaited(message: Any) -> None:
            work(message)

        application.call(receiver.run(work if kind == "sync" else awaited, stop, idle=idle))
        mute.close()
    assert effects.done == {"x": 1}


def test_waiting_copy_does_not_block_the_end_of_a_run(
    application: Application, pair: Pair, queue: Callable[..., str]
) -> None:
    entity = queue()
    store = MemoryStore()
    assert isinstance(store.claim("m", time.time()), Claim)
    application.call(application.passive(entity).send(ServiceBusMessage("x", message_id="m")))
    receiver = application.classes.DeduplicatingReceiver(application.receivers(entity), store)
    stop = (threading if application.kind == "sync" else asyncio).Event()
    effects = Effects()

    def stop_it() -> None:
        until(lambda: pair.locked("west", entity))
        stop.set() if application.kind == "sync" else application.loop.call_soon_threadsafe(stop.set)

    stopping = threading.Thread(target=stop_it)
    stopping.start()
    began = time.monotonic()
    application.call(receiver.run(effects if application.kind == "sync" else effects.awaited, stop, idle=0.5))
    stopping.join()
    assert time.monotonic() - began < PATIENCE.total_seconds() / 2
    assert receiver.counts["west"] == {Handled.BUSY: 1}
    assert pair.ids("west", entity) == ["m"]


@pytest.mark.parametrize(
    ("kind_of_queue", "expected"), [("sessions", "amqp:not-allowed"), ("missing", "MessagingEntityNotFoundError")]
)
def test_missing_entity_or_session_is_reported(
    application: Application, queue: Callable[..., str], kind_of_queue: str, expected: str
) -> None:
    entity = queue(kind_of_queue) if kind_of_queue == "sessions" else kind_of_queue
    receivers = {**application.receivers(queue()), "east": application.receivers(entity)["east"]}
    receiver = application.classes.DeduplicatingReceiver(receivers, MemoryStore())
    stop = (threading if application.kind == "sync" else asyncio).Event()
    effects = Effects()
    with pytest.raises(WrongUse, match=rf"the receiver of east: .*{expected}"):
        application.call(receiver.run(effects if application.kind == "sync" else effects.awaited, stop, idle=0.5))


def test_identity_by_property_and_messages_without_it(
    application: Application, pair: Pair, queue: Callable[..., str]
) -> None:
    entity = queue()
    marked = [
        ServiceBusMessage("first", application_properties={"order": 7}),
        ServiceBusMessage("second", application_properties={"order": 7}),
        ServiceBusMessage("bare"),
        ServiceBusMessage("bare"),
    ]
    application.call(application.passive(entity).send(marked))
    effects = Effects()
    consume(application, entity, effects, identity=by_property("order"))
    assert effects.done == {"first": 1, "bare": 2}
    application.call(application.passive(entity).send(ServiceBusMessage("bare")))
    consume(application, entity, effects, identity=by_property("order"), without_identity="dead-letter")
    assert effects.done["bare"] == 2
    assert len(pair.dead("west", entity)) == 1


@pytest.mark.parametrize(
    ("written", "first"),
    [
        ({b"repl-enqueue-time": b"2026-01-02T03:04:05.678Z;2026-02-01T00:00:00.000Z"}, "2026-01-02T03:04:05.678+00:00"),
        ({b"repl-enqueued-time": b"2026-01-02 03:04:05Z;2026-02-01 00:00:00Z"}, "2026-01-02T03:04:05+00:00"),
        ({b"repl-enqueued-time": b"0001-01-01 00:00:00Z;2026-02-01 00:00:00Z"}, "2026-02-01T00:00:00+00:00"),
        ({b"repl-enqueue-time": b"0001-01-01 00:00:00Z"}, "2026-03-01T00:00:00+00:00"),
        ({b"repl-enqueue-time": b"yesterday"}, "2026-03-01T00:00:00+00:00"),
        ({}, "2026-03-01T00:00:00+00:00"),
    ],
)
def test_origin_time_is_the_first_valid_time(written: Any, first: str) -> None:
    message = SimpleNamespace(application_properties=written, enqueued_time_utc=datetime(2026, 3, 1, tzinfo=UTC))
    assert origin_time(cast("Any", message)) == datetime.fromisoformat(first)


@pytest.mark.parametrize(("held", "identity"), [(None, None), ("", None), (b"", None), (b"a", "a"), (7, "7")])
def test_empty_message_id_is_no_identity(held: str | bytes | int | None, identity: str | None) -> None:
    message = SimpleNamespace(message_id=held)
    assert by_message_id(cast("Any", message)) == identity


def test_messages_behind_the_watermark_are_not_processed_again(
    application: Application, pair: Pair, queue: Callable[..., str]
) -> None:
    entity = queue()
    mark = datetime.now(UTC)

    def copy(name: str, age: Any) -> ServiceBusMessage:
        return ServiceBusMessage(
            name, application_properties={"repl-enqueue-time": f"{(mark - age).isoformat()};2026-01-01T00:00:00Z"}
        )

    messages = [
        copy("old", timedelta(seconds=11)),
        copy("within the skew", timedelta(seconds=9)),
        copy("new", timedelta(seconds=-1)),
        ServiceBusMessage("local"),
    ]
    application.call(application.passive(entity).send(messages))
    effects = Effects()
    receiver = consume(application, entity, effects, watermark=Watermark(mark, timedelta(seconds=10)))
    assert effects.done == {"within the skew": 1, "new": 1, "local": 1}
    assert receiver.counts["west"][Handled.BEHIND] == 1
    assert pair.ids("west", entity) == []


def test_lost_lock_causes_no_second_processing(application: Application, pair: Pair, queue: Callable[..., str]) -> None:
    entity = queue()
    application.call(application.passive(entity).send(ServiceBusMessage("x")))
    pair.faults("west").add(
        Fault(effect=Effect.EXPIRE_LOCKS, entity=entity, operations=frozenset({Operation.SETTLE}), times=1)
    )
    effects = Effects()
    receiver = consume(application, entity, effects)
    assert effects.seen == {"x": 1}
    assert receiver.counts["west"] == {Handled.PROCESSED: 1, Handled.DUPLICATE: 1}


def test_an_unavailable_namespace_does_not_stop_the_other(
    application: Application, pair: Pair, queue: Callable[..., str]
) -> None:
    entity = queue()
    send_to_both(application, entity, [ServiceBusMessage("a"), ServiceBusMessage("b")])
    pair.go_down("west")
    effects, store = Effects(), MemoryStore()
    receiver = consume(application, entity, effects, store=store)
    assert effects.done == {"a": 1, "b": 1}
    assert receiver.errors["west"] is not None
    pair.come_up("west")
    consume(application, entity, effects, store=store)
    assert effects.done == {"a": 1, "b": 1}
    assert pair.ids("west", entity) == []


class StoreThatIsAway(MemoryStore):
    """Does not answer to one kind of question for some times."""

    is_local = False

    def __init__(self, question: Any, times: Any) -> None:
        super().__init__()
        self._away = Counter({question: times})

    def _answer(self, question: Any) -> None:
        if self._away[question] > 0:
            self._away[question] -= 1
            raise StoreUnavailable(f"store: no answer to {question}")

    def claim(self, identity: Any, now: Any) -> Any:
        self._answer("claim")
        return super().claim(identity, now)

    def record(self, claim: Any, now: Any) -> None:
        self._answer("record")
        super().record(claim, now)

    def release(self, claim: Any) -> None:
        self._answer("release")
        super().release(claim)


@pytest.mark.parametrize("question", ["claim", "record", "release"])
def test_unavailable_store_uses_up_no_delivery_and_causes_no_second_processing(
    application: Application, pair: Pair, queue: Callable[..., str], question: str
) -> None:
    entity = queue("twice")
    application.call(application.passive(entity).send(ServiceBusMessage("x")))
    effects = Effects({"x": 1} if question == "release" else {})
    receiver = consume(application, entity, effects, store=StoreThatIsAway(question, 3), idle=0.5)
    assert effects.done == {"x": 1}
    assert effects.seen["x"] == (2 if question == "release" else 1)
    assert pair.ids("west", entity) == pair.dead("west", entity) == []
    assert receiver.errors == {"west": None, "east": None}


def test_cancelled_application_releases_its_claim(pair: Pair, queue: Callable[..., str]) -> None:
    entity = queue()
    store = MemoryStore()
    with Application("aio", pair.places) as application:
        application.call(application.passive(entity).send(ServiceBusMessage("x", message_id="m")))
        receiver = application.classes.DeduplicatingReceiver(application.receivers(entity), store)

        async def interrupted() -> None:
            started = asyncio.Event()

            async def endless(_: Any) -> None:
                started.set()
                await asyncio.Event().wait()

            task = asyncio.create_task(receiver.run(endless, asyncio.Event()))
            await started.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        application.call(interrupted())
    assert isinstance(store.claim("m", time.time()), Claim)


def test_killed_consumer_processes_again_only_what_was_not_recorded(
    pair: Pair, queue: Callable[..., str], tmp_path: Path
) -> None:
    entity = queue()
    script = textwrap.dedent("""
        import os, signal, sys, threading
        from datetime import timedelta
        from azure.servicebus import ServiceBusClient
        from busway_clients import DeduplicatingReceiver, SqliteStore

        class Killing(SqliteStore):
            def record(self, claim, now):
                if sys.argv[4] == "after":
                    super().record(claim, now)
                os.kill(os.getpid(), signal.SIGKILL)

        def application(message):
            with open(sys.argv[3], "a") as effects:
                effects.write(str(message) + "\\n")

        client = ServiceBusClient.from_connection_string(sys.argv[1])
        receivers = {"west": client.get_queue_receiver(sys.argv[2])}
        store = Killing(sys.argv[3] + ".db", lease=timedelta(seconds=1))
        DeduplicatingReceiver(receivers, store).run(application, threading.Event())
    """)
    for moment, times in (("before", 2), ("after", 1)):
        with Application("sync", pair.places) as application:
            application.passive(entity).send(ServiceBusMessage(moment))
            effects = tmp_path / moment
            command = [sys.executable, "-c", script, pair.places["west"], entity, str(effects), moment]
            killed = subprocess.run(command, env=ENVIRONMENT, timeout=60, check=False)  # noqa: S603 - our own script
            assert killed.returncode == -9
            pair.faults("west").expire_locks(entity)
            store = SqliteStore(f"{effects}.db")

            def again(message: Any, effects: Any = effects) -> None:
                with effects.open("a") as file:
                    file.write(f"{message}\n")

            receiver = DeduplicatingReceiver({"west": application.receivers(entity)["west"]}, store)
            receiver.run(again, threading.Event(), idle=0.5)
            store.close()
        assert effects.read_text().split() == [moment] * times
        assert pair.ids("west", entity) == []


def test_invalid_settings_are_reported_by_the_constructor() -> None:
    with pytest.raises(WrongUse, match="2026-01-01 00:00:00 has no time zone"):
        Watermark(datetime(2026, 1, 1))  # noqa: DTZ001 - what is refused
    with pytest.raises(WrongUse, match="skew of a watermark: got -1 day"):
        Watermark(datetime(2026, 1, 1, tzinfo=UTC), timedelta(days=-1))
    with pytest.raises(WrongUse, match="got none"):
        DeduplicatingReceiver({}, MemoryStore())
    with pytest.raises(WrongUse, match="is empty, expected the name"):
        by_property("")
    with pytest.raises(WrongUse, match="expected 'process' or 'dead-letter'"):
        DeduplicatingReceiver({}, MemoryStore(), without_identity=cast("Any", "drop"))


def test_synchronous_receiver_rejects_a_coroutine_function(pair: Pair, queue: Callable[..., str]) -> None:
    entity = queue()
    effects, store = Effects(), MemoryStore()
    with Application("sync", pair.places) as application:
        application.passive(entity).send(ServiceBusMessage("x", message_id="m"))
        receiver = DeduplicatingReceiver({"west": application.receivers(entity)["west"]}, store)
        with pytest.raises(WrongUse, match="a call returned a coroutine, expected synchronous functions"):
            receiver.run(effects.awaited, threading.Event(), idle=0.5)
    assert pair.ids("west", entity) == ["m"]
    assert isinstance(store.claim("m", time.time()), Claim)
