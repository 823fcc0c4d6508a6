"""
The administration on sockets: one port for each namespace, http or https.

A client's address contains only host and port, so the port identifies the namespace. A request must name this machine
as its host, and a change through the JSON API must have a JSON content type: a web page in a browser can do neither.
"""

import asyncio
import contextlib
import json
import logging
import secrets
import socket
import ssl
from collections.abc import Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Self
from urllib.parse import unquote

from aiohttp import web

from busway_broker import errors
from busway_broker.access import Access, path_of_resource
from busway_broker.admin import inspection
from busway_broker.admin.atom import Atom, AtomRequest, AtomResponse, refused
from busway_broker.admin.origin import is_loopback, is_own_host, is_same_origin
from busway_broker.config import Right
from busway_broker.core.times import milliseconds
from busway_broker.errors import Refusal
from busway_broker.http_server import HttpServer, body_of
from busway_broker.server import BrokerServer
from busway_broker.web_sockets import PATH, web_sockets_of
from shared.amqp.errors import NOT_ALLOWED, UNAUTHORIZED_ACCESS
from shared.errors import ConfigError

LOG = logging.getLogger(__name__)

_STOP_SECONDS = 0.5
# As the emulators have it. A request for an entity of this name has an api-version.
_HEALTH = "health"
_MANAGE, _SEND = frozenset((Right.MANAGE,)), frozenset((Right.SEND,))
_TOKENS = ("Authorization", "ServiceBusSupplementaryAuthorization", "ServiceBusDlqSupplementaryAuthorization")
_ATOM = "application/atom+xml"
_XML = "application/xml"
_PAGE = Path(__file__).with_name("page.html")


class AdminServer:
    """Serves the administration of a running broker while its context is open."""

    def __init__(
        self,
        broker: BrokerServer,
        ports: Mapping[str, int | socket.socket] | None = None,
        tls: ssl.SSLContext | None = None,
        host: str = "127.0.0.1",
        advance_clock: Callable[[float], None] | None = None,
    ) -> None:
        """
        Serve the namespaces in *ports*, by default all; port 0 is a free port, a socket one that is open already.

        *advance_clock* advances the clock of the broker by seconds; by default this broker alone has the clock.
        """
        self._broker = broker
        self._ports: Mapping[str, int | socket.socket] = dict.fromkeys(broker.namespaces, 0) if ports is None else ports
        self._tls = tls
        self._host = host
        self._advance_clock = broker.advance_clock if advance_clock is None else advance_clock
        self._runners: dict[str, web.ServerRunner] = {}

    async def __aenter__(self) -> Self:
        """Listen on all ports; an OSError if one is taken."""
        try:
            for name, port in self._ports.items():
                runner = web.ServerRunner(self._http_server(name), shutdown_timeout=_STOP_SECONDS)
                self._runners[name] = runner
                await runner.setup()
                if isinstance(port, socket.socket):
                    await web.SockSite(runner, port, ssl_context=self._tls).start()
                else:
                    await web.TCPSite(runner, self._host, port, ssl_context=self._tls).start()
        except OSError:
            await self.stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop listening."""
        await self.stop()

    async def stop(self) -> None:
        """Stop listening and close all connections."""
        runners = list(self._runners.values())
        self._runners.clear()
        for runner in runners:
            transports = [peer.transport for peer in runner.server.connections] if runner.server is not None else []
            await runner.cleanup()
            for transport in transports:
                if transport is not None:
                    # A client that keeps its end open would keep a TLS connection waiting for its close message.
                    transport.abort()
        await asyncio.sleep(0)

    def port(self, name: str) -> int:
        """Return the administration port of a namespace."""
        port: int = self._runners[name].addresses[0][1]
        return port

    def address(self, name: str) -> str:
        """Return the administration address of a namespace."""
        host = "localhost" if self._host == "127.0.0.1" else self._host
        return f"{'http' if self._tls is None else 'https'}://{host}:{self.port(name)}"

    def _http_server(self, name: str) -> HttpServer:
        async def answer(request: web.BaseRequest) -> web.StreamResponse:
            if request.path.rstrip("/") == PATH:
                # As in Azure, where both are on the port of https.
                return await web_sockets_of(self._broker.listener(name)).answer(request)
            return await self._answer(name, request)

        return HttpServer(answer)

    async def _answer(self, name: str, request: web.BaseRequest) -> web.Response:
        namespace = self._broker.namespaces[name]
        try:
            self._check_origin(request)
            path = unquote(request.rel_url.raw_path).strip("/")
            if path == _HEALTH and request.method == "GET" and "api-version" not in request.query:
                # No key is needed, as for the emulators: those who wait for the broker have none.
                return web.json_response({"status": "healthy"})
            if not path and request.method == "GET" and "api-version" not in request.query:
                # It needs no key either: it asks for one, and sends it with its requests.
                return _page()
            access = Access.of(namespace)
            if access is not None:
                _check_access(access, request, path)
            if path == inspection.PREFIX or path.startswith(f"{inspection.PREFIX}/"):
                return await self._inspect(name, request, path.removeprefix(inspection.PREFIX).strip("/"))
            atom_request = AtomRequest(
                request.method,
                path,
                request.query,
                is_update="If-Match" in request.headers,
                base=f"{request.scheme}://{request.host}",
                body=await body_of(request),
                may_forward=lambda target: access is None or _may_send(access, request, target),
            )
            response = Atom(namespace).answer(atom_request)
            self._broker.advance()
        except Refusal as refusal:
            response = refused(refusal, milliseconds(namespace.clock))
        except web.HTTPException:
            raise
        except Exception:
            LOG.exception("namespace %s: an administration request failed", name)
            response = AtomResponse(HTTPStatus.INTERNAL_SERVER_ERROR)
        kind = _ATOM if response.status < HTTPStatus.BAD_REQUEST else _XML
        return web.Response(status=response.status, text=response.body, content_type=kind)

    def _check_origin(self, request: web.BaseRequest) -> None:
        """Refuse a page of another site and, unless the broker serves other machines, a host that is not this one."""
        if is_loopback(self._host) and not is_own_host(request):
            raise Refusal(NOT_ALLOWED, "the host of the request is not this machine, expected localhost")
        if not is_same_origin(request):
            problem = "the request comes from a page of another site, expected the page of this broker or a program"
            raise Refusal(NOT_ALLOWED, problem)

    async def _inspect(self, name: str, request: web.BaseRequest, path: str) -> web.Response:
        data: object
        if request.method != "GET" and request.content_type != "application/json":
            problem = _problem("expected Content-Type: application/json")
            return web.json_response(problem, status=HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
        try:
            body = _read_json(await body_of(request))
            namespace = self._broker.namespaces[name]
            call = inspection.Call(namespace, self._broker, request.query, body, self._advance_clock)
            status, data = inspection.answer(request.method, path, call)
            self._broker.advance()
        except UnicodeEncodeError as error:
            status, data = (
                HTTPStatus.BAD_REQUEST,
                _problem(f"the body has {error.object[error.start]!a}, expected a character"),
            )
        except (ConfigError, ValueError) as error:
            status, data = HTTPStatus.BAD_REQUEST, _problem(str(error))
        except Refusal as refusal:
            is_missing = refusal.condition == errors.NOT_FOUND
            status = HTTPStatus.NOT_FOUND if is_missing else HTTPStatus.BAD_REQUEST
            data = _problem(refusal.description)
        return web.json_response(data, status=status)


def _check_access(access: Access, request: web.BaseRequest, path: str) -> None:
    token = request.headers.get("Authorization", "")
    if not token:
        raise Refusal(UNAUTHORIZED_ACCESS, "MissingToken: the request has no Authorization header.")
    grant = access.by_signature(token, path)
    if not grant.covers(path.lower(), _MANAGE, access.now):
        raise Refusal(UNAUTHORIZED_ACCESS, "Manage,EntityRead claims are required for this operation.")


def _may_send(access: Access, request: web.BaseRequest, target: str) -> bool:
    """Return whether one of the tokens of a request gives the right to send to the entity *target*."""
    for header in _TOKENS:
        token = request.headers.get(header, "")
        with contextlib.suppress(Refusal):
            if token and access.by_signature(token, target).covers(path_of_resource(target), _SEND, access.now):
                return True
    return False


def _read_json(text: bytes) -> object:
    """Return the data in a body, None for an empty one; a ValueError if it is not JSON."""
    try:
        return json.loads(text) if text else None
    except ValueError as error:
        raise ValueError(f"the body is not JSON: {error}") from error
    except RecursionError as error:
        raise ValueError("the body is nested too deeply") from error


def _problem(text: str) -> dict[str, str]:
    return {"error": text}


def _page() -> web.Response:
    """Return the page that shows a namespace; its policy lets it load nothing, and ask this server only."""
    nonce = secrets.token_urlsafe(16)
    policy = (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; "
        "img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    headers = {
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-store",
    }
    text = _PAGE.read_text(encoding="utf-8").replace("NONCE", nonce)
    return web.Response(text=text, content_type="text/html", headers=headers)
