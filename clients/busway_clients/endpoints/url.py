"""The endpoint document behind a URL, such as a static web site or a blob."""

import contextlib
import http.client
import socket
import threading
import urllib.error
import urllib.request
from http import HTTPStatus
from typing import Any, Unpack
from urllib.parse import urlsplit

from busway_clients.endpoints.document import LONGEST_DOCUMENT_BYTES
from busway_clients.endpoints.endpoint import Answer, EndpointUnresolved
from busway_clients.endpoints.file import DocumentOptions, DocumentSource

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_CHUNK_BYTES = 16_384
_MOST_DIGITS = 18


class UrlSource(DocumentSource):
    """The endpoint document behind an https URL, requested with the ETag of the last one."""

    def __init__(self, url: str, role: str, **options: Unpack[DocumentOptions]) -> None:
        """
        Read *url* for *role*; the time limit is that of name, connection, TLS, headers and body together.

        Raises ValueError for http, which others can tamper with, unless it is signed or on this machine.
        """
        parts = urlsplit(url)
        is_safe = parts.scheme == "https" or (
            parts.scheme == "http" and (options.get("public_keys") is not None or parts.hostname in _LOOPBACK)
        )
        if not is_safe or not parts.hostname:
            raise ValueError(f"{_plain(url)}: expected https, or http with public_keys")
        self._url = url
        self._connection = _Severable()
        self._opener = urllib.request.build_opener(_NoRedirects, self._connection)
        self._etag: str | None = None
        self._fetched: tuple[bytes, str | None] = (b"", None)
        super().__init__(_plain(url), role, self._connection.sever, **options)

    def read(self) -> Answer:
        """Return the current answer; raises EndpointUnresolved."""
        answer = super().read()
        # Keep the ETag only of a valid document, so that an invalid one is requested again in full.
        self._etag = self._fetched[1]
        return answer

    def _fetch(self) -> bytes:
        request = urllib.request.Request(self._url, headers={"Accept": "application/json"})  # noqa: S310 - http or https
        etag = self._etag
        if etag is not None:
            request.add_header("If-None-Match", etag)
        try:
            with (
                contextlib.closing(self._connection),
                self._opener.open(request, timeout=self._timeout) as response,
            ):
                self._fetched, self._etag = (self._read_whole(response), response.headers.get("ETag")), None
        except urllib.error.HTTPError as error:
            with error:
                if error.code != HTTPStatus.NOT_MODIFIED or etag is None:
                    seen = f"answered {error.code}, expected 200 with the document"
                    if HTTPStatus.MULTIPLE_CHOICES <= error.code < HTTPStatus.BAD_REQUEST:
                        seen = f"redirects ({error.code}), perhaps to a login page, expected the document itself"
                    raise EndpointUnresolved(f"{self._where}: {seen}") from error
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error or type(error).__name__
            raise EndpointUnresolved(f"{self._where}: cannot be reached, {reason}") from error
        return self._fetched[0]

    def _read_whole(self, response: http.client.HTTPResponse) -> bytes:
        content = b""
        while len(content) <= LONGEST_DOCUMENT_BYTES and (piece := response.read1(_CHUNK_BYTES)):
            content += piece
        # More digits announce more than is read.
        announced = response.headers.get("Content-Length", "")[:_MOST_DIGITS]
        expected = int(announced) if announced.isascii() and announced.isdecimal() else 0
        if len(content) < min(expected, LONGEST_DOCUMENT_BYTES + 1):
            raise EndpointUnresolved(f"{self._where}: the response ended after {len(content)} of {announced} bytes")
        return content


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Report a redirect instead of following it, since it often leads to a login page."""

    def redirect_request(self, *_: object) -> None:
        return None


def _plain(url: str) -> str:
    """Return *url* without its secrets: a password, the signature of a shared access URL."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


class _Severable(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    """Opens connections for one request at a time, and can sever the current one."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._noting(http.client.HTTPConnection), req)

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._noting(http.client.HTTPSConnection), req)

    def sever(self) -> None:
        """End the current connection, so that a read from it fails at once."""
        # It may have ended by itself.
        with self._lock, contextlib.suppress(OSError):
            if self._socket is not None:
                self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Forget the current connection."""
        with self._lock:
            if self._socket is not None:
                self._socket.close()
            self._socket = None

    def _noting(self, kind: type[http.client.HTTPConnection]) -> Any:  # noqa: ANN401 - as urllib types it
        def connected(*arguments: Any) -> socket.socket:  # noqa: ANN401 - of create_connection
            opened = socket.create_connection(*arguments)
            with self._lock:
                # A copy, because TLS and urllib detach the socket later.
                self._socket = opened.dup()
            return opened

        def new_connection(host: str, **options: Any) -> http.client.HTTPConnection:  # noqa: ANN401 - urllib's
            connection = kind(host, **options)
            # Where the socket exists before a proxy has answered, and before TLS.
            connection._create_connection = connected  # type: ignore[attr-defined]  # noqa: SLF001 - no public place
            return connection

        return new_connection
