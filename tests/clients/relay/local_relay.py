"""
A relay that speaks the documented Hybrid Connections protocol over real WebSockets.

Of the protocol guide on learn.microsoft.com: control channel, accept, reject, request, renewToken, connect.
"""

import asyncio
import base64
import hashlib
import hmac
import json
import random
import ssl
import threading
import time
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Self
from urllib.parse import parse_qs, quote

from aiohttp import WSCloseCode, WSMsgType, web

MAX_LISTENERS = 25


class Refused(Exception):
    """A handshake that ends with a status."""

    def __init__(self, status: Any, reason: str) -> None:
        super().__init__(status, reason)
        self.status = status
        self.reason = reason


async def _malformed(*_: object) -> None:
    raise Refused(404, "the base URL is malformed")


class Listener:
    """A control channel as the relay sees it."""

    def __init__(self, socket: Any, expires_at: Any) -> None:
        self.socket = socket
        self.expires_at = expires_at
        self.renewals: list[Any] = []
        self.responses: dict[Any, Any] = {}


class Meeting:
    """A sender that waits for a listener at the rendezvous."""

    def __init__(self, request: Any) -> None:
        self.request = request
        self.answer = asyncio.get_running_loop().create_future()
        self.over = asyncio.get_running_loop().create_future()


class LocalRelay:
    """One namespace. keys: name -> (key, rights); paths: hybrid connections; anonymous: those open to any sender."""

    def __init__(self, *, keys: Any, paths: Any, anonymous: Any = ()) -> None:
        self.keys = dict(keys)
        self.paths = set(paths)
        self.anonymous = set(anonymous)
        self.listeners: dict[str, list[Any]] = {path: [] for path in paths}
        self.meetings: dict[Any, Any] = {}
        self.attempts: list[Any] = []
        self.random = random.Random(1)
        self.tls: ssl.SSLContext | None = None
        # Faults.
        self.answers_instead: Callable[[Any], Awaitable[Any]] | None = None
        self.is_mute = False
        self.rendezvous_seconds = 30.0
        self.keeps_rendezvous_waiting = False
        self._port = 0
        self._runner: web.AppRunner | None = None
        self._transports: set[Any] = set()
        self._tasks: set[Any] = set()

    async def __aenter__(self) -> Self:
        await self.come_up()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.go_down()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self._port}"

    def connection_string(self, path: Any, key: str = "listen-and-send") -> str:
        return (
            f"Endpoint=sb://{self.host}/;SharedAccessKeyName={key};SharedAccessKey={self.keys[key][0]};"
            f"EntityPath={path};UseDevelopmentEmulator={'true' if self.tls is None else 'false'}"
        )

    async def come_up(self) -> None:
        app = web.Application()
        app.router.add_get("/{path:.*}", self._get)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.01)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port, ssl_context=self.tls)
        await site.start()
        self._port = self._runner.addresses[0][1]

    async def go_down(self) -> None:
        """End as a datacenter does: nothing listens any more, and connections break."""
        self.cut()
        for task in [*self._tasks]:
            task.cancel()
        if self._runner is not None:
            await self._runner.cleanup()
        for path in self.listeners:
            self.listeners[path] = []

    def cut(self) -> None:
        """Break all connections without a word."""
        for transport in [*self._transports]:
            transport.abort()
        self._transports.clear()

    async def close_control(self, path: Any, code: Any, reason: str) -> None:
        for listener in [*self.listeners[path]]:
            await listener.socket.close(code=code, message=reason.encode())

    async def offer(self, path: Any, message: Any) -> None:
        """Send what a relay would not."""
        for listener in self.listeners[path]:
            await listener.socket.send_str(message)

    async def request(self, path: Any) -> Any:
        """Send an HTTP request over the control channel and return the response."""
        [listener] = self.listeners[path]
        number = str(uuid.uuid4())
        listener.responses[number] = asyncio.get_running_loop().create_future()
        request = {"id": number, "method": "POST", "requestTarget": f"/{path}", "requestHeaders": {}, "body": True}
        await listener.socket.send_str(json.dumps({"request": request}))
        await listener.socket.send_bytes(b"body")
        return await listener.responses[number]

    async def _get(self, request: Any) -> Any:
        self._transports.add(request.transport)
        if self.answers_instead is not None:
            return await self.answers_instead(request)
        action = request.query.get("sb-hc-action")
        self.attempts.append((action, request.raw_path))
        actions: dict[str, Callable[..., Awaitable[Any]]] = {
            "listen": self._listen,
            "connect": self._connect,
            "accept": self._accept,
        }
        serve = actions.get(action, _malformed)
        try:
            return await serve(request, *self._path(request))
        except Refused as refused:
            return web.Response(status=refused.status, reason=refused.reason)

    def _path(self, request: Any) -> Any:
        prefix, _, whole = request.path.partition("/$hc/")
        if prefix:
            raise Refused(404, "the base URL is malformed")
        for path in self.paths:
            if whole == path or whole.startswith(f"{path}/"):
                return path, whole[len(path) :]
        raise Refused(404, f"Endpoint does not exist. TrackingId:{uuid.uuid4()}")

    def _authorized(self, token: Any, path: Any, right: Any) -> Any:
        """Return when a token expires, or refuse it."""
        try:
            kind, _, rest = token.partition(" ")
            values = {name: found[0] for name, found in parse_qs(rest, strict_parsing=True).items()}
            audience, signature, expiry = values["sr"], values["sig"], int(values["se"])
            key, rights = self.keys[values["skn"]]
        except (AttributeError, KeyError, ValueError):
            raise Refused(401, "the token is missing or malformed") from None
        # The signature covers the resource as it is in the token, still encoded.
        raw = rest.partition("sr=")[2].partition("&")[0]
        expected = hmac.new(key.encode(), f"{raw}\n{expiry}".encode(), hashlib.sha256).digest()
        if kind != "SharedAccessSignature" or quote(raw, safe="%") != raw:
            raise Refused(401, "the token is malformed")
        if not hmac.compare_digest(base64.b64encode(expected).decode(), signature):
            raise Refused(401, "the signature is invalid")
        if expiry <= time.time():
            raise Refused(401, "the token has expired")
        if not f"http://127.0.0.1/{path}/".startswith(audience.rstrip("/") + "/"):
            raise Refused(403, "the token is for another path")
        if right not in rights:
            raise Refused(403, f"the token does not confer {right}")
        return expiry

    def _token(self, request: Any) -> Any:
        return request.query.get("sb-hc-token") or request.headers.get("ServiceBusAuthorization")

    async def _listen(self, request: Any, path: Any, _: Any) -> Any:
        expires_at = self._authorized(self._token(request), path, "Listen")
        if len(self.listeners[path]) >= MAX_LISTENERS:
            raise Refused(403, "the quota of concurrent listeners is used up")
        socket = web.WebSocketResponse(autoping=False, timeout=0.01)
        await socket.prepare(request)
        listener = Listener(socket, expires_at)
        self.listeners[path].append(listener)
        expiring = self._spawn(self._expire(listener))
        try:
            async for frame in socket:
                await self._control(listener, path, frame)
        finally:
            expiring.cancel()
            if listener in self.listeners[path]:
                self.listeners[path].remove(listener)
        return socket

    async def _control(self, listener: Any, path: Any, frame: Any) -> None:
        if frame.type is WSMsgType.PING and not self.is_mute:
            await listener.socket.pong(frame.data)
        if frame.type is not WSMsgType.TEXT:
            return
        message = json.loads(frame.data)
        if renewal := message.get("renewToken"):
            try:
                listener.expires_at = self._authorized(renewal["token"], path, "Listen")
                listener.renewals.append(time.time())
            except Refused as refused:
                await listener.socket.close(code=WSCloseCode.POLICY_VIOLATION, message=refused.reason.encode())
        if response := message.get("response"):
            listener.responses[response["requestId"]].set_result(response)

    async def _expire(self, listener: Any) -> None:
        # A renewal may have moved the end meanwhile.
        while (left := listener.expires_at - time.time()) > 0:  # noqa: ASYNC110 - it sleeps until the end
            await asyncio.sleep(left)
        await listener.socket.close(code=WSCloseCode.POLICY_VIOLATION, message=b"the token has expired")

    async def _connect(self, request: Any, path: Any, suffix: Any) -> Any:
        if path not in self.anonymous:
            self._authorized(self._token(request), path, "Send")
        if not self.listeners[path]:
            raise Refused(404, "There are no listeners connected for the endpoint")
        number = request.query.get("sb-hc-id") or str(uuid.uuid4())
        meeting = self.meetings[number] = Meeting(request)
        query = {name: value for name, value in request.query.items() if not name.startswith("sb-")}
        added = "".join(f"&{name}={quote(value)}" for name, value in query.items())
        place = f"{'ws' if self.tls is None else 'wss'}://{self.host}/$hc/{quote(path + suffix)}"
        offer = {
            "address": f"{place}?sb-hc-action=accept&sb-hc-id={number}{added}",
            "id": number,
            "connectHeaders": {k: v for k, v in request.headers.items() if k != "ServiceBusAuthorization"},
        }
        listener = self.random.choice(self.listeners[path])
        await listener.socket.send_str(json.dumps({"accept": offer}))
        limit = self._spawn(asyncio.sleep(self.rendezvous_seconds))
        await asyncio.wait({limit, meeting.answer}, return_when=asyncio.FIRST_COMPLETED)
        limit.cancel()
        self.meetings.pop(number, None)
        if not meeting.answer.done():
            raise Refused(504, "the listener did not respond in the required time")
        answer = meeting.answer.result()
        if isinstance(answer, Refused):
            raise answer
        protocols = (answer.ws_protocol,) if answer.ws_protocol else ()
        socket = web.WebSocketResponse(protocols=protocols, autoping=False, timeout=0.01)
        try:
            await socket.prepare(request)
            await asyncio.gather(self._relay(socket, answer), self._relay(answer, socket))
        except ConnectionError:
            # The sender has gone while it was waiting.
            await answer.close(code=WSCloseCode.GOING_AWAY)
        finally:
            meeting.over.set_result(None)
        return socket

    async def _accept(self, request: Any, *_: object) -> Any:
        meeting = self.meetings.get(request.query.get("sb-hc-id"))
        if meeting is None or meeting.answer.done():
            raise Refused(403, "the URL is not valid")
        if self.keeps_rendezvous_waiting:
            await meeting.answer
        if status := request.query.get("sb-hc-statusCode"):
            meeting.answer.set_result(Refused(int(status), request.query["sb-hc-statusDescription"]))
            raise Refused(410, "Gone")
        asked = [each.strip() for each in request.headers.get("Sec-WebSocket-Protocol", "").split(",") if each]
        socket = web.WebSocketResponse(protocols=asked, autoping=False, timeout=0.01)
        await socket.prepare(request)
        meeting.answer.set_result(socket)
        await meeting.over
        return socket

    async def _relay(self, source: Any, target: Any) -> None:
        """Carry frames from one side to the other, and at last how it ended."""
        while True:
            frame = await source.receive()
            if self.is_mute and frame.type in {WSMsgType.PING, WSMsgType.TEXT, WSMsgType.BINARY}:
                continue
            with suppress(ConnectionError):
                if frame.type is WSMsgType.TEXT:
                    await target.send_str(frame.data)
                elif frame.type is WSMsgType.BINARY:
                    await target.send_bytes(frame.data)
                elif frame.type is WSMsgType.PING:
                    await source.pong(frame.data)
                elif frame.type is WSMsgType.CLOSE:
                    await target.close(code=frame.data, message=(frame.extra or "").encode())
                    return
                elif frame.type is not WSMsgType.PONG:
                    await target.close(code=WSCloseCode.GOING_AWAY)
                    return

    def _spawn(self, coroutine: Any) -> Any:
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


class RunningRelays:
    """Relays in a thread of their own, for applications in other processes."""

    def __init__(self, relays: Any) -> None:
        self._relays = relays
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="relays")

    def __enter__(self) -> Self:
        self._thread.start()
        for relay in self._relays:
            asyncio.run_coroutine_threadsafe(relay.come_up(), self._loop).result()
        return self

    def __exit__(self, *_: object) -> None:
        for relay in self._relays:
            asyncio.run_coroutine_threadsafe(relay.go_down(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
