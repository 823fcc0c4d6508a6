"""The listener: at two relays, through outages, over the ends of its tokens, until it has drained."""

import asyncio
import ssl
import traceback
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from busway_clients import ConnectionEnded, NotARelay, RelayError, RelayFailed, RelayRefused, RelayUnavailable, WrongUse
from busway_clients.relay import Rejection, RelayListener, SharedAccessKey
from local.broker.admin.certificate import AUTHORITY_FILE, server_context
from tests.clients.relay.manual_time import run, until
from tests.clients.relay.pair import Pair

NEVER = timedelta(days=1)


def listens(relay: Any) -> int:
    return len([action for action, _ in relay.attempts if action == "listen"])


def test_it_accepts_from_both_endpoints() -> None:
    async def test() -> None:
        async with Pair() as pair:
            await pair.echoing()
            for name in ("west", "east"):
                client = await pair.client(pair.endpoints(name))
                assert await client.request("1") == f"{name}: 1"
                assert await client.request(b"\x00\xff") == name.encode() + b": \x00\xff"
            assert pair.served == ["west", "west", "east", "east"]

    run(test())


def test_it_sees_what_the_sender_has_added() -> None:
    async def test() -> None:
        async with Pair() as pair:
            listener = await pair.listening(protocols=["v2.busway", "v1.busway"])
            client = await pair.client()
            connection = await client.connect(
                "orders/a b",
                query={"customer": "7&8"},
                headers={"X-Region": "north"},
                protocols=["v0.busway", "v1.busway"],
            )
            taken = await anext(listener)
            offer = taken.offer
            assert (offer.endpoint, offer.suffix, offer.query) == ("west", "orders/a b", {"customer": "7&8"})
            assert offer.headers["X-Region"] == "north"
            assert offer.protocols == ("v0.busway", "v1.busway")
            assert taken.protocol == connection.protocol == "v1.busway"
            assert "SharedAccessSignature" not in repr(offer)
            await taken.close()

    run(test())


@pytest.mark.parametrize("authorization", ["query", "header"])
def test_the_token_travels_where_it_should(authorization: str) -> None:
    async def test() -> None:
        async with Pair() as pair:
            endpoints = {"west": pair.endpoint("west", authorization=authorization)}
            await pair.echoing(endpoints)
            client = await pair.client(endpoints)
            assert await client.request("1") == "west: 1"
            assert [("sb-hc-token" in path) for action, path in pair.west.attempts if action != "accept"] == [
                authorization == "query"
            ] * 2

    run(test())


def test_close_codes_are_passed_on() -> None:
    async def test() -> None:
        async with Pair() as pair:
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
            assert ours.end is not None
            assert ours.end.code == 1000
            with pytest.raises(ValueError, match="is 1006, expected"):
                await ours.close(1006)

    run(test())


def test_large_messages_pass_and_oversized_ones_close_the_connection() -> None:
    async def test() -> None:
        async with Pair() as pair:
            await pair.echoing()
            client = await pair.client(max_message_bytes=2_000_000)
            assert len(await client.request("x" * 1_000_000)) == 1_000_006
            connection = await client.connect()
            await connection.send("x" * 3_000_000)
            with pytest.raises(ConnectionEnded) as caught:
                await connection.receive()
            assert caught.value.code == 1009

    run(test())


async def _no_entry(offer: Any) -> Any:
    return Rejection(403, "no entry") if offer.suffix == "private" else None


def _broken(_: Any) -> None:
    raise RuntimeError("a defect of the application")


@pytest.mark.parametrize(
    ("decide", "protocols", "status", "expected"),
    [
        (_no_entry, (), 403, r"HTTP 403 \(no entry\)"),
        (lambda _: Rejection(418, "a teapot"), (), 418, r"HTTP 418 \(a teapot\)"),
        (None, ("other",), 400, "supports none of these subprotocols"),
    ],
)
def test_a_rejection_reaches_the_sender(decide: Any, protocols: Any, status: int, expected: str) -> None:
    async def test() -> None:
        async with Pair() as pair:
            listener = await pair.echoing(decide=decide, protocols=["busway"])
            client = await pair.client()
            with pytest.raises(RelayFailed, match=expected) as caught:
                await client.connect("private", protocols=protocols)
            [error] = caught.value.errors.values()
            assert isinstance(error, RelayRefused)
            assert error.status == status
            assert client.state.active == "west"
            assert listener.open_connections == 0

    run(test())


def test_failing_decision_rejects_and_the_listener_continues(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with Pair() as pair:
            listener = await pair.echoing(decide=_broken)
            client = await pair.client(pair.endpoints("west"))
            with pytest.raises(RelayFailed, match="HTTP 500"):
                await client.connect()
            assert listener.state["west"].is_on

    run(test())
    assert "the decision on an offer failed" in caplog.text


def test_listener_with_unaccepted_connections_is_busy() -> None:
    async def test() -> None:
        async with Pair() as pair:
            await pair.listening(waiting=1)
            client = await pair.client(pair.endpoints("west"))
            await client.connect()
            with pytest.raises(RelayFailed, match=r"HTTP 503 \(the listener is busy\)"):
                await client.connect()

    run(test())


def test_a_rejection_needs_an_error_status() -> None:
    with pytest.raises(WrongUse, match="is 200, expected one from 400 to 599"):
        Rejection(200, "yes")


def test_tokens_are_renewed_before_they_expire() -> None:
    async def test() -> None:
        async with Pair() as pair:
            listener = await pair.echoing(keep_alive=NEVER)
            for _ in range(3):
                await pair.time.until_waited_for(2800, 2900)
                pair.time.advance(48 * 60)
                await until(lambda: all(each.renewals for each in pair.west.listeners["primary-service"]))
                pair.west.listeners["primary-service"][0].renewals.clear()
            assert listens(pair.west) == 1
            assert listener.state["west"].is_on
            client = await pair.client()
            assert await client.request("1") == "west: 1"

    run(test())


class Forgetful(SharedAccessKey):
    """Has a token once, and then none for a while."""

    is_away = False

    async def token(self, resource: Any, now: Any) -> Any:
        if self.is_away:
            raise OSError("no route to the token service")
        return await super().token(resource, now)


def test_expired_token_closes_the_channel_and_the_next_has_a_new_one(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with Pair() as pair:
            tokens = Forgetful("listen-and-send", pair.west.keys["listen-and-send"][0])
            listener = await pair.echoing({"west": replace(pair.endpoint("west"), tokens=tokens)}, keep_alive=NEVER)
            tokens.is_away = True
            for _ in range(2):
                await pair.time.until_waited_for(500, 2900)
                pair.time.advance(48 * 60)
            await until(lambda: not listener.state["west"].is_on)
            assert listens(pair.west) == 1
            await pair.time.until_waited_for(1)
            tokens.is_away = False
            pair.time.advance(1)
            await until(lambda: listener.state["west"].is_on)
            assert listens(pair.west) == 2

    run(test())
    assert "the token could not be renewed" in caplog.text
    assert "closed by the other side with 1008 (the token has expired)" in caplog.text


@pytest.mark.parametrize(("code", "reason"), [(1001, "deleted"), (1008, "expired"), (1011, "went wrong")])
def test_channel_closed_by_the_relay_is_reopened_at_once(code: int, reason: str) -> None:
    async def test() -> None:
        async with Pair() as pair:
            listener = await pair.echoing()
            await pair.west.close_control("primary-service", code, reason)
            await until(lambda: listens(pair.west) == 2 and listener.state["west"].is_on)
            assert listens(pair.east) == 1

    run(test())


def test_connections_outlive_the_control_channel() -> None:
    async def test() -> None:
        async with Pair() as pair:
            await pair.echoing()
            connection = await (await pair.client()).connect()
            await pair.west.close_control("primary-service", 1011, "")
            await connection.send("1")
            assert await connection.receive() == "west: 1"

    run(test())


def test_unavailable_endpoint_is_retried_with_pauses_while_the_other_works() -> None:
    async def test() -> None:
        async with Pair() as pair:
            listener = await pair.echoing(keep_alive=NEVER, patience=timedelta(seconds=20))
            await pair.west.go_down()
            for pause in (1, 2, 5, 10, 30, 30):
                await pair.time.until_waited_for(pause)
                pair.time.advance(pause)
            assert not listener.state["west"].is_on
            assert isinstance(listener.state["west"].error, RelayUnavailable)
            assert listener.state["east"].is_on
            await pair.west.come_up()
            await pair.time.until_waited_for(30)
            pair.time.advance(30)
            await until(lambda: listener.state["west"].is_on)
            client = await pair.client()
            assert await client.request("1") == "west: 1"

    run(test())


def test_half_open_channel_is_detected_by_a_ping() -> None:
    async def test() -> None:
        async with Pair() as pair:
            listener = await pair.echoing(pair.endpoints("west"), patience=timedelta(seconds=20))
            pair.west.is_mute = True
            await pair.time.until_waited_for(30)
            pair.time.advance(30)
            await pair.time.until_waited_for(20)
            pair.time.advance(20)
            await until(lambda: listens(pair.west) == 2)
            pair.west.is_mute = False
            await until(lambda: listener.state["west"].is_on)

    run(test())


def test_pings_that_are_answered_keep_the_channel() -> None:
    async def test() -> None:
        async with Pair() as pair:
            listener = await pair.echoing(pair.endpoints("west"), patience=timedelta(seconds=20))
            for _ in range(4):
                await pair.time.until_waited_for(30)
                pair.time.advance(30)
            await pair.time.until_waited_for(30)
            assert listens(pair.west) == 1
            assert listener.state["west"].is_on

    run(test())


def test_a_relay_without_pings_is_kept_alive_with_pongs() -> None:
    async def test() -> None:
        async with Pair() as pair:
            endpoint = replace(pair.endpoint("west"), keep_alive_by="pong")
            listener = await pair.echoing({"west": endpoint})
            pair.west.bears_no_ping = True
            for number in range(3):
                await pair.time.until_waited_for(30)
                pair.time.advance(30)
                [channel] = pair.west.listeners["primary-service"]
                await until(lambda: channel.pongs > number)  # noqa: B023 - it is asked before the next round
            assert listens(pair.west) == 1
            assert listener.state["west"].is_on

    run(test())


def test_unanswered_rendezvous_blocks_no_other(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with Pair() as pair:
            await pair.echoing(patience=timedelta(seconds=10))
            client = await pair.client(pair.endpoints("west"))
            pair.west.keeps_rendezvous_waiting = True
            lost = asyncio.ensure_future(client.connect())
            await until(lambda: any(action == "accept" for action, _ in pair.west.attempts))
            pair.west.keeps_rendezvous_waiting = False
            assert await client.request("1") == "west: 1"
            await pair.time.until_waited_for(10)
            pair.time.advance(10)
            await until(lambda: "an offer failed" in caplog.text)
            pair.time.advance(20)
            with pytest.raises(RelayFailed, match=r"no answer within 30 s|HTTP 504"):
                await lost

    run(test())
    assert "no answer within 10 s" in caplog.text


@pytest.mark.parametrize(
    "message",
    [
        "<html>",
        "[]",
        "[" * 100_000,
        '{"accept": {"id": "1"}}',
        '{"accept": {"address": "http://elsewhere/"}}',
        '{"accept": {"address": 7}}',
        "{}",
    ],
)
def test_invalid_control_messages_are_ignored(message: str) -> None:
    async def test() -> None:
        async with Pair() as pair:
            await pair.echoing(pair.endpoints("west"))
            await pair.west.offer("primary-service", message)
            client = await pair.client(pair.endpoints("west"))
            assert await client.request("1") == "west: 1"
            assert listens(pair.west) == 1

    run(test())


def test_an_http_request_is_answered_with_501() -> None:
    async def test() -> None:
        async with Pair() as pair:
            await pair.echoing()
            response = await pair.west.request("primary-service")
            assert (response["statusCode"], response["body"]) == (501, False)
            client = await pair.client()
            assert await client.request("1") == "west: 1"

    run(test())


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
            object.__setattr__(
                endpoints["west"], "tokens", SharedAccessKey("listen-and-send", "c2VjcmV0IHRoYXQgaXMgd3Jvbmc=")
            )
            object.__setattr__(endpoints["east"], "path", "nowhere")
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
