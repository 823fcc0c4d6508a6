"""Sources that answer slowly or never: every read ends in time, and callers with an endpoint do not wait."""

import asyncio
import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from busway_clients import EndpointWatch
from busway_clients.aio.endpoints.watch import EndpointWatch as AsyncWatch
from busway_clients.endpoints.cache import EndpointCache
from busway_clients.endpoints.dns import DnsSource
from busway_clients.endpoints.endpoint import Answer, Endpoint, EndpointUnresolved, Offer
from busway_clients.endpoints.file import FileSource
from busway_clients.endpoints.limited_call import LimitedCall
from busway_clients.endpoints.url import UrlSource
from tests.clients.endpoints.documents import WEST, document
from tests.clients.endpoints.name_server import NameServer

LIMIT = 0.5
# A busy machine may be late, but no answer of these servers is complete before many times the limit.
LATE = 2.0
PAUSE = 0.1
INCOMPLETE = r"no answer within 0\.5 s"
KNOWN = Endpoint(WEST)

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
# The start of a TLS record of 16 KB: a handshake that goes on for half an hour.
TLS_RECORD = b"\x16\x03\x03\x40\x00\x02\x00\x3f\xfc\x03\x03"


def drip(head: bytes, piece: bytes) -> Callable[[socket.socket], None]:
    """Return an answer that begins with *head*, and goes on for half a minute with a *piece* now and then."""

    def answer(peer: socket.socket) -> None:
        peer.sendall(head)
        for _ in range(300):
            peer.sendall(piece)
            time.sleep(PAUSE)

    return answer


HEADERS = drip(HEAD, b"X-Line: slow\r\n")
SLOW = {
    "nothing": drip(b"", b""),
    "headers": HEADERS,
    "one long header": drip(HEAD + b"X-Long: ", b"x"),
    "a body": drip(HEAD + b"Content-Length: 5000\r\n\r\n", b" "),
    "chunks": drip(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    "interim answers": drip(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "a handshake": drip(TLS_RECORD, b"\x00"),
}
REQUESTS = [*(("http", name) for name in SLOW), ("https", "nothing"), ("https", "a handshake")]


class SlowServer:
    """A server that answers each connection with *answer*, on a thread of its own."""

    def __init__(self, answer: Callable[[socket.socket], None]) -> None:
        self._answer = answer
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                peer, _ = self._server.accept()
                threading.Thread(target=self._reply, args=(peer,), daemon=True).start()

    def _reply(self, peer: socket.socket) -> None:
        with peer, contextlib.suppress(OSError):
            peer.recv(65536)
            self._answer(peer)

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()


@pytest.fixture
def serve() -> Iterator[Callable[[Callable[[socket.socket], None]], SlowServer]]:
    with contextlib.ExitStack() as stack:
        yield lambda answer: stack.enter_context(contextlib.closing(SlowServer(answer)))


def reading_threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "busway-endpoint-source"]


@pytest.mark.parametrize(("scheme", "answer"), REQUESTS)
def test_request_ends_in_time_wherever_the_server_is_slow(scheme: str, answer: str, serve: Any) -> None:
    source = UrlSource(f"{scheme}://127.0.0.1:{serve(SLOW[answer]).port}/e", "send", timeout_seconds=LIMIT)
    for _ in range(2):
        start = time.monotonic()
        # A peer that is silent runs into the limit of the socket, which may come first.
        with pytest.raises(EndpointUnresolved, match=rf"{INCOMPLETE}|timed out"):
            source.read()
        assert LIMIT * 0.9 <= time.monotonic() - start < LIMIT + LATE
        # The connection is severed, so that no thread remains with it.
        for thread in reading_threads():
            thread.join(LATE)
            assert not thread.is_alive()


def test_slow_proxy_counts_in_the_limit(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{serve(HEADERS).port}")
    monkeypatch.setenv("no_proxy", "")
    source = UrlSource("https://endpoints.example.org/e", "send", timeout_seconds=LIMIT)
    start = time.monotonic()
    with pytest.raises(EndpointUnresolved, match=INCOMPLETE):
        source.read()
    assert time.monotonic() - start < LIMIT + LATE
    for thread in reading_threads():
        thread.join(LATE)
        assert not thread.is_alive()


def test_server_that_becomes_fast_is_read(serve: Any) -> None:
    def whole(peer: socket.socket) -> None:
        peer.sendall(HEAD + b"Connection: close\r\n\r\n" + document())

    answers = [HEADERS, whole]

    def answer(peer: socket.socket) -> None:
        answers.pop(0)(peer)

    server = serve(answer)
    source = UrlSource(f"http://127.0.0.1:{server.port}/e", "send", timeout_seconds=LIMIT)
    with pytest.raises(EndpointUnresolved):
        source.read()
    for thread in reading_threads():
        thread.join(LATE)
    assert source.read().site == "west"


def test_limit_of_dns_counts_for_all_queries_together() -> None:
    with NameServer() as server:
        server.load(
            "$ORIGIN example.test.\n$TTL 30\n@ SOA n h 1 1 1 1 1\n@ NS n\n"
            + "".join(f"a{number} CNAME a{number + 1}\n" for number in range(6))
            + "a6 A 127.0.0.1\n"
        )
        server.delay = 0.2
        source = DnsSource("a0.example.test", nameservers=["127.0.0.1"], port=server.port, timeout_seconds=LIMIT)
        start = time.monotonic()
        with pytest.raises(EndpointUnresolved, match=r"no answer within 0\.5 s"):
            source.read()
        assert time.monotonic() - start < LIMIT + LATE


def test_share_that_hangs_is_reported_in_time(tmp_path: Path) -> None:
    # A pipe without a writer hangs when it is opened, like a share whose server is gone.
    path = tmp_path / "endpoints.json"
    os.mkfifo(path)
    source = FileSource(path, "send", timeout_seconds=LIMIT)
    start = time.monotonic()
    for _ in range(2):
        with pytest.raises(EndpointUnresolved, match=r"endpoints\.json: cannot be read, no answer within 0\.5 s"):
            source.read()
    assert time.monotonic() - start < 2 * (LIMIT + LATE)
    assert len(reading_threads()) == 1
    with path.open("wb") as share:
        share.write(document())
    for thread in reading_threads():
        thread.join(LATE)


def test_limited_call_returns_and_raises_like_its_call() -> None:
    assert LimitedCall(lambda: 5, 10).result() == 5
    with pytest.raises(ZeroDivisionError):
        LimitedCall(lambda: 1 // 0, 10).result()


class HangingSource:
    """A source of the application without a time limit: it hangs from the second read on."""

    def __init__(self) -> None:
        self.reads = 0
        self.released = threading.Event()

    def read(self) -> Answer:
        self.reads += 1
        if self.reads > 1:
            assert self.released.wait(30)
        return Answer("west", (Offer(KNOWN),), 0)


@pytest.fixture
def hanging() -> Iterator[HangingSource]:
    source = HangingSource()
    yield source
    source.released.set()


def test_no_caller_waits_while_an_endpoint_is_known(hanging: HangingSource) -> None:
    watch = EndpointWatch(hanging, cache=EndpointCache(shortest_seconds=0, longest_seconds=0))
    watch.endpoints()
    time.sleep(1.0)  # one read serves all callers for a second
    start = time.monotonic()
    for _ in range(20):
        assert watch.endpoints() == (KNOWN,)
    assert time.monotonic() - start < 1.0
    assert hanging.reads == 2
    start = time.monotonic()
    assert watch.consult() == (KNOWN,)
    assert time.monotonic() - start < 2.0 + LATE
    assert hanging.reads == 2


def test_watch_ends_while_its_source_hangs(hanging: HangingSource) -> None:
    cache = EndpointCache(shortest_seconds=0.01)
    with EndpointWatch(hanging, cache=cache) as watch:
        deadline = time.monotonic() + 10
        while hanging.reads < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert watch.endpoints() == (KNOWN,)
        start = time.monotonic()
    assert time.monotonic() - start < 1.0 + LATE


def test_event_loop_runs_and_ends_while_a_source_hangs(hanging: HangingSource) -> None:
    async def main() -> float:
        watch = AsyncWatch(hanging, cache=EndpointCache(shortest_seconds=0, longest_seconds=0))
        await watch.endpoints()
        await asyncio.sleep(1.0)
        longest, before = 0.0, time.monotonic()
        consulting = asyncio.create_task(watch.consult())
        while not consulting.done():
            await watch.endpoints()
            await asyncio.sleep(0.01)
            longest, before = max(longest, time.monotonic() - before), time.monotonic()
        assert await consulting == (KNOWN,)
        assert hanging.reads == 2
        return longest

    start = time.monotonic()
    assert asyncio.run(main()) < 1.0
    assert time.monotonic() - start < 3.0 + LATE


def test_first_caller_waits_for_the_limit_of_the_source_only(serve: Any) -> None:
    url = f"http://127.0.0.1:{serve(HEADERS).port}/e"
    start = time.monotonic()
    with pytest.raises(EndpointUnresolved, match=INCOMPLETE):
        EndpointWatch(UrlSource(url, "send", timeout_seconds=LIMIT)).endpoints()
    with pytest.raises(EndpointUnresolved, match=INCOMPLETE):
        asyncio.run(AsyncWatch(UrlSource(url, "send", timeout_seconds=LIMIT)).endpoints())
    assert time.monotonic() - start < 2 * (LIMIT + LATE)
