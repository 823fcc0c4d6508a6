"""The control channel of a listener: tokens, pings, outages and messages that are not valid."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from busway_clients import RelayFailed, RelayUnavailable
from busway_clients.relay import SharedAccessKey
from tests.clients.relay.manual_time import run, until
from tests.clients.relay.pair import Pair

NEVER = timedelta(days=1)


def listens(relay: Any) -> int:
    return len([action for action, _ in relay.attempts if action == "listen"])


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
