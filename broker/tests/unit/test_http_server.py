"""The HTTP server of the broker's ports: a connection ends that sends no request, or not the whole of one."""

import asyncio

import pytest
from aiohttp import web

from busway_broker.http_server import HttpServer, body_of


@pytest.mark.parametrize(
    ("start", "answer"),
    [
        (b"", b""),
        (b"G", b""),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ", b""),
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\nx", b"HTTP/1.1 408"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\nGET / HT", b"HTTP/1.1 200"),
    ],
)
def test_a_connection_without_a_whole_request_is_closed(start: bytes, answer: bytes) -> None:
    seconds = 0.3

    async def serve(request: web.BaseRequest) -> web.Response:
        await body_of(request, seconds)
        return web.Response()

    async def closed() -> bytes:
        server = await asyncio.get_running_loop().create_server(HttpServer(serve, seconds), "127.0.0.1", 0)
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(start)
            found = b""
            # Each byte of a header in time does not prolong it.
            while not reader.at_eof():
                # Before the first answer it would make both requests an invalid one.
                if not start.endswith(b"x") and (found or not answer):
                    writer.write(b"X")
                try:
                    found += await asyncio.wait_for(reader.read(4096), 0.05)
                except TimeoutError:
                    continue
                except ConnectionError:  # it was closed while a byte was on its way
                    break
            writer.close()
            return found

    assert asyncio.run(asyncio.wait_for(closed(), 8)).startswith(answer)  # aiohttp would wait for ten seconds
