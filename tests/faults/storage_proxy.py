"""
A proxy before Azurite's queues, which cuts, delays or throttles the requests of one kind.

It also shortens the ten minutes for which the host hides a message, so that a message of a killed host comes back. The
requests have a shared access signature, which does not cover what it changes.
"""

import asyncio
import threading
from collections import Counter
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Self
from urllib.parse import urlsplit

import aiohttp
from aiohttp import web
from azure.storage.queue import AccountSasPermissions, ResourceTypes, Services, generate_account_sas

_INVISIBLE_SECONDS = "3"
_KINDS = {"POST": "send", "GET": "receive", "DELETE": "delete", "PUT": "update"}


@dataclass(frozen=True)
class Strike:
    """What happens to the requests of a kind (send, receive, delete, update), from the *at*-th on, *times* times."""

    kind: str
    effect: str
    """`cut` before Azurite gets it, `cut after` it is carried out, `hold` its answer, or `throttle`."""
    at: int = 1
    times: int = 1


class StorageProxy:
    """Serves in a thread of its own; the end of the context stops it."""

    def __init__(self, connection_string: str) -> None:
        """Stand before the queues of *connection_string*."""
        self._parts = dict(each.split("=", 1) for each in connection_string.split(";") if each)
        self._target = urlsplit(self._parts["QueueEndpoint"])
        self.strike: Strike | None = None
        self.struck = 0
        self._seen: Counter[str] = Counter()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._runner: web.AppRunner | None = None
        self._is_over = asyncio.Event()

    @property
    def connection_string(self) -> str:
        """The connection string of Azurite's account through this proxy."""
        assert self._runner is not None
        token = generate_account_sas(
            self._parts["AccountName"],
            self._parts["AccountKey"],
            ResourceTypes(service=True, container=True, object=True),
            AccountSasPermissions(
                read=True, write=True, delete=True, list=True, add=True, create=True, update=True, process=True
            ),
            datetime.now(UTC) + timedelta(hours=1),
            services=Services(queue=True),
        )
        port = self._runner.addresses[0][1]
        return f"QueueEndpoint=http://127.0.0.1:{port}{self._target.path};SharedAccessSignature={token}"

    def __enter__(self) -> Self:
        """Start to serve."""
        self._thread.start()
        self._run(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self._run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def set(self, strike: Strike | None) -> None:
        """Begin with another strike, or none."""
        self._seen.clear()
        self.struck = 0
        self.strike = strike

    def _run(self, work: "asyncio.Future[None] | object") -> None:
        future: Future[None] = asyncio.run_coroutine_threadsafe(work, self._loop)  # type: ignore[arg-type] # a coroutine
        future.result(20)

    async def _start(self) -> None:
        app = web.Application(client_max_size=10**7)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self._client = aiohttp.ClientSession()

    async def _stop(self) -> None:
        self._is_over.set()
        await self._client.close()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        effect = self._effect(request)
        if effect == "throttle":
            return web.Response(status=503, headers={"x-ms-error-code": "ServerBusy", "Retry-After": "1"})
        if effect == "cut":
            return _cut(request)
        query = dict(request.query)
        if request.method == "GET" and "visibilitytimeout" in query:
            query["visibilitytimeout"] = _INVISIBLE_SECONDS
        headers = {name: value for name, value in request.headers.items() if name.lower() != "host"}
        url = self._target._replace(path=request.path).geturl()
        body = await request.read()
        async with self._client.request(request.method, url, params=query, data=body, headers=headers) as answer:
            content = await answer.read()
        if effect == "hold":
            # Its client is killed meanwhile.
            await self._is_over.wait()
        if effect is not None:
            return _cut(request)
        kept = {name: value for name, value in answer.headers.items() if name.lower().startswith("x-ms-")}
        return web.Response(status=answer.status, body=content, headers={**kept, "Content-Type": "application/xml"})

    def _effect(self, request: web.Request) -> str | None:
        """Return the effect on this request, None without one."""
        kind, strike = _KINDS.get(request.method, ""), self.strike
        if strike is None or kind != strike.kind or "/messages" not in request.path:
            return None
        self._seen[kind] += 1
        if self._seen[kind] < strike.at or self.struck >= strike.times:
            return None
        self.struck += 1
        return strike.effect


def _cut(request: web.Request) -> web.StreamResponse:
    if request.transport is not None:
        request.transport.abort()
    return web.Response()
