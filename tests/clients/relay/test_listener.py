"""The listener: at two relays, through outages, over the ends of its tokens, until it has drained."""

import asyncio
import ssl
import time
import traceback
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.core.credentials import AccessToken, AzureNamedKeyCredential

from busway_broker.admin.certificate import AUTHORITY_FILE, server_context
from busway_clients import ConnectionEnded, RelayFailed, RelayRefused, RelayUnavailable, WrongUse
from busway_clients.relay import RelayListener
from tests.clients.relay.pair import Pair, run, silence, until

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
    offers: list[Any] = []

    async def serve(offer: Any) -> None:
        offers.append(offer)
        async with await offer.accept("v1.busway") as taken:
            await taken.send(taken.protocol)

    client = await pair.client()
    added: dict[str, Any] = {"query": {"customer": "7&8"}, "headers": {"X-Region": "north"}}
    async with pair.listener(serve):
        connection = await client.connect("orders/a b", protocols=["v0.busway", "v1.busway"], **added)
        assert await connection.receive() == connection.protocol == "v1.busway"
    [offer] = offers
    assert (offer.endpoint, offer.suffix, offer.query) == ("west", "orders/a b", {"customer": "7&8"})
    assert offer.headers["X-Region"] == "north"
    assert offer.protocols == ("v0.busway", "v1.busway")
    assert "SharedAccessSignature" not in str(vars(offer) | {"_relay": ""})


@run
async def test_close_codes_are_passed_on(pair: Pair) -> None:
    _, accepted = await pair.listening()
    client = await pair.client()
    ours = await client.connect()
    theirs = await accepted.get()
    await ours.close(4001, "enough")
    with pytest.raises(ConnectionEnded, match=r"closed by the other side with 4001 \(enough\)") as caught:
        await theirs.receive()
    assert (caught.value.code, caught.value.is_clean) == (4001, False)
    with pytest.raises(ConnectionEnded, match="4001"):
        await theirs.send("x")
    ours = await client.connect()
    theirs = await accepted.get()
    await theirs.send("last")
    await theirs.close()
    assert [message async for message in ours] == ["last"]
    assert ours.end.code == 1000


async def _no_entry(offer: Any) -> None:
    if offer.suffix == "private":
        await offer.reject(403, "no entry")


async def _broken(_: Any) -> None:
    raise RuntimeError("a defect of the application")


async def _another_relay(_: Any) -> None:
    raise RelayUnavailable("the relay that this service asks")


async def _undecided(_: Any) -> None:
    pass


async def _not_an_error(offer: Any) -> None:
    await offer.reject(200, "yes")


@run
@pytest.mark.parametrize(
    ("serve", "kind", "expected"),
    [
        (_no_entry, RelayRefused, r"HTTP 403 \(no entry\)"),
        (lambda offer: offer.reject(503, "busy"), RelayUnavailable, r"HTTP 503 \(busy\)"),
        (_broken, RelayUnavailable, "HTTP 500"),
        (_undecided, RelayUnavailable, r"HTTP 500 \(the listener did not decide\)"),
        (_not_an_error, RelayUnavailable, "HTTP 500"),
        (_another_relay, RelayUnavailable, "HTTP 500"),
    ],
)
async def test_a_rejection_reaches_the_sender(pair: Pair, serve: Any, kind: type[Exception], expected: str) -> None:
    client = await pair.client(pair.endpoints("west"))
    async with pair.listener(serve, pair.endpoints("west")) as listener:
        with pytest.raises(RelayFailed, match=expected) as caught:
            await client.connect("private")
        assert type(caught.value.errors["west"]) is kind
        assert listener.state["west"].is_on


class BriefTokens:
    """Tokens that must be renewed every second, and that are missing once *is_away*."""

    is_away = False

    def __init__(self, endpoint: Any) -> None:
        self._endpoint = endpoint

    async def get_token(self, *_: str) -> AccessToken:
        if self.is_away:
            raise OSError("no route to the token service")
        token = await self._endpoint.token()
        return AccessToken(token.token, time.time() + 0.1)  # type: ignore[arg-type]  # sooner than a credential's own


@run
async def test_tokens_are_renewed_on_the_channel(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    tokens = BriefTokens(pair.endpoint("west"))
    listener = await pair.echoing({"west": replace(pair.endpoint("west"), credential=tokens)})
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
    endpoints = {"west": replace(pair.endpoint("west"), tls=trusting)}
    await pair.echoing(endpoints)
    # A rendezvous without TLS is refused, whatever the relay says.
    await pair.west.offer("primary-service", '{"accept": {"address": "ws://127.0.0.1:1/$hc/primary-service"}}')
    assert await (await pair.client(endpoints)).request("1") == "west: 1"
    with pytest.raises(RelayFailed, match=r"cannot be reached \(ClientConnectorCertificateError"):
        await (await pair.client(pair.endpoints("west"))).connect()
    assert "an offer has no wss:// address and is ignored" in caplog.text


@run
async def test_if_every_endpoint_refuses_the_error_of_each_is_raised(pair: Pair) -> None:
    endpoints = pair.endpoints()
    wrong = AzureNamedKeyCredential("listen-and-send", "c2VjcmV0IHRoYXQgaXMgd3Jvbmc=")
    endpoints["west"] = replace(endpoints["west"], credential=wrong)
    endpoints["east"] = replace(endpoints["east"], path="nowhere")
    with pytest.raises(RelayFailed, match=r"HTTP 401 .*the signature is invalid.*HTTP 404") as caught:
        await pair.listening(endpoints)
    assert [type(error) for error in caught.value.errors.values()] == [RelayRefused, RelayRefused]
    printed = "".join(traceback.format_exception(caught.value))
    assert [word for word in ("c2VjcmV0", "SharedAccessSignature", "sb-hc-token") if word in printed] == []


@run
async def test_one_listener_too_many_is_reported(pair: Pair) -> None:
    for _ in range(25):
        await pair.listening(pair.endpoints("west"))
    with pytest.raises(RelayFailed, match="the quota of concurrent listeners is used up"):
        await pair.listening(pair.endpoints("west"))


@run
async def test_listener_drains_before_it_closes(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    listener, accepted = await pair.listening()
    client = await pair.client(pair.endpoints("west"))
    first = await client.connect()
    taken = await accepted.get()
    await client.connect()
    rest = await accepted.get()
    closing = asyncio.ensure_future(listener.close(HALF_A_SECOND))
    await until(lambda: not pair.west.listeners["primary-service"])
    await first.send("still")
    assert await taken.receive() == "still"
    await taken.close()
    assert not closing.done()
    await closing
    assert rest.end is not None
    assert rest.end.code == 1001
    assert "1 offers were still served 0.5 s after closing" in caplog.text


@run
async def test_pending_decision_does_not_block_closing(pair: Pair) -> None:
    asked = asyncio.Event()

    async def decide(_: Any) -> None:
        asked.set()
        await asyncio.Event().wait()

    client = await pair.client(pair.endpoints("west"), timeout=timedelta(seconds=1))
    async with pair.listener(decide, pair.endpoints("west")) as listener:
        connecting = asyncio.ensure_future(client.connect())
        await asked.wait()
        await listener.close(timedelta(seconds=0.1))
        with pytest.raises(RelayFailed):
            await connecting


@run
async def test_silent_endpoint_does_not_delay_listening_at_the_other(pair: Pair) -> None:
    pair.west.answers_instead = silence
    listener, _ = await pair.listening(patience=HALF_A_SECOND)
    assert [listener.state[name].is_on for name in ("west", "east")] == [False, True]
    pair.west.answers_instead = None
    await until(lambda: listener.state["west"].is_on)


@run
async def test_failing_block_ends_its_connections(pair: Pair) -> None:
    client = await pair.client(pair.endpoints("west"))
    async with AsyncExitStack() as stack:
        stack.push(lambda *_: True)
        await stack.enter_async_context(pair.listener(lambda offer: offer.accept()))
        connection = await client.connect()
        raise LookupError
    assert [message async for message in connection] == []
    assert connection.end.code == 1001


@run
async def test_invalid_settings_are_reported_by_the_constructor(pair: Pair) -> None:
    with pytest.raises(WrongUse, match="endpoints of a listener: got none"):
        RelayListener({}, _undecided)
    with pytest.raises(WrongUse, match="expected different ones"):
        RelayListener({"west": pair.endpoint("west"), "east": pair.endpoint("west")}, _undecided)
