"""The client: which endpoint it picks, what makes it change, and what it tells when none will do."""

import asyncio
import random
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from busway_clients import (
    ConnectionEnded,
    FileRoles,
    MemoryRoles,
    RelayFailed,
    WrongUse,
)
from busway_clients.relay import RelayClient, RelayEndpoint
from tests.clients.relay.manual_time import run, until
from tests.clients.relay.pair import Pair
from tests.clients.relay.roles import EAST_ACTIVE, WEST_ACTIVE


def test_first_active_endpoint_is_random() -> None:
    endpoints = {name: RelayEndpoint(f"{name}.servicebus.windows.net", "hyco") for name in ("west", "east")}

    async def picked(seed: Any) -> Any:
        async with RelayClient(endpoints, choice=random.Random(seed)) as client:
            return client.state.active

    picks = [asyncio.run(picked(seed)) for seed in range(40)]
    assert 10 < picks.count("west") < 30


def test_without_an_outage_one_endpoint_is_used() -> None:
    async def test() -> None:
        async with Pair() as pair:
            await pair.echoing()
            client = await pair.client()
            for number in range(3):
                assert await client.request(str(number)) == f"west: {number}"
            assert client.state == WEST_ACTIVE
            assert [action for action, _ in pair.east.attempts] == ["listen"]

    run(test())


def test_an_outage_swaps_the_roles_once_and_they_stay_swapped() -> None:
    async def test() -> None:
        async with Pair() as pair:
            await pair.echoing()
            client = await pair.client()
            await pair.west.go_down()
            assert await client.request("1") == "east: 1"
            assert client.state == EAST_ACTIVE
            await pair.time.until_waited_for(1)
            await pair.west.come_up()
            assert await client.request("2") == "east: 2"
            pair.time.advance(1)
            await until(lambda: pair.west.listeners["primary-service"])
            await client.activate("west")
            assert await client.request("3") == "west: 3"

    run(test())


def test_unanswered_request_is_sent_to_the_backup() -> None:
    async def test() -> None:
        async with Pair() as pair:
            await pair.echoing(pair.endpoints("east"))
            west = await pair.listening(pair.endpoints("west"))
            client = await pair.client()
            asking = asyncio.ensure_future(client.request("1"))
            broken = await anext(west)
            assert await broken.receive() == "1"
            await broken.close(1011)
            assert await asking == "east: 1"
            assert client.state == EAST_ACTIVE

    run(test())


def test_late_answer_counts_as_none() -> None:
    async def test() -> None:
        async with Pair() as pair:
            west = await pair.listening(pair.endpoints("west"))
            client = await pair.client(pair.endpoints("west"), timeout=timedelta(seconds=12))
            asking = asyncio.ensure_future(client.request("1"))
            async with await anext(west) as connection:
                assert await connection.receive() == "1"
                pair.time.advance(12)
                with pytest.raises(RelayFailed, match="no answer within 12 s, expected one to the request"):
                    await asking

    run(test())


def test_broken_connection_is_reported_and_the_next_uses_the_backup() -> None:
    async def test() -> None:
        async with Pair() as pair:
            await pair.echoing()
            client = await pair.client()
            connection = await client.connect()
            await pair.west.go_down()
            with pytest.raises(ConnectionEnded, match=r"the connection broke \(1006\)") as caught:
                await connection.receive()
            assert not caught.value.is_clean
            again = await client.connect()
            assert again.endpoint == "east"

    run(test())


def test_half_open_connection_is_detected_by_a_ping() -> None:
    async def test() -> None:
        async with Pair() as pair:
            await pair.echoing()
            client = await pair.client(timeout=timedelta(seconds=11), keep_alive=timedelta(seconds=13))
            connection = await client.connect()
            waiting = asyncio.ensure_future(connection.receive())
            await pair.time.until_waited_for(13)
            pair.time.advance(13)
            await until(lambda: pair.time.is_waited_for(13, 13))
            assert not waiting.done()
            pair.west.is_mute = True
            pair.time.advance(13)
            await pair.time.until_waited_for(11)
            pair.time.advance(11)
            await until(lambda: waiting.done() or pair.time.is_waited_for(5, 5))
            pair.time.advance(5)
            with pytest.raises(
                ConnectionEnded, match="no frame received, and a ping was not answered within 11 s"
            ) as caught:
                await waiting
            assert caught.value.code == 1006

    run(test())


def test_a_message_is_not_lost_to_a_receive_that_was_cancelled() -> None:
    async def test() -> None:
        async with Pair() as pair:
            await pair.echoing()
            connection = await (await pair.client()).connect()
            waiting = asyncio.ensure_future(connection.receive())
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait({waiting})
            await connection.send("1")
            assert await connection.receive() == "west: 1"

    run(test())


def test_concurrent_failures_swap_the_roles_once(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with Pair() as pair:
            await pair.echoing()
            await pair.west.go_down()
            client = await pair.client()
            answers = await asyncio.gather(*[client.request(str(number)) for number in range(20)])
            assert answers == [f"east: {number}" for number in range(20)]
            assert client.state == EAST_ACTIVE

    run(test())
    assert caplog.text.count("east is active now, instead of west") == 1


def test_clients_that_share_their_roles_agree(tmp_path: Path) -> None:
    async def test() -> None:
        async with Pair() as pair:
            await pair.echoing()
            first = await pair.client(roles=FileRoles(tmp_path / "roles.db"))
            second = await pair.client(roles=FileRoles(tmp_path / "roles.db"), refresh=timedelta())
            assert await second.request("1") == "west: 1"
            await pair.west.go_down()
            await first.request("2")
            assert (await second.look()).active == "east"
            assert second.state == EAST_ACTIVE

    run(test())


def test_roles_of_other_endpoints_are_refused_and_nothing_stays_open() -> None:
    async def test() -> None:
        async with Pair() as pair:
            listener = await pair.echoing()
            roles = MemoryRoles()
            roles.replace(0, ("north", "south"))
            client = await pair.client(roles=roles)
            with pytest.raises(WrongUse, match="has roles of north, south, expected east, west"):
                await client.connect()
            assert listener.open_connections == 0

    run(test())


def test_a_connect_that_is_cancelled_leaves_nothing_open() -> None:
    async def test() -> None:
        async with Pair() as pair:
            listener = await pair.echoing()
            client = await pair.client()
            for turns in range(0, 60, 3):
                connecting = asyncio.ensure_future(client.connect())
                for _ in range(turns):
                    await asyncio.sleep(0)
                connecting.cancel()
                await asyncio.wait({connecting})
                if not connecting.cancelled():
                    await connecting.result().close()
            await until(lambda: listener.open_connections == 0)

    run(test())


def test_closing_the_client_ends_its_connections() -> None:
    async def test() -> None:
        async with Pair() as pair:
            listener = await pair.listening()
            client = await pair.client()
            await client.connect()
            taken = await anext(listener)
            await client.close()
            assert [message async for message in taken] == []
            assert taken.end is not None
            assert taken.end.code == 1001

    run(test())


def test_anonymous_sender_needs_no_token_if_the_relay_allows_it() -> None:
    async def test() -> None:
        async with Pair() as pair:
            await pair.echoing()
            nobody = {"west": replace(pair.endpoint("west"), tokens=None)}
            client = await pair.client(nobody)
            with pytest.raises(RelayFailed, match="HTTP 401"):
                await client.connect()
            pair.west.anonymous.add("primary-service")
            assert await client.request("1") == "west: 1"

    run(test())


def test_invalid_settings_are_reported_by_the_constructor() -> None:
    async def test() -> None:
        with pytest.raises(WrongUse, match="got none, expected an active"):
            RelayClient({})
        async with Pair() as pair:
            client = await pair.client()
            with pytest.raises(WrongUse, match="got 'north', expected one of west, east"):
                await client.activate("north")

    run(test())
