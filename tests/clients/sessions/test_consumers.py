"""Consumers at two namespaces with one journal, over the wire: the broker through the SDK, the journal in Azurite."""

import asyncio
import contextlib
import threading
import time
from typing import Any

import pytest
from azure.servicebus.exceptions import ServiceBusConnectionError

import busway_clients.aio.sessions as aio
from busway_clients.aio.tables import TableStore as AsyncTableStore
from busway_clients.sessions import Journal, JournaledConsumer, Settings, Source, SqliteStore, State
from busway_clients.tables import TableStore
from tests.clients.sessions.consumers import (
    QUICK,
    SECONDS,
    SETTINGS,
    Closing,
    Effects,
    Regions,
    consumers,
    lease_of,
)
from tests.clients.sessions.region import OPENED
from tests.site import until


@pytest.fixture
def store(table: tuple[str, str]) -> Any:
    made = TableStore.from_connection_string(*table)
    OPENED.append(made)
    return made


def test_two_regions_apply_each_message_once_and_each_session_in_order(regions: Regions, store: Any) -> None:
    sessions = {f"shipment-{n}": [f"s{n}-{step}" for step in range(12)] for n in range(4)}
    for session, names in sessions.items():
        regions.send(regions.queue(), names, session)
    effects = Effects()
    with consumers(regions.clients, Source(regions.queue()), store, effects):
        until(lambda: regions.active(regions.queue()) == {"west": 0, "east": 0})
    assert len(effects.done) == 48
    assert {session: effects.of(session) for session in sessions} == sessions
    journal = Journal(store, SETTINGS)
    record = journal.record("shipment-0", sessions["shipment-0"])
    assert {entry.state for entry in record.entries.values()} == {State.COMPLETED}
    assert record.lease is not None
    assert not record.lease.is_held


def test_awaited_consumers_of_queues_without_sessions_lock_each_message(
    regions: Regions, table: tuple[str, str]
) -> None:
    names = [f"m{n}" for n in range(20)]
    regions.send(regions.queue("plain"), names)
    settings = Settings(lock="message", **QUICK)
    effects = Effects()

    async def run() -> None:
        async with contextlib.AsyncExitStack() as ends:
            for site in ("west", "east"):
                store = await ends.enter_async_context(
                    contextlib.aclosing(Closing(AsyncTableStore.from_connection_string(*table)))
                )
                client = await ends.enter_async_context(regions.async_client(site))
                consumer = aio.JournaledConsumer(
                    client,
                    Source(regions.queue("plain"), has_sessions=False),
                    store.store,
                    effects.awaited,
                    site=site,
                    settings=settings,
                    lanes=2,
                )
                await ends.enter_async_context(consumer)
            await asyncio.to_thread(until, lambda: regions.active(regions.queue("plain")) == {"west": 0, "east": 0})

    asyncio.run(run())
    assert sorted(effects.done) == sorted((None, name) for name in names)


@pytest.mark.parametrize("is_awaited", [False, True], ids=["threads", "awaited"])
def test_cut_connection_does_not_end_a_consumer_without_sessions(regions: Regions, is_awaited: bool) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def act(_: Any) -> None:
        begun.set()
        assert go_on.wait(SECONDS)

    effects = Effects(act)
    settings = Settings(lock="message", **QUICK)
    source = Source(regions.queue("plain"), has_sessions=False)

    def cut() -> None:
        assert begun.wait(SECONDS)
        regions.broker.faults("west").cut_connections()
        go_on.set()
        regions.send(regions.queue("plain"), ["m3"], sites=["west"])
        until(lambda: (None, "m3") in effects.done)

    async def run() -> None:
        store = aio.SqliteStore(":memory:")
        async with (
            regions.async_client("west") as client,
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

    regions.send(regions.queue("plain"), ["m1", "m2"], sites=["west"])
    if is_awaited:
        asyncio.run(run())
    else:
        store = SqliteStore(":memory:")
        OPENED.append(store)
        with JournaledConsumer(
            regions.clients["west"], source, store, effects, site="west", settings=settings, lanes=1
        ):
            cut()
    assert effects.done.count((None, "m1")) == 1


def test_message_in_progress_elsewhere_blocks_no_other(regions: Regions, store: Any) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def long(delivery: Any) -> None:
        begun.set()
        assert go_on.wait(SECONDS)
        by.append(("west", delivery.message_id))

    by: list[tuple[str, str]] = []
    settings = Settings(lock="message", **QUICK)
    source = Source(regions.queue("plain"), has_sessions=False)
    regions.send(regions.queue("plain"), ["m1"], sites=["west"])
    with JournaledConsumer(regions.clients["west"], source, store, long, site="west", settings=settings, lanes=1):
        assert begun.wait(SECONDS)
        regions.send(regions.queue("plain"), ["m1", "m2", "m3"], sites=["east"])

        def short(delivery: Any) -> None:
            by.append(("east", delivery.message_id))

        with JournaledConsumer(regions.clients["east"], source, store, short, site="east", settings=settings, lanes=1):
            until(lambda: len(by) == 2)
            assert by == [("east", "m2"), ("east", "m3")]
            until(lambda: regions.active(regions.queue("plain")) == {"west": 1, "east": 1})
            go_on.set()
            until(lambda: regions.active(regions.queue("plain")) == {"west": 0, "east": 0})
    assert by[2:] == [("west", "m1")]


def test_awaited_consumers_keep_the_order_of_sessions(regions: Regions, table: tuple[str, str]) -> None:
    names = [f"m{n}" for n in range(10)]
    regions.send(regions.queue(), names, "s")
    effects = Effects()

    async def run() -> None:
        async with regions.async_client("west") as client:
            store = AsyncTableStore.from_connection_string(*table)
            async with (
                contextlib.aclosing(Closing(store)),
                aio.JournaledConsumer(
                    client, Source(regions.queue()), store, effects.awaited, site="west", settings=SETTINGS, lanes=2
                ),
            ):
                await asyncio.to_thread(until, lambda: regions.active(regions.queue())["west"] == 0)

    asyncio.run(run())
    assert effects.of("s") == names


def test_secondary_starts_no_session_while_the_primary_works(regions: Regions, store: Any) -> None:
    secondary = Settings(head_start_seconds=300, **QUICK)
    by: list[tuple[str, str]] = []

    def applied_at(site: str) -> Any:
        return lambda delivery: by.append((site, delivery.message_id))

    with contextlib.ExitStack() as ends:
        for site, settings in (("east", secondary), ("west", SETTINGS)):
            consumer = JournaledConsumer(
                regions.clients[site],
                Source(regions.queue()),
                store,
                applied_at(site),
                site=site,
                settings=settings,
                lanes=1,
            )
            ends.enter_context(consumer)
        regions.send(regions.queue(), ["m1", "m2", "m3"], "s", sites=("east", "west"))
        until(lambda: regions.active(regions.queue()) == {"west": 0, "east": 0})
    assert by == [("west", "m1"), ("west", "m2"), ("west", "m3")]


def test_lease_is_renewed_while_the_application_works(regions: Regions, store: Any) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def act(_: Any) -> None:
        begun.set()
        assert go_on.wait(SECONDS)

    regions.send(regions.queue(), ["m1", "m2"], "s")
    effects = Effects(act)
    settings = Settings(lease_seconds=0.6, **QUICK)
    with consumers(regions.clients, Source(regions.queue()), store, effects, settings=settings):
        assert begun.wait(SECONDS)
        journal = Journal(store, settings)
        first = lease_of(journal, "s")
        until(lambda: lease_of(journal, "s").beat > first.beat + 6)
        assert lease_of(journal, "s").token == first.token
        go_on.set()
        until(lambda: regions.active(regions.queue()) == {"west": 0, "east": 0})
    assert effects.of("s") == ["m1", "m2"]


class StuckClient:
    """A client of the SDK whose links open once an event is set."""

    def __init__(self) -> None:
        self.is_asked, self.let = threading.Event(), threading.Event()

    def get_queue_receiver(self, *_: Any, **__: Any) -> Any:
        self.is_asked.set()
        assert self.let.wait(30)
        raise ServiceBusConnectionError(message="late")


def test_a_lane_that_is_stuck_in_the_sdk_does_not_keep_the_consumer_from_ending() -> None:
    client: Any = StuckClient()
    store = SqliteStore(":memory:")
    OPENED.append(store)
    settings = Settings(patience_seconds=0.1, **QUICK)
    began = time.monotonic()
    with JournaledConsumer(client, Source("q"), store, Effects(), site="west", settings=settings):
        assert client.is_asked.wait(30)
    assert time.monotonic() - began < 20
    client.let.set()
