"""The client: which endpoint it picks, what makes it change, and what it tells when none will do."""

import asyncio
import random
import traceback
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from busway_clients import (
    ConnectionEnded,
    FileRoles,
    MemoryRoles,
    NotARelay,
    RelayFailed,
    RelayRefused,
    RelayUnavailable,
    RoleState,
    WrongUse,
)
from busway_clients.relay import Rejection, RelayClient, RelayEndpoint, SharedAccessKey
from tests.clients.relay.manual_time import run, until
from tests.clients.relay.pair import Pair

WEST_ACTIVE = RoleState("west", ("east",))
EAST_ACTIVE = RoleState("east", ("west",))


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


async def _down(pair: Any) -> None:
    await pair.west.go_down()


async def _nobody_listens(pair: Any) -> None:
    pair.west.listeners["primary-service"] = []


async def _a_page(pair: Any) -> None:
    async def page(_: Any) -> Any:
        return web.Response(text="<html>", content_type="text/html")

    pair.west.answers_instead = page


async def _busy(pair: Any) -> None:
    async def busy(_: Any) -> Any:
        return web.Response(status=503, reason="busy")

    pair.west.answers_instead = busy


async def _silent(pair: Any) -> None:
    async def silent(_: Any) -> None:
        pair.time.advance(30)
        await asyncio.Event().wait()

    pair.west.answers_instead = silent


async def _cut_while_opening(pair: Any) -> None:
    async def cut(request: Any) -> Any:
        request.transport.abort()
        return web.Response()

    pair.west.answers_instead = cut


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (_down, RelayUnavailable),
        (_nobody_listens, RelayUnavailable),
        (_a_page, NotARelay),
        (_busy, RelayUnavailable),
        (_silent, RelayUnavailable),
        (_cut_while_opening, RelayUnavailable),
    ],
)
def test_unavailability_switches(fault: Any, kind: type[Exception]) -> None:
    async def test() -> None:
        async with Pair() as pair:
            await pair.echoing(pair.endpoints("east"))
            await fault(pair)
            client = await pair.client()
            assert await client.request("1") == "east: 1"
            assert client.state == EAST_ACTIVE
            alone = await pair.client(pair.endpoints("west"))
            with pytest.raises(RelayFailed) as caught:
                await alone.connect()
            assert type(caught.value.errors["west"]) is kind

    run(test())


def test_missed_rendezvous_switches() -> None:
    async def test() -> None:
        async with Pair() as pair:
            await pair.echoing()
            client = await pair.client()
            pair.west.keeps_rendezvous_waiting = True
            asking = asyncio.ensure_future(client.request("1"))
            await until(lambda: any(action == "accept" for action, _ in pair.west.attempts))
            pair.time.advance(30)
            assert await asking == "east: 1"
            assert client.state == EAST_ACTIVE

    run(test())


@pytest.mark.parametrize("status", [400, 401, 403, 418])
def test_rejection_by_the_listener_does_not_switch(status: int) -> None:
    async def test() -> None:
        async with Pair() as pair:
            await pair.echoing(decide=lambda offer: Rejection(status, "no") if offer.endpoint == "west" else None)
            client = await pair.client()
            with pytest.raises(RelayFailed, match=rf"refused the sender with HTTP {status} \(no\)") as caught:
                await client.request("1")
            assert caught.value.errors.keys() == {"west"}
            assert client.state == WEST_ACTIVE
            assert pair.served == []

    run(test())


@pytest.mark.parametrize("authorization", ["query", "header"])
def test_invalid_token_does_not_switch_and_is_not_printed(authorization: str) -> None:
    async def test() -> None:
        async with Pair() as pair:
            await pair.echoing()
            wrong = SharedAccessKey("listen-and-send", "c2VjcmV0IHRoYXQgaXMgd3Jvbmc=")
            west = replace(pair.endpoint("west"), tokens=wrong, authorization=authorization)
            client = await pair.client({"west": west, "east": pair.endpoint("east")})
            with pytest.raises(RelayFailed, match=r"HTTP 401 \(the signature is invalid\)") as caught:
                await client.connect()
            assert isinstance(caught.value.errors["west"], RelayRefused)
            assert client.state == WEST_ACTIVE
            expected = "".join(traceback.format_exception(caught.value))
            assert "c2VjcmV0" not in expected
            assert "Signature" not in expected
            assert "%26sig%3D" not in expected

    run(test())


def test_if_both_fail_the_roles_stay_and_both_errors_are_raised() -> None:
    async def test() -> None:
        async with Pair() as pair:
            client = await pair.client()
            await pair.west.go_down()
            with pytest.raises(RelayFailed, match=r"cannot be reached .*; .*HTTP 404") as caught:
                await client.connect()
            assert caught.value.errors.keys() == {"west", "east"}
            assert isinstance(caught.value.__cause__, ExceptionGroup)
            assert caught.value.__cause__.exceptions == (*caught.value.errors.values(),)
            assert client.state == WEST_ACTIVE

    run(test())


def test_if_the_backup_refuses_the_roles_stay() -> None:
    async def test() -> None:
        async with Pair() as pair:
            client = await pair.client({"west": pair.endpoint("west"), "east": pair.endpoint("east", "listen-only")})
            with pytest.raises(RelayFailed, match=r"HTTP 404.*HTTP 403"):
                await client.connect()
            assert client.state == WEST_ACTIVE

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
