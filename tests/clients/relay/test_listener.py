"""The listener: at two relays, through outages, over the ends of its tokens, until it has drained."""

import asyncio
import ssl
import time
import traceback
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from busway_broker.admin.certificate import AUTHORITY_FILE, server_context
from busway_clients import ConnectionEnded, NotARelay, RelayError, RelayFailed, RelayRefused, RelayUnavailable, WrongUse
from busway_clients.relay import Rejection, RelayListener, SharedAccessKey, Token
from tests.clients.relay.pair import Pair, run, until

HALF_A_SECOND = timedelta(seconds=0.5)


def listens(relay: Any) -> int:
    return len([action for action, _ in relay.attempts if action == "listen"])


@run
async def test_it_accepts_from_both_endpoints_text_and_bytes(pair: Pair) -> None:
    await pair.echoing()
    for name in ("west", "east"):
        client = await pair.client(pair.endpoints(name))
        assert await client.request("1") == f"{name}: 1"
        assert await client.request(b"\x00\xff") == name.encode() + b": \x00\xff"
    assert pair.served == ["west", "west", "east", "east"]


@run
async def test_it_sees_what_the_sender_has_added(pair: Pair) -> None:
    listener = await pair.listening(protocols=["v2.busway", "v1.busway"])
    client = await pair.client()
    added: dict[str, Any] = {"query": {"customer": "7&8"}, "headers": {"X-Region": "north"}}
    connection = await client.connect("orders/a b", protocols=["v0.busway", "v1.busway"], **added)
    taken = await anext(listener)
    offer = taken.offer
    assert (offer.endpoint, offer.suffix, offer.query) == ("west", "orders/a b", {"customer": "7&8"})
    assert offer.headers["X-Region"] == "north"
    assert offer.protocols == ("v0.busway", "v1.busway")
    assert taken.protocol == connection.protocol == "v1.busway"
    assert "SharedAccessSignature" not in repr(offer)
    await taken.close()


@run
@pytest.mark.parametrize("authorization", ["query", "header"])
async def test_the_token_travels_where_it_should(pair: Pair, authorization: str) -> None:
    endpoints = {"west": pair.endpoint("west", authorization=authorization)}
    await pair.echoing(endpoints)
    assert await (await pair.client(endpoints)).request("1") == "west: 1"
    carried = [("sb-hc-token" in path) for action, path in pair.west.attempts if action != "accept"]
    assert carried == [authorization == "query"] * 2


@run
async def test_close_codes_are_passed_on(pair: Pair) -> None:
    listener = await pair.listening()
    client = await pair.client()
    ours = await client.connect()
    theirs = await anext(listener)
    await ours.close(4001, "enough")
    with pytest.raises(ConnectionEnded, match=r"closed by the other side with 4001 \(enough\)") as caught:
        await theirs.receive()
    assert (caught.value.code, caught.value.is_clean) == (4001, False)
    with pytest.raises(ConnectionEnded, match="4001"):
        await theirs.send("x")
    ours = await client.connect()
    theirs = await anext(listener)
    await theirs.send("last")
    await theirs.close()
    assert [message async for message in ours] == ["last"]
    assert ours.end.code == 1000
    with pytest.raises(ValueError, match="is 1006, expected"):
        await ours.close(1006)


@run
async def test_oversized_message_closes_the_connection(pair: Pair) -> None:
    await pair.echoing()
    client = await pair.client(max_message_bytes=2_000_000)
    assert len(await client.request("x" * 1_000_000)) == 1_000_006
    connection = await client.connect()
    await connection.send("x" * 3_000_000)
    with pytest.raises(ConnectionEnded) as caught:
        await connection.receive()
    assert caught.value.code == 1009


async def _no_entry(offer: Any) -> Any:
    return Rejection(403, "no entry") if offer.suffix == "private" else None


def _broken(_: Any) -> None:
    raise RuntimeError("a defect of the application")


@run
@pytest.mark.parametrize(
    ("decide", "protocols", "kind", "expected"),
    [
        (_no_entry, (), RelayRefused, r"HTTP 403 \(no entry\)"),
        (lambda _: Rejection(418, "a teapot"), (), RelayRefused, r"HTTP 418 \(a teapot\)"),
        (None, ("other",), RelayRefused, "HTTP 400 .*supports none of these subprotocols"),
        (_broken, (), RelayUnavailable, "HTTP 500"),
    ],
)
async def test_a_rejection_reaches_the_sender(
    pair: Pair, decide: Any, protocols: Any, kind: type[Exception], expected: str
) -> None:
    listener = await pair.echoing(pair.endpoints("west"), decide=decide, protocols=["busway"])
    client = await pair.client(pair.endpoints("west"))
    with pytest.raises(RelayFailed, match=expected) as caught:
        await client.connect("private", protocols=protocols)
    assert type(caught.value.errors["west"]) is kind
    assert listener.open_connections == 0
    assert listener.state["west"].is_on


@run
async def test_listener_with_unaccepted_connections_is_busy(pair: Pair) -> None:
    await pair.listening(waiting=1)
    client = await pair.client(pair.endpoints("west"))
    await client.connect()
    with pytest.raises(RelayFailed, match=r"HTTP 503 \(the listener is busy\)"):
        await client.connect()


class BriefTokens:
    """Tokens that must be renewed every second, and that are missing once *is_away*."""

    is_away = False

    def __init__(self, key: str) -> None:
        self._signer = SharedAccessKey("listen-and-send", key, timedelta(hours=1))

    async def token(self, resource: str, now: float) -> Token:
        if self.is_away:
            raise OSError("no route to the token service")
        token = await self._signer.token(resource, now)
        return Token(token.text, now + 0.1)


@run
async def test_tokens_are_renewed_on_the_channel(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    tokens = BriefTokens(pair.west.keys["listen-and-send"][0])
    listener = await pair.echoing({"west": replace(pair.endpoint("west"), tokens=tokens)})
    [channel] = pair.west.listeners["primary-service"]
    await until(lambda: channel.renewals)
    tokens.is_away = True
    await until(lambda: "the token could not be renewed" in caplog.text)
    assert listens(pair.west) == 1
    assert listener.state["west"].is_on


@run
@pytest.mark.parametrize(("code", "reason"), [(1001, "deleted"), (1008, "expired"), (1011, "went wrong")])
async def test_channel_closed_by_the_relay_is_reopened_and_connections_stay(pair: Pair, code: int, reason: str) -> None:
    listener = await pair.echoing()
    connection = await (await pair.client()).connect()
    await pair.west.close_control("primary-service", code, reason)
    await until(lambda: listens(pair.west) == 2 and listener.state["west"].is_on)
    assert listens(pair.east) == 1
    await connection.send("1")
    assert await connection.receive() == "west: 1"


@run
async def test_unavailable_endpoint_is_retried_with_pauses_while_the_other_works(pair: Pair) -> None:
    listener = await pair.echoing(pauses=(0.0, 0.1, 0.2))
    await pair.west.go_down()
    began = time.monotonic()
    await until(lambda: isinstance(listener.state["west"].error, RelayUnavailable))
    assert listener.state["east"].is_on
    await asyncio.sleep(0.15)
    await pair.west.come_up()
    await until(lambda: listener.state["west"].is_on)
    assert time.monotonic() - began > 0.2
    assert await (await pair.client()).request("1") == "west: 1"


@run
async def test_half_open_channel_is_detected_by_a_ping(pair: Pair) -> None:
    listener = await pair.echoing(pair.endpoints("west"), keep_alive=timedelta(seconds=0.2))
    await asyncio.sleep(0.5)
    assert listens(pair.west) == 1  # pings that are answered keep the channel
    pair.west.is_mute = True
    await until(lambda: listens(pair.west) >= 2)
    pair.west.is_mute = False
    await until(lambda: listener.state["west"].is_on)


@run
async def test_unanswered_rendezvous_blocks_no_other(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    await pair.echoing(patience=HALF_A_SECOND)
    client = await pair.client(pair.endpoints("west"), timeout=timedelta(seconds=1))
    pair.west.keeps_rendezvous_waiting = True
    lost = asyncio.ensure_future(client.connect())
    await until(lambda: any(action == "accept" for action, _ in pair.west.attempts))
    pair.west.keeps_rendezvous_waiting = False
    assert await client.request("1") == "west: 1"
    with pytest.raises(RelayFailed, match=r"no answer within 1 s"):
        await lost
    assert "an offer failed" in caplog.text
    assert "no answer within 0.5 s" in caplog.text


@run
async def test_invalid_control_messages_are_ignored_and_http_is_declined(pair: Pair) -> None:
    await pair.echoing(pair.endpoints("west"))
    for message in (
        "<html>",
        "[]",
        "[" * 100_000,
        '{"accept": {"id": "1"}}',
        '{"accept": {"address": "http://elsewhere/"}}',
        '{"accept": {"address": 7}}',
        "{}",
    ):
        await pair.west.offer("primary-service", message)
    response = await pair.west.request("primary-service")
    assert (response["statusCode"], response["body"]) == (501, False)
    assert await (await pair.client(pair.endpoints("west"))).request("1") == "west: 1"
    assert listens(pair.west) == 1


@run
async def test_application_chooses_the_trusted_certificates(
    pair: Pair, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
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


@run
@pytest.mark.parametrize(
    ("answer", "kind", "expected"),
    [
        (_page, NotARelay, r"HTTP 200 \(OK\) \(text/html\) instead of opening a WebSocket, expected a relay"),
        (_elsewhere, NotARelay, r"HTTP 302 \(Found\).* instead of opening a WebSocket, expected a relay"),
        (_busy, RelayUnavailable, "HTTP 503"),
        (_nonsense, NotARelay, "did not answer with HTTP, expected a relay"),
    ],
)
async def test_endpoint_that_is_not_a_relay_is_reported(
    pair: Pair, answer: Any, kind: type[Exception], expected: str
) -> None:
    pair.west.answers_instead = answer
    listener = await pair.listening()
    assert type(listener.state["west"].error) is kind
    with pytest.raises(RelayError, match=expected):
        raise listener.state["west"].error
    assert listener.state["east"].is_on


@run
async def test_if_every_endpoint_refuses_the_error_of_each_is_raised(pair: Pair) -> None:
    endpoints = pair.endpoints()
    wrong = SharedAccessKey("listen-and-send", "c2VjcmV0IHRoYXQgaXMgd3Jvbmc=")
    endpoints["west"] = replace(endpoints["west"], tokens=wrong)
    endpoints["east"] = replace(endpoints["east"], path="nowhere")
    with pytest.raises(RelayFailed, match=r"HTTP 401 .*the signature is invalid.*HTTP 404") as caught:
        await pair.listener(endpoints).open()
    assert [type(error) for error in caught.value.errors.values()] == [RelayRefused, RelayRefused]
    printed = "".join(traceback.format_exception(caught.value))
    assert [word for word in ("c2VjcmV0", "SharedAccessSignature", "sb-hc-token") if word in printed] == []


@run
async def test_one_listener_too_many_is_reported(pair: Pair) -> None:
    for _ in range(25):
        await pair.listening(pair.endpoints("west"))
    with pytest.raises(RelayFailed, match="the quota of concurrent listeners is used up"):
        await pair.listener(pair.endpoints("west")).open()


@run
async def test_listener_drains_before_it_closes(pair: Pair) -> None:
    listener = pair.listener()
    await listener.open()
    client = await pair.client(pair.endpoints("west"))
    first = await client.connect()
    taken = await anext(listener)
    await client.connect()
    closing = asyncio.ensure_future(listener.close(HALF_A_SECOND))
    await until(lambda: not pair.west.listeners["primary-service"])
    await first.send("still")
    assert await taken.receive() == "still"
    [rest] = [connection async for connection in listener]
    await taken.close()
    assert not closing.done()
    await closing
    assert rest.end is not None
    assert rest.end.code == 1001


@run
async def test_pending_decision_does_not_block_closing(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    asked = asyncio.Event()

    async def decide(_: Any) -> None:
        asked.set()
        await asyncio.Event().wait()

    listener = pair.listener(pair.endpoints("west"), decide=decide)
    await listener.open()
    client = await pair.client(pair.endpoints("west"), timeout=timedelta(seconds=1))
    connecting = asyncio.ensure_future(client.connect())
    await asked.wait()
    await listener.close(timedelta(seconds=0.1))
    assert [connection async for connection in listener] == []
    with pytest.raises(RelayFailed):
        await connecting
    assert "an offer is dropped: it was not decided within 0.1 s of closing" in caplog.text


@run
async def test_silent_endpoint_does_not_delay_listening_at_the_other(pair: Pair) -> None:
    silence = asyncio.Event()

    async def mute(_: Any) -> Any:
        await silence.wait()
        return web.Response(status=503)

    pair.west.answers_instead = mute
    listener = await pair.listening()
    assert [listener.state[name].is_on for name in ("west", "east")] == [False, True]
    pair.west.answers_instead = None
    silence.set()
    await until(lambda: listener.state["west"].is_on)


@run
async def test_leaving_its_context_ends_connections_that_were_not_accepted(pair: Pair) -> None:
    client = await pair.client(pair.endpoints("west"))
    async with pair.listener():
        connection = await client.connect()
    assert [message async for message in connection] == []
    assert connection.end.code == 1001


@run
async def test_invalid_settings_are_reported_by_the_constructor(pair: Pair) -> None:
    with pytest.raises(WrongUse, match="endpoints of a listener: got none"):
        RelayListener({})
    with pytest.raises(WrongUse, match="expected different ones"):
        RelayListener({"west": pair.endpoint("west"), "east": pair.endpoint("west")})
    with pytest.raises(WrongUse, match="is 200, expected one from 400 to 599"):
        Rejection(200, "yes")
