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
from tests.clients.sessions.consumers import QUICK, SETTINGS, SITES, Effects, Pause, Regions, lease_of
from tests.clients.sessions.region import closed_after, new_store
from tests.site import until


def test_two_regions_apply_each_message_once_and_each_session_in_order(regions: Regions, table_store: Any) -> None:
    sessions = {f"shipment-{n}": [f"s{n}-{step}" for step in range(12)] for n in range(4)}
    for session, names in sessions.items():
        regions.send(names, session)
    effects = Effects()
    with regions.consumers(table_store, effects):
        regions.until_empty()
    assert len(effects.done) == 48
    assert {session: effects.of(session) for session in sessions} == sessions
    record = Journal(table_store, SETTINGS).record("shipment-0", sessions["shipment-0"])
    assert {entry.state for entry in record.entries.values()} == {State.COMPLETED}
    assert record.lease is not None
    assert not record.lease.is_held


@pytest.mark.parametrize(
    ("kind", "session", "sites"), [("plain", None, SITES), ("sessions", "s", SITES[:1])], ids=["plain", "sessions"]
)
def test_awaited_consumers_apply_each_message_once_and_sessions_in_order(
    regions: Regions, table: tuple[str, str], kind: str, session: str | None, sites: tuple[str, ...]
) -> None:
    names = [f"m{n:02}" for n in range(20)]
    regions.send(names, session, sites)
    effects = Effects()

    async def run() -> None:
        async with contextlib.AsyncExitStack() as ends:
            for site in sites:
                store = AsyncTableStore.from_connection_string(*table)
                ends.push_async_callback(store.close)
                client = await ends.enter_async_context(regions.async_client(site))
                consumer = regions.consumer(site, store, effects.awaited, kind, client=client, lanes=2)
                await ends.enter_async_context(consumer)
            await asyncio.to_thread(regions.until_empty, kind, sites)

    asyncio.run(run())
    assert (effects.of(session) if session else sorted(effects.of(None))) == names


@pytest.mark.parametrize("is_awaited", [False, True], ids=["threads", "awaited"])
def test_cut_connection_does_not_end_a_consumer_without_sessions(regions: Regions, is_awaited: bool) -> None:
    pause = Pause()
    effects = Effects(pause)

    def cut() -> None:
        assert pause.begun.wait(30)
        regions.broker.faults("west").cut_connections()
        pause.go_on.set()
        regions.send(["m3"], sites=["west"])
        until(lambda: (None, "m3") in effects.done)

    async def run() -> None:
        store = aio.SqliteStore(":memory:")
        async with regions.async_client("west") as client:

            async def apply(delivery: Any) -> None:
                await asyncio.to_thread(effects, delivery)

            async with regions.consumer("west", store, apply, "plain", client=client):
                await asyncio.to_thread(cut)
        await store.close()

    regions.send(["m1", "m2"], sites=["west"])
    if is_awaited:
        asyncio.run(run())
    else:
        with regions.consumer("west", new_store(), effects, "plain"):
            cut()
    assert effects.done.count((None, "m1")) == 1


def test_message_in_progress_elsewhere_blocks_no_other(regions: Regions, table_store: Any) -> None:
    by: list[tuple[str, str]] = []
    pause = Pause()

    def long(delivery: Any) -> None:
        pause(delivery)
        by.append(("west", delivery.message_id))

    def short(delivery: Any) -> None:
        by.append(("east", delivery.message_id))

    regions.send(["m1"], sites=["west"])
    with regions.consumer("west", table_store, long, "plain"):
        assert pause.begun.wait(30)
        regions.send(["m1", "m2", "m3"], sites=["east"])
        with regions.consumer("east", table_store, short, "plain"):
            until(lambda: len(by) == 2)
            assert by == [("east", "m2"), ("east", "m3")]
            until(lambda: regions.active("plain") == {"west": 1, "east": 1})
            pause.go_on.set()
            regions.until_empty("plain")
    assert by[2:] == [("west", "m1")]


def test_secondary_starts_no_session_while_the_primary_works(regions: Regions, table_store: Any) -> None:
    by: list[tuple[str, str]] = []
    with contextlib.ExitStack() as ends:
        for site, head_start in (("east", 300), ("west", 0)):

            def applied(delivery: Any, site: str = site) -> None:
                by.append((site, delivery.message_id))

            ends.enter_context(regions.consumer(site, table_store, applied, head_start_seconds=head_start))
        regions.send(["m1", "m2", "m3"], "s", sites=("east", "west"))
        regions.until_empty()
    assert by == [("west", "m1"), ("west", "m2"), ("west", "m3")]


def test_lease_is_renewed_while_the_application_works(regions: Regions, table_store: Any) -> None:
    pause = Pause()
    regions.send(["m1", "m2"], "s")
    effects = Effects(pause)
    with regions.consumers(table_store, effects, lease_seconds=0.6):
        assert pause.begun.wait(30)
        journal = Journal(table_store, SETTINGS)
        first = lease_of(journal, "s")
        until(lambda: lease_of(journal, "s").beat > first.beat + 6)
        assert lease_of(journal, "s").token == first.token
        pause.go_on.set()
        regions.until_empty()
    assert effects.of("s") == ["m1", "m2"]


class SlowStore(SqliteStore):
    def write(self, partition: str, writes: Any) -> Any:
        time.sleep(0.7)
        return super().write(partition, writes)


def test_a_consumer_that_ends_waits_until_its_lanes_have_released_their_leases(regions: Regions) -> None:
    regions.send(["m1"], "s", sites=["west"])
    store, effects = closed_after(SlowStore(":memory:")), Effects()
    with regions.consumer("west", store, effects):
        effects.wait_for(1)
    assert not lease_of(Journal(store, SETTINGS), "s").is_held


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
    settings = Settings(patience_seconds=0.1, **QUICK)
    began = time.monotonic()
    with JournaledConsumer(client, Source("q"), new_store(), Effects(), site="west", settings=settings):
        assert client.is_asked.wait(30)
    assert time.monotonic() - began < 20
    client.let.set()
