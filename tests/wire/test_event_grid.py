"""The output for Event Grid, and the local counterpart: publication, handshake, delivery and dead letters."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from aiohttp import ClientSession, web

from cli.local_services.event_grid import ORIGIN, SCHEDULE, DeadLetter, EventGrid, Subscription
from shared.clock import ManualClock
from shared.ends.event_grid.endpoint import SETTING_FORM, EventGridEndpoint, event_grid_endpoint
from shared.ends.event_grid.output import EventGridOutput
from shared.errors import BuswayError, MessageRejected, TargetRefused, TargetUnavailable
from shared.protocols import Outgoing
from tests.wire.sending import SECONDS, closing

KEY = "s3cret"


def event(identity: object, **attributes: object) -> bytes:
    return json.dumps({"specversion": "1.0", "id": str(identity), "source": "/s", "type": "t", **attributes}).encode()


def outgoing(*events: bytes) -> list[Outgoing]:
    return [Outgoing(each, None, None, None) for each in events]


@dataclass
class Webhook:
    """Answers the handshake and the next requests with its statuses, then with 200."""

    statuses: list[int] = field(default_factory=list)
    allowed: str | None = ORIGIN
    got: list[tuple[bytes, str]] = field(default_factory=list)

    async def handle(self, request: web.Request) -> web.Response:
        if request.method == "OPTIONS":
            headers = {} if self.allowed is None else {"WebHook-Allowed-Origin": self.allowed}
            return web.Response(headers=headers)
        self.got.append((await request.read(), request.headers["aeg-delivery-count"]))
        return web.Response(status=self.statuses.pop(0) if self.statuses else 200)


@asynccontextmanager
async def served(handle: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> AsyncIterator[str]:
    app = web.Application(client_max_size=10**7)
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def sending(endpoint: EventGridEndpoint) -> AbstractAsyncContextManager[EventGridOutput]:
    return closing(EventGridOutput("grid", lambda: endpoint))


def virtual(clock: ManualClock, waits: list[float]) -> Callable[[float], Awaitable[None]]:
    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        clock.advance(seconds)
        await asyncio.sleep(0)

    return sleep


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(SECONDS):
        while not condition():  # noqa: ASYNC110 - what a server has done sets no event
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("path", ["", "/api/events"])
def test_events_reach_the_webhook_of_their_topic(path: str) -> None:
    async def scenario() -> tuple[list[BuswayError | None], list[bytes]]:
        webhook = Webhook()
        async with EventGrid(KEY) as grid, served(webhook.handle) as url:
            await grid.subscribe("orders", Subscription(url))
            async with sending(EventGridEndpoint(grid.address + path, KEY)) as output:
                answers = await output.send("orders", outgoing(*map(event, range(3))), timeout_seconds=SECONDS)
                await until(lambda: len(webhook.got) == 3)
        return answers, sorted(each for each, _ in webhook.got)

    assert asyncio.run(scenario()) == ([None] * 3, [event(number) for number in range(3)])


def sent(messages: Sequence[Outgoing], *, key: str = KEY, address: str | None = None) -> list[BuswayError | None]:
    async def scenario() -> list[BuswayError | None]:
        async with EventGrid(KEY) as grid, sending(EventGridEndpoint(address or grid.address, key)) as output:
            return await output.send("orders", messages, timeout_seconds=SECONDS)

    return asyncio.run(scenario())


@pytest.mark.filterwarnings("ignore:Sending a large body")  # more than the line lets through
def test_an_event_that_is_at_fault_is_found_in_its_batch() -> None:
    events = [*map(event, range(9)), b'{"specversion": "1.0"}', *map(event, range(9)), event(1, data="x" * 1_100_000)]
    answers = sent(outgoing(*events))
    assert [number for number, answer in enumerate(answers) if answer is not None] == [9, 19]
    assert isinstance(answers[9], MessageRejected)
    assert isinstance(answers[19], MessageRejected)
    assert answers[19].reason == "MessageSizeExceeded"


def test_a_wrong_key_is_refused_and_not_quoted() -> None:
    (answer,) = sent(outgoing(event(1)), key="wr0ng")
    assert isinstance(answer, TargetRefused)
    assert "grid/orders: " in str(answer)
    assert "wr0ng" not in str(answer)


def test_what_cannot_be_reached_is_unavailable() -> None:
    (answer,) = sent(outgoing(event(1)), address="http://127.0.0.1:9")
    assert isinstance(answer, TargetUnavailable)
    assert "events without an answer are sent again" in str(answer)


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, MessageRejected),
        (413, MessageRejected),
        (401, TargetRefused),
        (403, TargetRefused),
        (404, TargetRefused),
        (429, TargetUnavailable),
        (500, TargetUnavailable),
        (503, TargetUnavailable),
    ],
)
def test_each_answer_has_a_remedy(status: int, error: type[BuswayError]) -> None:
    async def handle(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(status=status, headers={"Retry-After": "33"})

    async def scenario() -> list[BuswayError | None]:
        async with served(handle) as url, sending(EventGridEndpoint(url, KEY)) as output:
            return await output.send("orders", outgoing(event(1), event(2)), timeout_seconds=SECONDS)

    answers = asyncio.run(scenario())
    assert [type(answer) for answer in answers] == [error] * 2
    if status in {429, 503, 500}:
        assert {answer.retry_after for answer in answers if isinstance(answer, TargetUnavailable)} == {
            timedelta(seconds=33)
        }


def delivered(statuses: list[int], **options: object) -> tuple[list[float], list[str], list[DeadLetter]]:
    """Return the waits, the delivery counts and the dead letters of one event."""

    async def scenario() -> tuple[list[float], list[str], list[DeadLetter]]:
        clock, waits, webhook = ManualClock(datetime(2026, 1, 1, tzinfo=UTC)), list[float](), Webhook(list(statuses))
        async with EventGrid(KEY, clock, virtual(clock, waits)) as grid, served(webhook.handle) as url:
            subscription = Subscription(url, **options)  # type: ignore[arg-type] # its fields
            await grid.subscribe("orders", subscription)
            async with sending(EventGridEndpoint(grid.address, KEY)) as output:
                assert await output.send("orders", outgoing(event(1)), timeout_seconds=SECONDS) == [None]
            await until(lambda: not subscription.waiting)
        return waits, [count for _, count in webhook.got], subscription.dead_letters

    return asyncio.run(scenario())


def test_delivery_is_retried_by_the_documented_schedule() -> None:
    waits, counts, dead = delivered([503, 500, 404, 408])
    assert waits == [each.total_seconds() for each in SCHEDULE[:4]] == [10, 30, 60, 300]
    assert counts == ["0", "1", "2", "3", "4"]
    assert dead == []


@pytest.mark.parametrize("status", [400, 401, 403, 413])
def test_some_answers_end_the_delivery_at_once(status: int) -> None:
    assert delivered([status]) == ([], ["0"], [DeadLetter(event(1), f"the webhook answered {status}", 1)])


def test_an_event_is_given_up_after_its_attempts_or_its_day() -> None:
    _, counts, (dead,) = delivered([503] * 99, attempts=5)
    assert (len(counts), dead.reason) == (5, "MaxDeliveryAttemptsExceeded")
    waits, _, (dead,) = delivered([503] * 99)
    assert dead.reason == "TimeToLiveExceeded"
    assert sum(waits) <= timedelta(hours=24).total_seconds()


@pytest.mark.parametrize("allowed", [None, "other.example"])
def test_a_webhook_that_does_not_agree_gets_nothing(allowed: str | None) -> None:
    async def scenario() -> None:
        webhook = Webhook(allowed=allowed)
        async with EventGrid(KEY) as grid, served(webhook.handle) as url:
            with pytest.raises(TargetRefused, match="answers the handshake with 200"):
                await grid.subscribe("orders", Subscription(url))

    asyncio.run(scenario())


def test_the_counterpart_takes_only_cloud_events() -> None:
    async def scenario() -> list[int]:
        headers = {"aeg-sas-key": KEY}
        async with EventGrid(KEY) as grid, ClientSession() as client:
            found = []
            for kind, body in (("application/json", event(1)), ("application/cloudevents+json", b"[]")):
                url = f"{grid.address}/api/events"
                async with client.post(url, data=body, headers={**headers, "Content-Type": kind}) as answer:
                    found.append(answer.status)
        return found

    assert asyncio.run(scenario()) == [415, 400]


def test_the_counterpart_takes_only_tokens_that_it_was_given() -> None:
    async def scenario() -> list[int]:
        found = []
        async with EventGrid(KEY, takes_token=lambda token: token == "good") as grid, ClientSession() as client:
            for given in ("Bearer good", "Bearer other", "Bearer ", f"Bearer {KEY}", "good", ""):
                headers = {"Authorization": given, "Content-Type": "application/cloudevents+json"}
                async with client.post(f"{grid.address}/api/events", data=event(1), headers=headers) as answer:
                    found.append(answer.status)
        return found

    assert asyncio.run(scenario()) == [200, 401, 401, 401, 401, 401]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is missing"),
        ("s3cret", "is not the address and key"),
        ("Endpoint=https://a.example/api/events;SharedAccessKey=", "is not the address and key"),
        ("Endpoint=http://a.example/api/events;SharedAccessKey=s3cret", "without TLS"),
        ("Endpoint=https://a.example/other;SharedAccessKey=s3cret", "no valid endpoint"),
        ("Endpoint=https://[a;SharedAccessKey=s3cret", "no valid endpoint"),
    ],
)
def test_a_setting_that_cannot_be_used_is_reported_without_its_key(text: str, problem: str) -> None:
    found = SETTING_FORM.problem("GRID", {"GRID": text})
    assert problem in str(found)
    assert "s3cret" not in str(found)


def test_an_endpoint_does_not_show_its_key() -> None:
    endpoint = event_grid_endpoint(f"Endpoint=https://a.example/api/events;SharedAccessKey={KEY}=")
    assert (endpoint.key, endpoint.is_namespace) == (f"{KEY}=", False)
    assert KEY not in repr(endpoint)
    identity = {"GRID__topicEndpointUri": "https://a.example/api/events"}
    assert SETTING_FORM.problem("GRID", identity) is None
    without_tls = SETTING_FORM.problem("GRID", {"GRID__topicEndpointUri": "http://127.0.0.1/api/events"})
    assert "GRID__topicEndpointUri: the app setting has an endpoint without TLS" in str(without_tls)
