"""The listener: at two relays, through outages, over the ends of its tokens, until it has drained."""

from typing import Any

import pytest

from busway_clients import ConnectionEnded, RelayFailed, RelayRefused, WrongUse
from busway_clients.relay import Rejection
from tests.clients.relay.manual_time import run
from tests.clients.relay.pair import Pair


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
