"""The HTTP port of the local host: web pages of other machines get nothing there, and cause nothing."""

import asyncio
import json
from typing import Any, cast

import pytest

from host.listener import Stopping
from host.triggers.http import HttpListener
from host.worker import Worker

LOCAL = {"Host": "localhost"}
PAGE = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}


@pytest.mark.parametrize(
    ("method", "headers", "is_refused"),
    [
        ("POST", LOCAL, False),
        ("POST", {"Host": "127.0.0.1:7071"}, False),
        ("POST", {"Host": "[::1]:7071"}, False),
        ("POST", LOCAL | {"Origin": "http://localhost:3000"}, False),
        ("GET", LOCAL | {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, False),
        ("GET", LOCAL | {"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate"}, False),
        ("POST", LOCAL | {"Origin": "https://evil.example"}, True),
        ("POST", LOCAL | {"Origin": "null"}, True),
        ("POST", LOCAL | {"Origin": "http://localhost.evil.example"}, True),
        ("GET", LOCAL | PAGE, True),
        ("POST", LOCAL | {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, True),
        ("GET", {"Host": "evil.example"}, True),
        ("GET", {"Host": "localhost.evil.example:7071"}, True),
        ("GET", {"Host": ""}, True),
    ],
)
def test_requests_of_pages_of_other_machines_are_refused(
    method: str, headers: dict[str, str], *, is_refused: bool
) -> None:
    async def status() -> int:
        stopping = Stopping()
        listener = HttpListener([], "api", 0, cast("Worker", cast("Any", None)), stopping)
        running = asyncio.create_task(listener.run())
        await listener.is_listening.wait()
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        lines = [f"{method} /api/status HTTP/1.1", *(f"{name}: {text}" for name, text in headers.items())]
        writer.write("\r\n".join([*lines, "Connection: close", "\r\n"]).encode())
        answer = await reader.read()
        writer.close()
        listener.stop()
        await running
        return int(answer.split()[1])

    assert asyncio.run(status()) == (403 if is_refused else 404), json.dumps(headers)
