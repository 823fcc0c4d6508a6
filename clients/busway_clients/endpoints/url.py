"""The endpoint document behind a URL, such as a static web site or a blob."""

import contextlib
import http.client
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import urlsplit

from busway_clients.endpoints.document import LONGEST_DOCUMENT_BYTES
from busway_clients.endpoints.endpoint import NAMESPACES, Answer, EndpointUnresolved
from busway_clients.endpoints.file import DocumentReader
from busway_clients.endpoints.limited_call import LimitedCall
from busway_clients.endpoints.severable_http import SeverableConnections

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_CHUNK_BYTES = 16_384
_MOST_DIGITS = 18


class _Response(NamedTuple):
    """A new document and its ETag; content is None if the document has not changed."""

    content: bytes | None
    etag: str | None


class UrlSource:
    """The endpoint document behind an https URL, requested with the ETag of the last one."""

    def __init__(
        self,
        url: str,
        role: str,
        *,
        public_keys: Mapping[str, bytes] | None = None,
        domains: Sequence[str] = NAMESPACES,
        serials: str | os.PathLike[str] | None = None,
        timeout_seconds: float = 10.0,
        now: Callable[[], float] = time.time,
    ) -> None:
        """
        Read *url* for *role*; with *public_keys* (PEM by id), the document must be signed by one of them.

        *serials* is a file of the application that keeps the highest serial when it restarts; a signed document without
        `expires` requires it. *timeout_seconds* limits the whole request: name, connection, TLS, headers and body.
        Raises ValueError for http, which others can tamper with, unless it is signed or on this machine.
        """
        parts = urlsplit(url)
        is_safe = parts.scheme == "https" or (
            parts.scheme == "http" and (public_keys is not None or parts.hostname in _LOOPBACK)
        )
        if not is_safe or not parts.hostname:
            raise ValueError(f"{_plain(url)}: expected https, or http with public_keys")
        self._url = url
        self._where = _plain(url)
        self._timeout = timeout_seconds
        self._now = now
        self._reader = DocumentReader(role, self._where, public_keys, domains, serials)
        self._connections = SeverableConnections()
        self._opener = urllib.request.build_opener(_NoRedirects, *self._connections.handlers)
        self._request = LimitedCall(self._fetch, timeout_seconds, self._connections.sever)
        self._etag: str | None = None
        self._content = b""

    def read(self) -> Answer:
        """Return the current answer; raises EndpointUnresolved."""
        try:
            response = self._request.result()
        except TimeoutError as error:
            raise EndpointUnresolved(
                f"{self._where}: the response was not complete within {self._timeout:g} s"
            ) from error
        if response.content is None:
            return self._answer()
        self._content, self._etag = response.content, None
        answer = self._answer()
        # Keep the ETag only of a valid document, so that an invalid one is requested again in full.
        self._etag = response.etag
        return answer

    def _answer(self) -> Answer:
        return self._reader.answer(self._content, datetime.fromtimestamp(self._now(), UTC))

    def _fetch(self) -> _Response:
        request = urllib.request.Request(self._url, headers={"Accept": "application/json"})  # noqa: S310 - http or https
        etag = self._etag
        if etag is not None:
            request.add_header("If-None-Match", etag)
        try:
            with (
                contextlib.closing(self._connections),
                self._opener.open(request, timeout=self._timeout) as response,
            ):
                return _Response(self._read_whole(response), response.headers.get("ETag"))
        except urllib.error.HTTPError as error:
            with error:
                if error.code != HTTPStatus.NOT_MODIFIED or etag is None:
                    raise EndpointUnresolved(f"{self._where}: {_describe(error)}") from error
                return _Response(None, etag)
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error or type(error).__name__
            raise EndpointUnresolved(f"{self._where}: cannot be reached, {reason}") from error

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


def _describe(error: urllib.error.HTTPError) -> str:
    if HTTPStatus.MULTIPLE_CHOICES <= error.code < HTTPStatus.BAD_REQUEST:
        return f"redirects ({error.code}), perhaps to a login page, expected the document itself"
    return f"answered {error.code}, expected 200 with the document"


def _plain(url: str) -> str:
    """Return *url* without its secrets: a password, the signature of a shared access URL."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
