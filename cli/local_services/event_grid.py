"""
Event Grid on this machine: topics that take CloudEvents and deliver them to webhooks.

1. A topic is at /api/events and takes events with the header aeg-sas-key; those of a namespace are at
   /topics/NAME:publish and take `Authorization: SharedAccessKey KEY`. Both take `Authorization: Bearer TOKEN` of an
   identity. An event has at most 1 MB, a request too.
2. A webhook is asked before its first event whether it takes any (OPTIONS with WebHook-Request-Origin).
3. An event is delivered until the webhook answers with 2xx: after 10 s, 30 s, 1 min and so on, up to 30 attempts in
   24 h. After 400, 401, 403 and 413, and after the last attempt, it is dead-lettered.

Unlike Event Grid it has no filters, no delays of its own between publication and delivery, and no random part in the
schedule. Source: Microsoft Learn, "Event Grid message delivery and retry", "Endpoint validation with CloudEvents
schema", "Event Grid quotas and limits"; CloudEvents 1.0.2, HTTP 1.1 Web Hooks.
"""

import asyncio
import hmac
import logging
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import NamedTuple, Self

import aiohttp
from aiohttp import web

from shared.clock import Clock, SystemClock
from shared.codecs.cloudevents import read, split_batch
from shared.errors import MessageRejected, TargetRefused

_log = logging.getLogger(__name__)

ORIGIN = "eventgrid.azure.net"
MOST_BYTES = 1024 * 1024
SCHEDULE = tuple(map(timedelta, [0] * 10, (10, 30, 60, 300, 600, 1800, 3600, 10_800, 21_600, 43_200)))
"""The waits before the second attempt and the next; the last one repeats."""
MOST_ATTEMPTS = 30
TIME_TO_LIVE = timedelta(hours=24)
_ANSWER_SECONDS = 30
_NEVER_AGAIN = frozenset((400, 401, 403, 413))
_SINGLE, _BATCH = "application/cloudevents+json", "application/cloudevents-batch+json"


class DeadLetter(NamedTuple):
    """An event that was given up, with the last result and the number of attempts."""

    event: bytes
    reason: str
    attempts: int


@dataclass
class Subscription:
    """The webhook of a topic."""

    endpoint: str
    attempts: int = MOST_ATTEMPTS
    time_to_live: timedelta = TIME_TO_LIVE
    dead_letters: list[DeadLetter] = field(default_factory=list)
    waiting: dict[int, bytes] = field(default_factory=dict)
    """The events that are not delivered yet."""


class EventGrid:
    """Topics with one key; the end of the context stops the server and forgets what waits."""

    def __init__(
        self,
        key: str,
        clock: Clock | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        *,
        tls: ssl.SSLContext | None = None,
        takes_token: Callable[[str], bool] | None = None,
    ) -> None:
        """Wait between attempts with *sleep*, by *clock*; without *takes_token* no identity may publish."""
        self._key = key
        self._tls = tls
        self._takes_token = takes_token
        self._clock = clock or SystemClock()
        self._sleep = sleep
        self._subscriptions: dict[str, list[Subscription]] = {}
        self._deliveries: set[asyncio.Task[None]] = set()
        self._numbers = 0
        self._runner: web.AppRunner | None = None
        self._session: aiohttp.ClientSession | None = None
        self.address = ""

    async def __aenter__(self) -> Self:
        """Start on a free port."""
        app = web.Application(client_max_size=2 * MOST_BYTES)
        app.router.add_post("/api/events", self._publish)
        app.router.add_post("/topics/{topic}:publish", self._publish)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._tls).start()
        self.address = f"http{'s' if self._tls else ''}://127.0.0.1:{self._runner.addresses[0][1]}"
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(_ANSWER_SECONDS))
        return self

    async def __aexit__(self, *_: object) -> None:
        for delivery in self._deliveries:
            delivery.cancel()
        await asyncio.gather(*self._deliveries, return_exceptions=True)
        await self._client.close()
        if self._runner is not None:
            await self._runner.cleanup()

    @property
    def _client(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("it has not started")
        return self._session

    def setting(self) -> str:
        """Return the app setting of a connection to the namespace with all topics."""
        return f"Endpoint={self.address};SharedAccessKey={self._key}"

    async def subscribe(self, topic: str, subscription: Subscription) -> None:
        """Let a webhook get the events of *topic* from now on; raises TargetRefused if it does not agree."""
        headers = {"WebHook-Request-Origin": ORIGIN, "WebHook-Request-Rate": "120"}
        async with self._client.options(subscription.endpoint, headers=headers) as answer:
            allowed = answer.headers.get("WebHook-Allowed-Origin")
            if answer.status != web.HTTPOk.status_code or allowed not in {ORIGIN, "*"}:
                raise TargetRefused(f"{subscription.endpoint}: answers the handshake with {answer.status}, {allowed}")
        self._subscriptions.setdefault(topic, []).append(subscription)

    async def subscribe_at(self, topic: str, endpoint: str) -> None:
        """Subscribe the webhook *endpoint* with the usual attempts and time to live; as `subscribe`."""
        await self.subscribe(topic, Subscription(endpoint))

    async def _publish(self, request: web.Request) -> web.Response:
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        if not request.path.startswith("/topics/") and scheme != "Bearer":
            given = request.headers.get("aeg-sas-key", "")
        has_token = scheme == "Bearer" and self._takes_token is not None and self._takes_token(given)
        if not has_token and (scheme == "Bearer" or not hmac.compare_digest(given.encode(), self._key.encode())):
            return web.Response(status=401)
        kind = request.headers.get("Content-Type", "").partition(";")[0].strip()
        if kind not in {_SINGLE, _BATCH}:
            return web.Response(status=415)
        try:
            body = await request.read()
        except web.HTTPRequestEntityTooLarge:
            body = b" " * (MOST_BYTES + 1)
        if len(body) > MOST_BYTES:
            return web.Response(status=413)
        try:
            events = split_batch(body) if kind == _BATCH else [body]
            for event in events:
                read(event)
        except MessageRejected as error:
            return web.json_response({"error": {"code": "BadRequest", "message": str(error)}}, status=400)
        topic = request.match_info.get("topic")
        # A topic of its own has no name in its address.
        topics = self._subscriptions if topic is None else (topic,)
        for subscription in (subscription for name in topics for subscription in self._subscriptions.get(name, ())):
            for event in events:
                self._numbers += 1
                subscription.waiting[self._numbers] = event
                delivery = asyncio.create_task(self._deliver(subscription, self._numbers))
                self._deliveries.add(delivery)
                delivery.add_done_callback(self._deliveries.discard)
        return web.Response()

    async def _deliver(self, subscription: Subscription, number: int) -> None:
        event, published, attempt = subscription.waiting[number], self._clock.now(), 0
        while True:
            attempt += 1
            result = await self._attempt(subscription.endpoint, event, attempt)
            if result in range(200, 300):
                break
            wait, reason = SCHEDULE[min(attempt, len(SCHEDULE)) - 1], None
            if result in _NEVER_AGAIN:
                reason = f"the webhook answered {result}"
            elif attempt >= subscription.attempts:
                reason = "MaxDeliveryAttemptsExceeded"
            elif self._clock.now() + wait - published > subscription.time_to_live:
                reason = "TimeToLiveExceeded"
            if reason is not None:
                _log.warning("%s: an event is dead-lettered after %d attempts", subscription.endpoint, attempt)
                subscription.dead_letters.append(DeadLetter(event, reason, attempt))
                break
            await self._sleep(wait.total_seconds())
        del subscription.waiting[number]

    async def _attempt(self, endpoint: str, event: bytes, attempt: int) -> int | str:
        """Return the status of the answer, or what happened instead of one."""
        headers = {
            "Content-Type": f"{_SINGLE}; charset=utf-8",
            "WebHook-Request-Origin": ORIGIN,
            "aeg-event-type": "Notification",
            "aeg-delivery-count": str(attempt - 1),
        }
        try:
            async with self._client.post(endpoint, data=event, headers=headers) as answer:
                return answer.status
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return type(error).__name__
