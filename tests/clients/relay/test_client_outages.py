"""Which failures make a relay client switch to the other endpoint, and which do not."""

import asyncio
import traceback
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from busway_clients import (
    NotARelay,
    RelayFailed,
    RelayRefused,
    RelayUnavailable,
)
from busway_clients.relay import Rejection, SharedAccessKey
from tests.clients.relay.manual_time import run, until
from tests.clients.relay.pair import Pair
from tests.clients.relay.roles import EAST_ACTIVE, WEST_ACTIVE


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
