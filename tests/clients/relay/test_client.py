"""The relay client: one endpoint is active, and it switches when that is unavailable, and only then."""

import asyncio
import re
import traceback
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from aiohttp import web
from azure.core.credentials import AzureNamedKeyCredential

from busway_clients import (
    ConnectionEnded,
    NotARelay,
    RelayFailed,
    RelayRefused,
    RelayUnavailable,
    WrongUse,
)
from busway_clients.relay import RelayClient, RelayEndpoint
from tests.clients.relay.pair import EAST_ACTIVE, WEST_ACTIVE, Pair, run, silence, until

BRIEF = timedelta(seconds=0.3)


def test_first_active_endpoint_is_random() -> None:
    endpoints = {name: RelayEndpoint(f"{name}.servicebus.windows.net", "hyco") for name in ("west", "east")}
    assert {RelayClient(endpoints).state.active for _ in range(60)} == {"west", "east"}


@run
async def test_without_an_outage_one_endpoint_is_used(pair: Pair) -> None:
    await pair.echoing()
    client = await pair.client()
    for number in range(3):
        assert await client.request(str(number)) == f"west: {number}"
    assert client.state == WEST_ACTIVE
    assert [action for action, _ in pair.east.attempts] == ["listen"]


@run
async def test_an_outage_swaps_the_roles_once_and_they_stay_swapped(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    await pair.echoing()
    client = await pair.client()
    await pair.west.go_down()
    answers = await asyncio.gather(*[client.request(str(number)) for number in range(20)])
    assert answers == [f"east: {number}" for number in range(20)]
    assert client.state == EAST_ACTIVE
    assert caplog.text.count("east is active now, instead of west") == 1
    await pair.west.come_up()
    await until(lambda: pair.west.listeners["primary-service"])
    assert await client.request("2") == "east: 2"
    await client.activate("west")
    assert await client.request("3") == "west: 3"


@run
@pytest.mark.parametrize("ends", [True, False], ids=["ended", "silent"])
async def test_unanswered_request_is_sent_to_the_backup(pair: Pair, ends: bool) -> None:
    await pair.echoing(pair.endpoints("east"))
    _, west = await pair.listening(pair.endpoints("west"))
    client = await pair.client(timeout=BRIEF)
    asking = asyncio.ensure_future(client.request("1"))
    broken = await west.get()
    assert await broken.receive() == "1"
    if ends:
        await broken.close(1011)
    assert await asking == "east: 1"
    assert client.state == EAST_ACTIVE
    await broken.close()


@run
async def test_broken_connection_is_reported_and_the_next_uses_the_backup(pair: Pair) -> None:
    await pair.echoing()
    client = await pair.client()
    connection = await client.connect()
    await pair.west.go_down()
    with pytest.raises(ConnectionEnded, match=r"the connection broke \(1006\)") as caught:
        await connection.receive()
    assert not caught.value.is_clean
    assert (await client.connect()).endpoint == "east"


@run
async def test_half_open_connection_is_detected_by_a_ping(pair: Pair) -> None:
    await pair.echoing()
    connection = await (await pair.client(keep_alive=timedelta(seconds=0.2))).connect()
    waiting = asyncio.ensure_future(connection.receive())
    await asyncio.sleep(0.5)
    assert not waiting.done()
    pair.west.is_mute = True
    with pytest.raises(ConnectionEnded) as caught:
        await waiting
    assert caught.value.code == 1006


@run
async def test_a_message_is_not_lost_to_a_receive_that_was_cancelled(pair: Pair) -> None:
    await pair.echoing()
    connection = await (await pair.client()).connect()
    waiting = asyncio.ensure_future(connection.receive())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait({waiting})
    await connection.send("1")
    assert await connection.receive() == "west: 1"


@run
async def test_a_connect_that_is_cancelled_leaves_nothing_open(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
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
    await listener.close(timedelta(seconds=10))
    assert "still served" not in caplog.text


@run
async def test_closing_the_client_ends_its_connections(pair: Pair) -> None:
    _, accepted = await pair.listening()
    client = await pair.client()
    await client.connect()
    taken = await accepted.get()
    await client.close()
    assert [message async for message in taken] == []
    assert taken.end.code == 1001


@run
async def test_a_connect_while_the_client_closes_leaves_nothing_open(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    listener = await pair.echoing()
    for turns in range(0, 60, 3):
        client = await pair.client()
        connecting = asyncio.ensure_future(client.connect())
        for _ in range(turns):
            await asyncio.sleep(0)
        await client.close()
        await asyncio.wait({connecting})
        if (error := connecting.exception()) is None:
            assert connecting.result().end is not None
        else:
            assert isinstance(error, RelayFailed)
        with pytest.raises(RelayFailed, match="the sender was closed here"):
            await client.connect()
    await listener.close(timedelta(seconds=10))
    assert "still served" not in caplog.text


@run
@pytest.mark.parametrize("closes", ["the client", "the connection"])
async def test_closing_ends_a_receive_that_waits(pair: Pair, closes: str) -> None:
    await pair.echoing()
    client = await pair.client()
    connection = await client.connect()
    receiving = asyncio.create_task(connection.receive())
    await asyncio.sleep(0.01)
    await (client if closes == "the client" else connection).close()
    with pytest.raises(ConnectionEnded, match="closed here"):
        await receiving


@run
async def test_anonymous_sender_needs_no_token_if_the_relay_allows_it(pair: Pair) -> None:
    await pair.echoing()
    client = await pair.client({"west": replace(pair.endpoint("west"), credential=None)})
    with pytest.raises(RelayFailed, match="HTTP 401"):
        await client.connect()
    pair.west.anonymous.add("primary-service")
    assert await client.request("1") == "west: 1"


async def _page(_: Any) -> Any:
    return web.Response(text="<html>please log in</html>", content_type="text/html")


async def _elsewhere(_: Any) -> Any:
    return web.Response(status=302, headers={"Location": "http://127.0.0.1:1/"})


async def _busy(_: Any) -> Any:
    return web.Response(status=503)


async def _nonsense(request: Any) -> Any:
    request.transport.write(b"220 mail.example.com ESMTP\r\n\r\n")
    return web.Response()


async def _cut(request: Any) -> Any:
    request.transport.abort()
    return web.Response()


@run
@pytest.mark.parametrize(
    ("answer", "kind", "expected"),
    [
        (_page, NotARelay, r"HTTP 200 \(OK\) \(text/html\) instead of opening a WebSocket, expected a relay"),
        (_elsewhere, NotARelay, r"HTTP 302 \(Found\).* instead of opening a WebSocket, expected a relay"),
        (_nonsense, NotARelay, "did not answer with HTTP, expected a relay"),
        (_busy, RelayUnavailable, "HTTP 503"),
        (_cut, RelayUnavailable, "cannot be reached"),
        (silence, RelayUnavailable, r"no answer within 0\.3 s"),
    ],
)
async def test_unavailable_endpoint_is_reported_to_both_sides_and_the_client_switches(
    pair: Pair, answer: Any, kind: type[Exception], expected: str
) -> None:
    pair.west.answers_instead = answer
    listener = await pair.echoing(patience=BRIEF)
    await until(lambda: listener.state["west"].error is not None)
    assert listener.state["east"].is_on
    client = await pair.client(timeout=BRIEF)
    assert await client.request("1") == "east: 1"
    assert client.state == EAST_ACTIVE
    alone = await pair.client(pair.endpoints("west"), timeout=BRIEF)
    with pytest.raises(RelayFailed) as caught:
        await alone.connect()
    for error in (caught.value.errors["west"], listener.state["west"].error):
        assert type(error) is kind
        assert re.search(expected, str(error))


async def _down(pair: Any) -> None:
    await pair.west.go_down()


async def _nobody_listens(pair: Any) -> None:
    pair.west.listeners["primary-service"] = []


async def _missed_rendezvous(pair: Any) -> None:
    await pair.echoing(pair.endpoints("west"), patience=BRIEF)
    pair.west.keeps_rendezvous_waiting = True
    pair.west.rendezvous_seconds = 0.1


@run
@pytest.mark.parametrize("fault", [_down, _nobody_listens, _missed_rendezvous])
async def test_endpoint_without_a_listener_switches(pair: Pair, fault: Any) -> None:
    await pair.echoing(pair.endpoints("east"))
    await fault(pair)
    client = await pair.client(timeout=BRIEF)
    assert await client.request("1") == "east: 1"
    assert client.state == EAST_ACTIVE


@run
@pytest.mark.parametrize("status", [400, 401, 403, 418])
async def test_rejection_by_the_listener_does_not_switch(pair: Pair, status: int) -> None:
    async def decide(offer: Any) -> None:
        if offer.endpoint == "west":
            await offer.reject(status, "no")

    await pair.echoing(decide=decide)
    client = await pair.client()
    with pytest.raises(RelayFailed, match=rf"refused the sender with HTTP {status} \(no\)") as caught:
        await client.request("1")
    assert [(name, error.status) for name, error in caught.value.errors.items()] == [("west", status)]  # type: ignore[attr-defined]
    assert client.state == WEST_ACTIVE
    assert pair.served == []


@run
async def test_invalid_token_does_not_switch_and_is_not_printed(pair: Pair) -> None:
    await pair.echoing()
    wrong = AzureNamedKeyCredential("listen-and-send", "c2VjcmV0IHRoYXQgaXMgd3Jvbmc=")
    west: Any = replace(pair.endpoint("west"), credential=wrong)
    client = await pair.client({"west": west, "east": pair.endpoint("east")})
    with pytest.raises(RelayFailed, match=r"HTTP 401 \(the signature is invalid\)") as caught:
        await client.connect()
    assert isinstance(caught.value.errors["west"], RelayRefused)
    assert client.state == WEST_ACTIVE
    printed = "".join(traceback.format_exception(caught.value))
    assert [word for word in ("c2VjcmV0", "Signature", "%26sig%3D") if word in printed] == []


@run
@pytest.mark.parametrize(
    ("east", "expected"),
    [("listen-and-send", r"cannot be reached .*; .*HTTP 404"), ("listen-only", r"cannot be reached .*; .*HTTP 403")],
)
async def test_if_both_fail_the_roles_stay_and_both_errors_are_raised(pair: Pair, east: str, expected: str) -> None:
    client = await pair.client({"west": pair.endpoint("west"), "east": pair.endpoint("east", east)})
    await pair.west.go_down()
    with pytest.raises(RelayFailed, match=expected) as caught:
        await client.connect()
    assert caught.value.errors.keys() == {"west", "east"}
    assert isinstance(caught.value.__cause__, ExceptionGroup)
    assert caught.value.__cause__.exceptions == (*caught.value.errors.values(),)
    assert client.state == WEST_ACTIVE


@run
async def test_invalid_settings_are_reported_by_the_constructor(pair: Pair) -> None:
    with pytest.raises(WrongUse, match="got none, expected an active"):
        RelayClient({})
    client = await pair.client()
    with pytest.raises(WrongUse, match="got 'north', expected one of"):
        await client.activate("north")
