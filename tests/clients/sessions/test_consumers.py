"""Consumers at two namespaces with one journal, over the wire: the broker through the SDK, the journal in Azurite."""

import asyncio
import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, NamedTuple

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusClient as AsyncServiceBusClient

import busway_clients.aio.sessions as aio
from busway_clients.aio.sessions.tables import TableStore as AsyncTableStore
from busway_clients.sessions import (
    Journal,
    JournaledConsumer,
    JournalMismatch,
    JournalRefused,
    Lease,
    Settings,
    Source,
    SqliteStore,
    State,
    Unprocessable,
)
from busway_clients.sessions.leases import LEASE_KEY
from busway_clients.sessions.received import arrival_of
from busway_clients.sessions.rows import Write
from busway_clients.sessions.tables import TableStore
from local.broker.thread import RunningBroker
from tests.clients.sessions.region import OPENED

QUICK: dict[str, Any] = {"poll_seconds": 0.05, "idle_seconds": 0.2, "retry_seconds": 0.01, "accept_seconds": 0.3}
SETTINGS = Settings(**QUICK)
SECONDS = 30
_numbers = itertools.count()


class Effects:
    """What an application has done, and when there is enough of it."""

    def __init__(self, act: Any = None) -> None:
        self.done: list[tuple[str | None, str]] = []
        self._changed = threading.Condition()
        self._act = act

    def __call__(self, delivery: Any) -> None:
        if self._act is not None:
            self._act(delivery)
        with self._changed:
            self.done.append((delivery.session_id, delivery.message_id))
            self._changed.notify_all()

    async def awaited(self, delivery: Any) -> None:
        self(delivery)

    def of(self, session: str | None) -> list[Any]:
        return [name for each, name in self.done if each == session]

    def wait_for(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.done) >= count, SECONDS), self.done


@pytest.fixture
def queue() -> Any:
    number = next(_numbers)
    return lambda kind="sessions": f"{kind}-{number}"


@pytest.fixture
def store(table: tuple[str, str]) -> Any:
    made = TableStore.from_connection_string(*table)
    OPENED.append(made)
    return made


def until(condition: Any) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def lease_of(journal: Journal, session: str | None) -> Lease:
    lease = journal.record(session, []).lease
    assert lease is not None
    return lease


def active(regions: RunningBroker, queue: str) -> dict[str, int]:
    return {site: regions.counts(site)[queue].active for site in ("west", "east")}


@contextlib.contextmanager
def consumers(
    clients: dict[str, ServiceBusClient], source: Any, store: Any, effects: Any, **options: Any
) -> Iterator[Any]:
    with contextlib.ExitStack() as ends:
        made = []
        for site, client in clients.items():
            settings = options.get(site, options.get("settings", SETTINGS))
            consumer = JournaledConsumer(client, source, store, effects, site=site, settings=settings, lanes=2)
            made.append(ends.enter_context(consumer))
        yield made


def test_two_regions_apply_each_message_once_and_each_session_in_order(
    regions: RunningBroker,
    clients: dict[str, ServiceBusClient],
    send: Callable[..., None],
    store: Any,
    queue: Callable[..., str],
) -> None:
    sessions = {f"shipment-{n}": [f"s{n}-{step}" for step in range(12)] for n in range(4)}
    for session, names in sessions.items():
        send(queue(), names, session)
    effects = Effects()
    with consumers(clients, Source(queue()), store, effects):
        until(lambda: active(regions, queue()) == {"west": 0, "east": 0})
    assert len(effects.done) == 48
    assert {session: effects.of(session) for session in sessions} == sessions
    journal = Journal(store, SETTINGS)
    record = journal.record("shipment-0", sessions["shipment-0"])
    assert {entry.state for entry in record.entries.values()} == {State.COMPLETED}
    assert record.lease is not None
    assert not record.lease.is_held


def test_awaited_consumers_of_queues_without_sessions_lock_each_message(
    regions: RunningBroker, send: Callable[..., None], table: tuple[str, str], queue: Callable[..., str]
) -> None:
    names = [f"m{n}" for n in range(20)]
    send(queue("plain"), names)
    settings = Settings(lock="message", **QUICK)
    effects = Effects()

    async def run() -> None:
        async with contextlib.AsyncExitStack() as ends:
            for site in ("west", "east"):
                store = await ends.enter_async_context(
                    contextlib.aclosing(_Closing(AsyncTableStore.from_connection_string(*table)))
                )
                client = await ends.enter_async_context(
                    AsyncServiceBusClient.from_connection_string(regions.connection_string(site), retry_total=0)
                )
                consumer = aio.JournaledConsumer(
                    client,
                    Source(queue("plain"), has_sessions=False),
                    store.store,
                    effects.awaited,
                    site=site,
                    settings=settings,
                    lanes=2,
                )
                await ends.enter_async_context(consumer)
            await asyncio.to_thread(until, lambda: active(regions, queue("plain")) == {"west": 0, "east": 0})

    asyncio.run(run())
    assert sorted(effects.done) == sorted((None, name) for name in names)


@pytest.mark.parametrize("is_awaited", [False, True], ids=["threads", "awaited"])
def test_cut_connection_does_not_end_a_consumer_without_sessions(
    is_awaited: bool,
    regions: RunningBroker,
    clients: dict[str, ServiceBusClient],
    send: Callable[..., None],
    queue: Callable[..., str],
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def act(_: Any) -> None:
        begun.set()
        assert go_on.wait(SECONDS)

    effects = Effects(act)
    settings = Settings(lock="message", **QUICK)
    source = Source(queue("plain"), has_sessions=False)

    def cut() -> None:
        assert begun.wait(SECONDS)
        regions.faults("west").cut_connections()
        go_on.set()
        send(queue("plain"), ["m3"], sites=["west"])
        until(lambda: (None, "m3") in effects.done)

    async def run() -> None:
        store = aio.SqliteStore(":memory:")
        async with (
            AsyncServiceBusClient.from_connection_string(regions.connection_string("west"), retry_total=0) as client,
            aio.JournaledConsumer(
                client,
                source,
                store,
                lambda delivery: asyncio.to_thread(effects, delivery),
                site="west",
                settings=settings,
                lanes=1,
            ),
        ):
            await asyncio.to_thread(cut)
        await store.close()

    send(queue("plain"), ["m1", "m2"], sites=["west"])
    if is_awaited:
        asyncio.run(run())
    else:
        store = SqliteStore(":memory:")
        OPENED.append(store)
        with JournaledConsumer(clients["west"], source, store, effects, site="west", settings=settings, lanes=1):
            cut()
    assert effects.done.count((None, "m1")) == 1


def test_message_in_progress_elsewhere_blocks_no_other(
    regions: RunningBroker,
    clients: dict[str, ServiceBusClient],
    send: Callable[..., None],
    store: Any,
    queue: Callable[..., str],
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def long(delivery: Any) -> None:
        begun.set()
        assert go_on.wait(SECONDS)
        by.append(("west", delivery.message_id))

    by: list[tuple[str, str]] = []
    settings = Settings(lock="message", **QUICK)
    source = Source(queue("plain"), has_sessions=False)
    send(queue("plain"), ["m1"], sites=["west"])
    with JournaledConsumer(clients["west"], source, store, long, site="west", settings=settings, lanes=1):
        assert begun.wait(SECONDS)
        send(queue("plain"), ["m1", "m2", "m3"], sites=["east"])

        def short(delivery: Any) -> None:
            by.append(("east", delivery.message_id))

        with JournaledConsumer(clients["east"], source, store, short, site="east", settings=settings, lanes=1):
            until(lambda: len(by) == 2)
            assert by == [("east", "m2"), ("east", "m3")]
            until(lambda: active(regions, queue("plain")) == {"west": 1, "east": 1})
            go_on.set()
            until(lambda: active(regions, queue("plain")) == {"west": 0, "east": 0})
    assert by[2:] == [("west", "m1")]


class _Closing:
    def __init__(self, store: Any) -> None:
        self.store = store

    async def aclose(self) -> None:
        await self.store.close()


def test_awaited_consumers_keep_the_order_of_sessions(
    regions: RunningBroker, send: Callable[..., None], table: tuple[str, str], queue: Callable[..., str]
) -> None:
    names = [f"m{n}" for n in range(10)]
    send(queue(), names, "s")
    effects = Effects()

    async def run() -> None:
        async with AsyncServiceBusClient.from_connection_string(
            regions.connection_string("west"), retry_total=0
        ) as client:
            store = AsyncTableStore.from_connection_string(*table)
            async with (
                contextlib.aclosing(_Closing(store)),
                aio.JournaledConsumer(
                    client, Source(queue()), store, effects.awaited, site="west", settings=SETTINGS, lanes=2
                ),
            ):
                await asyncio.to_thread(until, lambda: active(regions, queue())["west"] == 0)

    asyncio.run(run())
    assert effects.of("s") == names


class Received(NamedTuple):
    application_properties: dict[Any, Any]
    message_id: str = "m"
    session_id: str = "s"
    sequence_number: int = 1
    enqueued_time_utc: datetime | None = None


class _Unsaid(Exception):
    def __str__(self) -> str:
        return "☃" * 40_000 + "\ud800"


def test_poison_message_is_dead_lettered_and_its_reason_recorded(
    regions: RunningBroker,
    clients: dict[str, ServiceBusClient],
    send: Callable[..., None],
    store: Any,
    queue: Callable[..., str],
) -> None:
    error: Any = _Unsaid()  # as applications do, whatever the types say
    raised = {
        "m2": Unprocessable("Broken", "no such shipment"),
        "m3": ValueError("a body that must not be reported"),
        "m4": Unprocessable("Long\ud800", "☃" * 40_000),
        "m5": Unprocessable("Typed", error),
    }

    def act(delivery: Any) -> None:
        if delivery.message_id in raised:
            raise raised[delivery.message_id]

    send(queue(), ["m1", "m2", "m3", "m4", "m5", "m6"], "s")
    effects = Effects(act)
    with consumers(clients, Source(queue()), store, effects):
        until(lambda: active(regions, queue()) == {"west": 0, "east": 0})
    assert effects.of("s") == ["m1", "m6"]
    for client in clients.values():
        with client.get_queue_receiver(queue(), sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
            dead: list[Any] = []
            while len(dead) < len(raised):
                dead += receiver.receive_messages(4, max_wait_time=5)
            dead_letters = [(one.message_id, one.dead_letter_reason, one.dead_letter_error_description) for one in dead]
        assert dead_letters[0] == ("m2", "Broken", "no such shipment")
        assert dead_letters[1][:2] == ("m3", "ValueError")
        assert "body" not in dead_letters[1][2]
        assert dead_letters[2] == ("m4", "Long?", "☃" * 2047 + "…")
        assert dead_letters[3] == ("m5", "Typed", "☃" * 2047 + "…")
    entries = Journal(store, SETTINGS).record("s", ["m1", *raised]).entries
    assert [entries[name].state.value for name in ("m1", *raised)] == ["completed", *["faulted"] * 4]
    assert entries["m3"].attempt == 3


def test_secondary_starts_no_session_while_the_primary_works(
    regions: RunningBroker,
    clients: dict[str, ServiceBusClient],
    send: Callable[..., None],
    store: Any,
    queue: Callable[..., str],
) -> None:
    secondary = Settings(head_start_seconds=300, **QUICK)
    by: list[tuple[str, str]] = []

    def applied_at(site: str) -> Any:
        return lambda delivery: by.append((site, delivery.message_id))

    with contextlib.ExitStack() as ends:
        for site, settings in (("east", secondary), ("west", SETTINGS)):
            consumer = JournaledConsumer(
                clients[site], Source(queue()), store, applied_at(site), site=site, settings=settings, lanes=1
            )
            ends.enter_context(consumer)
        send(queue(), ["m1", "m2", "m3"], "s", sites=("east", "west"))
        until(lambda: active(regions, queue()) == {"west": 0, "east": 0})
    assert by == [("west", "m1"), ("west", "m2"), ("west", "m3")]


def test_lease_is_renewed_while_the_application_works(
    regions: RunningBroker,
    clients: dict[str, ServiceBusClient],
    send: Callable[..., None],
    store: Any,
    queue: Callable[..., str],
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def act(_: Any) -> None:
        begun.set()
        assert go_on.wait(SECONDS)

    send(queue(), ["m1", "m2"], "s")
    effects = Effects(act)
    settings = Settings(lease_seconds=0.6, **QUICK)
    with consumers(clients, Source(queue()), store, effects, settings=settings):
        assert begun.wait(SECONDS)
        journal = Journal(store, settings)
        first = lease_of(journal, "s")
        until(lambda: lease_of(journal, "s").beat > first.beat + 6)
        assert lease_of(journal, "s").token == first.token
        go_on.set()
        until(lambda: active(regions, queue()) == {"west": 0, "east": 0})
    assert effects.of("s") == ["m1", "m2"]


def test_sessions_on_one_side_only_are_an_error(
    regions: RunningBroker,
    clients: dict[str, ServiceBusClient],
    send: Callable[..., None],
    store: Any,
    queue: Callable[..., str],
) -> None:
    send(queue("plain"), ["m1"])
    consumer = JournaledConsumer(
        clients["west"], Source(queue("plain")), store, Effects(), site="west", settings=SETTINGS, lanes=1
    )
    with pytest.raises(JournalRefused, match=rf"west: {queue('plain')}: .*sessions are needed at all sites"):
        consumer.run()
    send(queue(), ["m1"], "s")
    plain = Settings(lock="message", **QUICK)
    other_store = SqliteStore(":memory:")
    OPENED.append(other_store)
    consumer = JournaledConsumer(
        clients["east"],
        Source(queue(), has_sessions=False),
        other_store,
        Effects(),
        site="east",
        settings=plain,
        lanes=1,
    )
    with pytest.raises(JournalRefused, match=rf"east: {queue()}: .*with no sessions"):
        consumer.run()
    with pytest.raises(JournalRefused, match="has no sessions, expected some"):
        JournaledConsumer(clients["west"], Source("q", has_sessions=False), store, Effects(), site="west")
    assert active(regions, queue())["east"] == 1
    assert active(regions, queue("plain"))["west"] == 1


def test_a_journal_of_another_queue_is_refused_at_the_start(
    clients: dict[str, ServiceBusClient], store: Any, queue: Callable[..., str]
) -> None:
    Journal(store, Settings(application="SHIPMENTS/subscriptions/Application".lower())).open()
    source = Source("Shipments", subscription="application")
    for names, is_refused in ((source, False), (Source(queue()), True)):
        consumer = JournaledConsumer(clients["west"], names, store, Effects(), site="west", settings=SETTINGS)
        if is_refused:
            with pytest.raises(JournalMismatch, match="Application is 'shipments/subscriptions/application' there"):
                consumer.start()
        else:
            consumer.journal.open()


def test_malformed_entry_blocks_only_its_session(  # noqa: PLR0917 - fixtures
    regions: RunningBroker,
    clients: dict[str, ServiceBusClient],
    send: Callable[..., None],
    store: Any,
    queue: Callable[..., str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    Journal(store, SETTINGS).open()
    store.write("s.bad", [Write(LEASE_KEY, {"Open": 0, "Worker": "?"})])
    send(queue(), ["m1"], "bad", sites=["west"])
    send(queue(), ["m2"], "good", sites=["west"])
    effects = Effects()
    consumer = JournaledConsumer(
        clients["west"], Source(queue()), store, effects, site="west", settings=SETTINGS, lanes=2
    )
    with consumer:
        effects.wait_for(1)
        until(lambda: "s.bad, row lease: Site is missing" in caplog.text)
    assert effects.done == [("good", "m2")]
    assert active(regions, queue())["west"] == 1


def test_message_without_identity_is_dead_lettered_and_does_not_block_its_session(
    regions: RunningBroker, clients: dict[str, ServiceBusClient], store: Any, queue: Callable[..., str]
) -> None:
    with clients["west"].get_queue_sender(queue()) as sender:
        sender.send_messages(
            [
                ServiceBusMessage("a", message_id="m1", session_id="s", application_properties={"status": "1"}),
                ServiceBusMessage("b", message_id="m2", session_id="s"),
                ServiceBusMessage(
                    "c",
                    message_id="m3",
                    session_id="s",
                    application_properties={"status": "2", "repl-path": "east", "repl-sequence": "9" * 5000},
                ),
                ServiceBusMessage("d", message_id="m4", session_id="s", application_properties={"status": "3"}),
            ]
        )
    effects = Effects()
    settings = Settings(identity="status", **QUICK)
    with consumers({"west": clients["west"]}, Source(queue()), store, effects, settings=settings):
        effects.wait_for(2)
        until(lambda: active(regions, queue())["west"] == 0)
    assert effects.of("s") == ["1", "3"]
    with clients["west"].get_queue_receiver(queue(), sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        dead = [receiver.receive_messages(1, max_wait_time=5)[0] for _ in range(2)]
    assert [(one.message_id, one.dead_letter_reason) for one in dead] == [
        ("m2", "NotRecognised"),
        ("m3", "NotRecognised"),
    ]
    assert "a repl-sequence of 5000 digits, expected at most 19" in str(dead[1].dead_letter_error_description)


@pytest.mark.parametrize(
    ("properties", "settings", "problem"),
    [
        ({"repl-path": "x" * 257}, {}, "has a repl-path of 257 characters, expected at most 256"),
        ({"status": "x" * 1025}, {"identity": "status"}, "has an id of 1025 characters, expected at most 1024"),
        ({"n": "9" * 5000}, {"number": "n"}, "has no property n that is a whole number"),
        ({"n": "9" * 19, "repl-path": "east", "repl-sequence": "9" * 19}, {"number": "n"}, None),
    ],
)
def test_id_that_does_not_fit_into_a_journal_is_rejected(properties: Any, settings: Any, problem: str | None) -> None:
    settings = {"identity": None, "number": None, **settings}
    message = Received(properties)
    assert arrival_of(message, "west", **settings).problem == problem


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"batch": 41}, "batch is 41, expected 1 to 40"),
        ({"batch": 5, "record_every": 6}, "record_every is 6, expected 1 to batch"),
        ({"lease_seconds": 0, "max_attempts": 0}, "lease_seconds is 0, expected more than 0; max_attempts is 0"),
        ({"lock": "row"}, "lock is 'row'"),
        ({"late": "deadletter"}, "late is 'deadletter', expected 'dead-letter' or 'process'"),
        ({"wait_for_earlier_seconds": -5}, "wait_for_earlier_seconds is -5, expected None, or 0 or more"),
        ({"retry_seconds": float("nan")}, "retry_seconds is nan, expected 0 or more"),
        ({"lock": "message", "number": "n"}, "keeps no order"),
    ],
)
def test_all_invalid_settings_are_reported_together(changes: Any, problem: str) -> None:
    with pytest.raises(JournalRefused, match=problem):
        Settings(**changes)
