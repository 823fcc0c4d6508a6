"""
Sends CloudEvents to an Event Grid topic, or to the topics of a namespace, in batches by HTTP.

1. A batch is accepted or refused as a whole. One that is refused as invalid or too large is halved until the event
   that is at fault is alone.
2. A request whose answer is lost may have been carried out. It is sent again, with the same ids: a duplicate may
   follow.

Source: Microsoft Learn, "Publish events to custom topics", "Publish CloudEvents to namespace topics" and "CloudEvents
v1.0 schema with Azure Event Grid"; CloudEvents 1.0.2, HTTP Protocol Binding.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import quote, urlsplit

from azure.core import AsyncPipelineClient
from azure.core.credentials import AzureKeyCredential
from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError
from azure.core.pipeline.policies import AsyncBearerTokenCredentialPolicy, AzureKeyCredentialPolicy
from azure.core.rest import AsyncHttpResponse, HttpRequest

from shared.access.identity import async_credential
from shared.ends.conditions import (
    INVALID,
    MISSING,
    THROTTLED,
    TOO_LARGE,
    UNAUTHORIZED,
    UNREACHABLE,
    after_requested_wait,
    as_error,
)
from shared.ends.event_grid.endpoint import SERVICES, EventGridEndpoint
from shared.errors import BuswayError, MessageRejected, TargetRefused, TargetUnavailable
from shared.protocols import Outgoing

_BATCH = "application/cloudevents-batch+json; charset=utf-8"
_BATCH_BYTES = 1_000_000
_MOST_EVENTS = 1000
_BATCHES_AT_ONCE = 8
_TOPIC_VERSION, _NAMESPACE_VERSION = "2018-01-01", "2024-06-01"
_BY_STATUS = {
    400: INVALID,
    401: UNAUTHORIZED,
    403: UNAUTHORIZED,
    404: MISSING,
    413: TOO_LARGE,
    429: THROTTLED,
    503: THROTTLED,
}
_ACCEPTED = range(200, 300)

type _Client = AsyncPipelineClient[HttpRequest, AsyncHttpResponse]


class EventGridOutput:
    """Sends to one topic, or to those of one namespace, over a client that is opened at the first send and kept."""

    def __init__(self, site: str, endpoint: Callable[[], EventGridEndpoint]) -> None:
        """Use *site* as the name of the place in errors; *endpoint* raises TargetRefused if the setting has none."""
        self._site = site
        self._find_endpoint = endpoint
        self._endpoint: EventGridEndpoint | None = None
        self._client: _Client | None = None

    async def send(
        self, entity: str, messages: Sequence[Outgoing], *, timeout_seconds: float
    ) -> list[BuswayError | None]:
        """Send *messages* to a topic, beside other calls; see `shared.protocols.Output`."""
        answers: list[BuswayError | None] = [None] * len(messages)
        deadline = asyncio.get_running_loop().time() + timeout_seconds
        batches = _batches(messages)
        left = iter(batches)
        stop: BuswayError | None = None

        async def send_some() -> None:
            nonlocal stop
            for batch in left:
                waiting = [batch]
                while waiting:
                    positions = waiting.pop()
                    events = [messages[position].content for position in positions]
                    answer = stop or await self._send(entity, events, deadline)
                    if isinstance(answer, MessageRejected) and len(positions) > 1:
                        middle = len(positions) // 2
                        waiting += [positions[middle:], positions[:middle]]
                        continue
                    if isinstance(answer, TargetUnavailable | TargetRefused):
                        stop = stop or answer
                    for position in positions:
                        answers[position] = answer

        if len(batches) == 1:
            await send_some()  # without the cost of a task
        else:
            await asyncio.gather(*(send_some() for _ in batches[:_BATCHES_AT_ONCE]))
        return answers

    async def close(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _send(self, topic: str, events: Sequence[bytes], deadline: float) -> BuswayError | None:
        where = f"{self._site}/{topic}"
        try:
            endpoint = self._endpoint = self._endpoint or self._find_endpoint()
        except TargetRefused as error:
            return error
        path, version = "", _TOPIC_VERSION
        if endpoint.is_namespace:
            path, version = f"/topics/{quote(topic, safe='')}:publish", _NAMESPACE_VERSION
        request = HttpRequest(
            "POST",
            endpoint.url.rstrip("/") + path,
            params={"api-version": version},
            headers={"Content-Type": _BATCH},
            content=_array(events),
        )
        try:
            async with asyncio.timeout_at(deadline):
                if self._client is None:
                    self._client = _opened(endpoint)
                response = await self._client.send_request(request)
        except ClientAuthenticationError as error:
            return as_error(UNAUTHORIZED, where, f"there is no valid token, {type(error).__name__}", error)
        except (AzureError, TimeoutError, OSError) as error:
            seen = "no answer in time" if isinstance(error, TimeoutError) else type(error).__name__
            return as_error(UNREACHABLE, where, f"{seen}; events without an answer are sent again", error)
        if response.status_code in _ACCEPTED:
            return None
        reaction = _BY_STATUS.get(response.status_code, UNREACHABLE)
        reaction = after_requested_wait(reaction, response.headers.get("Retry-After"))
        seen = f"Event Grid answers {response.status_code}"
        return as_error(reaction, where, seen, HttpResponseError(seen))


def _array(events: Sequence[bytes]) -> bytes:
    """Return a JSON array of *events*; only the join copies them all."""
    items = list(events)
    items[0] = b"[" + items[0]
    items[-1] += b"]"
    return b",".join(items)


def _batches(messages: Sequence[Outgoing]) -> list[list[int]]:
    """Return the positions of *messages* in as few batches as possible."""
    batches: list[list[int]] = []
    batch, size = list[int](), _BATCH_BYTES  # full
    for position, message in enumerate(messages):
        length = len(message.content) + 1
        if size + length > _BATCH_BYTES or len(batch) == _MOST_EVENTS:
            batch, size = [], 1
            batches.append(batch)
        batch.append(position)
        size += length
    return batches


def scope_of(url: str) -> str:
    """Return the scope of tokens for the topic at *url*, in its cloud of Azure."""
    host = f".{(urlsplit(url).hostname or '').lower()}"
    service = next((service for service in SERVICES if host.endswith(f".{service}")), SERVICES[0])
    return f"https://{service}/.default"


def _opened(endpoint: EventGridEndpoint) -> _Client:
    """Return a client that authenticates each request and does not retry: the pipeline does."""
    policy: Any
    if endpoint.key is None:
        policy = AsyncBearerTokenCredentialPolicy(async_credential(), scope_of(endpoint.url))
    elif endpoint.is_namespace:
        policy = AzureKeyCredentialPolicy(AzureKeyCredential(endpoint.key), "Authorization", prefix="SharedAccessKey")
    else:
        policy = AzureKeyCredentialPolicy(AzureKeyCredential(endpoint.key), "aeg-sas-key")
    return AsyncPipelineClient(endpoint.url, policies=[policy], connection_timeout=5, read_timeout=30)
