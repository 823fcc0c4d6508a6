"""HTTP connections that another thread can sever, whatever they wait for."""

import contextlib
import http.client
import socket
import threading
import urllib.request
from collections.abc import Callable
from typing import Any


class SeverableConnections:
    """The connections of one opener of urllib, one request at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._present: http.client.HTTPConnection | None = None
        self._copy: socket.socket | None = None
        self.handlers = (_HttpHandler(self), _HttpsHandler(self))

    def sever(self) -> None:
        """Close the current connection, so that a read from it fails at once."""
        with self._lock:
            connected = None if self._present is None else self._present.sock
            for each in (self._copy, connected):
                if each is not None:
                    # It may have ended by itself.
                    with contextlib.suppress(OSError):
                        each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Forget the present connection."""
        with self._lock:
            if self._copy is not None:
                self._copy.close()
            self._present, self._copy = None, None

    def opening(self, connection: http.client.HTTPConnection) -> None:
        """Record a new connection; its socket exists before a proxy has answered."""
        with self._lock:
            self._present = connection

    def connected(self, sock: socket.socket) -> None:
        """Record the socket of a connection, because TLS and urllib detach it later."""
        with self._lock:
            self._copy = sock.dup()


class _Plain(http.client.HTTPConnection):
    connected: Callable[[socket.socket], None]

    def connect(self) -> None:
        super().connect()
        self.connected(self.sock)


class _Tls(http.client.HTTPSConnection, _Plain):
    """Runs the connect of `_Plain` before the handshake."""


class _HttpHandler(urllib.request.HTTPHandler):
    def __init__(self, connections: SeverableConnections) -> None:
        super().__init__()
        self._connections = connections

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_opened(self._connections, _Plain), req)


class _HttpsHandler(urllib.request.HTTPSHandler):
    def __init__(self, connections: SeverableConnections) -> None:
        super().__init__()
        self._connections = connections

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_opened(self._connections, _Tls), req)


def _opened(connections: SeverableConnections, kind: type[_Plain]) -> Any:  # noqa: ANN401 - as urllib types it
    def open_connection(host: str, **options: Any) -> http.client.HTTPConnection:  # noqa: ANN401 - urllib's
        connection = kind(host, **options)
        connection.connected = connections.connected
        connections.opening(connection)
        return connection

    return open_connection
