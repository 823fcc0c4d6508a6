"""The document in a file and behind a URL."""

import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from busway_broker.admin.certificate import AUTHORITY_FILE, server_context
from busway_clients import EndpointWatch
from busway_clients.endpoints.endpoint import EndpointUnresolved
from busway_clients.endpoints.file import FileSource
from busway_clients.endpoints.url import UrlSource
from tests.clients.endpoints.documents import EAST, WEST, document


def published(path: Any, content: bytes) -> None:
    """Replace the file whole, as an operator's tool does."""
    written = path.with_suffix(".new")
    written.write_bytes(content)
    os.replace(written, path)  # noqa: PTH105 - what the tool does


class Ticking:
    """A watch under a clock of the test, which goes on past everything that is cached."""

    def __init__(self, source: Any) -> None:
        self.seconds = 0.0
        self.changes: list[Any] = []
        self.watch = EndpointWatch(source, on_change=self.changes.append, monotonic=lambda: self.seconds)

    def first(self) -> Any:
        self.seconds += 400
        return self.watch.consult()[0].namespace

    def error(self) -> str:
        return str(self.watch.state.error)


def test_file_is_followed_and_every_fault_keeps_the_last_answer(tmp_path: Path) -> None:
    path = tmp_path / "endpoints.json"
    published(path, document("west", 1))
    ticking = Ticking(FileSource(path, "send"))
    assert ticking.first() == WEST
    for content, expected in (
        (document("east", 2)[:60], "perhaps half-written"),
        (b"<html>Sign in</html>", "login page"),
        (b"", "is empty"),
        (document("east", 2, sites={"east": [{"namespace": "bus.example.org"}]}), "is not a namespace"),
        (document("east", 1), "serial 1 was read before with other contents"),
    ):
        published(path, content)
        assert ticking.first() == WEST
        assert expected in ticking.error()
        assert ticking.first() == WEST
        assert expected in ticking.error()  # what is unchanged is as wrong as before
    path.unlink()
    assert ticking.first() == WEST
    assert "cannot be read, No such file" in ticking.error()
    published(path, document("east", 2))
    assert ticking.first() == EAST
    assert ticking.watch.state.error is None
    published(path, document("west", 1))
    assert ticking.first() == EAST
    assert "an old copy: has serial 1, but 2" in ticking.error()
    assert [change.site for change in ticking.changes] == ["west", "east"]


def test_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EndpointUnresolved, match="cannot be read"):
        FileSource(tmp_path, "send").read()


class WebSite:
    """A server of one document; `answer` replaces it by status, headers and body."""

    def __init__(self) -> None:
        self.content = document("west", 1)
        self.answer: Any = None
        self.statuses: list[int] = []
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, headers, body = site.reply(self.headers)
                site.statuses.append(status)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    def reply(self, headers: Any) -> Any:
        if self.answer is not None:
            return self.answer
        etag = f'"{hash(self.content)}"'
        if headers.get("If-None-Match") == etag:
            return 304, {"ETag": etag}, b""
        return 200, {"ETag": etag, "Content-Length": str(len(self.content))}, self.content


@pytest.fixture
def site() -> Iterator[WebSite]:
    running = WebSite()
    thread = threading.Thread(target=running.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield running
    running.server.shutdown()
    running.server.server_close()
    thread.join()


def url_of(site: WebSite) -> str:
    return f"http://127.0.0.1:{site.server.server_port}/endpoints.json?sig=secret"


def test_url_is_requested_with_the_etag(site: WebSite) -> None:
    ticking = Ticking(UrlSource(url_of(site), "receive"))
    assert [ticking.first() for _ in range(3)] == [WEST] * 3
    site.content = document("east", 2)
    assert [ticking.first() for _ in range(2)] == [EAST] * 2
    assert site.statuses == [200, 304, 304, 200, 304]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ((200, {"Content-Type": "text/html"}, b"<html>Sign in</html>"), "perhaps a login page"),
        ((302, {"Location": "https://login.example.org/"}, b""), "redirects (302), perhaps to a login page"),
        ((503, {}, b"busy"), "answered 503"),
        ((404, {}, b""), "answered 404"),
        ((200, {"Content-Length": "500"}, document("east", 2)[:100]), "ended after 100 of 500"),
        ((200, {"Content-Length": "9" * 5000}, document("east", 2)[:100]), f"ended after 100 of {10**18 - 1} bytes"),
        ((200, {}, document("east", 2)[:100]), "perhaps half-written"),
        ((200, {}, b"x" * 100_000), "more than 65,536 bytes"),
        ((304, {}, b""), None),
    ],
)
def test_an_invalid_document_keeps_the_last_good_one(site: WebSite, answer: Any, expected: str | None) -> None:
    ticking = Ticking(UrlSource(url_of(site), "send"))
    assert ticking.first() == WEST
    site.answer = answer
    assert ticking.first() == WEST
    if expected is not None:
        assert expected in ticking.error()
        assert "secret" not in ticking.error()
    site.answer = None
    site.content = document("east", 3)
    assert ticking.first() == EAST
    assert ticking.watch.state.error is None


def test_a_server_that_is_unavailable_is_reported() -> None:
    with WebSite().server as gone:
        port = gone.server_port
    with pytest.raises(EndpointUnresolved, match=f"http://127.0.0.1:{port}/e: cannot be reached"):
        UrlSource(f"http://127.0.0.1:{port}/e", "send").read()


def test_https_is_verified(site: WebSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site.server.socket = server_context(tmp_path).wrap_socket(site.server.socket, server_side=True)
    url = url_of(site).replace("http://127.0.0.1", "https://localhost")
    with pytest.raises(EndpointUnresolved, match="certificate verify failed"):
        UrlSource(url, "send").read()
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / AUTHORITY_FILE))
    source = UrlSource(url, "send")
    assert [source.read().site for _ in range(2)] == ["west", "west"]
    assert site.statuses == [200, 304]


def test_misspelled_option_is_refused() -> None:
    options: dict[str, Any] = {"public_key": {"a": b""}}
    for make in (lambda: FileSource("e.json", "send", **options), lambda: UrlSource("https://h/e", "send", **options)):
        with pytest.raises(TypeError, match="public_key"):
            make()


def test_url_is_requested_with_the_etag_after_an_outage(site: WebSite) -> None:
    source = UrlSource(url_of(site), "send")
    source.read()
    site.answer = (503, {}, b"busy")
    with pytest.raises(EndpointUnresolved):
        source.read()
    site.answer = None
    assert source.read().site == "west"
    assert site.statuses == [200, 503, 304]


@pytest.mark.parametrize("url", ["http://example.org/e", "ftp://example.org/e", "file:///etc/passwd", "https:///e"])
def test_insecure_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="expected https"):
        UrlSource(url, "send")
    UrlSource("http://example.org/e", "send", public_keys={"a": b""})
