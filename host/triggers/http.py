"""
HTTP triggers: one server on the loopback interface for all functions that requests call.

Routes are matched as the real host does for the forms `{name}`, `{name?}`, `{*rest}` and `{name:constraint}` (of
constraints int, long, bool, guid and alpha are checked). Function keys are not required. A request that a web page of
another machine makes a browser send is refused.

Source: GrpcMessageConversionExtensions.ToRpcHttp (Azure/azure-functions-host); the capabilities that
azure-functions-runtime 1.3.0 announces (RawHttpBodyBytes, RpcHttpBodyOnly, RpcHttpTriggerMetadataRemoved).
"""

import asyncio
import re
import uuid
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote

from aiohttp import web

from busway_broker.admin.origin import is_from_elsewhere
from host import protos
from host.invocation import invoke
from host.listener import Stopping
from host.protos import TypedData
from host.worker import Function, Invocation, Worker
from host.worker_input import Input
from shared.errors import ConfigError, Problem

USUAL_PORT = 7071
_MAX_BODY = 100 * 1024 * 1024
_CONSTRAINTS = {
    "int": r"-?\d+",
    "long": r"-?\d+",
    "bool": r"(?i:true|false)",
    "guid": r"[0-9A-Fa-f]{8}(?:-?[0-9A-Fa-f]{4}){3}-?[0-9A-Fa-f]{12}",
    "alpha": r"[A-Za-z]+",
}
_PARAMETER = re.compile(r"\{(\*?)(\w+)((?::[^}?]+)?)(\??)\}")


class HttpListener:
    """Serves all functions with an httpTrigger."""

    def __init__(
        self, functions: Sequence[Function], route_prefix: str, port: int | None, worker: Worker, stopping: Stopping
    ) -> None:
        """Prepare; port 0 is a free one, None the usual one or, if that is taken, a free one: see `port`."""
        self.is_listening = asyncio.Event()
        self._wanted = port
        self.port = port or 0
        self._worker = worker
        self._stopping = stopping
        self._routes = [(route_pattern(_route(function), route_prefix), function) for function in functions]

    async def run(self) -> None:
        """Serve until stopped; see `Listener`."""
        application = web.Application(client_max_size=_MAX_BODY)
        application.router.add_route("*", "/{path:.*}", self._serve)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        try:
            await self._bind(runner)
            self.port = runner.addresses[0][1]
            self.is_listening.set()
            while not self._stopping:
                await self._stopping.wait(3600)
        finally:
            await runner.cleanup()

    def stop(self) -> None:
        """Accept no further requests; see `Listener`."""
        self._stopping.request()

    async def _bind(self, runner: web.AppRunner) -> None:
        wanted = USUAL_PORT if self._wanted is None else self._wanted
        try:
            await web.TCPSite(runner, "127.0.0.1", wanted).start()
        except OSError as error:
            if self._wanted is not None:
                raise ConfigError(
                    [Problem("http", f"port {wanted}: {error.strerror}", "choose another port")]
                ) from error
            await web.TCPSite(runner, "127.0.0.1", 0).start()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        if is_from_elsewhere(request):
            return web.Response(status=403, text="the request is from another host or web page\n")
        path = unquote(request.path)
        status = 404
        for pattern, function in self._routes:
            match = pattern.fullmatch(path)
            if match is None:
                continue
            methods = [str(method).upper() for method in function.trigger.get("methods") or ()]
            if methods and request.method not in methods:
                status = 405
                continue
            parameters = {name: value for name, value in match.groupdict().items() if value is not None}
            return _response(await self._invoke(function, await _request_data(request, parameters), parameters))
        return web.Response(status=status)

    async def _invoke(self, function: Function, data: TypedData, parameters: dict[str, str]) -> Invocation:
        metadata = {name: TypedData(string=value) for name, value in parameters.items()}
        return await invoke(self._worker, function, lambda: Input(data, metadata), str(uuid.uuid4()))


def route_pattern(route: str, prefix: str) -> re.Pattern[str]:
    """Return the pattern for the path of a request; its groups are the route's parameters."""
    pattern = ""
    for segment in filter(None, f"{prefix}/{route}".split("/")):
        part, position = "", 0
        is_optional = False
        for match in _PARAMETER.finditer(segment):
            rest, name, constraint, optional = match.groups()
            part += re.escape(segment[position : match.start()])
            part += f"(?P<{name}>{'.*' if rest else _CONSTRAINTS.get(constraint[1:], '[^/]+')})"
            is_optional = is_optional or bool(optional or rest)
            position = match.end()
        part += re.escape(segment[position:])
        pattern += f"(?:/{part})?" if is_optional else f"/{part}"
    return re.compile(pattern + "/?", re.IGNORECASE)


def _route(function: Function) -> str:
    return str(function.trigger.get("route") or function.name)


async def _request_data(request: web.Request, parameters: dict[str, str]) -> TypedData:
    body = await request.read()
    return TypedData(
        http=protos.RpcHttp(
            method=request.method,
            url=str(request.url),
            headers={name.lower(): value for name, value in request.headers.items()},
            params=parameters,
            query={name: value for name, value in request.query.items() if value},
            body=TypedData(bytes=body) if body else TypedData(),
        )
    )


def _response(invocation: Invocation) -> web.Response:
    if not invocation.succeeded:
        return web.Response(status=500)
    value = invocation.return_value
    if value is None:
        value = next((output.data for output in invocation.outputs if output.data is not None), None)
    if value is None or value.kind is None:
        return web.Response(status=204)
    if value.kind != "http":
        return web.Response(body=_body(value), content_type="text/plain" if value.kind == "string" else None)
    http = value.data
    response = web.Response(status=int(http.status_code), body=_body(http.body))
    for name, header in http.headers.items():
        response.headers[name] = header
    for cookie in http.cookies or ():
        response.set_cookie(
            cookie.name,
            cookie.value,
            domain=_present(cookie.domain),
            path=_present(cookie.path) or "/",
            max_age=_present(cookie.max_age),
            secure=_present(cookie.secure),
            httponly=_present(cookie.http_only),
            samesite={1: "Lax", 2: "Strict", 3: "None"}.get(cookie.same_site),
        )
    return response


def _body(value: TypedData | None) -> bytes:
    if value is None or value.data is None:
        return b""
    return value.data if isinstance(value.data, bytes) else str(value.data).encode()


def _present(nullable: Any) -> Any:
    return None if nullable is None else nullable.value or None
