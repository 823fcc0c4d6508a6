"""Endpoints that refuse to listen, and how a listener closes."""

import asyncio
import ssl
import traceback
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from busway_broker.admin.certificate import AUTHORITY_FILE, server_context
from busway_clients import NotARelay, RelayError, RelayFailed, RelayRefused, RelayUnavailable, WrongUse
from busway_clients.relay import RelayListener, SharedAccessKey
from tests.clients.relay.manual_time import run, until
from tests.clients.relay.pair import Pair


def test_application_chooses_the_trusted_certificates(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with Pair() as pair:
            await pair.west.go_down()
            pair.west.tls = server_context(tmp_path)
            await pair.west.come_up()
            trusting = ssl.create_default_context(cafile=str(tmp_path / AUTHORITY_FILE))
            endpoints = {"west": pair.endpoint("west", tls=trusting)}
            await pair.echoing(endpoints)
            # A rendezvous without TLS is refused, whatever the relay says.
            await pair.west.offer("primary-service", '{"accept": {"address": "ws://127.0.0.1:1/$hc/primary-service"}}')
            assert await (await pair.client(endpoints)).request("1") == "west: 1"
            with pytest.raises(RelayFailed, match=r"cannot be reached \(ClientConnectorCertificateError"):
                await (await pair.client(pair.endpoints("west"))).connect()

    run(test())
    assert "an offer has no wss:// address and is ignored" in caplog.text


async def _page(_: Any) -> Any:
    return web.Response(text="<html>please log in</html>", content_type="text/html")


async def _elsewhere(_: Any) -> Any:
    return web.Response(status=302, headers={"Location": "http://127.0.0.1:1/"})


async def _busy(_: Any) -> Any:
    return web.Response(status=503)


async def _nonsense(request: Any) -> Any:
    request.transport.write(b"220 mail.example.com ESMTP\r\n\r\n")
    return web.Response()


@pytest.mark.parametrize(
    ("answer", "kind", "expected"),
    [
        (_page, NotARelay, r"HTTP 200 \(OK\) \(text/html\) instead of opening a WebSocket, expected a relay"),
        (_elsewhere, NotARelay, "redirects with HTTP 302, expected a relay"),
        (_busy, RelayUnavailable, "HTTP 503"),
        (_nonsense, NotARelay, "did not answer with HTTP, expected a relay"),
    ],
)
def test_endpoint_that_is_not_a_relay_is_reported(answer: Any, kind: type[Exception], expected: str) -> None:
    async def test() -> None:
        async with Pair() as pair:
            pair.west.answers_instead = answer
            listener = await pair.listening()
            assert type(listener.state["west"].error) is kind
            with pytest.raises(RelayError, match=expected):
                raise listener.state["west"].error
            assert listener.state["east"].is_on

    run(test())


def test_if_every_endpoint_refuses_the_error_of_each_is_raised() -> None:
    async def test() -> None:
        async with Pair() as pair:
            endpoints = pair.endpoints()
            wrong = SharedAccessKey("listen-and-send", "c2VjcmV0IHRoYXQgaXMgd3Jvbmc=")
            endpoints["west"] = replace(endpoints["west"], tokens=wrong)
            endpoints["east"] = replace(endpoints["east"], path="nowhere")
            listener = pair.listener(endpoints)
            with pytest.raises(RelayFailed, match=r"HTTP 401 .*the signature is invalid.*HTTP 404") as caught:
                await listener.open()
            assert [type(each) for each in caught.value.errors.values()] == [RelayRefused, RelayRefused]
            expected = "".join(traceback.format_exception(caught.value))
            assert "c2VjcmV0" not in expected
            assert "SharedAccessSignature" not in expected
            assert "sb-hc-token" not in expected

    run(test())


def test_key_without_the_send_right_is_refused() -> None:
    async def test() -> None:
        async with Pair() as pair:
            await pair.echoing({"west": pair.endpoint("west", "listen-only")})
            client = await pair.client({"west": pair.endpoint("west", "listen-only")})
            with pytest.raises(RelayFailed, match=r"refused the sender with HTTP 403 \(the token does not confer Send"):
                await client.connect()

    run(test())


def test_one_listener_too_many_is_reported() -> None:
    async def test() -> None:
        async with Pair() as pair:
            for _ in range(25):
                await pair.listening(pair.endpoints("west"))
            with pytest.raises(RelayFailed, match="the quota of concurrent listeners is used up"):
                await pair.listener(pair.endpoints("west")).open()

    run(test())


def test_listener_drains_before_it_closes() -> None:
    async def test() -> None:
        async with Pair() as pair:
            listener = pair.listener()
            await listener.open()
            client = await pair.client(pair.endpoints("west"))
            first = await client.connect()
            taken = await anext(listener)
            await client.connect()
            closing = asyncio.ensure_future(listener.close(timedelta(seconds=77)))
            await until(lambda: not pair.west.listeners["primary-service"])
            with pytest.raises(RelayFailed, match="expected a hybrid connection with a listener"):
                await client.connect()
            rest = [connection async for connection in listener]
            assert len(rest) == 1
            await taken.send("still here")
            assert await first.receive() == "still here"
            await taken.close()
            assert not closing.done()
            await pair.time.until_waited_for(77)
            pair.time.advance(77)
            await closing
            assert rest[0].end is not None
            assert rest[0].end.code == 1001

    run(test())


def test_pending_decision_does_not_block_closing(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with Pair() as pair:
            asked = asyncio.Event()

            async def decide(_: Any) -> None:
                asked.set()
                await asyncio.get_running_loop().create_future()

            listener = pair.listener(pair.endpoints("west"), decide=decide)
            await listener.open()
            client = await pair.client(pair.endpoints("west"))
            connecting = asyncio.ensure_future(client.connect())
            await asked.wait()
            closing = asyncio.ensure_future(listener.close(timedelta(seconds=77)))
            await pair.time.until_waited_for(77)
            pair.time.advance(77)
            await closing
            assert [connection async for connection in listener] == []
            with pytest.raises(RelayFailed):
                await connecting

    run(test())
    assert "an offer is dropped: it was not decided within 77 s of closing" in caplog.text


def test_silent_endpoint_does_not_delay_listening_at_the_other() -> None:
    async def test() -> None:
        async with Pair() as pair:
            silence = asyncio.Event()

            async def mute(_: Any) -> Any:
                await silence.wait()
                return web.Response(status=503)

            pair.west.answers_instead = mute
            listener = pair.listener()
            opening = asyncio.ensure_future(listener.open())
            await pair.time.until_waited_for(2)
            assert not opening.done()
            pair.time.advance(2)
            await opening
            assert [listener.state[name].is_on for name in ("west", "east")] == [False, True]
            pair.west.answers_instead = None
            silence.set()
            await until(lambda: listener.state["west"].is_on)
            await listener.close(timedelta())

    run(test())


def test_leaving_its_context_ends_connections_that_were_not_accepted() -> None:
    async def test() -> None:
        async with Pair() as pair:
            client = await pair.client(pair.endpoints("west"))
            async with pair.listener():
                connection = await client.connect()
            assert [message async for message in connection] == []
            assert connection.end is not None
            assert connection.end.code == 1001

    run(test())


def test_invalid_settings_are_reported_by_the_constructor() -> None:
    with pytest.raises(WrongUse, match="endpoints of a listener: got none"):
        RelayListener({})


def test_an_endpoint_twice_is_reported() -> None:
    async def test() -> None:
        async with Pair() as pair:
            with pytest.raises(WrongUse, match="expected different ones"):
                RelayListener({"west": pair.endpoint("west"), "east": pair.endpoint("west")})

    run(test())
